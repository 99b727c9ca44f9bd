"""Stock Debian kernels, booted: what a run is there, as root and as a plain user, under settings of distributions.

Each thing that is missing has a name: a weaker tier or mode with its gaps in the recording, a refusal that says what is
missing and what to do, or a test that is skipped with its reason, which the summary shows. One boot for each kernel;
what is tried in which is said in `chosen.py`.
"""

import json
import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
from kernels import boot, chosen

ALL = os.environ.get("AGENTWRAP_KERNEL_TESTS") == "all"
LIMIT_S = 4 * 3600 if ALL else 2400
pytestmark = [pytest.mark.timeout(LIMIT_S + 100), pytest.mark.emulated]
FINE_ANYWHERE = {"skipped", "machine"}
WHICH = tuple(chosen.STEPS)


@dataclass
class Shown:
    """What a guest told: of rows of the table by (setting, user), of tests by user, and its last words."""

    kernel: str
    rows: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    tests: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    ends: dict[str, dict[str, Any]] = field(default_factory=dict)
    console: str = ""


@cache
def kernels() -> tuple[str, ...]:
    return tuple(boot.oldest_and_newest())


@cache
def booted() -> dict[str, "Future[boot.Booted]"]:
    """All of them at once: each has one test at a time, and waits more than it works."""
    pool = ThreadPoolExecutor(2)
    everywhere = ("tests/kernel",) if ALL else ()
    return {
        which: pool.submit(boot.boot, package, ["everything", which, *everywhere], timeout_s=LIMIT_S)
        for which, package in zip(WHICH, kernels(), strict=False)
    }


def shown(which: str) -> Shown:
    """What the guest with that kernel told; skips where there is none."""
    if why := boot.missing():
        pytest.skip(why)
    try:
        if which not in booted():
            pytest.skip("the package lists know one kernel alone")
        result = booted()[which].result()
    except boot.Unavailable as why_not:
        pytest.skip(str(why_not))
    told = [json.loads(line) for line in result.said.splitlines() if line.startswith("{")]
    assert told, result.console[-3000:]
    found = Shown(told[0]["kernel"])
    found.console = result.console[-3000:] if result.ended else "the guest was not done in time"
    for one in told[1:]:
        if "tests_of" in one:
            found.ends[one["tests_of"]] = one
        elif "test" in one:
            found.tests.setdefault(one["user"], []).append(one)
        else:
            found.rows[one["setting"], one["user"]] = one
    return found


def cases(what: str, wanted: Callable[[tuple[str, str]], bool] = lambda _case: True) -> Any:
    """Parameters (which kernel, setting, user) of every step of a sort."""
    return pytest.mark.parametrize(
        ("which", "case"),
        [
            pytest.param(which, (setting, user), id=f"{which}-{setting} as {user}")
            for which, steps in chosen.STEPS.items()
            for sort, setting, user in steps
            if sort == what and wanted((setting, user))
        ],
    )


@cases("rows")
def test_what_is_missing_is_a_named_tier_or_a_refusal(which: str, case: tuple[str, str]) -> None:
    guest = shown(which)
    assert guest.kernel in kernels()[WHICH.index(which)]
    assert case in guest.rows, guest.console
    run = guest.rows[case]
    covered, mode = chosen.EXPECTED[case]
    if not covered:
        assert run["status"] == 125
        assert "error: " in run["stderr"]
        assert "hint: " in run["stderr"]
        return
    assert (run["status"], run["stderr"]) == (0, "")
    assert (run["covered"], run["mode"]) == (covered, mode)
    assert ("no-ptrace" in run["gaps"]) == (mode == "notify")


@cases("rows", lambda case: bool(chosen.EXPECTED[case][0]))
def test_attempts_end_as_they_have_to(which: str, case: tuple[str, str]) -> None:
    attempts = shown(which).rows[case]["attempts"]
    assert attempts
    wrong = {
        name: f"{word} ({why})"
        for name, (word, expected, why) in attempts.items()
        if word not in {expected, *FINE_ANYWHERE}
    }
    assert wrong == {}


@cases("rows", lambda case: case[0] == "stock")
def test_without_agentwrap_most_of_it_gets_through(which: str, case: tuple[str, str]) -> None:
    through, tried = shown(which).rows[case]["through_without"]
    assert through > tried / 2


@cases(chosen.TESTS)
def test_the_kernel_tests_pass(which: str, case: tuple[str, str], request: pytest.FixtureRequest) -> None:
    # `record_property` does the same, and warns of a form of JUnit files that has no place for it.
    properties: list[tuple[str, object]] = request.node.user_properties
    guest, (setting, user) = shown(which), case
    told = guest.tests.get(user, [])
    outcomes = Counter(one["outcome"] for one in told)
    counts = ", ".join(f"{outcomes[word]} {word}" for word in ("passed", "failed", "skipped"))
    took = guest.ends.get(user, {}).get("took_s", "?")
    properties.append(("inner", f"{guest.kernel}, {setting}, as {user}: {counts} in {took} s"))
    for why, number in Counter(one["why"] for one in told if one["outcome"] == "skipped").items():
        properties.append(("inner", f"    SKIPPED [{number}] {why}"))
    failed = {one["test"]: one["why"] for one in told if one["outcome"] == "failed"}
    assert not failed, "\n\n".join(f"{test}\n{why}" for test, why in failed.items())
    assert user in guest.ends, guest.console
    assert guest.ends[user]["status"] == 0, guest.ends[user]["said"]
    assert outcomes["passed"]
