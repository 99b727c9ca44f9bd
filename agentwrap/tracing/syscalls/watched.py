"""Which system calls are reported, and under which condition. The one table that decides what a run costs.

A call is here because it is recorded or judged, never because it might be interesting: a reported call costs about
7 µs, an unreported one nothing. Reading `close`, `read`, `write` would cost most and tell least: an edit is told by
comparing content (`tracing.files`).
"""

from typing import TYPE_CHECKING, NamedTuple

from agentwrap.launching.seccomp import (
    ARCH_I386,
    ARCH_X86_64,
    ENOSYS,
    Abi,
    Always,
    ArgumentHas,
    ArgumentIn,
    ArgumentNonzero,
    OddSocket,
    Refuse,
    Rule,
)
from agentwrap.tracing.syscalls.tables import i386, x86_64

if TYPE_CHECKING:
    from agentwrap.launching.enforcement import EnforcementPlan

# O_WRONLY | O_RDWR | O_CREAT | O_TRUNC (fcntl.h); O_TMPFILE needs one of the first two.
WRITING_OPEN = 0o1 | 0o2 | 0o100 | 0o1000
# CLONE_NEW* and CLONE_UNTRACED (sched.h): a new view of the machine, or a child that ptrace would not follow.
CLONE_UNTRACED = 0x00800000
CLONE_NEW = 0x7E020000
CLONE_FILES = 0x400  # threads, and whoever else shares its parent's descriptors: asked about by the guard
SECCOMP_NEW_LISTENER = 8

_FILE = (
    "creat openat2 unlink unlinkat rmdir rename renameat renameat2 mkdir mkdirat link linkat symlink symlinkat "
    "truncate truncate64 chmod fchmod fchmodat fchmodat2 chown lchown fchown fchownat chown32 lchown32 fchown32 "
    "setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat file_setattr "
    "mknod mknodat"
).split()
_NETWORK = "connect bind listen sendmsg sendmmsg".split()
_REACH = "ptrace process_vm_writev pidfd_getfd".split()
_ISOLATION = (
    "setns unshare chroot pivot_root mount umount umount2 open_tree open_tree_attr move_mount fsopen fsconfig fsmount "
    "fspick mount_setattr"
).split()
# socketcall(2) numbers of bind, connect, listen, sendto, sendmsg, sendmmsg (linux/net.h)
_SOCKETCALL = (2, 3, 4, 11, 16, 20)
# Those of the guard besides: socket, getpeername, recvfrom, recvmsg, recvmmsg.
_SOCKETCALL_GUARD = (1, 7, 12, 17, 19)
_SOCKETCALL_FAMILIES = (1, 8)  # socket, socketpair
_SOCKETCALL_CAPTURE = (7,)  # getpeername
_CAPTURE = "getpeername landlock_create_ruleset".split()
_FAMILIES, _COOKED = (1, 16), (2, 10)  # AF_UNIX, AF_NETLINK; AF_INET, AF_INET6 but for raw ones (linux/socket.h)
_SIGNALS = "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal".split()
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # asm-generic/ioctls.h
_RINGS = "io_uring_setup io_uring_enter io_uring_register".split()
_SILENT = "bind listen seccomp socket socketpair getpeername process_vm_readv ioctl landlock_create_ruleset".split()
# Where the guard makes sockets and speaks for them. `recvfrom` is asked about where it wants to know the sender.
_GUARD = "socket getpeername recvmsg recvmmsg recvmmsg_time64".split()

NEVER_SLEEP = frozenset(_FILE + _REACH + _ISOLATION + _SIGNALS + _RINGS + _SILENT) - {
    "creat",
    "openat2",
}
"""Calls (reported ones) that no signal can interrupt, as programs know them (signal(7)); opens depend on the file."""


class Judged(NamedTuple):
    """What is asked about besides, where a policy judges calls: opens that only read, execs, socket families, signals.

    `reach`: reading another process's memory. `terminal`: input put into a terminal for whoever reads it next (TIOCSTI,
    TIOCLINUX).
    """

    reads: bool = False
    execs: bool = False
    families: bool = False
    signals: bool = False
    reach: bool = False
    terminal: bool = False


_NOTHING = Judged()


def judged_by(plan: "EnforcementPlan | None", *, guard: bool) -> Judged:
    """The calls that have to be reported for a plan to be judged; `guard`: sockets are made by the tracer."""
    if plan is None:
        return Judged()
    return Judged(
        reads=plan.reads,
        execs=plan.execs,
        families=not guard,
        signals=bool(plan) and plan.signals,
        reach=bool(plan),
        terminal=bool(plan),
    )


