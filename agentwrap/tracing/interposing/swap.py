"""A server's standard input and output are put into the relay's hands, in the process itself, before it runs.

The process makes the new pipes or sockets itself, so that they are its own as any it would have made; we get hold of
our ends from outside (`descriptors.take`). Nothing has to be reached for that: no path, no address, no namespace. Where
taking a socket is refused (Docker's profile), the process is lent one of ours through the notify listener and sends
over it what we need (SCM_RIGHTS, unix(7)).

What was a pipe becomes a pipe, what was a socket a socket; two that were one stay one.
"""

import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from agentwrap.mcp.handover import Ends
from agentwrap.tracing.interposing import descriptors
from agentwrap.tracing.interposing.descriptors import Held, Kind
from agentwrap.tracing.interposing.injection import Injection, InjectionError

# asm/unistd_64.h
_CLOSE, _DUP2, _SENDMSG, _SOCKETPAIR, _PIPE2, _CLOSE_RANGE = 3, 33, 46, 53, 293, 436
_TWO = struct.Struct("=ii")
# struct msghdr, struct iovec, a byte, struct cmsghdr (sendmsg(2), cmsg(3)); places in the scratch memory
_MESSAGE, _VECTOR, _HEADER = struct.Struct("=QI4xQQQQi4x"), struct.Struct("=QQ"), struct.Struct("=Qii")
_VECTOR_AT, _BYTE_AT, _CONTROL_AT = 64, 80, 96

Lend = Callable[[Injection, socket.socket], int]
"""Let the program have a descriptor of our socket: its number there. Raises InjectionError where that cannot be."""


class Standard(NamedTuple):
    """A process's standard input and output as they are."""

    input: Held
    output: Held

    @property
    def is_open(self) -> bool:
        """Whether one can be read and the other written, and still after an exec."""
        wrong = self.input.access == os.O_WRONLY or self.output.access == os.O_RDONLY
        return not wrong and not any(one.closes for one in self)

    @property
    def is_one(self) -> bool:
        """Whether both are the same socket."""
        return self.input.kind is Kind.SOCKET and self.input.identity == self.output.identity


class HalfwayError(Exception):
    """The relay has the client's ends, and so has the server, which must not run."""


class Made(NamedTuple):
    """A new pipe or pair of sockets, as numbers of the process: the server's end and the one that is for the relay."""

    server: int
    relay: int


def swap(
    inject: Injection, standard: Standard, hand_over: Callable[[Ends], None], lend: Lend | None
) -> tuple[int, int]:
    """Do it under an injection: the identity (device, inode) of the program's new standard input.

    `hand_over` gets the relay's ends, which are closed here afterwards. It is called before anything that shows is
    changed. Raises InjectionError or OSError, and all is as it was; GoneError; HalfwayError, where a filter of the
    program's own forbids dup2.
    """
    pid = inject.tid
    made: list[Made] = []
    with ExitStack() as ours:
        try:
            made.append(_make(inject, standard.input, server_reads=True))
            if not standard.is_one:
                made.append(_make(inject, standard.output, server_reads=False))
            ends = _take(pid, inject, standard, made, ours, lend)
            new = descriptors.held(pid, made[0].server)
            if new is None:
                raise InjectionError("what the program made is not there")
            hand_over(ends)
            connections = dict(zip(standard, (made[0], made[-1]), strict=True))
            for place, one in (*zip(standard, standard, strict=True), *descriptors.others(pid, standard)):
                if (result := inject.call(_DUP2, connections[one].server, place.number)) < 0:
                    raise HalfwayError(f"dup2: {os.strerror(-result)}")
        except (InjectionError, OSError):
            _close(inject, made)
            raise
        _close(inject, made)
    return new.identity


def taken(pid: int, standard: Standard) -> Iterator[int]:
    """Descriptors of our own for both, each open for one direction where that can be. Raises OSError."""
    yield descriptors.take(pid, standard.input, os.O_RDONLY)
    yield descriptors.take(pid, standard.output, os.O_WRONLY)


