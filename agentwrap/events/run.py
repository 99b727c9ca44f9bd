"""Events about the run itself: how it began, what is covered, what could not be seen, how it ended."""

from typing import Literal

from agentwrap.events.base import Event

Tier = Literal["wall", "guard", "witness", "none"]

CoverageKind = Literal[
    "process",
    "exec",
    "file-write",
    "file-read",
    "connect",
    "bind",
    "dns",
    "udp",
    "unix",
    "mcp-stdio",
    "mcp-http",
    "model",
    "claims",
]


class RunStart(Event, frozen=True, kw_only=True, tag="run.start"):
    """The command as it was given, before it runs. `mode` is how the tree is followed (see `launching.plan`)."""

    command: tuple[bytes, ...]
    cwd: bytes
    environment: tuple[tuple[bytes, bytes], ...] = ()
    uid: int
    gid: int
    tty: bool = False
    mode: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def subject(self) -> bytes:
        return b" ".join(self.command)


class Coverage(Event, frozen=True, kw_only=True, tag="coverage"):
    """One observer's statement at the start: what it covers, how strongly, by which mechanism."""

    what: CoverageKind
    tier: Tier
    mechanism: str
    note: str = ""

    @property
    def subject(self) -> bytes:
        return self.what.encode()


class Gap(Event, frozen=True, kw_only=True, tag="gap"):
    """Something that could not be seen, or was not kept.

    `what`: the coverage kind it weakens, `cause`: a short stable word (`over-cap`, `not-dumpable`, ...),
    `could_hide`: one sentence for a reader, `from_ns`/`to_ns`: since when and until when (0 `to_ns`: until the end of
    the run), `detail`: the path, address or error it is about. A gap of one process has that process's span.
    """

    what: CoverageKind
    cause: str
    could_hide: str
    from_ns: int
    to_ns: int = 0
    detail: bytes = b""

    @property
    def subject(self) -> bytes:
        return self.detail or self.what.encode()


class RunEnd(Event, frozen=True, kw_only=True, tag="run.end"):
    """The main command is over and nothing of its tree is left.

    `status`: exit status or None, `signal`: number of the signal that killed it or 0, `reason`: why it ended,
    `ended_daemons`: processes that outlived the main command and were ended by us.
    """

    status: int | None = None
    signal: int = 0
    reason: Literal["exit", "signal", "timeout", "stopped", "failed", "lost"] = "exit"
    ended_daemons: int = 0

    @property
    def subject(self) -> bytes:
        return self.reason.encode()
