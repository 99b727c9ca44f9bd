"""How the child stands before its exec: by which mode it is followed, and what of it can be read."""

import errno
import os

from agentwrap.launching import child
from agentwrap.launching.child import Launched

MODE_NAMES = {
    child.MODE_NOTIFY: "notify",
    child.MODE_TRACE: "trace",
    child.MODE_EVERY_CALL: "calls",
    child.MODE_NONE: "none",
}


def mode_of(launched: Launched) -> str:
    """The name of the mode (see `launching.plan`)."""
    name = MODE_NAMES[launched.mode]
    if launched.traced:
        return f"ptrace+{name}"
    return {"notify": "notify", "none": "none"}[name]


def memory_errno(pid: int) -> int:
    """Why a tracee's memory, where paths and addresses lie, cannot be read (Yama's scope 2 or 3); 0 if it can."""
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno or errno.EPERM
    return 0


def no_new_privs(pid: int) -> bool:
    """Whether a process can gain no privileges by exec (proc_pid_status(5))."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return any(line.split() == [b"NoNewPrivs:", b"1"] for line in file)
    except OSError:
        return False