def _must(result: int, what: str) -> int:
    if result < 0:
        raise InjectionError(f"{what}: {os.strerror(-result)}")
    return result


def _make(inject: Injection, like: Held, *, server_reads: bool) -> Made:
    if like.kind is Kind.SOCKET:
        kind = socket.SOCK_STREAM | like.status_flags  # SOCK_NONBLOCK is O_NONBLOCK (socket(2))
        _must(inject.call(_SOCKETPAIR, socket.AF_UNIX, kind, 0, inject.scratch), "socketpair")
        return Made(*_TWO.unpack(inject.read(inject.scratch, _TWO.size)))
    _must(inject.call(_PIPE2, inject.scratch, like.status_flags), "pipe2")
    reading, writing = _TWO.unpack(inject.read(inject.scratch, _TWO.size))
    return Made(reading, writing) if server_reads else Made(writing, reading)


def _close(inject: Injection, made: Sequence[Made]) -> None:
    numbers = sorted(number for one in made for number in one)
    if not numbers:
        return
    together = numbers[-1] - numbers[0] == len(numbers) - 1
    if together and inject.call(_CLOSE_RANGE, numbers[0], numbers[-1], 0) == 0:
        return
    for number in numbers:
        inject.call(_CLOSE, number)


def _take(
    pid: int, inject: Injection, standard: Standard, made: Sequence[Made], ours: ExitStack, lend: Lend | None
) -> Ends:
    """Descriptors of our own, closed with `ours`."""
    try:
        found = [_keep(ours, one) for one in taken(pid, standard)]
        found += [_keep(ours, _relay_end(pid, one.relay)) for one in made]
    except PermissionError:
        if lend is None:
            raise
        found = _sent(inject, (0, 1, *(one.relay for one in made)), ours, lend)
    if len(found) == 3:
        found.append(_keep(ours, os.dup(found[2])))
    ends = Ends(*found)
    for one, client, server in ((standard.input, found[0], found[2]), (standard.output, found[1], found[3])):
        if one.kind is Kind.SOCKET and not descriptors.is_stream(client):
            raise InjectionError("a socket that is no stream of this machine")
        if one.kind is Kind.PIPE:
            descriptors.size_as(server, client)
    return ends


def _keep(ours: ExitStack, descriptor: int) -> int:
    ours.callback(os.close, descriptor)
    return descriptor


def _relay_end(pid: int, number: int) -> int:
    one = descriptors.held(pid, number)
    if one is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return descriptors.take(pid, one, one.access)


def _sent(inject: Injection, numbers: Sequence[int], ours: ExitStack, lend: Lend) -> list[int]:
    """The program sends us its descriptors."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there:
        here.setblocking(False)
        channel = lend(inject, there)
        base = inject.scratch
        control = _HEADER.pack(_HEADER.size + 4 * len(numbers), socket.SOL_SOCKET, socket.SCM_RIGHTS)
        control += struct.pack(f"={len(numbers)}i", *numbers)
        message = _MESSAGE.pack(0, 0, base + _VECTOR_AT, 1, base + _CONTROL_AT, len(control), 0)
        inject.write(base, message)
        inject.write(base + _VECTOR_AT, _VECTOR.pack(base + _BYTE_AT, 1) + b"F")
        inject.write(base + _CONTROL_AT, control)
        sent = inject.call(_SENDMSG, channel, base, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        inject.call(_CLOSE, channel)
        _must(sent, "sendmsg")
        _data, received, _flags, _address = socket.recv_fds(here, 1, len(numbers), socket.MSG_CMSG_CLOEXEC)
    found = [_keep(ours, descriptor) for descriptor in received]
    if len(found) != len(numbers):
        raise InjectionError("not every descriptor arrived")
    return found
