"""Runs rows of the table inside agentwrap, in each tier that this machine can make, and collects the three witnesses.

A tier is a way to start agentwrap: as root, as a plain user, in a container of one of the profiles. Every one of them
stands in the same outside world (`world.py`), which is entered first: agentwrap itself runs in it, as on any machine.
"""

import ctypes
import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adversary import addresses
from adversary.table import ROWS, Row
from adversary.verdicts import NOTHING, Outcome, Recorded, arrived, judge
from containers import Container, missing
from wrapping import events

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PLAIN = 65534
CONTAINERS = ("docker", "podman", "drop-all", "no-ptrace")
TIERS = ("wall-root", "wall-user", *CONTAINERS)
TIMEOUT_S = 3000.0
POLICIES = {"": addresses.POLICY, "closed": addresses.CLOSED, "open": addresses.OPEN, "ask": addresses.ASK}
_libc = ctypes.CDLL(None, use_errno=True)


def refusal(tier: str) -> str:
    """Why a tier cannot run here; empty if it can."""
    if tier == "wall-root" and os.geteuid():
        return "needs root"
    if tier in CONTAINERS and (why := missing()):
        return why
    if tier in ("wall-user", "drop-all") and not os.geteuid():
        probe = subprocess.run(
            [sys.executable, "-c", "import agentwrap, click, msgspec"], preexec_fn=_become(PLAIN), capture_output=True
        ) if _reachable() else None  # fmt: skip
        return "" if probe and not probe.returncode else f"a plain user cannot run {sys.executable} with agentwrap"
    return ""


def _reachable() -> bool:
    """Whether everybody may pass through the folders above this Python and this checkout."""
    paths = {Path(sys.executable), Path(sys.executable).resolve(), HERE}
    return all(parent.stat().st_mode & 0o001 for path in paths for parent in path.parents)


def _become(uid: int) -> Callable[[], None]:
    def drop() -> None:
        if not os.geteuid() and uid:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)

    return drop


def uid_of(tier: str) -> int:
    if tier == "wall-user":
        return PLAIN if not os.geteuid() else os.geteuid()
    return 1000 if tier == "drop-all" else 0


