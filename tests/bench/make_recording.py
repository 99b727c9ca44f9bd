"""Make a synthetic recording of N events, fast: `python tests/bench/make_recording.py N FILE`.

A tree of short processes that exec, edit files in place and connect, in the proportions of a build. Written by the real
recorder, so that what is measured on it is what a run leaves.
"""

import hashlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from agentwrap.events import (
    AnyEvent,
    Coverage,
    FileEdit,
    FileState,
    NetConnect,
    ProcessExec,
    ProcessExit,
    ProcessStart,
    RunEnd,
    RunStart,
)
from agentwrap.events.run import CoverageKind
from agentwrap.recording.redact import Redactor
from agentwrap.recording.writer import Recorder

MS = 1_000_000
ABSENT = FileState(type="absent")
COMMIT_EVERY = 5_000
COVERED: tuple[CoverageKind, ...] = ("process", "exec", "file-write", "connect")


def events(wanted: int) -> Iterator[AnyEvent]:
    """`wanted` events, as a run would make them."""
    yield RunStart(at_ns=0, command=(b"make", b"-j2"), cwd=b"/srv", uid=0, gid=0, mode="ptrace+notify")
    for what in COVERED:
        yield Coverage(at_ns=0, what=what, tier="witness", mechanism="synthetic")
    yield ProcessStart(at_ns=MS, span="p1", pid=100, parent="run", how="root", comm=b"make")
    made, number = 2 + len(COVERED), 1
    while made < wanted - 8:
        number += 1
        span, pid, at_ns = f"p{number}", 100 + number, number * MS
        source = b"/srv/src/dir%d/file%d.o" % (number % 97, number)
        after = FileState(size=number, mode=0o644, raw=hashlib.sha256(source).digest(), omitted="over-cap")
        argv = (b"/usr/bin/cc", b"-O2", b"-c", source)
        yield ProcessStart(at_ns=at_ns, span=span, pid=pid, parent="p1", how="vfork", comm=b"make")
        yield ProcessExec(
            at_ns=at_ns + 1, span=span, pid=pid, path=argv[0], exe=argv[0], argv=argv, cwd=b"/srv", uid=0, gid=0,
            euid=0,
        )  # fmt: skip
        for n, klass in enumerate(("work", "temporary", "cache")):
            yield FileEdit(
                at_ns=at_ns + 2 + n, span=span, pid=pid, path=source + b".%d" % n, change="create", before=ABSENT,
                after=after, klass=klass,  # type: ignore[arg-type]
            )  # fmt: skip
        yield NetConnect(at_ns=at_ns + 6, span=span, pid=pid, family="unix", transport="stream", path=b"/run/x")
        yield ProcessExit(at_ns=at_ns + 7, span=span, pid=pid, status=int(number % 50 == 0))
        made += 7
    yield ProcessExit(at_ns=number * MS + 100, span="p1", pid=100, status=0)
    yield RunEnd(at_ns=number * MS + 200, status=0)


def make(wanted: int, path: Path) -> int:
    """Write the recording; returns how many events it has."""
    meta = {"command": json.dumps(["make", "-j2"]), "cwd": "/srv", "started_unix_ns": "1764471672000000000"}
    recorder = Recorder.create(
        path, run_id="00000000000000ff", meta=meta, redactor=Redactor(b"k" * 32), signer=None, now=lambda: 0
    )
    count = 0
    for event in events(wanted):
        count = recorder.add(event)
        if count % COMMIT_EVERY == 0:
            recorder.commit()
    recorder.close()
    return count


if __name__ == "__main__":
    began = time.monotonic()
    total = make(int(sys.argv[1]), Path(sys.argv[2]))
    elapsed = time.monotonic() - began
    sys.stdout.write(f"{total:,} events in {elapsed:.1f} s, {total / elapsed:,.0f} events/s\n")
