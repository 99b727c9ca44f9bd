"""The child between fork and exec: it stands still, unfiltered threads gone, until it is told to go.

Runs in a forked copy of the tracer, so: `os`, `ctypes`, `signal`, `socket` and one short-lived thread, nothing else.
The conversation with the tracer (one SEQPACKET socket):

    child  -> tracer  b"ready"
    tracer -> child   b"P" (it is traced) or b"-" (ptrace was refused)
    child  -> tracer  mode byte + errno, and the listener's descriptor when there is one
    tracer -> child   b"go"
    child  -> tracer  nothing (the socket closes on exec), or b"E" + errno when exec failed
"""

import contextlib
import ctypes
import errno
import os
import signal
import socket
import stat
import struct
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, NoReturn

import msgspec

if TYPE_CHECKING:
    from agentwrap.launching.enforcement import LandlockPlan

_SECCOMP, _SET_MODE_FILTER = 317, 1
_FLAG_NEW_LISTENER, _FLAG_WAIT_KILLABLE = 8, 32
_PR_SET_NO_NEW_PRIVS, _PR_SET_DUMPABLE, _PR_SET_PDEATHSIG = 38, 4, 1
_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_LOWER = 24, 47, 3

MODE_NOTIFY, MODE_TRACE, MODE_EVERY_CALL, MODE_NONE = b"N", b"T", b"S", b"0"


class Enclosure(msgspec.Struct, frozen=True):
    """The namespaces that the child joins: descriptors of the outer user, network (-1: none) and mount namespace.

    `maps` is a channel to a process in that user namespace, which gives the child's own its ids; needed for root alone.
    """

    user: int
    net: int
    mnt: int
    maps: socket.socket
    uid: int
    gid: int


class ChildPlan(msgspec.Struct, frozen=True):
    """Everything the child needs to become the command.

    `path` is already looked up; `argv[0]` is what the user typed. `notify_program` is installed with a listener where
    ptrace follows the processes, `alone_program` with a listener where it does not, `trace_program` without one, and
    `allow_program`, which only refuses, where every call is stopped at.
    `ignored` are the signals that were ignored when we were started. `inherit` are descriptors kept besides 0-2.
    `enclosure`: namespaces to join, `landlock`: restrictions to put on, `no_new_privs`: even where nothing asks for it.
    `without`: numbers of capabilities that neither the command nor anything below it is to have. `environment_alone`:
    in place of `environment` where no listener hears of calls, `environment_least`: where that one is too large for
    the kernel; None: the same.
    """

    path: bytes
    argv: tuple[bytes, ...]
    environment: Mapping[bytes, bytes]
    cwd: bytes | None
    inherit: tuple[int, ...]
    ignored: frozenset[int]
    blocked: frozenset[int]
    notify_program: bytes
    alone_program: bytes
    trace_program: bytes
    allow_program: bytes
    follow: Literal["auto", "notify", "trace", "calls"] = "auto"
    enclosure: Enclosure | None = None
    landlock: "LandlockPlan | None" = None
    no_new_privs: bool = False
    without: tuple[int, ...] = ()
    environment_alone: Mapping[bytes, bytes] | None = None
    environment_least: Mapping[bytes, bytes] | None = None


class Launched(msgspec.Struct, frozen=True):
    """A child that stands before its exec.

    `listener` is -1 unless `mode` is MODE_NOTIFY; the errnos say what was refused.
    """

    pid: int
    channel: socket.socket
    mode: bytes
    listener: int
    traced: bool
    attach_errno: int
    notify_errno: int
    filter_errno: int


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))


_libc = ctypes.CDLL(None, use_errno=True)


def _install(program: bytes, flags: int) -> int:
    """seccomp(SECCOMP_SET_MODE_FILTER): the listener's descriptor with NEW_LISTENER, else 0; -errno on failure."""
    argument = _Program(len(program) // 8, program)
    result = _libc.syscall(_SECCOMP, _SET_MODE_FILTER, flags, ctypes.byref(argument))
    return int(result) if result >= 0 else -ctypes.get_errno()


def _listener_exists() -> bool:
    """Whether somebody above holds a notify listener already (a second one is refused with EBUSY), tried in a fork."""
    pid = os.fork()
    if pid == 0:
        # One instruction: allow everything.
        result = _install(struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000), _FLAG_NEW_LISTENER)
        os._exit(1 if result == -errno.EBUSY else 0)
    return os.waitpid(pid, 0)[1] != 0


