"""The forked tracer as a process: what it is to the machine before it follows anybody, and how it leaves."""

import os
import socket
import sys
from typing import NoReturn

from agentwrap.launching import attendant
from agentwrap.launching.child import ChildPlan
from agentwrap.tracing.tracer import Tracer, TracerSettings
from agentwrap.tracing.wire import tell_fault

_PR_SET_CHILD_SUBREAPER = 36


def main(channel: socket.socket, plan: ChildPlan, settings: TracerSettings, parent: int) -> NoReturn:
    """The forked tracer's whole life. Never returns; exit status 0 when the tree ended and all was sent."""
    attendant.be_called("aw-tracer")
    attendant.die_with(parent)
    attendant.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    attendant.hide_memory()
    attendant.ignore_terminal_signals()
    sys.setswitchinterval(0.001)
    status = 0
    try:
        Tracer(channel, plan, settings).run()
    except BrokenPipeError:
        status = 125
    except BaseException as error:
        status = 125
        tell_fault(channel, "tracer", error)
    os._exit(status)
