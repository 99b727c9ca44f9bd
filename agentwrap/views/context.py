"""What lines of one recording share: where it ran, who did what, how an end is told.

Looks spans up one at a time and remembers a bounded number, so a recording of any size streams in flat memory.
"""

import re
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING

from agentwrap import text
from agentwrap.rows import Row, Span, number
from agentwrap.views.source import Source, foreign_text
from agentwrap.views.styled import Line

if TYPE_CHECKING:
    from agentwrap.evidence.linking import Linker

CHAIN_LENGTH = 3
_REMEMBERED_SPANS = 20_000
_SHAPE = "«shape:"
_SHAPE_MARK = re.compile(r"«shape:([0-9a-f]{8})[0-9a-f]{24}»")
_BARE_WORD = re.compile(r"[\w@%+=:,./~^«»-]+")

_SIGNALS = (
    "", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
    "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH",
    "IO", "PWR", "SYS",
)  # fmt: skip


class Lineage(list[Span]):
    """A span and what it descends from, nearest first; its chain and its turn are made once."""

    _chain: str | None = None
    _turn: str | None = None

    def chain(self) -> str:
        """The exec chain, see `who`."""
        if self._chain is None:
            self._chain = who(self)
        return self._chain

    def turn(self) -> str:
        """The turn the span belongs to, or `--`."""
        if self._turn is None:
            self._turn = next((text.escape(span.id) for span in self if span.kind == "turn"), "--")
        return self._turn


class Context:
    """What lines of one recording share: where it ran, its spans (remembered, bounded), how wide a line may be.

    `columns`: terminal width, None for no cutting. `live`: the file still grows, so ends of spans are not known yet.
    `clock`: how `at_ns` is told (default: seconds since the start of the run). `story`: model calls, tools and what
    they caused, of the whole recording; of a file that grows it is made as rows are followed.
    """

    def __init__(
        self,
        source: Source,
        *,
        columns: int | None = None,
        live: bool = False,
        clock: Callable[[int], str] = text.clock,
        counts: bool = True,
        story: "Linker | None" = None,
    ) -> None:
        self.source = source
        self.columns = columns
        self.live = live
        self.clock = clock
        self.counts = counts
        self.walled = False
        cwd = source.meta.get("cwd", "")
        self._cwd = cwd.rstrip("/") + "/" if cwd.startswith("/") else ""
        self._follows = live and story is None
        self.story = _following(source) if self._follows else story
        self._spans: dict[str, Span | None] = {}
        self._lineages: dict[str, Lineage] = {}

    def span(self, span_id: str) -> Span | None:
        """A span by id, looked up once."""
        if span_id in self._spans:
            return self._spans[span_id]
        if len(self._spans) >= _REMEMBERED_SPANS:
            self._spans.clear()
        found = self._spans[span_id] = self.source.span(span_id)
        return found

    def follow(self, row: Row) -> None:
        """Take note of an exec that streams by: until the next one, that is what the process is called.

        Also of the statement that a gateway tells what leaves the machine (`walled`), and of what a growing file tells
        of model traffic.

        A span is named after the last program of its process; the shell that ends in an exec wrote its files as a
        shell. Where rows are skipped by kind, the last name stands.
        """
        if self._follows and self.story is not None:
            self.story.feed(row)
        if row.kind == "coverage" and row.data.get("what") == "connect":
            self.walled = self.walled or row.data.get("tier") in ("wall", "guard")
        if row.kind != "process.exec" or not row.span or row.data.get("confirmed") is False:
            return
        span = self.span(row.span)
        if span is not None and number(span.data.get("execs")) > 1:
            named = copy(span)
            named.name = foreign_text(row.data.get("path")).rsplit("/", 1)[-1]
            self._spans[row.span] = named
            self._lineages.clear()

    def turn_columns(self) -> int:
        """How wide the column of turns is: two, and more from the tenth turn on."""
        calls = self.story.turns.calls if self.story is not None else {}
        last = next(reversed(calls.values())).turn if calls else ""
        return min(max(2, len(last)), 8)

    def turn_of(self, row: Row, lineage: Lineage) -> str:
        """The turn a row belongs to, or `--`."""
        told = self.story.turn_of(row) if self.story is not None else row.data.get("turn")
        return text.escape(told) if isinstance(told, str) and told else lineage.turn()

    def refresh(self) -> None:
        """Forget spans: a growing file has changed them."""
        self._spans.clear()
        self._lineages.clear()

    def path(self, path: str) -> str:
        """A path as it is shown: relative to where the command ran, if it lies below."""
        if _SHAPE in path:
            return brief(path)
        if self._cwd and path.startswith(self._cwd) and len(path) > len(self._cwd):
            return path[len(self._cwd) :]
        return path

    def lineage(self, span_id: str | None) -> Lineage:
        """The span and what it descends from."""
        known = self._lineages.get(span_id or "")
        if known is not None:
            return known
        if len(self._lineages) >= _REMEMBERED_SPANS:
            self._lineages.clear()
        found = self._lineages[span_id or ""] = Lineage()
        while span_id and len(found) < 1000:  # a file made by hand may hold a loop
            span = self.span(span_id)
            if span is None:
                break
            found.append(span)
            span_id = span.parent
        return found


