"""Several policies at once: flags before the project's before the user's before the system's.

A denial by name in any of them holds. A project's own file lies where the agent can write: until somebody trusts it, it
may only narrow what the others allow.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from agentwrap.policy.calls import strictest
from agentwrap.policy.decide import decide
from agentwrap.policy.globs import Glob
from agentwrap.policy.questions import Answer, Call, Question, section_of
from agentwrap.policy.rules import MODES, Mode, Policy, Section

Name = Literal["flags", "project", "user", "system"]
ORDER: tuple[Name, ...] = ("flags", "project", "user", "system")


class Layer(msgspec.Struct, frozen=True):
    """One policy and whose it is; there may be several of one name. `trusted` counts for the project's alone."""

    name: Name
    policy: Policy
    trusted: bool = True


def decide_layers(layers: Sequence[Layer], question: Question) -> Answer:
    """What all of them say together. Raises ValueError for none.

    Denials by name (and our own) first; then what an untrusted project refuses; then the first layer that allows by
    name; then the default of the first layer that states one. About calls of MCP the strictest counts.
    """
    ordered = sorted(layers, key=lambda layer: ORDER.index(layer.name))
    if not ordered:
        raise ValueError("no policy to ask")
    answers = [(layer, decide(layer.policy, question)) for layer in ordered]
    if isinstance(question, Call):
        return strictest([answer for _, answer in answers])
    for _, answer in answers:
        if answer.verdict == "deny" and not _by_default(answer) and not _lifted(answer, answers):
            return answer
    heard = speaking(ordered, section_of(question)) or ordered
    answers = [(layer, answer) for layer, answer in answers if layer in heard]
    narrowing = [answer for layer, answer in answers if layer.name == "project" and not layer.trusted]
    wide = [answer for layer, answer in answers if layer.name != "project" or layer.trusted]
    for answer in narrowing:
        if answer.verdict != "allow" or not wide:
            return answer
    return _first(wide)


def with_shown(layers: Sequence[Layer], files: Sequence[str]) -> tuple[Layer, ...]:
    """The same layers, knowing of files of ours that the agent has to read and may not change."""
    changed = []
    for layer in layers:
        places = layer.policy.places
        places = msgspec.structs.replace(places, own=(*places.own, *files), shown=(*places.shown, *files))
        changed.append(msgspec.structs.replace(layer, policy=msgspec.structs.replace(layer.policy, places=places)))
    return tuple(changed)


def speaking(layers: Sequence[Layer], section: Section) -> list[Layer]:
    """The layers that have rules or a default for a section: not those that leave it to others."""
    return [layer for layer in layers if section not in layer.policy.silent]


def restricts_network(layers: Sequence[Layer]) -> bool:
    """Whether any of them closes or denies some of the network, so that something has to stand in the way."""
    policies = [layer.policy for layer in speaking(layers, "network")]
    return any(
        policy.network.default == "deny" or policy.network.deny or (policy.mode != "observe") for policy in policies
    )


def asks_about_mcp(layers: Sequence[Layer]) -> bool:
    """Whether a call of an MCP server may have to wait for a human."""
    return mode_of(layers) != "observe" and any(layer.policy.mcp.asks() for layer in layers)


def attribution(layers: Sequence[Layer]) -> tuple[str, str]:
    """Who acts, and for whom: what the first trusted layer that says so says, empty where none does.

    A project that nobody trusts could name anybody: who allows what is done for them would not be told so.
    """
    ordered = sorted(layers, key=lambda layer: ORDER.index(layer.name))
    heard = [layer.policy for layer in ordered if layer.trusted or layer.name != "project"]
    agent = next((policy.agent for policy in heard if policy.agent), "")
    return agent, next((policy.on_behalf_of for policy in heard if policy.on_behalf_of), "")


def may_approve_self(layers: Sequence[Layer]) -> bool:
    """Whether whom the agent acts for may allow what it does: if no layer denies it."""
    return all(layer.policy.self_approval == "allow" for layer in layers)


def pinned_digest(layers: Sequence[Layer], server: str, tool: str) -> str:
    """The digest that some layer holds a tool to, empty where none does."""
    pins = (pin for layer in layers for pin in layer.policy.mcp.pins)
    return next((pin.digest for pin in pins if (pin.server, pin.tool) == (server, tool)), "")


def stdio_patterns(layers: Sequence[Layer]) -> tuple[Glob, ...]:
    """Command lines, as patterns, of MCP servers that no configuration names and that are relayed all the same."""
    return tuple(dict.fromkeys(one for layer in layers for one in layer.policy.mcp_stdio))


def layer_of(layers: Sequence[Layer], question: Question, answer: Answer) -> Layer | None:
    """The layer that an answer of `decide_layers` comes from, None where it is nobody's."""
    ordered = sorted(layers, key=lambda layer: ORDER.index(layer.name))
    return next((layer for layer in ordered if decide(layer.policy, question) == answer), None)


def _first(answers: Sequence[Answer]) -> Answer:
    open_or_named = [one for one in answers if one.verdict == "unknown" or not _by_default(one)]
    named = [answer for answer in open_or_named if answer.verdict != "deny"]
    stated = [answer for answer in answers if answer.rule.line]
    allowed = [answer for answer in named if answer.verdict == "allow"]
    return (allowed or named or stated or list(answers))[0]


def _by_default(answer: Answer) -> bool:
    return answer.rule.where.endswith(".default")


def _lifted(answer: Answer, answers: Sequence[tuple[Layer, Answer]]) -> bool:
    """One of our own denials is lifted by a trusted layer that names the very thing; a policy's is not."""
    if not answer.rule.where.startswith("built-in."):
        return False
    return any(
        layer.trusted and other.verdict == "allow" and other.rule.line and not _by_default(other)
        for layer, other in answers
    )


def mode_of(layers: Sequence[Layer]) -> Mode:
    """The mode of all: the first trusted layer's, made stricter, never weaker, by an untrusted project."""
    ordered = sorted(layers, key=lambda layer: ORDER.index(layer.name))
    chosen = next((layer.policy.mode for layer in ordered if layer.name != "project" or layer.trusted), MODES[0])
    narrowing = [layer.policy.mode for layer in ordered if layer.name == "project" and not layer.trusted]
    return max([chosen, *narrowing], key=MODES.index)
