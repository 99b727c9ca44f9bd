"""`[[mcp]]`, `[[mcp_pin]]`, `[record]`, `approvals`: what is read, and what is refused with its line."""

import pytest
from policy_texts import HEAD, policy, refusal

from agentwrap.policy.globs import Glob
from agentwrap.policy.mcp_rules import Condition

DENY_REST = '[[mcp]]\nserver = "*"\ndecision = "deny"\n'
GITHUB = '[[mcp]]\nserver = "github"\ndecision = "deny"\n'
DIGEST = "0123456789abcdef" * 4


def test_rules_are_read_with_their_lines() -> None:
    found = policy(
        '[[mcp]]\nserver = "git*"\ntools = ["merge_*"]\ndecision = "approve"\nreason = "Look."\n'
        'when = [{ arg = "a.b", equals = "x", matches = "x" }, { max_bytes = 10 }]\n'
        '[[mcp]]\nserver = "*"\nmethods = ["sampling/createMessage"]\ndecision = "deny"\n'
        f'[[mcp_pin]]\nserver = "github"\ntools.merge = "{DIGEST}"\n'
        '[record]\nmcp_stdio = ["*mcp*"]\n[approvals]\nself = "deny"\n'
    )
    first, second = found.mcp.rules
    assert str(first.rule) == "mcp.approve `git* merge_*` (t.toml:4)"
    assert (first.server, first.tools, first.reason) == (Glob("git*"), (Glob("merge_*"),), "Look.")
    asked = [(one.path, one.test) for one in first.when]
    assert asked == [(("a", "b"), "equals"), (("a", "b"), "matches"), ((), "max_bytes")]
    assert (second.decision, second.methods) == ("deny", (Glob("sampling/createMessage"),))
    (pin,) = found.mcp.pins
    assert str(pin.rule) == "mcp_pin `github merge` (t.toml:16)"
    assert (pin.server, pin.tool, pin.digest) == ("github", "merge", DIGEST)
    assert (found.mcp_stdio, found.self_approval) == ((Glob("*mcp*"),), "deny")
    assert {"mcp-stdio", "mcp-http"} <= set(found.restricts())
    assert found.mcp.asks()


def test_what_is_not_said_restricts_nothing() -> None:
    found = policy('[[mcp]]\nserver = "a"\nwhen = { arg = "/a~1b/c", in = [1, "x"] }\ndecision = "allow"\n' + DENY_REST)
    assert found.mcp.rules[0].when == (Condition("/a~1b/c in [1, 'x']", ("a/b", "c"), "in", (1, "x")),)
    assert not policy("").mcp.restricts()
    assert policy("").self_approval == "allow"
    assert "mcp-stdio" not in policy("").restricts()


