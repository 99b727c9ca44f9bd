"""The policies of a run out of the text that its recording holds of them, read anew by the policy's own loader.

The text is all layers one after the other, each under a comment line with its name (`policy.loaded`). A policy can hold
such a line itself, as part of its own text: where that leaves more than one way to take the text apart, none is taken.
"""

import hashlib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec

from agentwrap.errors import AgentwrapError
from agentwrap.evidence.asked import places_of
from agentwrap.evidence.report.facts import Told
from agentwrap.evidence.report.fields import Source, raw, text, word
from agentwrap.policy.document import load
from agentwrap.policy.flags import SECTIONS, leave_unsaid
from agentwrap.policy.layers import ORDER, Layer
from agentwrap.policy.paths import Places
from agentwrap.policy.rules import COMMAND_LINE
from agentwrap.rows import Row

_MOST = 16
_MOST_STEPS = 10_000
_UNTRUSTED = ", not trusted: it only narrows"
_CONFIGS: Mapping[str, tuple[str, ...]] = {}

Piece = tuple[str, str, bool, str]
"""(layer's name, file, trusted, its text)."""


def told_policies(source: Source) -> tuple[Told, ...]:
    """Every policy row of a recording; there is at most one in what agentwrap writes."""
    places = places_of(source)
    return tuple(_told(row, places) for row in islice(source.rows(kinds=("policy",)), _MOST))


def _told(row: Row, places: Places) -> Told:
    data = row.data
    whole = raw(data, "text")
    told = Told(row.seq, text(data, "name"), word(data, "mode"), word(data, "sha256"))
    if not whole:
        return msgspec.structs.replace(told, unreadable="the recording does not hold the policy's text")
    if hashlib.sha256(whole).hexdigest() != told.sha256:
        return msgspec.structs.replace(told, unreadable="the policy's text is not what was read: some of it is hidden")
    found = list(islice(apart(whole.decode("utf-8", "surrogateescape"), _layers(data), Steps()), 2))
    if len(found) != 1:
        ways = "cannot be taken apart" if not found else "can be taken apart in more than one way"
        return msgspec.structs.replace(told, unreadable=f"the policy's text {ways}")
    try:
        return msgspec.structs.replace(told, layers=_beside([_layer(piece, places) for piece in found[0]]))
    except AgentwrapError as error:
        return msgspec.structs.replace(told, unreadable=f"{error.message}: {error.evidence}")


def _layers(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    given = data.get("layers")
    pairs = [pair for pair in given if isinstance(pair, list) and len(pair) == 2] if isinstance(given, list) else []
    return [(text({"": name}, ""), text({"": file}, "")) for name, file in pairs[:_MOST]]


class Steps:
    """How often it was tried: a text can be made that has more ways than anybody has time."""

    def __init__(self) -> None:
        self.left = _MOST_STEPS

    def one(self) -> bool:
        """Take one; False where there is none left."""
        self.left -= 1
        return self.left > 0


def apart(whole: str, layers: list[tuple[str, str]], steps: Steps, at: int = 0) -> Iterator[tuple[Piece, ...]]:
    """Every way to take the text from `at` on apart into these layers."""
    if not steps.one():
        return
    if not layers:
        if at == len(whole):
            yield ()
        return
    (name, file), rest = layers[0], layers[1:]
    for trust in ("", _UNTRUSTED):
        head = f"# {name}: {file.replace(chr(10), ' ')}{trust}\n"
        if not whole.startswith(head, at):
            continue
        begin = at + len(head)
        for end in _ends(whole, begin, rest):
            for others in apart(whole, rest, steps, end):
                yield ((name, file, not trust, whole[begin:end].rstrip("\n")), *others)


def _ends(whole: str, begin: int, rest: list[tuple[str, str]]) -> Iterator[int]:
    """Where a layer's text may end: at the end of all, or where the next one's line stands after an empty one."""
    if not rest:
        yield len(whole)
        return
    mark = f"\n\n# {rest[0][0]}: {rest[0][1].replace(chr(10), ' ')}"
    at = whole.find(mark, max(begin - 2, 0))
    while at >= 0:
        yield at + 2
        at = whole.find(mark, at + 1)


def _beside(layers: list[Layer]) -> tuple[Layer, ...]:
    """Options beside a policy file have its defaults (`policy.flags.flags_policy`)."""
    flags = [layer for layer in layers if layer.name == "flags"]
    if len(flags) != 2 or flags[0].policy.file != COMMAND_LINE:
        return tuple(layers)
    options, base = flags[0].policy, flags[1].policy
    changes: dict[str, Any] = {}
    for section in SECTIONS:
        if section not in options.silent:
            name = section.rpartition(".")[2]
            same = {key: getattr(getattr(base, name), key) for key in ("default", "default_rule")}
            changes[name] = msgspec.structs.replace(getattr(options, name), **same)
    policy = msgspec.structs.replace(options, **changes)
    return tuple(msgspec.structs.replace(one, policy=policy) if one is flags[0] else one for one in layers)


def _layer(piece: Piece, places: Places) -> Layer:
    name, file, trusted, content = piece
    if name not in ORDER:
        raise AgentwrapError("usage", "the policy's text is refused", evidence=f"there is no layer {name}")
    policy = load(content.encode("utf-8", "surrogateescape"), file, places, _CONFIGS)
    if file == COMMAND_LINE:
        policy = leave_unsaid(policy)
    return Layer(name, policy, trusted)
