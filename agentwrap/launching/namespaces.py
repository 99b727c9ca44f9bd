"""User, network and mount namespaces by hand: unshare, setns, and the id maps that make them usable.

Two user namespaces, one inside the other: the network namespace belongs to the outer one, the agent lives in the inner
one, so that even an agent with every capability there can change nothing of its network. Ids stay what they are.
"""

import ctypes
import os

NEWNS, NEWUSER, NEWNET = 0x00020000, 0x10000000, 0x40000000
_MS_REC, _MS_SLAVE = 0x4000, 1 << 19

_libc = ctypes.CDLL(None, use_errno=True)


def _call(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """unshare(2). Raises OSError."""
    _call(_libc.unshare(flags), f"unshare({flags:#x})")


def setns(descriptor: int, kind: int) -> None:
    """setns(2). Raises OSError."""
    _call(_libc.setns(descriptor, kind), f"setns({kind:#x})")


def hear_mounts_only() -> None:
    """In a new mount namespace: mounts of the machine appear here, ours appear nowhere else. Raises OSError."""
    _call(_libc.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None), "mount(/, MS_SLAVE)")


def map_own_id(uid: int, gid: int) -> None:
    """Straight after unshare(CLONE_NEWUSER): the caller's one id, unchanged (user_namespaces(7)). Raises OSError."""
    _write("/proc/self/setgroups", b"deny")
    _write("/proc/self/uid_map", b"%d %d 1" % (uid, uid))
    _write("/proc/self/gid_map", b"%d %d 1" % (gid, gid))


def map_all_ids(pid: int) -> None:
    """Give the user namespace of `pid` all ids that exist in ours, unchanged.

    Only a process of the parent namespace with CAP_SETUID may write that (user_namespaces(7)). Raises OSError.
    """
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/self/{name}", "rb") as file:
            ranges = [line.split() for line in file]
        _write(f"/proc/{pid}/{name}", b"\n".join(b"%b %b %b" % (first, first, count) for first, _, count in ranges))


def _write(path: str, data: bytes) -> None:
    # One write(2): the kernel takes the whole map at once.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    except OSError as error:
        raise OSError(error.errno, f"{path}: {error.strerror}") from error
    finally:
        os.close(descriptor)


def open_own(kind: str) -> int:
    """A descriptor of the calling process's namespace `kind` (`user`, `net`, `mnt`)."""
    return os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
