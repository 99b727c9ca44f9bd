"""A small wall for tests: the two nested user namespaces and the mount namespace that a run has, and nothing else.

`inside(plan, act)` carries a mount plan out above and calls `act` where an agent would be; what it returns comes back.
"""

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentwrap.launching import mounts
from agentwrap.launching.enforcement import MountPlan

_NEWUSER, _NEWNS = 0x10000000, 0x00020000
_MS_REC, _MS_PRIVATE, _MS_SHARED = 0x4000, 1 << 18, 1 << 20
_libc = ctypes.CDLL(None, use_errno=True)


def _unshare(flags: int) -> None:
    if _libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), f"unshare: {os.strerror(ctypes.get_errno())}")


def _own_user_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    parent = os.getpid()
    ready, done = os.pipe(), os.pipe()
    mapper = os.fork()
    if mapper == 0:
        os.read(ready[0], 1)
        os._exit(0 if _map(parent, uid, gid) else 1)
    _unshare(_NEWUSER)
    os.write(ready[1], b"x")
    status = os.waitpid(mapper, 0)[1]
    for end in (*ready, *done):
        os.close(end)
    if status:
        raise OSError(1, "the ids could not be mapped")


def _map(pid: int, uid: int, gid: int) -> bool:
    """Root keeps all ids, another user its own; written from outside of the new namespace."""
    maps = ("0 0 4294967295", "0 0 4294967295") if uid == 0 else (f"{uid} {uid} 1", f"{gid} {gid} 1")
    try:
        if uid:
            Path(f"/proc/{pid}/setgroups").write_text("deny")
        Path(f"/proc/{pid}/uid_map").write_text(maps[0])
        Path(f"/proc/{pid}/gid_map").write_text(maps[1])
    except OSError:
        return False
    return True


def _as_agent(act: Callable[[], Any], answer: int) -> None:
    _own_user_namespace()
    _unshare(_NEWNS)
    os.write(answer, json.dumps(act()).encode())


def _build(plan: MountPlan, act: Callable[[], Any], answer: int) -> None:
    _own_user_namespace()
    _unshare(_NEWNS)
    gone = mounts.execute(plan)
    os.write(answer, json.dumps(gone).encode() + b"\n")
    agent = os.fork()
    if agent == 0:
        _leave(lambda: _as_agent(act, answer))
    os._exit(1 if os.waitpid(agent, 0)[1] else 0)


def _leave(do: Callable[[], None]) -> None:
    try:
        do()
    except BaseException as error:
        sys.stderr.write(f"{error!r}\n")
        sys.stderr.flush()
        os._exit(2)
    os._exit(0)


def inside(plan: MountPlan, act: Callable[[], Any]) -> tuple[list[str], Any]:
    """What was gone when the plan was carried out, and what `act` returned (as JSON)."""
    gone, told = _said_by(lambda answer: _build(plan, act, answer)).split(b"\n", 1)
    return json.loads(gone), json.loads(told)


def apart(act: Callable[[], Any]) -> Any:
    """What `act` returns (as JSON) in mounts of its own, shared like a machine's: nobody else mounts anything there."""
    return json.loads(_said_by(lambda answer: _act_apart(act, answer)))


def _said_by(do: Callable[[int], None]) -> bytes:
    """What a child of ours writes to the descriptor that it is given."""
    if _refused():
        pytest.skip(f"no user namespaces here: {_refused()}")
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _leave(lambda: do(writing))
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        said = answers.read()
    assert os.waitpid(pid, 0)[1] == 0
    return said


def _act_apart(act: Callable[[], Any], answer: int) -> None:
    _own_user_namespace()
    _unshare(_NEWNS)
    for propagation in (_MS_PRIVATE, _MS_SHARED):
        if _libc.mount(None, b"/", None, _MS_REC | propagation, None) != 0:
            raise OSError(ctypes.get_errno(), f"mount: {os.strerror(ctypes.get_errno())}")
    os.write(answer, json.dumps(act()).encode())


def _refused() -> str:
    done = subprocess.run(["unshare", "-Urm", "true"], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr.strip()


def attempt(do: Callable[[], object]) -> str:
    """The name of the error that something fails with, empty if it works."""
    try:
        do()
    except OSError as error:
        import errno

        return errno.errorcode.get(error.errno or 0, str(error))
    return ""


def shell(script: str, cwd: Path) -> int:
    """The exit status of a shell script; what it says is of no interest."""
    return subprocess.run(["sh", "-c", script], cwd=cwd, capture_output=True).returncode
