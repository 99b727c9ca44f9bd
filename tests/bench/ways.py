"""The ways a workload is run: bare, under strace, under strace with our event set, under agentwrap."""

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentwrap.tracing.syscalls import watched

PROCESS_CALLS = ("execve", "execveat", "fork", "vfork", "clone", "clone3", "open", "openat", "sendto", "seccomp")


@dataclass(frozen=True)
class Way:
    """`prefix(out)` is what is put before the command; `out` is where the tool's own file goes.

    `slow`: takes many times the native time, so it is run in every other round only.
    """

    name: str
    prefix: Callable[[str], list[str]]
    records: bool = False
    slow: bool = False


def watched_calls() -> str:
    """What agentwrap's filter reports, as strace's trace set. `?` lets strace skip a name that it does not know.

    strace cannot look at flags in its filter: it stops at every open, agentwrap at those that write.
    """
    names = [*watched._FILE, *watched._NETWORK, *watched._ISOLATION, *watched._REACH, *PROCESS_CALLS]
    return ",".join(f"?{name}" for name in names)


def default_agentwrap() -> list[str]:
    """The console script beside this Python, else the module."""
    script = Path(sys.executable).with_name("agentwrap")
    return [str(script)] if script.exists() else [sys.executable, "-m", "agentwrap"]


def ways(agentwrap: Sequence[str]) -> list[Way]:
    """All ways this machine has."""
    run = [*agentwrap, "run", "-q"]
    found = [
        Way("native", lambda _: []),
        Way("agentwrap", lambda out: [*run, "-o", out, "--"], records=True),
        Way("agentwrap --reads", lambda out: [*run, "--reads", "-o", out, "--"], records=True),
    ]
    if shutil.which("strace"):
        calls = watched_calls()
        found[1:1] = [
            Way("strace -f", lambda out: ["strace", "-f", "-q", "-o", out], slow=True),
            Way(
                "strace, same events",
                lambda out: ["strace", "-f", "--seccomp-bpf", "-q", "-e", f"trace={calls}", "-o", out],
                slow=True,
            ),
        ]
    return found
