"""Stock Debian kernels, booted: what a run is there, as root and as a plain user, under settings of distributions.

Each thing that is missing has a name: a weaker tier or mode with its gaps in the recording, or a refusal that says what
is missing and what to do. One boot for each kernel.
"""

import json
import subprocess
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any

import pytest
from kernels import boot

pytestmark = [pytest.mark.timeout(1500), pytest.mark.emulated]
FINE_ANYWHERE = {"skipped", "machine"}
# (setting, user): what keeps connections, how the tree is followed; nothing where a run refuses to start. Yama 2 leaves
# ptrace to whoever has CAP_SYS_PTRACE over the tree, as the owner of its user namespace has; Yama 3 to nobody.
EXPECTED = {
    ("stock", "root"): ("wall", "ptrace+notify"),
    ("stock", "user"): ("wall", "ptrace+notify"),
    ("no user namespaces", "root"): ("guard", "ptrace+notify"),
    ("no user namespaces", "user"): ("guard", "ptrace+notify"),
    ("Yama 1", "user"): ("wall", "ptrace+notify"),
    ("Yama 2", "user"): ("wall", "ptrace+notify"),
    ("Yama 2, no user namespaces", "user"): ("", ""),
    ("Yama 3", "root"): ("", ""),
    ("Yama 3", "user"): ("", ""),
}


@cache
def kernels() -> tuple[str, ...]:
    return tuple(boot.oldest_and_newest())


@cache
def booted() -> dict[int, "Future[boot.Booted]"]:
    """All of them at once: an emulated processor waits more than it works."""
    pool = ThreadPoolExecutor(2)
    return {
        which: pool.submit(boot.boot, package, ["everything"], timeout_s=1400)
        for which, package in enumerate(kernels())
    }


@pytest.fixture(params=[0, 1], ids=["oldest", "newest"])
def shown(request: pytest.FixtureRequest) -> dict[tuple[str, str], dict[str, Any]]:
    """(setting, user) to what was told of that run."""
    if why := boot.missing():
        pytest.skip(why)
    try:
        if request.param >= len(kernels()):
            pytest.skip("the package lists know one kernel alone")
        result = booted()[request.param].result()
    except boot.Unavailable as why_not:
        pytest.skip(str(why_not))
    except subprocess.TimeoutExpired:
        pytest.fail("the guest did not finish in time")
    runs = [json.loads(line) for line in result.said.splitlines() if line.startswith("{")]
    assert runs, result.console[-3000:]
    assert runs[0]["kernel"] in kernels()[request.param]
    told = {(run["setting"], run["user"]): run for run in runs[1:]}
    assert told.keys() == EXPECTED.keys(), result.console[-3000:]
    return told


@pytest.mark.parametrize("case", EXPECTED, ids=" as ".join)
def test_what_is_missing_is_a_named_tier_or_a_refusal(
    shown: dict[tuple[str, str], dict[str, Any]], case: tuple[str, str]
) -> None:
    run = shown[case]
    covered, mode = EXPECTED[case]
    if not covered:
        assert run["status"] == 125
        assert "error: " in run["stderr"]
        assert "hint: " in run["stderr"]
        return
    assert (run["status"], run["stderr"]) == (0, "")
    assert (run["covered"], run["mode"]) == (covered, mode)
    assert ("no-ptrace" in run["gaps"]) == (mode == "notify")


@pytest.mark.parametrize("case", [case for case, how in EXPECTED.items() if how[0]], ids=" as ".join)
def test_attempts_end_as_they_have_to(shown: dict[tuple[str, str], dict[str, Any]], case: tuple[str, str]) -> None:
    attempts = shown[case]["attempts"]
    assert attempts
    wrong = {
        name: f"{word} ({why})"
        for name, (word, expected, why) in attempts.items()
        if word not in {expected, *FINE_ANYWHERE}
    }
    assert wrong == {}


def test_without_agentwrap_most_of_it_gets_through(shown: dict[tuple[str, str], dict[str, Any]]) -> None:
    for user in ("root", "user"):
        through, tried = shown["stock", user]["through_without"]
        assert through > tried / 2
