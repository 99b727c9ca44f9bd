"""Runs the real command line on the real kernel and reads what it recorded with plain SQLite."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

AGENTWRAP = (sys.executable, "-m", "agentwrap")
PATIENCE = float(os.environ.get("AGENTWRAP_TESTS_PATIENCE") or 1)
"""How much slower than a machine of today this one may be: an emulated one is by far."""


@dataclass(frozen=True)
class Event:
    seq: int
    at_ns: int
    kind: str
    span: str
    pid: int
    subject: str
    verdict: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Wrapped:
    """A finished run: exit status (negative: killed by a signal), output, and the recording."""

    status: int
    stdout: bytes
    stderr: bytes
    recording: Path

    def events(self, *kinds: str) -> list[Event]:
        return events(self.recording, *kinds)

    def gaps(self) -> list[str]:
        return [event.data["cause"] for event in self.events("gap")]

    def paths(self, kind: str, klass: str | None = None) -> list[str]:
        return [e.data["path"] for e in self.events(kind) if klass is None or e.data.get("klass", "work") == klass]


def events(recording: Path, *kinds: str) -> list[Event]:
    db = sqlite3.connect(f"file:{recording}?mode=ro", uri=True)
    try:
        rows = db.execute(
            "select seq, at_ns, kind, span, pid, subject, verdict, data from event order by seq"
        ).fetchall()
    finally:
        db.close()
    out = [Event(*row[:5], row[5] or "", row[6] or "", json.loads(row[7])) for row in rows]
    return [event for event in out if not kinds or event.kind in kinds]


def environment(home: Path, **more: str) -> dict[str, str]:
    """A small environment with a HOME of the test's own; PATH without version-manager shims."""
    return {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(home), "LANG": "C.UTF-8", **more}


def command(recording: Path, *arguments: str, options: Sequence[str] = ()) -> list[str]:
    return [*AGENTWRAP, "run", "-q", "-o", str(recording), *options, "--", *arguments]


def wrap(
    folder: Path,
    *arguments: str,
    options: Sequence[str] = (),
    name: str = "run",
    stdin: bytes = b"",
    env: dict[str, str] | None = None,
    timeout_s: float = 300,
    **keywords: Any,
) -> Wrapped:
    """Run `agentwrap run OPTIONS -- ARGUMENTS` in `folder/work`; the recording is `folder/NAME.agentlog`."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    recording = folder / f"{name}.agentlog"
    done = subprocess.run(
        command(recording, *arguments, options=options),
        input=stdin,
        capture_output=True,
        cwd=keywords.pop("cwd", work),
        env={**environment(folder), **(env or {})},
        timeout=timeout_s * PATIENCE,
        **keywords,
    )
    return Wrapped(done.returncode, done.stdout, done.stderr, recording)


def program(folder: Path, name: str, source: str) -> str:
    """Compile a C program for a test; the path of the binary."""
    path = folder / name
    (folder / f"{name}.c").write_text("#define _GNU_SOURCE\n" + source)
    subprocess.run(["cc", "-O1", "-w", "-pthread", "-o", path, folder / f"{name}.c"], check=True)
    return str(path)


def is_root() -> bool:
    return os.geteuid() == 0
