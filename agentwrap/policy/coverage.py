"""What a recording could have seen: requirements such as `exec,file-write` or `wall|guard`, judged against statements.

Knows coverage statements and gaps as plain values. A statement made at the start is only as good as what happened
after: a gap of that kind, or an end that nobody saw, means *not covered*. Never says that nothing happened.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from agentwrap.errors import AgentwrapError

# The vocabulary of `events.run` (a test compares them).
KINDS = (
    "process", "exec", "file-write", "file-read", "connect", "bind", "dns", "udp", "unix", "mcp-stdio", "mcp-http",
    "model", "claims",
)  # fmt: skip
TIERS = ("wall", "guard", "witness", "none")
# What is asked when nothing is: what ran, what changed, where it connected.
DEFAULT_KINDS = ("process", "exec", "file-write", "connect")
# What a policy's bare strength (`wall|guard`) is about: there is no other strength of following processes.
GATEWAY_KINDS = ("connect", "dns", "udp")
# A process that was not followed could have done anything.
_EVERYTHING = "process"
# What is said over connections that nobody saw was not read either.
_SEEN_BY = {"model": "connect"}
# What asks those who are to be seen to come by: who does not is not seen, and nothing tells of it.
_IN_PART = frozenset({"base-url"})


class Requirement(msgspec.Struct, frozen=True):
    """A kind that has to be covered, by one of `tiers`."""

    kind: str
    tiers: frozenset[str]


class Statement(msgspec.Struct, frozen=True):
    """An observer's statement at the start of the run."""

    kind: str
    tier: str
    mechanism: str = ""
    note: str = ""


class Hole(msgspec.Struct, frozen=True):
    """A gap: the kind it weakens, its cause, what could hide in it, and what it is about (foreign text)."""

    kind: str
    cause: str
    could_hide: str = ""
    detail: str = ""
    seq: int = 0


class Judgement(msgspec.Struct, frozen=True):
    """Whether one kind is covered, how strongly, in what bounds (`note`), and every reason why not."""

    kind: str
    tier: str
    mechanism: str
    covered: bool
    reasons: tuple[str, ...] = ()
    holes: tuple[Hole, ...] = ()
    note: str = ""


_OBSERVED = frozenset({"wall", "guard", "witness"})


def parse_requirements(text: str, kinds_meant: Sequence[str] = DEFAULT_KINDS) -> tuple[Requirement, ...]:
    """Read `exec,file-write`, `connect:wall|guard`, or `wall|guard` alone (which then holds for every kind named).

    `kinds_meant`: what is asked of where no kind is named.

    Raises AgentwrapError `usage` naming the word that is wrong.
    """
    kinds: list[tuple[str, frozenset[str] | None]] = []
    floor: frozenset[str] | None = None
    for word in (part.strip() for part in text.split(",")):
        kind, separator, tiers = word.partition(":")
        if not separator and all(tier in TIERS for tier in word.split("|")):
            floor = _tiers(word, word, text) if floor is None else floor & _tiers(word, word, text)
            continue
        if kind not in KINDS:
            raise _wrong(text, word, f"there is no kind of coverage `{kind}`", f"kinds: {', '.join(KINDS)}")
        kinds.append((kind, _tiers(tiers, word, text) if separator else None))
    if not kinds:
        kinds = [(kind, None) for kind in kinds_meant]
    found: dict[str, frozenset[str]] = {}
    for kind, own in kinds:
        wanted = own if own is not None else floor if floor is not None else _OBSERVED
        found[kind] = found.get(kind, _OBSERVED) & wanted
    return tuple(Requirement(kind, tiers) for kind, tiers in found.items())


def requirement_text(requirements: Iterable[Requirement]) -> str:
    """Requirements as `parse_requirements` reads them."""
    return ",".join(f"{one.kind}:{'|'.join(tier for tier in TIERS if tier in one.tiers)}" for one in requirements)


def _tiers(text: str, word: str, whole: str) -> frozenset[str]:
    tiers = frozenset(text.split("|"))
    for tier in sorted(tiers):
        if tier not in _OBSERVED:
            problem = f"`{tier}` is no strength that can be required"
            raise _wrong(whole, word, problem, "strengths: wall, guard, witness")
    return tiers


def _wrong(text: str, word: str, problem: str, hint: str) -> AgentwrapError:
    at = text.find(word) if word else 0
    evidence = f"{text}\n{' ' * at}{'^' * max(1, len(word))} {problem}"
    return AgentwrapError("usage", "cannot read what is required", evidence=evidence, hint=hint)


def default_requirements() -> tuple[Requirement, ...]:
    """What `check` asks when nothing is required: what ran, what changed, where it connected."""
    return tuple(Requirement(kind, _OBSERVED) for kind in DEFAULT_KINDS)


def strongest(statements: Iterable[Statement], kind: str) -> Statement | None:
    """The strongest statement about a kind, or None if there is none."""
    about = [statement for statement in statements if statement.kind == kind and statement.tier in TIERS]
    return min(about, key=lambda statement: TIERS.index(statement.tier), default=None)


def judge(
    requirements: Sequence[Requirement],
    statements: Collection[Statement],
    holes: Collection[Hole],
    *,
    unseen_end: str = "",
) -> tuple[Judgement, ...]:
    """Judge each requirement. `unseen_end` says why the end of the run is not in the recording, if it is not."""
    return tuple(_judge(requirement, statements, holes, unseen_end) for requirement in requirements)


def _judge(
    requirement: Requirement, statements: Collection[Statement], holes: Collection[Hole], unseen_end: str
) -> Judgement:
    best = strongest(statements, requirement.kind)
    reasons: list[str] = []
    if best is None:
        reasons.append("no observer stated that it covers it")
    elif best.tier == "none":
        reasons.append("not observed" + (f": {best.note}" if best.note else ""))
    elif best.tier not in requirement.tiers:
        wanted = " or ".join(tier for tier in TIERS if tier in requirement.tiers) or "nothing that exists"
        reasons.append(f"covered by {best.tier}, {wanted} is required")
    elif best.mechanism in _IN_PART:
        reasons.append("seen in part" + (f": {best.note}" if best.note else ""))
    kinds = (requirement.kind, _SEEN_BY.get(requirement.kind), _EVERYTHING)
    touching = tuple(hole for hole in holes if hole.kind in kinds)
    for cause, number in _by_cause(touching):
        reasons.append(f"{number:,} {'gap' if number == 1 else 'gaps'}: {cause}")
    if unseen_end:
        reasons.append(unseen_end)
    tier = best.tier if best else "none"
    mechanism, note = (best.mechanism, best.note) if best and best.tier != "none" else ("", "")
    return Judgement(requirement.kind, tier, mechanism, not reasons, tuple(reasons), touching, note)


def _by_cause(holes: Iterable[Hole]) -> list[tuple[str, int]]:
    counted: dict[str, int] = {}
    for hole in holes:
        counted[hole.cause] = counted.get(hole.cause, 0) + 1
    return list(counted.items())
