"""Doctor's probe of a whole wall, as the machine is and with what it needs taken away."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agentwrap.launching import namespaces
from agentwrap.launching.doctor_calls import SECCOMP_RET_ERRNO, attempt, filter_one
from agentwrap.launching.probes import Probe
from agentwrap.session import confinement

pytestmark = pytest.mark.serial


def around() -> tuple[set[str], set[str]]:
    """Our children and our descriptors."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return set(children), set(os.listdir("/proc/self/fd"))


def without(take_away: Callable[[], object]) -> Probe:
    """The probe's result in a child that has lost something."""

    def inside() -> str:
        take_away()
        result = confinement.wall()
        return json.dumps([result.name, result.ok, result.detail, result.fix, result.weight])

    return Probe(*json.loads(attempt(inside, timeout_s=300)))


def test_it_leaves_nothing_behind() -> None:
    def inside() -> str:
        before = around()
        assert confinement.wall().detail
        assert around() == before
        return "nothing"

    # In a child, where no thread of an earlier test closes what it had.
    assert attempt(inside, timeout_s=300) == "nothing"


def test_a_refused_call_is_told_with_step_error_and_fix() -> None:
    def refuse() -> None:
        filter_one("unshare", SECCOMP_RET_ERRNO | errno.EPERM)

    result = without(refuse)
    assert (result.ok, result.detail) == (False, "user namespace: EPERM")
    assert "seccomp" in result.fix


def test_used_up_namespaces_are_told_with_the_setting() -> None:
    if not confinement.wall().ok:
        pytest.skip("no user namespaces here to use up")

    def use_up() -> None:
        uid, gid = os.geteuid(), os.getegid()
        namespaces.unshare(namespaces.NEWUSER)
        namespaces.map_own_id(uid, gid)
        with open("/proc/sys/user/max_user_namespaces", "w") as file:
            file.write("0")

    result = without(use_up)
    assert (result.ok, result.detail) == (False, "user namespace: ENOSPC")
    assert "user.max_user_namespaces" in result.fix
