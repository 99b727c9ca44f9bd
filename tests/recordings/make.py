"""Makes the sample files beside it: `python tests/recordings/make.py`. Also the small run that tests of the file use.

The key is a fixed one, so that anybody can verify the samples (`samples.pub`); it signs nothing else.
"""

import contextlib
import hashlib
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

try:
    from recordings import conversation
except ImportError:  # run as a script
    import conversation  # type: ignore[import-not-found,no-redef]

from agentwrap.events import (
    AnyEvent,
    Content,
    Coverage,
    FileEdit,
    FileRename,
    FileState,
    Gap,
    NetConnect,
    ProcessDenied,
    ProcessExec,
    ProcessExit,
    ProcessStart,
    RunEnd,
    RunStart,
    Secrets,
)
from agentwrap.recording import keys
from agentwrap.recording.redact import Redactor
from agentwrap.recording.writer import Recorder

FOLDER = Path(__file__).parent
SEED = hashlib.sha256(b"the key of the samples").digest()
RUN_KEY = hashlib.sha256(b"the run key of the samples").digest()
META = {
    "tool_version": "0.1.0",
    "started_unix_ns": "1767225600000000000",
    "command": '["sh", "-c", "echo fixed >> notes.txt"]',
    "cwd": "/home/user/project",
    "kernel": "6.1.0",
    "arch": "x86_64",
    "mode": "ptrace+notify",
}
BEFORE, AFTER = b"one line\n", b"one line\nfixed\n"


def state(content: bytes) -> FileState:
    return FileState(size=len(content), mode=0o644, uid=1000, gid=1000, raw=hashlib.sha256(content).digest())


def events() -> Iterator[AnyEvent | Content]:
    """A shell that appends to a file, is refused a set-id program, and tries one connection."""
    user = {"uid": 1000, "gid": 1000}
    argv = (b"sh", b"-c", b"echo fixed >> notes.txt")
    yield RunStart(
        at_ns=0, command=argv, cwd=b"/home/user/project", mode="ptrace+notify", **user,
        environment=((b"HOME", b"/home/user"), (b"LANG", b"C.UTF-8")),
    )  # fmt: skip
    yield Coverage(at_ns=1_000, what="exec", tier="witness", mechanism="ptrace")
    yield Coverage(at_ns=1_000, what="file-write", tier="witness", mechanism="seccomp notify", note="by content")
    yield ProcessStart(at_ns=2_000_000, span="p1", pid=41, parent="run", ppid=40, how="root", comm=b"agentwrap")
    yield ProcessExec(
        at_ns=3_000_000, span="p1", pid=41, path=b"/bin/sh", exe=b"/usr/bin/dash", argv=argv,
        cwd=b"/home/user/project", euid=1000, **user,
    )  # fmt: skip
    yield Content(sha=hashlib.sha256(BEFORE).digest(), data=BEFORE, role="before")
    yield Content(sha=hashlib.sha256(AFTER).digest(), data=AFTER, role="after")
    yield FileEdit(
        at_ns=5_000_000, span="p1", pid=41, path=b"/home/user/project/notes.txt", change="modify",
        before=state(BEFORE), after=state(AFTER), writers=("p1",),
    )  # fmt: skip
    yield FileRename(
        at_ns=5_500_000, span="p1", pid=41, path=b"/home/user/project/a\xff", target=b"/home/user/project/b"
    )
    yield NetConnect(
        at_ns=6_000_000, span="p1", pid=41, family="inet", transport="tcp", host=b"192.0.2.7", port=443
    )  # fmt: skip
    yield ProcessDenied(at_ns=6_500_000, span="p1", pid=41, what="setuid", why="no new privileges", detail=b"/bin/su")
    yield Gap(
        at_ns=7_000_000, what="file-write", cause="over-cap", could_hide="what the file held before",
        from_ns=6_900_000, to_ns=7_000_000, detail=b"/home/user/project/big.bin",
    )  # fmt: skip
    yield ProcessExit(at_ns=8_000_000, span="p1", pid=41, status=0, user_ns=900_000, max_rss_bytes=1_000_000)
    yield RunEnd(at_ns=9_000_000, status=0)


class Ticks:
    """A clock that moves a microsecond whenever it is looked at: samples come out the same every time."""

    def __init__(self) -> None:
        self.ns = 10_000_000

    def __call__(self) -> int:
        self.ns += 1_000
        return self.ns


def begin(path: Path, *, signed: bool = True, shape_only: bool = False, run_id: str = "5a3b1e0c") -> Recorder:
    """A recorder with nothing in it yet."""
    signer = keys.Signer(SEED) if signed else None
    return Recorder.create(
        path, run_id=run_id, meta=META, redactor=Redactor(RUN_KEY), signer=signer, shape_only=shape_only, now=Ticks()
    )


def feed(recorder: Recorder, checkpoint_after: int = 6) -> None:
    """Put the small run in, with one checkpoint on the way."""
    for item in events():
        if isinstance(item, Content):
            recorder.content(item)
        elif recorder.add(item) == checkpoint_after:
            recorder.checkpoint()


def closed(path: Path, *, signed: bool = True, shape_only: bool = False) -> Path:
    """The small run as a closed file."""
    recorder = begin(path, signed=signed, shape_only=shape_only)
    feed(recorder)
    recorder.close()
    return path


def model(path: Path) -> Path:
    """A conversation of six calls with a model as a closed file; the last requests are lists."""
    recorder = begin(path)
    for item in conversation.items(6):
        if isinstance(item, Content):
            recorder.content(item)
        else:
            assert not isinstance(item, Secrets)
            recorder.add(item)
    recorder.close()
    return path


def torn(path: Path) -> Path:
    """The small run as a crash leaves it, without its -wal: what had been moved into the file by then."""
    living = path.with_suffix(".living")
    recorder = begin(living)
    feed(recorder)
    recorder.commit()
    # A checkpoint of SQLite's (not of ours): as after a thousand pages.
    with contextlib.closing(sqlite3.connect(living)) as other:
        other.execute("PRAGMA wal_checkpoint(FULL)")
    shutil.copyfile(living, path)
    recorder.abandon()
    for suffix in ("", "-wal", "-shm"):
        Path(f"{living}{suffix}").unlink(missing_ok=True)
    return path


def edit(path: Path, *statements: str) -> Path:
    """Change a file through SQLite, as anybody can."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        for statement in statements:
            database.execute(statement)
    return path


def public_key() -> bytes:
    return keys.Signer(SEED).public


def main() -> int:
    for name in ("good", "model", "torn", "tampered", "shape-only", "from-the-future"):
        (FOLDER / f"{name}.agentlog").unlink(missing_ok=True)
    closed(FOLDER / "good.agentlog")
    model(FOLDER / "model.agentlog")
    torn(FOLDER / "torn.agentlog")
    edit(
        closed(FOLDER / "tampered.agentlog"), "UPDATE event SET subject = '198.51.100.1:443' WHERE kind = 'net.connect'"
    )
    closed(FOLDER / "shape-only.agentlog", shape_only=True)
    edit(closed(FOLDER / "from-the-future.agentlog"), "PRAGMA user_version = 2")
    (FOLDER / "samples.pub").write_text(keys.public_text(public_key()))
    for path in FOLDER.glob("*.agentlog"):
        path.chmod(0o644)  # as a checkout makes them: whoever runs the tests may not be whoever made the samples
    return 0


if __name__ == "__main__":
    sys.exit(main())
