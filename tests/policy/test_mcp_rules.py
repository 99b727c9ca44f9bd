"""Which requests a rule is about, and when another one leaves it nothing."""

from hypothesis import given
from hypothesis import strategies as st

from agentwrap.policy.globs import Glob
from agentwrap.policy.mcp_rules import (
    CLIENT_METHODS,
    NOTIFICATIONS,
    PLUMBING,
    SERVER_METHODS,
    TOOL_CALL,
    McpRule,
)
from agentwrap.policy.rule import Rule

GLOBS = st.sampled_from(["*", "a", "ab", "a*", "?", "[ab]"]).map(Glob)
METHODS = ["tools/call", "resources/read", "tools/list", "sampling/createMessage", "roots/list", "x/y", "initialize"]
METHOD_GLOBS = st.sampled_from([*METHODS, "*", "tools/*", "resources/*", "sampling/*"]).map(Glob)
RULES = st.builds(
    McpRule,
    st.just(Rule("mcp.deny")),
    GLOBS,
    st.sampled_from(["allow", "deny", "approve"]),
    st.just(()) | st.tuples(GLOBS) | st.tuples(GLOBS, GLOBS),
).flatmap(
    lambda rule: st.just(rule) if rule.tools else st.builds(
        McpRule, st.just(rule.rule), st.just(rule.server), st.just(rule.decision), st.just(()),
        st.just(()) | st.tuples(METHOD_GLOBS) | st.tuples(METHOD_GLOBS, METHOD_GLOBS),
    )
)  # fmt: skip
NAMES = st.sampled_from(["a", "ab", "b", "z"])
REQUESTS = st.tuples(NAMES, st.sampled_from(METHODS), NAMES)
Request = tuple[str, str, str]


@given(RULES, RULES, REQUESTS)
def test_nothing_gets_past_a_rule_that_covers_another(wide: McpRule, narrow: McpRule, request: Request) -> None:
    if wide.covers(narrow) and narrow.concerns(*request):
        assert wide.concerns(*request)
    if wide.concerns(*request) and narrow.concerns(*request):
        assert wide.may_meet(narrow)
        assert narrow.may_meet(wide)


@given(RULES, REQUESTS)
def test_a_side_that_is_not_read_has_nothing_that_a_rule_is_about(rule: McpRule, request: Request) -> None:
    server, method, tool = request
    for up, theirs in ((True, SERVER_METHODS), (False, CLIENT_METHODS)):
        # What only the other side asks for: a call of a tool is asked by clients alone.
        if method not in theirs and not (method == TOOL_CALL and not up) and rule.concerns(server, method, tool):
            assert rule.may_concern(up=up)


def test_what_rules_without_a_method_leave_alone() -> None:
    every = McpRule(Rule("mcp.deny"), Glob("*"), "deny")
    named = McpRule(Rule("mcp.deny"), Glob("*"), "deny", methods=(Glob("*"),))
    for method in PLUMBING:
        assert not every.concerns("s", method, "")
        assert named.concerns("s", method, "")
    for rule in (every, named):
        assert not rule.concerns("s", NOTIFICATIONS + "cancelled", "")
        assert rule.concerns("s", "of/tomorrow", "")
