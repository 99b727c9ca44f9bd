"""Inside a guest: the same few rows of the adversary's table under each setting that a distribution may have.

A setting is a sysctl; each is tried as root and as a plain user, where it makes a difference. What is told of a run:
how it was followed, how it was confined, how each attempt ended; or, where it refused to start, what it said.
"""

import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from adversary import tiers  # noqa: E402
from adversary.table import ROWS  # noqa: E402

MANY = (2, 9, 10, 17, 33, 35, 39, 43, 52)
FEW = (10, 17, 33)
tiers.TIMEOUT_S = 900  # an emulated processor is slow, and slower beside others
YAMA, NAMESPACES = "kernel/yama/ptrace_scope", "user/max_user_namespaces"


def _set(name: str, value: str) -> str:
    path = Path("/proc/sys") / name
    old = path.read_text().strip()
    path.write_text(value)
    return old


def _one(setting: str, tier: str, rows: tuple[int, ...]) -> dict[str, Any]:
    """One run under a setting, beside one without agentwrap."""
    started = time.monotonic()
    bare = tiers.without(tiers.run(tier, rows, bare=True)) if rows == MANY else {}
    ran = tiers.run(tier, rows)
    started_row = [event for event in ran.recorded.events if event.kind == "run.start"]
    found: dict[str, Any] = {
        "setting": setting,
        "user": tier.removeprefix("wall-"),
        "status": ran.status,
        "stderr": ran.stderr[-1000:],
        "covered": ran.tier() if started_row else "",
        "mode": started_row[0].data["mode"] if started_row else "",
        "gaps": sorted({event.data["cause"] for event in ran.recorded.events if event.kind == "gap"}),
        "through_without": [sum(not refused for refused in bare.values()), len(bare)],
        "attempts": {},
    }
    for row in ROWS:
        if row.number in rows and ran.reports:
            for attempt, outcome in tiers.judged(ran, row):
                outcome = tiers.against(attempt, row, outcome, bare)
                name = f"{row.number}{attempt['letter']} {attempt['what']}"
                found["attempts"][name] = [outcome.word, row.expected(tier, attempt["letter"]), outcome.why]
    return found | {"took_s": round(time.monotonic() - started, 1)}


def everything() -> dict[str, Any]:
    """All settings, in an order that allows it: Yama's scope can only be raised."""
    os.environ["PATH"] = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    runs = [_one("stock", tier, MANY) for tier in ("wall-root", "wall-user")]
    old = _set(NAMESPACES, "0")
    runs += [_one("no user namespaces", tier, FEW) for tier in ("wall-root", "wall-user")]
    _set(NAMESPACES, old)
    if (Path("/proc/sys") / YAMA).exists():
        for scope, users in (("1", ("user",)), ("2", ("root", "user")), ("3", ("root", "user"))):
            _set(YAMA, scope)
            runs += [_one(f"Yama {scope}", f"wall-{user}", FEW) for user in users]
    return {"kernel": platform.release(), "runs": runs}


def kernel_tests(*arguments: str) -> dict[str, Any]:
    """Tests of this checkout by pytest, as root and as a plain user: status and last lines of each."""
    found = {}
    for user in ("root", "user"):
        home = Path(f"/tmp/{user}")
        home.mkdir(exist_ok=True)
        drop = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] if user == "user" else []
        if drop:
            os.chown(home, 65534, 65534)
        environment = {"HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8",
                       "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
                       "HYPOTHESIS_STORAGE_DIRECTORY": str(home)}  # fmt: skip
        words = [*drop, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest",
                 "--timeout", "300", *arguments]  # fmt: skip
        started = time.monotonic()
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
        tail = (done.stdout + done.stderr)[-3000:]
        found[user] = {"status": done.returncode, "said": tail, "took_s": round(time.monotonic() - started, 1)}
    return found


def some(setting: str, user: str, rows: str) -> dict[str, Any]:
    """One run, for looking into things by hand: `some stock root 10,17`."""
    numbers = tuple(int(word) for word in rows.split(","))
    return {"kernel": platform.release(), "runs": [_one(setting, f"wall-{user}", numbers)]}
