"""Probes of the machine around the tree: kernel, container, namespaces, Landlock, other ways into the kernel.

The namespaces and Landlock are not needed to watch; they are what prevention stands on. They are probed here so that
one command tells what a machine can do.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import socket
import struct
import tempfile

from agentwrap.launching.doctor_calls import (
    PR_SET_NO_NEW_PRIVS,
    SECCOMP_RET_USER_NOTIF,
    Refused,
    attempt,
    call,
    filter_one,
    forked,
    prctl,
)
from agentwrap.launching.probes import NEW_LISTENER, NOTIF_RECV, NOTIF_SEND, Probe, has_capability, status_field

CAP_SYS_ADMIN = 21  # with it a filter can be installed without no_new_privs (seccomp(2))
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
LANDLOCK_VERSION = 1
NOTIF_ADDFD = 0x40182103  # linux/seccomp.h
LANDLOCK_WRITE_FILE = 1 << 1


def kernel() -> Probe:
    """Release and architecture: the system call tables and registers of a run are those of x86-64."""
    release, machine = platform.release(), platform.machine()
    known = machine == "x86_64"
    return Probe(
        "kernel", known, f"Linux {release} {machine}", "" if known else "x86-64 is what runs for now", weight="needed"
    )


def container() -> Probe:
    """Whether this looks like a container, by the marks that engines leave."""
    marks = [path for path in ("/.dockerenv", "/run/.containerenv") if os.path.exists(path)]
    if kind := os.environ.get("container"):  # noqa: SIM112 -- its name in systemd.io/CONTAINER_INTERFACE
        marks.append(f"container={kind}")
    for path in ("/proc/1/cgroup", "/proc/self/cgroup", "/proc/self/mountinfo"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read(65536)
        except OSError:
            continue
        hits = [word for word in ("docker", "kubepods", "containerd", "libpod", "lxc") if f"/{word}" in text]
        marks += [f"{path}: {word}" for word in hits]
    if b"gvisor" in _read("/proc/version").lower():
        marks.append("gVisor")
    return Probe("container", True, ", ".join(dict.fromkeys(marks)) or "no sign of one", weight="fact")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(4096)
    except OSError:
        return b""


def own_seccomp() -> Probe:
    """Whether a filter lies on this process already."""
    mode = status_field("Seccomp")
    count = status_field("Seccomp_filters")
    words = {"0": "no filter on this process", "1": "strict mode", "2": f"{count or 'some'} filter(s) on this process"}
    return Probe("seccomp-mode", True, words.get(mode, "not told by this kernel"), weight="fact")


def no_new_privs() -> Probe:
    """Whether set-id programs can work here; without CAP_SYS_ADMIN a run turns them off for its tree."""
    on = status_field("NoNewPrivs") == "1"
    if on:
        words = "on already: sudo and other set-id programs do not work here"
    elif has_capability(CAP_SYS_ADMIN):
        words = "off"
    else:
        words = "off; a run turns it on for its tree, so sudo does not work inside"
    return Probe("no-new-privs", True, words, weight="fact")


def landlock() -> Probe:
    """A child shuts itself out from writing a file of its own."""

    def work() -> str:
        abi = call("landlock", 0, 0, LANDLOCK_VERSION)
        with tempfile.NamedTemporaryFile(prefix="agentwrap-") as file:
            rules = ctypes.create_string_buffer(struct.pack("=Q", LANDLOCK_WRITE_FILE))
            ruleset = call("landlock", rules, 8, 0)
            prctl(PR_SET_NO_NEW_PRIVS, 1)
            _restrict_self(ruleset)
            try:
                os.close(os.open(file.name, os.O_WRONLY))
            except PermissionError:
                return f"ABI {abi}, a write is refused"
        raise Refused(0, f"ABI {abi}, but it refuses nothing")

    try:
        return Probe("landlock", True, attempt(work))
    except Refused as refused:
        why = {errno.ENOSYS: "not in this kernel (ENOSYS)", errno.EOPNOTSUPP: "off at boot (EOPNOTSUPP)"}
        fix = "not needed to record; Linux 5.13 or newer with `landlock` in the `lsm=` boot parameter has it"
        return Probe("landlock", False, why.get(refused.number, refused.name), fix)


def _restrict_self(ruleset: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(446), ctypes.c_long(ruleset), ctypes.c_long(0)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def descriptor_injection() -> Probe:
    """A listener gives a caller a descriptor and answers with its number: how the guard hands out sockets."""
    name = "descriptor-injection"
    try:
        return Probe(name, True, attempt(_inject))
    except Refused as refused:
        if refused.number == errno.EBUSY:
            fix = "run outside the sandbox, container or agentwrap that installed the listener above us"
        else:
            fix = "only needed for the guard: Linux 5.9 or newer, and a profile that allows seccomp(2)"
        return Probe(name, False, f"SECCOMP_IOCTL_NOTIF_ADDFD: {refused.name}", fix)


def _inject() -> str:
    listener = filter_one("getpgid", SECCOMP_RET_USER_NOTIF, NEW_LISTENER)
    reading, writing = os.pipe()

    def ask() -> None:
        os.close(writing)
        os.write(call("getpgid", 0), b"x")

    forked(ask)
    asked = bytearray(80)  # struct seccomp_notif; the kernel refuses a buffer that is not zeroed
    fcntl.ioctl(listener, NOTIF_RECV, asked)
    (request,) = struct.unpack_from("=Q", asked)
    # struct seccomp_notif_addfd: id, flags, srcfd, newfd, newfd_flags
    given = fcntl.ioctl(listener, NOTIF_ADDFD, bytearray(struct.pack("=QIIII", request, 0, writing, 0, 0)))
    fcntl.ioctl(listener, NOTIF_SEND, bytearray(struct.pack("=QqiI", request, given, 0, 0)))
    os.close(writing)
    if os.read(reading, 1) != b"x":
        raise Refused(0, "the descriptor did not arrive")
    return "a caller gets a descriptor of ours"


def _userns_fix(number: int) -> str:
    """What stands in the way of a user namespace, read where the kernel and the distributions tell it."""
    if _read("/proc/sys/user/max_user_namespaces").strip() == b"0":
        return "`sysctl user.max_user_namespaces=10000`"
    if _read("/proc/sys/kernel/unprivileged_userns_clone").strip() == b"0" and os.geteuid():
        return "`sysctl kernel.unprivileged_userns_clone=1`"
    if _read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").strip() == b"1" and os.geteuid():
        return "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or an AppArmor profile with `userns,`"
    if number == errno.ENOSPC:
        return "the limit `user.max_user_namespaces` of an outer namespace is used up"
    return "not needed to record; the container's profile refuses it"


def user_namespace() -> Probe:
    """A user namespace, and rights inside it: AppArmor may grant the first and refuse the second."""

    def work() -> str:
        uid = os.getuid()
        call("unshare", CLONE_NEWUSER)
        try:
            # Needs CAP_SYS_ADMIN inside: where AppArmor lets the namespace be made and takes its rights, this fails.
            with open("/proc/self/setgroups", "w", encoding="ascii") as file:
                file.write("deny")
            with open("/proc/self/uid_map", "w", encoding="ascii") as file:
                file.write(f"{uid} {uid} 1")
            call("unshare", CLONE_NEWNET)
        except OSError as error:
            raise Refused(error.errno or 0, "made, but it gives no rights") from error
        return "made, with rights inside"

    try:
        return Probe("user-namespace", True, attempt(work))
    except Refused as refused:
        words = refused.words if refused.words.startswith("made") else f"unshare: {refused.name}"
        return Probe("user-namespace", False, words, _userns_fix(refused.number))


def network_namespace() -> Probe:
    """A network namespace with its own loopback, inside a user namespace where it is not to be had outside."""

    def work() -> str:
        try:
            call("unshare", CLONE_NEWNET)
        except PermissionError:
            call("unshare", CLONE_NEWUSER)
            call("unshare", CLONE_NEWNET)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            request = bytearray(struct.pack("16sH22x", b"lo", 0))
            fcntl.ioctl(control, SIOCGIFFLAGS, request)
            (flags,) = struct.unpack_from("H", request, 16)
            struct.pack_into("H", request, 16, flags | IFF_UP)
            fcntl.ioctl(control, SIOCSIFFLAGS, request)
            control.connect(("127.0.0.1", 9))
        return "made, its loopback is up"

    try:
        return Probe("network-namespace", True, attempt(work))
    except Refused as refused:
        return Probe("network-namespace", False, f"unshare: {refused.name}", _userns_fix(refused.number))


def io_uring() -> Probe:
    """Whether io_uring exists: a way into the kernel that no filter sees, answered with ENOSYS inside a run."""

    def work() -> str:
        os.close(call("io_uring_setup", 2, ctypes.create_string_buffer(120)))
        return "works here; answers ENOSYS inside a run"

    try:
        return Probe("io-uring", True, attempt(work), weight="fact")
    except Refused as refused:
        return Probe("io-uring", True, f"refused already ({refused.name})", weight="fact")


def syscalls_32bit() -> Probe:
    """`int 0x80` from a child: whether i386 programs run and need their own table in the filter."""
    if platform.machine() != "x86_64":
        return Probe("syscalls-32bit", True, "only probed on x86_64", weight="fact")

    def work() -> str:
        # mov eax, 20 (getpid in the i386 table); int 0x80; ret
        code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        answer = int(ctypes.CFUNCTYPE(ctypes.c_int)(address)())
        if answer != os.getpid():
            raise Refused(max(-answer, 0), f"answered {answer}")
        return "answered; judged by their own table"

    try:
        return Probe("syscalls-32bit", True, attempt(work), weight="fact")
    except Refused as refused:
        return Probe("syscalls-32bit", True, f"none ({refused.name})", weight="fact")
