"""What a policy says to a request over MCP: pins, then the first rule that fits; of several policies the strictest.

Nothing is widened by another policy, so an untrusted project's rules are as good as anybody's: they only narrow.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from agentwrap.policy.conditions import hold
from agentwrap.policy.exact_json import Ambiguous, parse
from agentwrap.policy.mcp_rules import TOOL_CALL, McpPin, McpRule, McpRules
from agentwrap.policy.paths import Places
from agentwrap.policy.questions import Answer, Call
from agentwrap.policy.rule import Rule

AMBIGUOUS = Rule("mcp.ambiguous")
UNNAMED = Rule("mcp.unnamed")
NOTHING = Answer("allow", UNNAMED, "no rule names it")
_STRICTEST = ("deny", "approve", "unknown", "allow")


def decide_call(rules: McpRules, places: Places, file: str, call: Call) -> Answer:
    """What one policy says. `unknown` where it is about arguments that are not known."""
    if call.listed is not None and (pin := broken_pin(rules.pins, call)) is not None:
        return pin_answer(pin, call.listed)
    fitting = concerning(rules.rules, call.server, call.method, call.tool)
    if not fitting:
        return NOTHING
    arguments, size = None, 0
    if any(one.when for one in fitting):
        if call.arguments is None:
            return _without_arguments(fitting, file, call)
        try:
            arguments, size = parse(call.arguments) if call.arguments else None, len(call.arguments)
        except Ambiguous as error:
            return ambiguous(error)
    try:
        rule = first(fitting, arguments, size, places)
    except Ambiguous as error:
        return ambiguous(error)
    return rule_answer(rule, file, call) if rule is not None else NOTHING


def concerning(rules: Iterable[McpRule], server: str, method: str, tool: str) -> tuple[McpRule, ...]:
    """The rules that may decide about a request: those about it, up to the first without conditions."""
    found: list[McpRule] = []
    for rule in rules:
        if rule.concerns(server, method, tool):
            found.append(rule)
            if not rule.when:
                break
    return tuple(found)


def first(rules: Sequence[McpRule], arguments: Any, size: int, places: Places) -> McpRule | None:
    """The first of some rules whose conditions hold. Raises Ambiguous."""
    for one in rules:
        if not one.when or hold(one, arguments, size, places):
            return one
    return None


def _without_arguments(rules: Sequence[McpRule], file: str, call: Call) -> Answer:
    """As long as every rule in question would say the same, the arguments do not matter."""
    words = {one.decision for one in rules} | (set() if not rules[-1].when else {"allow"})
    if len(words) == 1:
        return rule_answer(rules[0] if len(rules) == 1 else rules[-1], file, call)
    conditional = next(one for one in rules if one.when)
    return Answer("unknown", conditional.rule, "it depends on arguments that are not known")


def ambiguous(error: Ambiguous) -> Answer:
    """The answer for a message that has no single meaning."""
    return Answer("deny", AMBIGUOUS, f"it cannot be judged: {error}", "nothing: it has no single meaning to allow")


def rule_answer(rule: McpRule, file: str, call: Call) -> Answer:
    """What a rule says, why, and how a human changes that."""
    if rule.decision == "allow":
        return Answer("allow", rule.rule, rule.reason)
    what = f"`{call.tool or call.method}` of `{call.server}`"
    change = f'put an [[mcp]] with decision = "allow" for {what} before line {rule.rule.line} of {file}'
    if rule.decision == "approve":
        if call.approved:
            return Answer("allow", rule.rule, "a human has allowed it")
        return Answer("approve", rule.rule, rule.reason or "a human has to allow it", change)
    return Answer("deny", rule.rule, rule.reason or "the policy denies it", change)


def broken_pin(pins: Iterable[McpPin], call: Call) -> McpPin | None:
    """The pin that a tool does not keep."""
    if call.method != TOOL_CALL:
        return None
    mine = (one for one in pins if one.tool == call.tool and one.server == call.server)
    return next((one for one in mine if one.digest != call.listed), None)


def pin_answer(pin: McpPin, listed: str) -> Answer:
    """The denial of a tool that is not the one that somebody has looked at."""
    if not listed:
        why = "the server has not listed the tool yet, so that nobody can tell whether it is the pinned one"
        return Answer("deny", pin.rule, why, "list the tools first, or remove the pin")
    why = f"the server's definition of the tool is not the pinned one: its digest is {listed}"
    return Answer("deny", pin.rule, why, f'look at it; if it is fine: "{pin.tool}" = "{listed}" in {pin.rule}')


def strictest(answers: Sequence[Answer]) -> Answer:
    """The one that counts among several policies: the first of the strictest ones; a named permission before none."""
    if len(answers) == 1:
        return answers[0]
    order = sorted(answers, key=lambda one: (_STRICTEST.index(one.verdict), one.rule == UNNAMED))
    return order[0]
