"""Connecting to where a connection leads: several addresses, the first that answers (RFC 8305), bounded in time.

Knows addresses that were judged; refuses to know names.
"""

import errno
import socket
from collections.abc import Sequence
from typing import Literal

import msgspec
import trio

from agentwrap.policy.hosts import Address

STAGGER_S = 0.25  # RFC 8305, 5
DIAL_S = 30.0

Failure = Literal["refused", "unreachable", "timeout"]


class Failed(msgspec.Struct, frozen=True):
    """Nobody answered. `detail`: the kernel's words for the first address."""

    ending: Failure
    detail: bytes


class Dialled(msgspec.Struct, frozen=True):
    """A connection. `sock` is not blocking."""

    sock: socket.socket
    address: Address


async def dial(addresses: Sequence[Address], port: int) -> Dialled | Failed:
    """Connect to the first of `addresses` that answers; each has a head start before the next. Never raises OSError."""
    if len(addresses) == 1:
        return await _one(addresses[0], port)
    return await _race(addresses, port)


async def _race(addresses: Sequence[Address], port: int) -> Dialled | Failed:
    won: list[Dialled] = []
    lost: list[Failed] = []

    async def attempt(address: Address, failed: trio.Event) -> None:
        outcome = await _one(address, port)
        if isinstance(outcome, Failed):
            lost.append(outcome)
            failed.set()
        elif won:
            outcome.sock.close()
        else:
            won.append(outcome)
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for address in addresses:
            failed = trio.Event()
            nursery.start_soon(attempt, address, failed)
            with trio.move_on_after(STAGGER_S):
                await failed.wait()
    return won[0] if won else lost[0]


async def _one(address: Address, port: int) -> Dialled | Failed:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    except OSError as error:
        return _failed(error.errno or errno.EIO)
    end = (str(address), port)
    try:
        number = sock.connect_ex(end)
        if number == errno.EINPROGRESS:
            # On loopback it stands by now: asking again is cheaper than waiting.
            number = sock.connect_ex(end)
        if number == errno.EALREADY:
            number = errno.ETIMEDOUT
            with trio.move_on_after(DIAL_S):
                await trio.lowlevel.wait_writable(sock)
                number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    except BaseException:
        sock.close()
        raise
    if number not in (0, errno.EISCONN):
        sock.close()
        return _failed(number)
    return Dialled(sock, address)


def _failed(number: int) -> Failed:
    ending: Failure = "unreachable"
    if number == errno.ECONNREFUSED:
        ending = "refused"
    elif number == errno.ETIMEDOUT:
        ending = "timeout"
    return Failed(ending, errno.errorcode.get(number, str(number)).encode())
