"""Inside a guest: rows of the adversary's table under each setting that a distribution may have, and tests of kernels.

A setting is a sysctl; each is tried as root and as a plain user, where it makes a difference. What is told of a run:
how it was followed, how it was confined, how each attempt ended; or, where it refused to start, what it said.
"""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from adversary import tiers  # noqa: E402
from adversary.table import ROWS  # noqa: E402
from kernels import chosen  # noqa: E402

MANY = (2, 10, 33, 39, 43)
FEW = (10,)
tiers.TIMEOUT_S = 900  # an emulated processor is slow, and slower beside others


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
            for attempt, seen in tiers.judged(ran, row):
                outcome = tiers.against(attempt, row, seen, bare)
                name = f"{row.number}{attempt['letter']} {attempt['what']}"
                found["attempts"][name] = [outcome.word, row.expected(tier, attempt["letter"]), outcome.why]
    return found | {"took_s": round(time.monotonic() - started, 1)}


def everything(which: str, *everywhere: str) -> Iterator[dict[str, Any]]:
    """All steps for a kernel (`chosen.STEPS`); with `everywhere`, these tests instead of the chosen ones."""
    yield {"kernel": platform.release()}
    for what, setting, user in chosen.STEPS[which]:
        old = {name: _set(name, value) for name, value in chosen.SYSCTLS[setting].items()}
        if what == chosen.TESTS:
            yield from kernel_tests(user, *(everywhere or chosen.tests(which, user)), setting=setting)
        else:
            yield _one(setting, f"wall-{user}", MANY if setting == "stock" else FEW)
        if chosen.NAMESPACES in old:  # Yama's scope can only be raised
            _set(chosen.NAMESPACES, old[chosen.NAMESPACES])


def kernel_tests(user: str, *arguments: str, setting: str = "stock") -> Iterator[dict[str, Any]]:
    """Tests of this checkout by pytest, as root or as a plain user; `inside.py` says of each how it ended."""
    home = Path(f"/tmp/{user}")
    home.mkdir(exist_ok=True)
    drop = []
    if user == "user":
        drop = ["setpriv", "--reuid", str(tiers.PLAIN), "--regid", str(tiers.PLAIN), "--clear-groups"]
        os.chown(home, tiers.PLAIN, tiers.PLAIN)
    environment = {
        "HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8",
        "AGENTWRAP_TESTS_PATIENCE": "10", "HYPOTHESIS_STORAGE_DIRECTORY": str(home),
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    }  # fmt: skip
    inside = Path(__file__).resolve().with_name("inside.py")
    started = time.monotonic()
    done = subprocess.run(
        [*drop, sys.executable, inside, user, "/dev/ttyS1", *arguments], cwd=ROOT, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    took = {"took_s": round(time.monotonic() - started, 1)}
    yield {"tests_of": user, "setting": setting, "status": done.returncode, "said": done.stdout[-4000:], **took}


def some(setting: str, user: str, rows: str) -> Iterator[dict[str, Any]]:
    """One run, for looking into things by hand: `some stock root 10,17`."""
    yield _one(setting, f"wall-{user}", tuple(int(word) for word in rows.split(",")))
