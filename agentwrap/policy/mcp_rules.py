"""The rules about MCP as values: `[[mcp]]`, what a rule's `when` asks of arguments, pinned tools.

Knows which requests only open, list, keep and end a session: rules that name no method leave those alone, or nobody
would ever be told why a call is refused.
"""

from typing import Any, Literal

import msgspec

from agentwrap.policy.globs import Glob, first_fitting
from agentwrap.policy.names import HostPattern
from agentwrap.policy.paths import PathPattern
from agentwrap.policy.rule import Rule

McpWord = Literal["allow", "deny", "approve"]
MCP_WORDS: tuple[McpWord, ...] = ("allow", "approve", "deny")  # from weakest to strictest
Test = Literal["equals", "in", "matches", "path_within", "host_within", "max_bytes"]

TOOL_CALL = "tools/call"
# Requests with arguments of their own; those of all others are their `params`.
WITH_ARGUMENTS = (TOOL_CALL, "prompts/get")
CLIENT_METHODS = frozenset({TOOL_CALL, "prompts/get", "resources/read", "resources/subscribe", "completion/complete"})
SERVER_METHODS = frozenset({"sampling/createMessage", "elicitation/create", "roots/list"})
WITHOUT_ARGUMENTS = frozenset({"roots/list"})
# Sessions are opened, what there is is listed, and what was begun is looked after: nothing is done by these alone.
PLUMBING = frozenset({
    "initialize", "ping", "server/discover", "logging/setLevel", "subscriptions/listen", "resources/unsubscribe",
    "tools/list", "prompts/list", "resources/list", "resources/templates/list",
    "tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update",
})  # fmt: skip
NOTIFICATIONS = "notifications/"


class Condition(msgspec.Struct, frozen=True):
    """One test of one argument. `text`: as it is told. What its test compares with is in the field of that test.

    `path`: the steps to the argument, `*` for every member; none for the arguments as a whole.
    """

    text: str
    path: tuple[str, ...]
    test: Test
    values: tuple[Any, ...] = ()
    paths: tuple[PathPattern, ...] = ()
    hosts: tuple[HostPattern, ...] = ()
    expression: str = ""
    max_bytes: int = 0


class McpRule(msgspec.Struct, frozen=True):
    """One `[[mcp]]`. Without `tools` and `methods` it is about every request but plumbing, of either side."""

    rule: Rule
    server: Glob
    decision: McpWord
    tools: tuple[Glob, ...] = ()
    methods: tuple[Glob, ...] = ()
    when: tuple[Condition, ...] = ()
    reason: str = ""

    def concerns(self, server: str, method: str, tool: str) -> bool:
        """Whether the rule is about a request, whatever its arguments are."""
        if method.startswith(NOTIFICATIONS) or not self.server.fits(server):
            return False
        if self.tools:
            return method == TOOL_CALL and first_fitting(self.tools, tool) is not None
        if self.methods:
            return first_fitting(self.methods, method) is not None
        return method not in PLUMBING

    def covers(self, other: "McpRule") -> bool:
        """Whether nothing that `other` is about gets past this one; no where it is not sure."""
        if not self.server.covers(other.server) or any(one not in other.when for one in self.when):
            return False
        # Of an argument with several values the one asks for all, the other for any.
        if self.when and (self.decision == "allow") != (other.decision == "allow"):
            return False
        if self.tools:
            return bool(other.tools) and _cover(self.tools, other.tools)
        if self.methods:
            return _cover(self.methods, (Glob(TOOL_CALL),) if other.tools else other.methods or (Glob("*"),))
        return all(one.literal and one.text not in PLUMBING for one in other.methods)

    def may_meet(self, other: "McpRule") -> bool:
        """Whether there may be a request that both are about; yes where it is not sure."""
        if not self.server.may_meet(other.server):
            return False
        if self.tools and other.tools:
            return any(mine.may_meet(theirs) for mine in self.tools for theirs in other.tools)
        mine, theirs = self._methods(), other._methods()
        return any(one.may_meet(another) for one in mine for another in theirs)

    def _methods(self) -> tuple[Glob, ...]:
        return (Glob(TOOL_CALL),) if self.tools else self.methods or (Glob("*"),)

    def may_concern(self, *, up: bool) -> bool:
        """Whether it may be about what the client says (`up`), or what the server says."""
        if self.tools:
            return up
        theirs = SERVER_METHODS if up else CLIENT_METHODS
        return not self.methods or not all(one.text in theirs for one in self.methods)


def _cover(wide: tuple[Glob, ...], narrow: tuple[Glob, ...]) -> bool:
    return all(any(one.covers(other) for one in wide) for other in narrow)


class McpPin(msgspec.Struct, frozen=True):
    """A tool whose definition has to be this one. `digest`: SHA-256 of its normal form, hex."""

    rule: Rule
    server: str
    tool: str
    digest: str


class McpRules(msgspec.Struct, frozen=True):
    """All about MCP in one policy. What no rule names is allowed."""

    rules: tuple[McpRule, ...] = ()
    pins: tuple[McpPin, ...] = ()

    def restricts(self) -> bool:
        """Whether something may be refused or held."""
        return bool(self.pins) or any(one.decision != "allow" for one in self.rules)

    def asks(self) -> bool:
        """Whether something may wait for a human."""
        return any(one.decision == "approve" for one in self.rules)