def _allowed(install: Callable[[], int]) -> int:
    """Install a filter, giving up set-id programs only where the kernel asks for it (EACCES, seccomp(2))."""
    result = install()
    if result == -errno.EACCES:
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        result = install()
    return result


def _filter_self(plan: ChildPlan, traced: bool) -> tuple[bytes, int, int, int]:
    """Install the strongest filter that works: (mode, listener, errno of notify, errno of the filter)."""
    notify_errno = 0
    if plan.follow in ("auto", "notify"):
        program = plan.notify_program if traced else plan.alone_program
        result = _allowed(lambda: _install(program, _FLAG_NEW_LISTENER | _FLAG_WAIT_KILLABLE))
        if result >= 0:
            return MODE_NOTIFY, result, 0, 0
        notify_errno = -result
    if not traced:
        return MODE_NONE, -1, notify_errno, notify_errno
    # Where a listener exists above, its notification outranks our SECCOMP_RET_TRACE (seccomp(2), "return values"):
    # the calls it asks about would never be seen. Then every call is stopped at, which nothing outranks.
    if plan.follow == "trace" or (plan.follow == "auto" and notify_errno == errno.EINVAL and not _listener_exists()):
        result = _allowed(lambda: _install(plan.trace_program, 0))
        if result >= 0:
            return MODE_TRACE, -1, notify_errno, 0
    result = _allowed(lambda: _install(plan.allow_program, 0))
    return MODE_EVERY_CALL, -1, notify_errno, -min(result, 0)


def _restore_signals(plan: ChildPlan) -> None:
    """The dispositions that the shell gave us; Python itself ignores SIGPIPE and SIGXFSZ, which no program expects."""
    for number in range(1, signal.NSIG):
        if number in {signal.SIGKILL, signal.SIGSTOP}:
            continue
        try:
            signal.signal(number, signal.SIG_IGN if number in plan.ignored else signal.SIG_DFL)
        except (OSError, ValueError):
            pass  # 32 and 33 belong to the threading library
    signal.pthread_sigmask(signal.SIG_SETMASK, plan.blocked)


def _close_on_exec(plan: ChildPlan) -> None:
    try:
        limit = max(int(name) for name in os.listdir("/proc/self/fd"))
    except (OSError, ValueError):
        limit = 1023
    for descriptor in range(3, limit + 1):
        try:
            os.set_inheritable(descriptor, descriptor in plan.inherit)
        except OSError:
            pass  # not open


def _become(plan: ChildPlan, environment: Mapping[bytes, bytes]) -> int:
    """execve, with the shell's fallback for a script that names no interpreter (execvp(3)). Returns an errno."""
    try:
        os.execve(plan.path, plan.argv, environment)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            return error.errno or errno.EIO
    try:
        os.execve(b"/bin/sh", (b"sh", plan.path, *plan.argv[1:]), environment)
    except OSError as error:
        return error.errno or errno.EIO


def _enter(enclosure: Enclosure, cwd: bytes, kept: tuple[int, ...]) -> None:
    """Join the namespaces, and make a user namespace of our own inside: the outer one owns the network. One thread."""
    from agentwrap.launching import namespaces

    # Their memory of where they lie is of the mounts outside.
    folders = [fd for fd in (0, 1, 2, *kept) if _is_folder(fd)]
    paths = [os.readlink(b"/proc/self/fd/%d" % fd) for fd in folders]
    namespaces.setns(enclosure.user, namespaces.NEWUSER)
    if enclosure.net >= 0:
        namespaces.setns(enclosure.net, namespaces.NEWNET)
    namespaces.setns(enclosure.mnt, namespaces.NEWNS)
    for fd, path in zip(folders, paths, strict=True):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        os.dup2(descriptor, fd, inheritable=True)
        os.close(descriptor)
    # The working directory is the new root since setns(2).
    os.chdir(cwd)
    namespaces.unshare(namespaces.NEWUSER | namespaces.NEWNS)
    if enclosure.uid != 0:
        namespaces.map_own_id(enclosure.uid, enclosure.gid)
        return
    enclosure.maps.send(b"%d" % os.getpid())
    refused = int(enclosure.maps.recv(16) or errno.EPIPE)
    if refused:
        raise OSError(refused, f"id map: {os.strerror(refused)}")


