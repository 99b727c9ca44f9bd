"""Builds the file events and sends contents before the events that name them. Looks at nothing itself."""

import errno
from collections.abc import Callable
from typing import Literal

from agentwrap.events import Content, FileClass, FileEdit, FileState, Gap, Sink
from agentwrap.tracing.files.places import PATH_MAX
from agentwrap.tracing.files.settings import Who

MAX_GAPS_TOLD = 10_000
"""Gaps are told once per cause and path; so many are remembered."""

_FAILS_FOR_ALL = frozenset(
    (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EINVAL)
)
"""Where our look-up fails so, the call itself fails too: nothing happened, nothing was missed."""

COULD_HIDE = {
    "over-cap": "what this file contained: it is larger than the cap, only its size (and hash, where read) is known",
    "unreadable": "what this file contained: it may not be read by the user agentwrap runs as",
    "pending-cap": "what this file contained before: too many unfinished edits were held at once",
    "path-too-long": "any change to this file: its path is longer than can be opened",
    "lookup": "any change to this file: its folder could not be looked into",
    "forgotten": "late changes to files written long before the end of a run that wrote very many",
    "internal-error": "the effect of one file call: agentwrap failed while looking at it",
}


class Reporter:
    """Turns what was found out into items for the sink."""

    def __init__(self, sink: Sink, now: Callable[[], int]) -> None:
        self.sink = sink
        self.now = now
        self._told: set[tuple[str, bytes]] = set()

    def content(self, raw: bytes, data: bytes | None, role: Literal["before", "after"]) -> None:
        """Send the bytes whose hash is `raw`, if there are any."""
        if data is not None and raw:
            self.sink(Content(sha=raw, data=data, role=role))

    def edit(
        self,
        path: bytes,
        klass: FileClass,
        before: FileState,
        after: FileState,
        *,
        change: Literal["create", "modify", "delete", "transient"],
        via: Literal["write", "rename", "link", "remove", "unknown"],
        span: str,
        pid: int,
        writers: tuple[str, ...] = (),
        temporary: bytes = b"",
        at_ns: int | None = None,
    ) -> None:
        """One edit; contents were sent already."""
        self.sink(
            FileEdit(
                at_ns=self.now() if at_ns is None else at_ns,
                span=span,
                pid=pid,
                path=path,
                change=change,
                via=via,
                before=before,
                after=after,
                writers=writers or (span,),
                temporary=temporary,
                klass=klass,
            )
        )

    def omission(self, span: str, pid: int, path: bytes, state: FileState) -> None:
        """Say what of a state is not known. Contents that are never kept are no gap."""
        if state.omitted in ("over-cap", "unreadable"):
            self.gap(state.omitted, path, span, pid)

    def gap(self, cause: str, path: bytes, span: str, pid: int, detail: bytes = b"") -> None:
        """Something real was missed. Once per cause and path."""
        if (cause, path) in self._told:
            return
        if len(self._told) < MAX_GAPS_TOLD:
            self._told.add((cause, path))
        at_ns = self.now()
        self.sink(
            Gap(
                at_ns=at_ns,
                span=span,
                pid=pid,
                what="file-write",
                cause=cause,
                could_hide=COULD_HIDE[cause],
                from_ns=at_ns,
                to_ns=at_ns,
                detail=path + (b": " + detail if detail else b""),
            )
        )

    def missed(self, who: Who, path: bytes, error: Exception) -> None:
        """A call that could not be looked at."""
        if not isinstance(error, OSError):
            self.gap("internal-error", path, who.span, who.pid, repr(error).encode("utf-8", "backslashreplace"))
        elif error.errno == errno.ENAMETOOLONG and len(path) >= PATH_MAX:
            self.gap("path-too-long", path, who.span, who.pid)
        elif error.errno not in _FAILS_FOR_ALL:
            self.gap("lookup", path, who.span, who.pid, (error.strerror or "").encode())
