"""Landlock by system call, in the child, right before its seccomp filter: an unprivileged domain that cannot be left.

Knows the calls and their structures (landlock(7), linux/landlock.h); which rights are handled and granted is
`launching.enforcement`'s.
"""

import ctypes
import errno
import os
import stat
import struct

from agentwrap.launching.enforcement import FILE_RIGHTS, LandlockPlan

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    wide = (ctypes.c_long(one) if isinstance(one, int) else one for one in arguments)
    result = int(_libc.syscall(ctypes.c_long(number), *wide))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def version() -> int:
    """The version of Landlock's interface here; 0 where there is none (not built in, or not switched on at boot)."""
    try:
        return _call(_CREATE_RULESET, None, 0, _VERSION)
    except OSError:
        return 0


def restrict(plan: LandlockPlan) -> None:
    """Put this thread, and all that it becomes and starts, under the plan.

    Gives up set-id programs first (PR_SET_NO_NEW_PRIVS), which Landlock asks for. A path that is not there is granted
    nothing. Raises OSError with the step in its text (ENOSYS, EOPNOTSUPP: no Landlock; E2BIG: 16 domains already).
    """
    if not plan:
        return
    attributes = struct.pack("=QQQ", plan.handled_files, plan.handled_ports, plan.scoped)
    # struct landlock_ruleset_attr grew with the versions; a longer one is refused unless the rest is zero.
    size = 24 if plan.scoped else 16 if plan.handled_ports else 8
    ruleset = _named("landlock_create_ruleset", _CREATE_RULESET, attributes[:size], size, 0)
    try:
        for path, rights in plan.granted:
            _grant(ruleset, path, rights & plan.handled_files)
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _named("landlock_restrict_self", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _named(step: str, number: int, *arguments: object) -> int:
    try:
        return _call(number, *arguments)
    except OSError as error:
        raise OSError(error.errno, f"{step}: {error.strerror}") from error


def _grant(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
            return
        raise
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= FILE_RIGHTS  # a right of folders in a rule for a file is EINVAL
        if rights:
            beneath = struct.pack("=Qi", rights, descriptor)  # struct landlock_path_beneath_attr, packed
            _named(f"landlock_add_rule {path}", _ADD_RULE, ruleset, _PATH_BENEATH, beneath, 0)
    finally:
        os.close(descriptor)