def _judged_rules(judged: Judged) -> dict[str, Rule]:
    by_name: dict[str, Rule] = {}
    if judged.families:
        by_name |= dict.fromkeys(("socket", "socketpair"), OddSocket(_FAMILIES, _COOKED))
    if judged.signals:
        by_name |= dict.fromkeys(_SIGNALS, Always())
    if judged.reach:
        by_name["process_vm_readv"] = Always()
    if judged.terminal:
        by_name["ioctl"] = ArgumentIn(1, (_TIOCSTI, _TIOCLINUX))
    if judged.execs:
        by_name |= {"execve": Always(), "execveat": Always()}
    return by_name


def _rules(
    numbers: dict[str, int], *, reads: bool, exec_calls: bool, guard: bool, capture: bool, judged: Judged
) -> dict[int, Rule]:
    reads = reads or judged.reads
    opening: Rule = Always() if reads else ArgumentHas(2, WRITING_OPEN)
    old_opening: Rule = Always() if reads else ArgumentHas(1, WRITING_OPEN)
    by_name: dict[str, Rule] = {"openat": opening, "open": old_opening}
    by_name["open_by_handle_at"] = ArgumentHas(2, WRITING_OPEN)
    by_name |= dict.fromkeys(_FILE, Always())
    by_name["sendto"] = ArgumentNonzero(4)
    by_name |= dict.fromkeys(_NETWORK + _REACH + _ISOLATION, Always())
    by_name["clone"] = ArgumentHas(0, CLONE_NEW | CLONE_UNTRACED | (CLONE_FILES if guard else 0))
    # clone3's flags lie in memory, out of the filter's sight; every libc and runtime falls back to clone on ENOSYS.
    by_name["clone3"] = Refuse(ENOSYS)
    by_name["seccomp"] = ArgumentHas(1, SECCOMP_NEW_LISTENER)
    # A ring would open, connect and write with no call to see; Node, liburing and Go fall back on ENOSYS.
    by_name |= dict.fromkeys(_RINGS, Always())
    socketcalls = _SOCKETCALL + _SOCKETCALL_CAPTURE * capture + _SOCKETCALL_FAMILIES * judged.families
    by_name["socketcall"] = ArgumentIn(0, socketcalls)
    by_name |= _judged_rules(judged)
    if capture:
        by_name |= dict.fromkeys(_CAPTURE, Always())
    if guard:
        by_name |= dict.fromkeys(_GUARD, Always())
        by_name["recvfrom"] = ArgumentNonzero(4)
        by_name["socketcall"] = ArgumentIn(0, _SOCKETCALL + _SOCKETCALL_GUARD + (8,) * judged.families)
    if exec_calls:
        by_name |= {"execve": Always(), "execveat": Always()}
    return {numbers[name]: rule for name, rule in by_name.items() if name in numbers}


def abis(
    *,
    reads: bool = False,
    exec_calls: bool = False,
    guard: bool = False,
    capture: bool = False,
    judged: Judged = _NOTHING,
) -> tuple[Abi, ...]:
    """The rules of x86-64 and of i386.

    `reads`: every open is reported. `exec_calls`: execve too, for following without ptrace (with it, the exec event
    tells more and cannot be raced). `guard`: what `tracing.guard` performs itself, `capture`: what `tracing.capture`
    does. `judged`: what a policy asks about.
    """

    def rules(numbers: dict[str, int]) -> dict[int, Rule]:
        return _rules(numbers, reads=reads, exec_calls=exec_calls, guard=guard, capture=capture, judged=judged)

    return Abi(ARCH_X86_64, rules(x86_64.NUMBERS)), Abi(ARCH_I386, rules(i386.NUMBERS))


def by_call(*, reads: bool, guard: bool = False, judged: Judged = _NOTHING) -> dict[tuple[int, int], Rule]:
    """(audit architecture, number) to rule: the same table, for those who stop at every call."""
    table = abis(reads=reads, guard=guard, judged=judged)
    return {(abi.audit_arch, number): rule for abi in table for number, rule in abi.rules.items()}


def names() -> dict[tuple[int, int], str]:
    """(audit architecture, number) to name, for every call in the tables."""
    return {
        (arch, number): name
        for arch, table in ((ARCH_X86_64, x86_64.NUMBERS), (ARCH_I386, i386.NUMBERS))
        for name, number in table.items()
    }