def _is_folder(descriptor: int) -> bool:
    try:
        return stat.S_ISDIR(os.fstat(descriptor).st_mode)
    except OSError:
        return False  # closed


def _run_child(plan: ChildPlan, channel: socket.socket, parent: int) -> NoReturn:
    # A child of a process that is not dumpable is not dumpable either, and could not be attached to.
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    if plan.enclosure is not None:
        _enter(plan.enclosure, plan.cwd if plan.cwd is not None else os.getcwdb(), plan.inherit)
        _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    elif plan.cwd is not None:
        os.chdir(plan.cwd)
    # After the namespaces: the kernel forgets it when credentials change (prctl(2)).
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(125)
    for capability in plan.without:
        # What nobody may drop (EPERM: no CAP_SETPCAP) nobody has either, but by the ambient set.
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
        _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_LOWER, capability, 0, 0)
    if plan.no_new_privs:
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if plan.landlock is not None:
        from agentwrap.launching import landlock

        landlock.restrict(plan.landlock)
    ask, answer = os.pipe()

    # sendmsg is itself reported once the filter stands, to a listener that nobody holds yet. Filters bind a thread, not
    # a process: this one is started before and stays free (pidfd_getfd, the other way, is refused in Docker).
    def send_listener() -> None:
        mode, listener, notify_errno, filter_errno = struct.unpack("=ciii", os.read(ask, 16))
        descriptors = [listener] if listener >= 0 else []
        try:
            socket.send_fds(channel, [struct.pack("=cii", mode, notify_errno, filter_errno)], descriptors)
        except OSError:
            # Whoever waits for it is gone, or hears by this that it does not come; nobody is left to tell anything.
            with contextlib.suppress(OSError):
                channel.shutdown(socket.SHUT_RDWR)

    sender = threading.Thread(target=send_listener)
    sender.start()
    channel.send(b"ready")
    traced = channel.recv(16) == b"P"
    outcome = _filter_self(plan, traced)
    os.write(answer, struct.pack("=ciii", *outcome))
    sender.join()
    if outcome[1] >= 0:
        os.close(outcome[1])
    if channel.recv(16) != b"go":
        os._exit(125)
    _close_on_exec(plan)
    _restore_signals(plan)
    alone = plan.environment_alone if outcome[0] != MODE_NOTIFY else None
    number = _become(plan, plan.environment if alone is None else alone)
    if number == errno.E2BIG and plan.environment_least is not None:
        number = _become(plan, plan.environment_least)
    channel.send(b"E%d" % number)
    os._exit(126 if number in (errno.EACCES, errno.ENOEXEC, errno.EISDIR) else 127 if number == errno.ENOENT else 126)


def launch(plan: ChildPlan, attach: Callable[[int], int], *, want_ptrace: bool = True) -> Launched:
    """Fork the child and bring it to stand before its exec, filtered and (if possible) attached to.

    `attach(pid)` is PTRACE_SEIZE, returning 0 or an errno. Must run in a process with one thread. Raises OSError when
    the child died on the way (a missing directory, ...).
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            _run_child(plan, theirs, parent)
        except OSError as error:
            theirs.send(b"E%d" % (error.errno or errno.EIO))
        finally:
            os._exit(125)
    theirs.close()
    first = ours.recv(64)
    if first != b"ready":
        os.waitpid(pid, 0)
        number = int(first[1:]) if first[:1] == b"E" else errno.EIO
        raise OSError(number, os.strerror(number))
    attach_errno = attach(pid) if want_ptrace else errno.EPERM
    ours.send(b"-" if attach_errno else b"P")
    message, descriptors, _flags, _address = socket.recv_fds(ours, 64, 1)
    if len(message) != 9:
        raise OSError(errno.EIO, "the child died before its filter stood")
    mode, notify_errno, filter_errno = struct.unpack("=cii", message)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return Launched(
        pid=pid,
        channel=ours,
        mode=mode,
        listener=descriptors[0] if descriptors else -1,
        traced=not attach_errno,
        attach_errno=attach_errno,
        notify_errno=notify_errno,
        filter_errno=filter_errno,
    )