def _following(source: Source) -> "Linker":
    from agentwrap.evidence.linking import following  # not for a file that is over and has no model traffic

    return following(source.meta)


def who(lineage: list[Span], length: int = CHAIN_LENGTH) -> str:
    """The exec chain, oldest first: `bash(4121) → sed(4127)`. A process that only forked is told by its child."""
    processes = [span for span in lineage if span.kind == "process"]
    # The wrapped command itself is in the header.
    wrapped = len(processes) > 1 and length > 1 and processes[-1].parent == "run"
    links: list[str] = []
    last = ""
    for index, process in enumerate(processes[:-1] if wrapped else processes):
        name = process_name(processes[index:])
        if name == last and links:
            continue
        last = name
        links.append(f"{text.clip(brief(name) or '?', 24)}({number(process.data.get('pid'))})")
        if len(links) > length:
            break
    if len(links) > length:
        links = [*links[: length - 1], "…"] if length > 1 else links[:1]
    return " → ".join(reversed(links))


def process_name(lineage: list[Span]) -> str:
    """The name of the first process; one that never ran a program of its own is still what its parent was."""
    return next((span.name for span in lineage if span.kind == "process" and span.name), "")


def ending(status: str | None, elapsed_ns: int | None) -> Line:
    """How a process ended and how long it took; nothing while that is not known."""
    pieces: Line = []
    if status:
        pieces.append((outcome(status), "dim" if status == "exit 0" else "bad"))
    if elapsed_ns is not None:
        pieces.append((("  " if pieces else "") + text.duration(elapsed_ns), "dim"))
    return pieces


def outcome(status: str) -> str:
    """A span's status in words: `exit 1`, `killed by SIGKILL`."""
    if status.startswith("signal "):
        return "killed by " + signal_name(status.removeprefix("signal "))
    return text.escape(status)


def brief(foreign: str) -> str:
    """Text with the keyed hashes of a shape-only recording cut to eight digits."""
    return _SHAPE_MARK.sub(r"«\1»", foreign) if _SHAPE in foreign else foreign


def signal_name(signal: str) -> str:
    """`SIGKILL` for `9`; real-time signals keep their number."""
    known = signal.isascii() and signal.isdigit() and 0 < int(signal) < len(_SIGNALS)
    return f"SIG{_SIGNALS[int(signal)]}" if known else f"signal {text.escape(signal)}"


def command_line(words: list[str]) -> str:
    """Arguments as a shell would take them, so that one argument with a blank is told from two."""
    return " ".join([word if _BARE_WORD.fullmatch(word) else _quoted(word) for word in map(brief, words)])


def _quoted(word: str) -> str:
    if "'" in word and not re.search(r'["$`\\!]', word):
        return f'"{word}"'
    return "'" + word.replace("'", "'\\''") + "'"
