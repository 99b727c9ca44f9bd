"""The relay as a process of its own: `aw-mcp`. It sleeps until the first server begins; most runs have none.

Forked by the supervisor before the tracer. Its death ends all sessions: clients and servers see the other side leave.
"""

import os
import select
import socket
from collections.abc import Callable
from typing import NoReturn

import msgspec

from agentwrap.launching import attendant
from agentwrap.policy.layers import Layer

_FAILED = 125


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What one run has. `now`: ns since its start. `unattended`: no human is there to be asked."""

    now: Callable[[], int]
    layers: tuple[Layer, ...] = ()
    ask_timeout_s: float = 300.0
    unattended: bool = True


def become(channel: socket.socket, supervisor: socket.socket, settings: Settings, parent: int) -> NoReturn:
    """Be the relay, in a process that was just forked. `channel`: SEQPACKET from the tracer."""
    status = 0
    try:
        attendant.be_called("aw-mcp")
        attendant.die_with(parent)
        attendant.hide_memory()
        attendant.ignore_terminal_signals()
        attendant.let_go_of_streams()
        if _sleep(channel, supervisor):
            from agentwrap.mcp.relay import serve

            serve.run(channel, supervisor, settings)
    except BaseException as error:
        from agentwrap.tracing.wire import tell_fault

        status = _FAILED
        tell_fault(supervisor, "mcp relay", error)
    os._exit(status)


def _sleep(channel: socket.socket, supervisor: socket.socket) -> bool:
    """Until a server comes; False: none came, and nobody wants us any more."""
    waiting = select.poll()
    waiting.register(channel, select.POLLIN)
    waiting.register(supervisor, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in waiting.poll()}
        if channel.fileno() in ready:
            if channel.recv(1, socket.MSG_PEEK):
                return True
            waiting.unregister(channel)  # the tracer is gone
        elif supervisor.fileno() in ready:
            return False
