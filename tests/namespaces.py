"""Code of a test inside user and network namespaces of its own: nothing it sends can leave, nothing it makes stays."""

import ctypes
import encodings.idna  # noqa: F401  # loaded by a lookup, which a plain user may not be able to do any more
import os
import signal
import traceback
import warnings
from collections.abc import Callable

import pytest

NEW_USER, NEW_NET = 0x10000000, 0x40000000
PLAIN_USER = 65534
AS = ("root", "plain user") if os.geteuid() == 0 else ("plain user",)
"""Whom a test can be run as here."""

_PR_SET_DUMPABLE = 4
_libc = ctypes.CDLL(None, use_errno=True)


def inside(body: Callable[[], None], who: str = AS[0]) -> None:
    """Run `body` in a child that is alone in new namespaces, with all rights over them. Fails as `body` fails."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the other threads of pytest do nothing the child needs
        child = os.fork()
    if not child:
        told = b""
        try:
            os.close(reading)
            signal.alarm(300)
            _enter(who)
            body()
        except pytest.skip.Exception as skipped:
            told = b"skip:" + str(skipped).encode()
        except BaseException:
            told = traceback.format_exc().encode()
        finally:
            with open(writing, "wb") as pipe:
                pipe.write(told)
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        told = pipe.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if told.startswith("skip:"):
        pytest.skip(told.removeprefix("skip:"))
    if told or status:
        pytest.fail(told or f"the child ended with {status}", pytrace=False)


def _enter(who: str) -> None:
    if who == "plain user" and os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(PLAIN_USER, PLAIN_USER, PLAIN_USER)
        os.setresuid(PLAIN_USER, PLAIN_USER, PLAIN_USER)
        _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # or /proc/self belongs to root
    uid, gid = os.geteuid(), os.getegid()
    if _libc.unshare(NEW_USER | NEW_NET):
        pytest.skip(f"no user or network namespace here: {os.strerror(ctypes.get_errno())}")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
