"""What policies say to requests over MCP: the first rule that fits, pins before it, the strictest of several."""

from policy_texts import policy

from agentwrap.policy.decide import decide
from agentwrap.policy.layers import (
    Layer,
    asks_about_mcp,
    decide_layers,
    layer_of,
    may_approve_self,
    pinned_digest,
    stdio_patterns,
)
from agentwrap.policy.questions import Call, section_of

GOOD = "0123456789abcdef" * 4
RULES = f"""
[[mcp]]
server = "github"
tools = ["merge_*"]
when = {{ arg = "branch", equals = "main" }}
decision = "approve"
reason = "Look at it."
[[mcp]]
server = "github"
tools = ["delete_*"]
decision = "deny"
[[mcp_pin]]
server = "github"
tools = {{ pinned = "{GOOD}" }}
"""
OURS = policy(RULES)


def call(tool: str, arguments: bytes | None = None, **more: object) -> Call:
    return Call("github", "tools/call", tool, arguments, **more)  # type: ignore[arg-type]


def test_the_first_rule_that_fits_decides() -> None:
    main = call("merge_pr", b'{"branch":"main"}')
    asked = decide(OURS, main)
    assert (asked.verdict, asked.why) == ("approve", "Look at it.")
    assert "for `merge_pr` of `github` before line 5 of t.toml" in asked.change
    assert decide(OURS, call("merge_pr", b'{"branch":"x"}')).verdict == "allow"
    assert decide(OURS, call("delete_x")).why == "the policy denies it"
    assert decide(OURS, call("other")).rule.where == "mcp.unnamed"
    assert decide(OURS, Call("gitlab", "tools/call", "delete_x")).verdict == "allow"
    assert section_of(main) == "mcp"


def test_a_human_has_allowed_it() -> None:
    assert decide(OURS, call("merge_pr", b'{"branch":"main"}', approved=True)).verdict == "allow"
    assert decide(OURS, call("delete_x", approved=True)).verdict == "deny"


def test_where_arguments_are_not_known_it_cannot_be_told_unless_they_do_not_matter() -> None:
    assert decide(OURS, call("merge_pr")).verdict == "unknown"
    assert decide(OURS, call("delete_x")).verdict == "deny"
    every = '[[mcp]]\nserver = "a"\ndecision = "deny"\n'
    both = policy(every + 'when = { arg = "x", equals = 1 }\n' + every)
    assert decide(both, Call("a", "tools/call", "t")).verdict == "deny"


def test_arguments_without_a_single_meaning_are_denied() -> None:
    answer = decide(OURS, call("merge_pr", b'{"branch":"x","branch":"main"}'))
    assert (answer.verdict, answer.rule.where) == ("deny", "mcp.ambiguous")
    assert decide(OURS, call("merge_pr", b'{"Branch":"main"}')).rule.where == "mcp.ambiguous"
    assert decide(OURS, call("merge_pr", b"")).verdict == "allow"  # there are none


def test_pins_are_asked_first_where_it_is_known_what_was_listed() -> None:
    assert decide(OURS, call("pinned")).verdict == "allow"
    assert decide(OURS, call("pinned", listed=GOOD)).verdict == "allow"
    changed = decide(OURS, call("pinned", listed="00"))
    assert (changed.verdict, changed.rule.where) == ("deny", "mcp_pin")
    assert '"pinned" = "00"' in changed.change
    assert "has not listed" in decide(OURS, call("pinned", listed="")).why
    layers = (Layer("user", OURS),)
    assert (pinned_digest(layers, "github", "pinned"), pinned_digest(layers, "github", "x")) == (GOOD, "")


def test_the_strictest_policy_counts_whoever_it_is() -> None:
    rest = '[[mcp]]\nserver = "*"\ndecision = "deny"\n'
    open_ = policy('[[mcp]]\nserver = "*"\ntools = ["*"]\ndecision = "allow"\n' + rest)
    for name, trusted in (("flags", True), ("project", False), ("system", True)):
        layers = (Layer("user", open_), Layer(name, OURS, trusted=trusted))  # type: ignore[arg-type]
        assert decide_layers(layers, call("merge_x", b'{"branch":"main"}')).verdict == "approve"
        assert decide_layers(layers, call("merge_x")).verdict == "unknown"
        denied = decide_layers(layers, call("delete_x"))
        owner = layer_of(layers, call("delete_x"), denied)
        assert owner is not None
        assert (denied.verdict, owner.name) == ("deny", name)
        # A permission by name is told before the silence of another one.
        assert decide_layers(layers, call("other")).rule.where == "mcp.allow"


def test_what_runs_ask_of_all_layers() -> None:
    assert asks_about_mcp((Layer("user", OURS),))
    assert not asks_about_mcp((Layer("user", policy(RULES, mode="observe")),))
    assert not asks_about_mcp(())
    strict = policy('approvals = { self = "deny" }\n[record]\nmcp_stdio = ["*x*"]\n')
    layers = (Layer("user", OURS), Layer("project", strict, trusted=False))
    assert may_approve_self(layers[:1])
    assert not may_approve_self(layers)
    assert [one.text for one in stdio_patterns(layers)] == ["*x*"]