@pytest.mark.parametrize(
    ("body", "line", "told", "hint"),
    [
        ("mcp = 1", 4, "`mcp` is a list of tables", ""),
        ("mcp = []", 4, "`mcp` is empty", "remove it"),
        ("[[mcp]]", 4, "`mcp` is empty: it says nothing", "add: server"),
        ('[[mcp]]\ndecision = "deny"', 4, "`mcp.server` is missing", 'server = "github"'),
        ('[[mcp]]\nserver = "a"', 4, "`mcp.decision` is missing", 'decision = "deny"'),
        ('[[mcp]]\nserver = "a"\ndecision = "ask"', 6, "`mcp.decision` is `allow`, `deny` or `approve`", ""),
        ('[[mcp]]\nserver = "a"\ndecision = "deny"\ntool = ["x"]', 7, "there is no key `mcp.tool`", "`tools`?"),
        ('[[mcp]]\nserver = "a"\ndecision = "deny"\ntools = "x"', 7, "`mcp.tools` is a list of texts", ""),
        ('[[mcp]]\nserver = "a"\ndecision = "deny"\ntools = []', 7, "is empty and has no effect", ""),
        ('[[mcp]]\nserver = "a"\ndecision = "deny"\ntools = [""]', 7, "an empty name fits nothing", ""),
        ('[[mcp]]\nserver = "a"\ndecision = "deny"\ntools = ["x*", "xy"]', 7, "`xy` has no effect: `x*`", "remove one"),
        ('[[mcp]]\nserver = "a"\ndecision = "deny"\ntools = ["xy", "x*"]', 7, "`xy` has no effect: `x*`", "remove one"),
        (
            '[[mcp]]\nserver = "a"\ndecision = "deny"\ntools = ["x"]\nmethods = ["roots/list"]',
            8,
            "`tools` is about calls of tools alone",
            "two rules",
        ),
        (
            '[[mcp]]\nserver = "a"\ndecision = "deny"\nmethods = ["sampling/create"]',
            7,
            "MCP has no request `sampling/create`",
            "did you mean `sampling/createMessage`?",
        ),
        ('[[mcp]]\nserver = "a"\ndecision = "deny"\nmethods = ["notifications/x"]', 7, "a notification asks", "remove"),
        (GITHUB + GITHUB, 7, "`github` is reached by nothing: line 4", "put it first"),
        (DENY_REST + '[[mcp]]\nserver = "a"\ntools = ["x"]\ndecision = "approve"', 7, "reached by nothing: line 4", ""),
        ('[[mcp]]\nserver = "a"\ndecision = "allow"', 4, "`a` has no effect", 'decision = "deny"'),
        (GITHUB + '[[mcp]]\nserver = "a"\ndecision = "allow"', 7, "`a` has no effect", ""),
        ('[[mcp]]\nserver = "a"\ndecision = "allow"\n' + GITHUB, 4, "`a` has no effect", ""),
        (GITHUB + "when = {}", 7, "`mcp.when` is empty", ""),
        (GITHUB + "when = []", 7, "`mcp.when` is empty", ""),
        (GITHUB + 'when = { arg = "a" }', 7, "`mcp.when` has no test", "equals, in"),
        (GITHUB + "when = { equals = 1 }", 7, "`mcp.when.arg` is missing", "add: arg"),
        (GITHUB + 'when = { arg = "a..b", equals = 1 }', 7, "names no argument", "files.*.path"),
        (GITHUB + 'when = { arg = "a", matches = "(" }', 7, "is no regular expression", ""),
        (GITHUB + 'when = { arg = "a", matches = "[a||b]" }', 7, "is no regular expression: Possible set union", ""),
        (GITHUB + 'when = { arg = "a", matches = ".*" }', 7, "found in every text", ""),
        (GITHUB + 'when = { arg = "a", matches = "^(a+)+$" }', 7, "may take for ever", ""),
        (GITHUB + 'when = { arg = "a", in = [] }', 7, "`in` of nothing never holds", ""),
        (GITHUB + 'when = { arg = "a", equals = 1979-05-27 }', 7, "is no value that JSON has", ""),
        (GITHUB + 'when = { arg = "a", equals = 9007199254740993 }', 7, "is no value that JSON has", ""),
        (GITHUB + 'when = { arg = "a", equals = inf }', 7, "is no value that JSON has", ""),
        (GITHUB + 'when = { arg = "a", path_within = "x" }', 7, "a path begins with", ""),
        (GITHUB + 'when = { arg = "a", path_within = [] }', 7, "an empty list never holds", ""),
        (GITHUB + 'when = { arg = "a", host_within = ["*.com"] }', 7, "anybody can have a name", ""),
        (GITHUB + 'when = { arg = "a", max_bytes = -1 }', 7, "nothing has at most -1 bytes", ""),
        (GITHUB + "when = { max_bytes = 1 }", 7, "nothing has at most 1 bytes", ""),
        (GITHUB + 'when = { arg = "a", max_bytes = true }', 7, "is a number of bytes", ""),
        (GITHUB + 'when = [{ arg = "a", equals = 1 }, { arg = "a", equals = 1 }]', 7, "is asked twice", "remove one"),
        (GITHUB + 'when = [{ arg = "a", equals = 1 }, { arg = "a", in = [2, 3] }]', 7, "never hold together", ""),
        (GITHUB + 'when = { arg = "a", equals = "x", matches = "y" }', 7, "never hold together", ""),
        (
            GITHUB + 'methods = ["roots/list"]\nwhen = { arg = "a", equals = 1 }',
            8,
            "`roots/list` has no arguments: it never holds",
            "",
        ),
        (GITHUB + 'when = { arg = "a", equal = 1 }', 7, "there is no key `mcp.when.equal`", "did you mean `equals`?"),
        ("[[mcp_pin]]\nserver = 'a'", 4, "`mcp_pin.tools` is missing", ""),
        ("[[mcp_pin]]\nserver = 'a'\ntools = {}", 6, "it pins nothing", ""),
        ("[[mcp_pin]]\nserver = 'a'\ntools = { x = 'abc' }", 6, "`abc` is no SHA-256", "64 digits"),
        (f"[[mcp_pin]]\nserver = 'a*'\ntools = {{ x = '{DIGEST}' }}", 5, "a pin is about one server", ""),
        (f"[[mcp_pin]]\nserver = 'a'\ntools = {{ x = '{DIGEST}' }}\n" * 2, 9, "is pinned twice", ""),
        ("[record]\nmcp_stdio = []", 5, "is empty and has no effect", ""),
        ("[record]\nmcp = ['x']", 5, "there is no key `record.mcp`", ""),
        ("[approvals]\nself = 'ask'", 5, "`approvals.self` is `allow` or `deny`", ""),
        ("[approvals]\nselves = 'deny'", 5, "there is no key `approvals.selves`", "did you mean `self`?"),
    ],
)  # fmt: skip
def test_what_is_refused_with_line_reason_and_suggestion(body: str, line: int, told: str, hint: str) -> None:
    error = refusal(HEAD + body)
    assert (error.kind, error.exit_status) == ("usage", 2)
    assert any(one.startswith(f"t.toml:{line}: ") and told in one for one in error.evidence.split("\n")), error.evidence
    assert hint in error.evidence


@pytest.mark.parametrize("test", ["equals = {}", "in = [{}]", "max_bytes = {}", "equals = [[{}]]"])
def test_a_number_that_python_does_not_spell_is_told(test: str) -> None:
    body = '[[mcp]]\nserver = "a"\ndecision = "deny"\nwhen = { arg = "x", '
    error = refusal(HEAD + body + test.format("0x" + "f" * 4000) + " }")
    assert "a number in it is beyond 64 bits" in error.evidence


@pytest.mark.parametrize(
    "body",
    [
        '[[mcp]]\nserver = "a"\ntools = ["x"]\nwhen = { arg = "p", equals = "1" }\ndecision = "allow"\n' + DENY_REST,
        '[[mcp]]\nserver = "a*"\ntools = ["xy"]\ndecision = "allow"\n' + GITHUB.replace("github", "ab"),
        # A permission asks for all values, a denial for any: the second one is reached.
        "".join(
            f'[[mcp]]\nserver = "a"\nwhen = {{ arg = "p", equals = "1" }}\ndecision = "{word}"\n'
            for word in ("allow", "deny")
        ),
        GITHUB + '[[mcp]]\nserver = "github"\nmethods = ["tools/list"]\ndecision = "deny"\n',
        GITHUB + 'when = { arg = "a.*.b", equals = 1 }',
        GITHUB + 'methods = ["x/of_an_extension"]',
    ],
)  # fmt: skip
def test_what_is_not_refused(body: str) -> None:
    assert policy(body).mcp.rules