@contextmanager
def world(folder: Path, uid: int) -> Iterator[int]:
    """The outside world; its pid."""
    process = subprocess.Popen(
        [sys.executable, "-B", HERE / "world.py", folder, str(uid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        words = process.stdout.readline().split()
        if len(words) != 2:
            raise RuntimeError("the outside world did not come up")
        yield int(words[1])
    finally:
        process.communicate()


class InWorld(Container):
    """A container in the world's network, with its `/run` and resolver."""

    def __init__(self, name: str, folder: Path, pid: int) -> None:
        needed = {ROOT, Path(sys.prefix), Path(sys.base_prefix), folder} - {Path("/usr"), Path("/")}
        super().__init__(name, keep=sorted(needed))
        self._folder, self._pid = folder, pid

    def _specification(self, work: Path, argv: Sequence[str], cwd: Path, env: dict[str, str]) -> dict[str, Any]:
        spec = super()._specification(work, argv, cwd, env)
        for namespace in spec["linux"]["namespaces"]:
            if namespace["type"] == "network":
                namespace["path"] = f"/proc/{self._pid}/ns/net"
        for target, source in (("/run", "run"), ("/etc/resolv.conf", "resolv.conf"), ("/etc/hosts", "hosts")):
            bind = {
                "destination": target,
                "source": str(self._folder / source),
                "type": "bind",
                "options": ["rbind", "rw"],
            }
            spec["mounts"].append(bind)
        return spec


@dataclass
class Ran:
    """One run of agentwrap: its status and output, the reports of the rows, the servers' log, the recording."""

    status: int
    stderr: str
    reports: list[dict[str, Any]]
    log: list[dict[str, Any]]
    recorded: Recorded
    left: list[int] = field(default_factory=list)

    def tier(self) -> str:
        """How strongly connections were covered, as the recording says."""
        told = [
            event.data["tier"]
            for event in self.recorded.events
            if event.kind == "coverage" and event.data["what"] == "connect"
        ]
        return told[-1] if told else "not told"


def _prepare(folder: Path, policy: str, uid: int) -> dict[str, str]:
    """Folders, files and environment of one run."""
    for name in ("home", "home/.ssh", "work/project/.git/hooks", "outside", "tmp", "state", "config", "data", "run"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in ("victim-42", "victim-55"):
        (folder / "outside" / name).write_text("untouched\n")
    for name in (".git/config", ".git/hooks/pre-commit", ".mcp.json"):
        (folder / "work/project" / name).write_text("untouched\n")
    (folder / "home/.bashrc").write_text("untouched\n")
    (folder / "policy.toml").write_text(POLICIES[policy].format(folder=folder))
    folder.chmod(0o755)
    for path in (folder, *folder.rglob("*")):
        if not os.geteuid():
            os.chown(path, uid, uid)
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8", "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"), "PYTHONDONTWRITEBYTECODE": "1",
        **{f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("STATE", "CONFIG", "DATA")},
        "ADVERSARY_FOLDER": str(folder), "ADVERSARY_UID": str(uid),
        "ADVERSARY_AGENTWRAP": json.dumps([sys.executable, "-m", "agentwrap"]),
    }  # fmt: skip


def _enter(pid: int, uid: int, cwd: Path) -> Callable[[], None]:
    """In the child before its exec: into the world's namespaces, then down to the user (setns(2))."""
    kinds = ("net", "mnt") if not os.geteuid() else ("user", "net", "mnt")
    handles = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in kinds]

    def enter() -> None:
        for handle in handles:
            if _libc.setns(handle, 0):
                raise OSError(ctypes.get_errno(), "setns")
        os.chdir(cwd)
        _become(uid)()

    return enter


def restrictions(folder: Path) -> list[str]:
    """The options under which every row runs."""
    return ["--network", "gateway", "--policy", str(folder / "policy.toml")]


def run(
    tier: str,
    numbers: Sequence[int],
    *,
    policy: str = "",
    terminal: bool = False,
    inherit: bool = False,
    bare: bool = False,
) -> Ran:
    """Run these rows in one agentwrap, or with none (`bare`).

    `inherit`: with a connected socket open; `terminal`: under one of its own.
    """
    uid = uid_of(tier)
    folder = Path(tempfile.mkdtemp(prefix="agentwrap-adversary-", dir="/tmp"))
    try:
        environment = _prepare(folder, policy, uid) | {"ADVERSARY_BARE": "1" * bare}
        with world(folder, uid) as pid:
            recording = folder / "run.agentlog"
            words = [sys.executable, "-m", "agentwrap", "run", "-q", "-o", str(recording), *restrictions(folder), "--"]
            words = [*words * (not bare), sys.executable, "-B", str(HERE / "inside"), ",".join(map(str, numbers))]
            done = _start(tier, words, pid, uid, folder, environment, terminal=terminal, inherit=inherit)
            log = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
        try:
            reports = json.loads(done.stdout)
        except ValueError:
            reports = []
        rows = events(recording) if recording.exists() else []
        left = _left(reports)
        for number in left:
            with suppress(ProcessLookupError):  # it may be about to go by itself
                os.kill(number, signal.SIGKILL)
        return Ran(done.returncode, done.stderr, reports, log, Recorded(rows), left)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(
    tier: str, words: list[str], pid: int, uid: int, folder: Path, env: dict[str, str], *, terminal: bool, inherit: bool
) -> "subprocess.CompletedProcess[str]":
    work = folder / "work"
    if tier in CONTAINERS:
        return InWorld(tier, folder, pid).run(words, cwd=work, env=env, timeout=TIMEOUT_S)
    enter = _enter(pid, uid, work)
    given: list[int] = []
    if inherit:
        given = [_connected(pid)]
    report = folder / "report"
    keywords: dict[str, Any] = {"stdin": subprocess.DEVNULL}
    if terminal:
        leader, follower = pty.openpty()
        keywords = {"stdin": follower, "start_new_session": True}
        words = [*words[:-4], "sh", "-c", '"$@" >"$0"', str(work / "report"), *words[-4:]]
        words = ["setsid", "--ctty", "--wait", *words]
        report = work / "report"
    try:
        done = subprocess.run(
            words, env=env, preexec_fn=enter, pass_fds=given, capture_output=True, text=True, timeout=TIMEOUT_S,
            **keywords,
        )  # fmt: skip
    finally:
        for number in given:
            os.close(number)
        if terminal:
            os.close(leader)
            os.close(follower)
    if terminal and report.exists():
        done.stdout = report.read_text()
    return done


def _connected(pid: int) -> int:
    """A socket that is connected to the address of row 37, made in the world."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if not child:
        try:
            _enter(pid, 0, Path("/"))()
            with socket.create_connection((addresses.forbidden(37), 9999)) as made:
                socket.send_fds(theirs, [b"x"], [made.fileno()])
        finally:
            os._exit(0)
    with ours, theirs:
        ours.settimeout(300)
        _, numbers, _, _ = socket.recv_fds(ours, 1, 1)
        os.waitpid(child, 0)
    return numbers[0]


def _left(reports: Sequence[dict[str, Any]]) -> list[int]:
    """Daemons of the attempts that are still there."""
    daemons = [attempt["more"].get("daemon", 0) for report in reports for attempt in report["attempts"]]
    return [pid for pid in daemons if pid and _is_ours(pid)]


def _is_ours(pid: int) -> bool:
    try:
        return b"--row" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def judged(ran: Ran, row: Row) -> list[tuple[dict[str, Any], Outcome]]:
    """Each attempt of a row with its outcome."""
    report = next((one for one in ran.reports if one["row"] == row.number), None)
    if report is None or not report["attempts"]:
        why = (report or {}).get("fault") or ran.stderr[-300:] or "no report"
        return [({"letter": "a", "what": row.technique}, Outcome(NOTHING, str(why)))]
    found = []
    for attempt in report["attempts"]:
        outcome = judge(attempt, row.number, ran.log, ran.recorded)
        if attempt.get("outlives") and attempt["more"].get("daemon") in ran.left:
            outcome = Outcome(NOTHING, "the daemon outlived the run")
        found.append((attempt, outcome))
    return found


def without(ran: Ran) -> dict[tuple[int, str], str]:
    """(row, letter) to what came of the attempt without agentwrap: empty if it got through, else the error."""
    found = {}
    for report in ran.reports:
        for attempt in report["attempts"]:
            through = attempt["reached"] or arrived(attempt, report["row"], ran.log)
            found[report["row"], attempt["letter"]] = "" if through else attempt["refused"] or "no answer"
    return found


@dataclass
class Tier:
    """What one tier showed: how connections were covered, each attempt's outcome, and how it goes without agentwrap."""

    covered: str
    rows: dict[int, list[tuple[dict[str, Any], Outcome]]]
    bare: dict[tuple[int, str], str]


def everything(tier: str, only: Sequence[int] = ()) -> Tier:
    """All rows of the table that run, in one tier: as few runs as their needs allow."""
    chosen = [row for row in ROWS if row.runs and (not only or row.number in only)]
    together = [row.number for row in chosen if row.together]
    bare = without(run(tier, [row.number for row in chosen if not row.alone], bare=True))
    ran = run(tier, together) if together else None
    found, covered = {}, ran.tier() if ran else ""
    for row in chosen:
        if not row.together or ran is None:
            needs = {"policy": row.policy, "terminal": row.terminal, "inherit": row.inherit}
            own = run(tier, [row.number], **needs)  # type: ignore[arg-type]
            covered = covered or own.tier()
            found[row.number] = judged(own, row)
        else:
            found[row.number] = judged(ran, row)
        found[row.number] = [(attempt, against(attempt, row, outcome, bare)) for attempt, outcome in found[row.number]]
    return Tier(covered, found, bare)


def against(attempt: dict[str, Any], row: Row, outcome: Outcome, bare: dict[tuple[int, str], str]) -> Outcome:
    """What the machine refuses with agentwrap or without never comes to anybody's notice: its own word."""
    refused = attempt.get("refused", "")
    if outcome.word == NOTHING and refused and bare.get((row.number, attempt["letter"])) == refused:
        return Outcome("machine", f"{refused}, with agentwrap or without")
    return outcome
