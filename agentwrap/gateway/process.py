"""The gateway as a process of its own: its thousands of wake-ups never queue behind the recorder's work.

Its death closes the only listener of the namespace: every connect of the agent is refused from then on.
"""

import os
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from agentwrap.launching import attendant

if TYPE_CHECKING:
    from agentwrap.gateway.serve import Ports, Settings

_FAILED = 125


def start(
    build: "Callable[[], tuple[Ports, Settings]]", supervisor: socket.socket, ours: "tuple[socket.socket, ...]"
) -> int:
    """Fork the gateway and return its pid at once; it says `wire.Ready` when it listens.

    `build` makes ports and settings in the new process; `ours` are the supervisor's ends, closed there. Must run
    before there are threads.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(build, supervisor, ours, parent)
    return pid


def _become(
    build: "Callable[[], tuple[Ports, Settings]]",
    supervisor: socket.socket,
    ours: "tuple[socket.socket, ...]",
    parent: int,
) -> NoReturn:
    status = 0
    try:
        attendant.be_called("aw-gateway")
        attendant.die_with(parent)
        attendant.hide_memory()
        attendant.ignore_terminal_signals()
        for end in ours:
            end.close()
        # What the tracer asks for must not wait for a switch of threads here.
        sys.setswitchinterval(0.001)
        from agentwrap.gateway import serve

        serve.run(*build())
    except BaseException as error:
        status = _FAILED
        _report(supervisor, error)
    os._exit(status)


def _report(supervisor: socket.socket, error: BaseException) -> None:
    import traceback

    from agentwrap.tracing.wire import Failed, Sender

    sender = Sender(supervisor)
    text = "".join(traceback.format_exception(error))
    sender.put(Failed(step="gateway", errno=0, detail=text.encode("utf-8", "backslashreplace")))
    try:
        sender.flush()
    except OSError:
        pass  # the supervisor is gone as well
