"""Who performs calls in the program's place: made from the tracer's settings, loaded only where a run has it."""

import errno
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentwrap.events import Sink
from agentwrap.launching.child import Launched
from agentwrap.tracing.tracee import Memory

if TYPE_CHECKING:
    from agentwrap.tracing.capture import Capture
    from agentwrap.tracing.guard import Guard
    from agentwrap.tracing.guard.stopped import Stopped
    from agentwrap.tracing.interposing.watch import Interposer
    from agentwrap.tracing.loop import PtraceLoop
    from agentwrap.tracing.observer import Observer
    from agentwrap.tracing.own_servers import OwnServers
    from agentwrap.tracing.tracer import TracerSettings

InTree = Callable[[int], bool]


def load(settings: "TracerSettings") -> None:
    """Load what this run needs of what follows, and its judge, while the supervisor is busy writing the start."""
    if settings.guard is not None:
        importlib.import_module("agentwrap.tracing.guard.stopped")
    if settings.capture is not None:
        importlib.import_module("agentwrap.tracing.capture")
    if settings.servers is not None:
        importlib.import_module("agentwrap.tracing.interposing.watch")
    if settings.layers and settings.plan is not None:
        for name in ("afterlook", "judged_calls", "judged_files", "judged_sockets", "judging"):
            importlib.import_module(f"agentwrap.tracing.{name}")


def takes_errno(settings: "TracerSettings", launched: Launched) -> int:
    """Why the guard cannot take sockets from the program, which without a listener it must (pidfd_getfd(2)); 0: it can.

    Where a listener is, nothing has to be taken.
    """
    if settings.guard is None or launched.listener >= 0:
        return 0
    if not launched.traced:
        return launched.attach_errno or errno.EPERM
    from agentwrap.tracing.guard.sockets import take_errno

    return take_errno(launched.pid)


def make_guard(
    settings: "TracerSettings", memory: Memory, in_tree: InTree, sink: Sink, now: Callable[[], int], listener: int
) -> "tuple[Guard, Stopped | None] | None":
    """The guard, if the run has one: by a listener's descriptor, or, where that is -1, at ptrace's stops."""
    if settings.guard is None or settings.callers is None:
        return None
    from agentwrap.tracing.guard import Guard, GuardSettings
    from agentwrap.tracing.guard.stopped import Stopped

    tcp_port, dns_port = settings.guard
    own = own_servers(settings, sink, now)
    wanted = GuardSettings(
        tcp_port=tcp_port, dns_port=dns_port, callers=settings.callers, in_tree=in_tree, landlock=settings.landlock,
        served=own.led_past if own is not None else None,
    )  # fmt: skip
    stopped = Stopped() if listener < 0 else None
    taking = True if stopped is not None else None
    return Guard(memory, listener, sink, now, wanted, stopped=stopped, taking=taking), stopped


def perform_at_stops(loop: "PtraceLoop", guard: "Guard", stopped: "Stopped") -> None:
    """The loop asks the guard about each reported call."""
    from agentwrap.tracing.guard.performer import Performer

    loop.perform_by(lambda resume, answer: Performer(guard, stopped, resume, answer))


def make_capture(
    settings: "TracerSettings", memory: Memory, in_tree: InTree, sink: Sink, now: Callable[[], int], listener: int
) -> "Capture | None":
    """What leads connections to model servers through the gateway, if the run has it."""
    if settings.capture is None:
        return None
    from agentwrap.tracing.capture import Capture

    return Capture(memory, listener, sink, now, settings.capture, in_tree)


def make_interposer(
    settings: "TracerSettings", observer: "Observer", sink: Sink, now: Callable[[], int], listener: int
) -> "Interposer | None":
    """What puts the relay between MCP servers and their clients, if the run has it; `observer` asks it about pipes.

    Behind a wall it asks about servers of the run's own, too: the guard, where there is one, asks by itself.
    """
    if settings.guard is None and settings.capture is None and settings.callers is not None:
        own = own_servers(settings, sink, now)
        observer.network.served = own.connecting if own is not None else None
    if settings.servers is None:
        return None
    from agentwrap.launching.mcp_servers import Servers
    from agentwrap.tracing.interposing.watch import Interposer

    interposer = Interposer(
        settings.servers,
        settings.relay,
        sink,
        now,
        gated=settings.gated,
        root_server=settings.root_server,
        listener=listener,
    )
    if isinstance(settings.servers, Servers):
        settings.servers.tell_to(sink, settings.start_ns)
        interposer.begins = settings.servers.begins
    observer.blind.pipe = interposer.written_past
    return interposer


def own_servers(settings: "TracerSettings", sink: Sink, now: Callable[[], int]) -> "OwnServers | None":
    """What knows of declared MCP servers that the run may serve itself, past its gateway."""
    from agentwrap.launching.mcp_servers import Servers

    if not isinstance(settings.servers, Servers):
        return None
    from agentwrap.tracing.own_servers import OwnServers

    return OwnServers(settings.servers, settings.layers, sink, now)
