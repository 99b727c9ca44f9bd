"""Tells the gateway who is about to connect, before the connect is let go: so it knows whose connection comes."""

import os
import socket

from agentwrap.events import Transport
from agentwrap.gateway.callers import Caller, encode
from agentwrap.tracing.processes import Process
from agentwrap.tracing.syscalls.addresses import Address

_PATIENCE_S = 1.0


class Announcer:
    """The tracer's end of the channel. A gateway that is gone needs to be told nothing."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        # A gateway that does not read must not hold the agent for ever: then a connection is nobody's.
        channel.settimeout(_PATIENCE_S)

    def __call__(
        self, process: Process, tid: int, descriptor: int, address: Address, transport: Transport, local_port: int = 0
    ) -> None:
        """One call of `process` with an inet address. `local_port`: of a connection made on its behalf."""
        caller = Caller(
            inode=socket_inode(tid, descriptor),
            local_port=local_port,
            pid=process.pid,
            span=process.span,
            transport="udp" if transport == "udp" else "tcp",
            host=address.host.decode(),
            port=address.port,
        )
        try:
            self._channel.send(encode(caller))
        except OSError:
            pass  # it is dead, and so is every connection


def socket_inode(tid: int, descriptor: int) -> int:
    """The inode of a task's socket, 0 if it is none (proc_pid_fd(5))."""
    try:
        target = os.readlink(f"/proc/{tid}/fd/{descriptor}")
    except OSError:
        return 0
    return int(target[8:-1]) if target.startswith("socket:[") else 0
