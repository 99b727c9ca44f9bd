"""One run in events: an agent that calls a shell, edits files, connects, is refused, and leaves gaps. For readers."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from agentwrap.events import (
    AnyEvent,
    Content,
    Coverage,
    DnsServer,
    FileDirectory,
    FileEdit,
    FileMode,
    FileRename,
    FileState,
    Gap,
    Item,
    NetConnect,
    NetListen,
    ProcessDenied,
    ProcessExec,
    ProcessExit,
    ProcessIsolation,
    ProcessStart,
    RunEnd,
    RunStart,
)

MS = 1_000_000
STARTED_UNIX_NS = 1_764_471_672_102_345_678
COMMAND = (b"agent", b"-p", b"fix the billing tests")
ABSENT = FileState(type="absent")
EVIL = "ev\x1b[31mil\u202e\nname.py".encode() + b"\xff"


def meta() -> dict[str, str]:
    return {
        "command": json.dumps([word.decode() for word in COMMAND]),
        "cwd": "/srv/project",
        "started_unix_ns": str(STARTED_UNIX_NS),
        "tool_version": "0.1.0",
        "mode": "ptrace+notify",
    }


def held(content: bytes, mode: int = 0o644) -> tuple[FileState, Content]:
    digest = hashlib.sha256(content).digest()
    return FileState(size=len(content), mode=mode, raw=digest), Content(digest, content, "after")


def program(at_ms: int, span: str, pid: int, *argv: bytes, uid: int = 1000) -> ProcessExec:
    path = b"/usr/bin/" + argv[0]
    return ProcessExec(
        at_ns=at_ms * MS, span=span, pid=pid, path=path, exe=path, argv=argv, cwd=b"/srv/project", uid=uid, gid=uid,
        euid=uid,
    )  # fmt: skip


def start(at_ms: int, span: str, pid: int, parent: str, comm: bytes) -> ProcessStart:
    return ProcessStart(at_ns=at_ms * MS, span=span, pid=pid, parent=parent, how="fork", comm=comm)


def edit(at_ms: int, span: str, pid: int, path: bytes, before: bytes | None, after: bytes | None) -> list[Item]:
    old, new = (held(content) if content is not None else (ABSENT, None) for content in (before, after))
    change = "create" if before is None else "delete" if after is None else "modify"
    event = FileEdit(at_ns=at_ms * MS, span=span, pid=pid, path=path, change=change, before=old[0], after=new[0])  # type: ignore[arg-type]
    return [*(content for content in (old[1], new[1]) if content is not None), event]


def coverage() -> list[AnyEvent]:
    stated = [("process", "witness"), ("exec", "witness"), ("file-write", "witness"), ("connect", "witness")]
    events: list[AnyEvent] = [
        Coverage(at_ns=0, what=what, tier=tier, mechanism="ptrace and seccomp notification")  # type: ignore[arg-type]
        for what, tier in stated
    ]
    return [*events, Coverage(at_ns=0, what="file-read", tier="none", mechanism="", note="--reads was not given")]


RETRY_BEFORE = b"import time\n\n\ndef retry():\n    for n in range(3):\n        time.sleep(n)\n"
RETRY_AFTER = RETRY_BEFORE.replace(b"        time.sleep(n)\n", b"        # back off\n\n        time.sleep(2 ** n)\n")


def items(*, end: bool = True) -> list[Item]:
    """The whole run, in the order of arrival."""
    begun: list[Item] = [
        RunStart(at_ns=0, command=COMMAND, cwd=b"/srv/project", uid=1000, gid=1000, mode="ptrace+notify"),
        *coverage(),
        ProcessStart(at_ns=1 * MS, span="p1", pid=4100, parent="run", how="root", comm=b"agent"),
        program(2 * MS // MS, "p1", 4100, *COMMAND),
        start(40, "p2", 4121, "p1", b"agent"),
        program(42, "p2", 4121, b"bash", b"-lc", b"sed -i 's/x/y/' billing/retry.py && pytest -x"),
        start(50, "p3", 4127, "p2", b"bash"),
        program(51, "p3", 4127, b"sed", b"-i", b"s/x/y/", b"billing/retry.py"),
        *edit(55, "p3", 4127, b"/srv/project/billing/retry.py", RETRY_BEFORE, RETRY_AFTER),
        ProcessExit(at_ns=60 * MS, span="p3", pid=4127, status=0),
        start(70, "p4", 4130, "p2", b"bash"),
        program(71, "p4", 4130, b"pytest", b"-x", b"tests/billing"),
        *edit(200, "p4", 4130, b"/srv/project/" + EVIL, None, b"\x1b]0;owned\x07\xff\n"),
        FileEdit(at_ns=210 * MS, span="p4", pid=4130, path=b"/home/u/.cache/pip/x", change="create", before=ABSENT,
                 after=FileState(size=9), klass="cache"),
        FileDirectory(at_ns=220 * MS, span="p4", pid=4130, path=b"/srv/project/build", change="create", mode=0o755),
        NetConnect(at_ns=240 * MS, span="p4", pid=4130, family="inet", transport="tcp", host=b"192.0.2.7", port=443),
        DnsServer(at_ns=250 * MS, span="p4", pid=4130, host=b"127.0.0.53", names=(b"telemetry.example",)),
        NetConnect(at_ns=260 * MS, span="p4", pid=4130, family="unix", transport="stream", path=b"/run/nscd/socket"),
        NetListen(at_ns=270 * MS, span="p4", pid=4130, family="inet6", transport="tcp", host=b"::1", port=8080),
        ProcessDenied(at_ns=300 * MS, span="p4", pid=4130, what="setuid", why="no_new_privs is set",
                      detail=b"/usr/bin/sudo"),
        ProcessIsolation(at_ns=310 * MS, span="p4", pid=4130, call="unshare", flags=("CLONE_NEWUSER", "CLONE_NEWNS")),
        FileRename(at_ns=320 * MS, span="p4", pid=4130, path=b"/srv/project/a.txt", target=b"/srv/project/b.txt"),
        FileMode(at_ns=330 * MS, span="p4", pid=4130, path=b"/srv/project/run.sh", change="mode", before=0o644,
                 after=0o755),
        *edit(340, "p4", 4130, b"/srv/project/blob.bin", None, b"\0\1\2" * 700),
        Gap(at_ns=400 * MS, span="p4", pid=4130, what="file-write", cause="over-cap", from_ns=390 * MS, to_ns=400 * MS,
            could_hide="the content of a large file", detail=b"/srv/project/big.iso"),
        ProcessExit(at_ns=3200 * MS, span="p4", pid=4130, status=1),
        ProcessExit(at_ns=3210 * MS, span="p2", pid=4121, status=1),
    ]  # fmt: skip
    ended: list[Item] = [
        ProcessExit(at_ns=4000 * MS, span="p1", pid=4100, status=0),
        RunEnd(at_ns=4001 * MS, status=0),
    ]
    return begun + (ended if end else [])


def record(path: Path, run: Iterable[Item] | None = None, *, close: bool = True, shape_only: bool = False) -> Path:
    """Write the run to `path`; without `close` it is left as a crash leaves it."""
    from agentwrap.recording.redact import Redactor
    from agentwrap.recording.writer import Recorder

    recorder = Recorder.create(
        path, run_id="0123456789abcdef", meta=meta(), redactor=Redactor(b"k" * 32), signer=None, shape_only=shape_only,
        now=lambda: 4002 * MS,
    )  # fmt: skip
    put(recorder, items(end=close) if run is None else run)
    recorder.commit()
    if close:
        recorder.close()
    else:
        recorder.abandon()
    return path


def put(recorder: object, run: Iterable[Item]) -> None:
    """Hand items to a recorder."""
    from agentwrap.events import Secrets
    from agentwrap.recording.writer import Recorder

    assert isinstance(recorder, Recorder)
    for item in run:
        if isinstance(item, Content):
            recorder.content(item)
        elif isinstance(item, Secrets):
            recorder.secrets(item)
        else:
            recorder.add(item)
