"""Socket calls with the exact bytes of an address, which Python's own calls do not take, and pidfd_getfd(2).

Each returns an errno instead of raising: it is what the tracee is told.
"""

import ctypes
import errno
import os
import select
import signal
import socket
import struct

_SYS_PIDFD_GETFD, _SYS_TGKILL = 438, 234
_PIDFD_THREAD = os.O_EXCL  # Linux 6.9
_SO_BINDTODEVICE = 25

# CDLL gives up the interpreter lock: a datagram may wait for room.
_libc = ctypes.CDLL(None, use_errno=True)
_connect = _libc.connect
_connect.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
_bind = _libc.bind
_bind.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
_sendto = _libc.sendto
_sendto.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
_sendto.restype = ctypes.c_ssize_t
_sendmsg = _libc.sendmsg
_sendmsg.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int)
_sendmsg.restype = ctypes.c_ssize_t


def connect(descriptor: int, address: bytes) -> int:
    """connect(2): 0 or an errno."""
    return 0 if _connect(descriptor, address, len(address)) == 0 else ctypes.get_errno()


def bind(descriptor: int, address: bytes) -> int:
    """bind(2): 0 or an errno."""
    return 0 if _bind(descriptor, address, len(address)) == 0 else ctypes.get_errno()


def send(descriptor: int, data: bytes, flags: int, address: bytes | None) -> int:
    """sendto(2): bytes sent, or a negative errno."""
    sent = int(_sendto(descriptor, data, len(data), flags, address, len(address) if address else 0))
    return sent if sent >= 0 else -ctypes.get_errno()


def message(descriptor: int, data: bytes, control: bytes, flags: int, address: bytes | None) -> int:
    """sendmsg(2): bytes sent, or a negative errno. `control` as the kernel's 64-bit layout has it."""
    held = [ctypes.create_string_buffer(piece, len(piece) or 1) for piece in (address or b"", data, control)]
    name, payload, ancillary = (ctypes.addressof(one) for one in held)
    vector = ctypes.create_string_buffer(struct.pack("=QQ", payload, len(data)))
    header = struct.pack(
        "=QI4xQQQQI4x", name if address else 0, len(address or b""), ctypes.addressof(vector), 1,
        ancillary if control else 0, len(control), 0,
    )  # fmt: skip
    sent = int(_sendmsg(descriptor, header, flags))
    return sent if sent >= 0 else -ctypes.get_errno()


def signal_broken_pipe(pid: int, tid: int) -> None:
    """SIGPIPE to a thread, as it would have got it from its own send (pipe(7)). One that is gone needs none."""
    _libc.syscall(_SYS_TGKILL, pid, tid, signal.SIGPIPE)


def keep_to_loopback(sock: socket.socket) -> bool:
    """SO_BINDTODEVICE to `lo` (socket(7)): whatever is done with the socket, no packet of it leaves the machine.

    Needs CAP_NET_RAW before Linux 5.7. Undoing it always does.
    """
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, b"lo\0")
    except OSError:
        return False
    return True


def is_kept_to_loopback(sock: socket.socket) -> bool:
    """Whether `keep_to_loopback` holds for it."""
    try:
        return bool(sock.getsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, 16).strip(b"\0"))
    except OSError:
        return False


def let_out(sock: socket.socket) -> bool:
    """The reverse of `keep_to_loopback`."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, b"\0")
    except OSError:
        return False
    return True


def is_on_loopback(sock: socket.socket) -> bool:
    """Whether the socket has a loopback address, and so hears this machine alone."""
    host = str(sock.getsockname()[0])
    return host == "::1" or host.removeprefix("::ffff:").startswith("127.")


def take(pid: int, tid: int, descriptor: int) -> int:
    """A duplicate of a descriptor of thread `tid` of process `pid` (pidfd_getfd(2)).

    Raises OSError: PermissionError where a container's profile or the tracee's credentials refuse it.
    """
    try:
        handle = os.pidfd_open(tid, _PIDFD_THREAD if tid != pid else 0)
    except OSError as error:
        if tid == pid or error.errno != errno.EINVAL:
            raise
        handle = os.pidfd_open(pid)  # before Linux 6.9: threads share their descriptors, nearly always
    try:
        result = int(_libc.syscall(_SYS_PIDFD_GETFD, handle, descriptor, 0))
    finally:
        os.close(handle)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def duplicate(sock: socket.socket) -> socket.socket:
    """Another descriptor of the same socket. Not `sock.dup()`, which makes the tracee's socket a blocking one."""
    return socket.socket(fileno=os.dup(sock.fileno()))


def port_of(sock: socket.socket) -> int:
    """The local port, 0 when it has none yet."""
    return int(sock.getsockname()[1])


def ready_to_write(sock: socket.socket, patience_s: float) -> bool:
    """Whether a connect under way is over."""
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    return bool(poll.poll(patience_s * 1000))


def time_limit_s(sock: socket.socket, option: int) -> float | None:
    """SO_SNDTIMEO or SO_RCVTIMEO in seconds; None for no limit (socket(7))."""
    seconds, micros = struct.unpack("=qq", sock.getsockopt(socket.SOL_SOCKET, option, 16))
    return seconds + micros / 1e6 if seconds or micros else None
