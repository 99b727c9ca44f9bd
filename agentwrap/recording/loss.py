"""Counting what could not be kept, exactly, and saying it as gaps. Pure."""

from collections.abc import Iterator

import msgspec

from agentwrap.events import AnyEvent, Content, CoverageKind, Gap, Item, Secrets

_WEAKENS: tuple[tuple[str, CoverageKind], ...] = (
    ("process.exec", "exec"),
    ("process.", "process"),
    ("file.read", "file-read"),
    ("file.", "file-write"),
    ("net.connect", "connect"),
    ("net.send", "udp"),
    ("net.", "bind"),
    ("dns.", "dns"),
    ("model.", "model"),
    ("tool.", "model"),
    ("http.", "model"),
    ("claim", "model"),
    ("session.", "model"),
    ("content.body", "model"),
    ("content", "file-write"),
)
_NEVER_DROPPED = frozenset({"run.start", "run.end", "gap", "coverage"})


def weakens(kind: str) -> CoverageKind:
    """The coverage that suffers when an event of this kind is lost."""
    return next((what for prefix, what in _WEAKENS if kind.startswith(prefix)), "process")


def may_drop(item: Item) -> bool:
    """Denials, gaps and the run's own events are kept whatever happens."""
    if isinstance(item, Content):
        return True
    return not isinstance(item, Secrets) and item.verdict != "deny" and _kind(item) not in _NEVER_DROPPED


def _kind(item: Item) -> str:
    if isinstance(item, Content):
        return f"content.{item.role}"
    return str(type(item).__struct_config__.tag)


class _Lost(msgspec.Struct):
    events: int = 0
    contents: int = 0
    from_ns: int = 0
    to_ns: int = 0


class Losses:
    """What was dropped since the last report, by the coverage it weakens."""

    def __init__(self) -> None:
        self._lost: dict[tuple[str, CoverageKind], _Lost] = {}
        self.total = 0

    def add(self, item: AnyEvent | Content, cause: str, at_ns: int) -> None:
        """Note one dropped item. `cause`: `disk-full`, `recorder-stalled`, `internal`; `at_ns`: now."""
        lost = self._lost.setdefault((cause, weakens(_kind(item))), _Lost(from_ns=at_ns))
        self.total += 1
        if isinstance(item, Content):
            lost.contents += 1
        else:
            lost.events += 1
            at_ns = item.at_ns
        lost.from_ns, lost.to_ns = min(lost.from_ns, at_ns), max(lost.to_ns, at_ns)

    def gaps(self, at_ns: int, detail: bytes) -> Iterator[Gap]:
        """The losses as gap events; they are forgotten as they are told."""
        lost, self._lost = self._lost, {}
        for (cause, what), told in lost.items():
            yield Gap(
                at_ns=at_ns,
                what=what,
                cause=cause,
                could_hide=f"{told.events} events and {told.contents} contents were not kept",
                from_ns=told.from_ns,
                to_ns=told.to_ns,
                detail=detail,
            )

    def __bool__(self) -> bool:
        return bool(self._lost)
