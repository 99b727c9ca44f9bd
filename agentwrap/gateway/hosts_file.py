"""The machine's own hosts file: names that programs resolve without asking anybody, so the gateway must know them too.

Read once, before the agent exists. From then on, where we may, the gateway looks names up with copies of the files that
say how: an agent that may write to /etc must not change where an allowed name leads.
"""

import ctypes
import os
import tempfile
from collections.abc import Iterator
from ipaddress import ip_address

from agentwrap.launching import namespaces
from agentwrap.policy.hosts import Address, Host, HostError, parse_host, special

HOSTS = "/etc/hosts"
_FILES = (HOSTS, "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/host.conf")
_MAX_BYTES = 4 << 20
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 1 << 18


def entries(text: bytes) -> Iterator[tuple[str, Address]]:
    """(name in normal form, address) of a hosts(5) file, without what leads to loopback. Odd lines are left out."""
    for line in text.splitlines():
        words = line.partition(b"#")[0].split()
        if len(words) < 2:
            continue
        try:
            address = ip_address(words[0].decode("ascii").partition("%")[0])
        except ValueError:
            continue
        if special(Host(address=address)) == "loopback":
            continue
        for word in words[1:]:
            try:
                host = parse_host(word.decode("ascii"))
            except (HostError, UnicodeDecodeError):
                continue
            if host.name:
                yield host.name, address


def read() -> list[tuple[str, Address]]:
    """What the machine's hosts file says; nothing where there is none."""
    try:
        with open(HOSTS, "rb") as file:
            return list(entries(file.read(_MAX_BYTES)))
    except OSError:
        return []


def freeze() -> bool:
    """Look names up with copies of the machine's files from now on. False where that needs rights that we lack.

    Only root needs it: nobody else's agent can write to them (and nobody else may mount).
    """
    if os.geteuid() != 0:
        return False
    try:
        namespaces.unshare(namespaces.NEWNS)
    except OSError:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None)
    return all(_bind_copy(libc, path) for path in _FILES if os.path.exists(path))


def _bind_copy(libc: ctypes.CDLL, path: str) -> bool:
    with open(path, "rb") as file:
        data = file.read(_MAX_BYTES)
    with tempfile.NamedTemporaryFile(prefix="agentwrap-") as copy:
        copy.write(data)
        copy.flush()
        # The mount keeps the inode after its name is gone: nobody else can open it.
        return bool(libc.mount(copy.name.encode(), path.encode(), None, _MS_BIND, None) == 0)
