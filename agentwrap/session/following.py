"""Forks the tracer, and makes of the run's options what the tracer and its child need."""

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import msgspec

from agentwrap.errors import EXIT_FAILED
from agentwrap.launching import attendant
from agentwrap.launching.options import RunOptions

if TYPE_CHECKING:
    from agentwrap.launching.child import ChildPlan
    from agentwrap.policy.layers import Layer
    from agentwrap.session.surroundings import Surroundings
    from agentwrap.tracing.capture import CaptureSettings
    from agentwrap.tracing.tracer import TracerSettings

_PR_SET_CHILD_SUBREAPER = 36
# CAP_NET_ADMIN, CAP_NET_RAW: with them a program would release its sockets from the loopback device (tracing.guard).
GUARDED_WITHOUT = (12, 13)
WATCHED_SIGNALS = frozenset(
    {
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGTSTP,
        signal.SIGCONT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGALRM,
        signal.SIGTTIN,
        signal.SIGTTOU,
    }
)


class Following(msgspec.Struct, frozen=True):
    """What the tracer is forked with. `path`: the command's file; `start_ns`: CLOCK_MONOTONIC of the run's start."""

    options: RunOptions
    path: bytes
    start_ns: int
    around: "Surroundings"


def working_directory() -> bytes:
    """Ours; of one that was removed under us, its last name with ` (deleted)`, as the kernel tells it."""
    try:
        return os.getcwdb()
    except FileNotFoundError:
        return os.readlink(b"/proc/self/cwd")


def fork_tracer(following: Following) -> tuple[int, socket.socket]:
    """Fork the tracer: its pid and our end of its channel. Signals of a run are blocked here from now on."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    ignored = frozenset(
        number
        for number in signal.valid_signals()
        if number not in (signal.SIGPIPE, signal.SIGXFSZ) and signal.getsignal(number) is signal.SIG_IGN
    )
    blocked = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, []))
    # From here on no signal may find us without the thread that knows what to do with it.
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED_SIGNALS)
    parent = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by whoever started us
            stream.flush()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _become_tracer(following, theirs, lambda: (ignored, blocked), parent)
    theirs.close()
    # Should the tracer die in a mode without ptrace, its orphans must find us (prctl(2)).
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if following.options.server:
        attendant.let_go_of_streams()  # its client waits for their ends, and we have nothing to say there
    return pid, ours


def _become_tracer(
    following: Following,
    channel: socket.socket,
    signals: Callable[[], tuple[frozenset[int], frozenset[int]]],
    parent: int,
) -> NoReturn:
    try:
        from agentwrap.tracing import process

        following.around.close_in_tracer()
        process.main(channel, _child_plan(following, *signals()), _settings(following), parent)
    finally:
        os._exit(EXIT_FAILED)


def _child_plan(following: Following, ignored: frozenset[int], blocked: frozenset[int]) -> "ChildPlan":
    from agentwrap.launching import seccomp
    from agentwrap.launching.child import ChildPlan
    from agentwrap.tracing.syscalls import watched

    options, around, enforcement = following.options, following.around, following.around.plan
    guard, capture = around.tier == "guard", around.reading.notified == "capture"
    judged = watched.judged_by(enforcement, guard=guard)
    notified = watched.abis(reads=options.reads, guard=guard, capture=capture, judged=judged)
    alone = watched.abis(reads=options.reads, exec_calls=True, guard=guard, capture=capture, judged=judged)
    abis = watched.abis(reads=options.reads, guard=guard, judged=judged)
    return ChildPlan(
        path=following.path,
        argv=options.command,
        environment=around.reading.environment(options.environment, around.reading.notified),
        environment_least=options.environment,
        environment_alone=around.reading.environment(options.environment, around.reading.alone),
        cwd=options.cwd,
        inherit=options.inherit,
        ignored=ignored,
        blocked=blocked,
        notify_program=seccomp.assemble(notified, seccomp.RET_USER_NOTIF),
        alone_program=seccomp.assemble(alone, seccomp.RET_USER_NOTIF),
        trace_program=seccomp.assemble(abis, seccomp.RET_TRACE),
        allow_program=seccomp.assemble(abis, seccomp.RET_ALLOW),
        follow=options.follow,
        enclosure=around.enclosure,
        landlock=enforcement.landlock if enforcement else None,
        no_new_privs=bool(enforcement),
        without=GUARDED_WITHOUT if guard else (),
    )


def _settings(following: Following) -> "TracerSettings":
    from agentwrap.tracing import tracer
    from agentwrap.tracing.files.settings import FileSettings

    options, environment, around = following.options, following.options.environment, following.around
    gateway = around.gateway
    ports = gateway.guard_ports if gateway is not None else None
    return tracer.TracerSettings(
        start_ns=following.start_ns,
        files=FileSettings(
            max_content_bytes=options.max_content_bytes,
            max_hash_bytes=options.max_hash_bytes,
            reads=options.reads,
        ),
        cwd=os.path.realpath(options.cwd or working_directory()),
        home=environment.get(b"HOME", b""),
        temporary=environment.get(b"TMPDIR", b""),
        agent_folders=tuple(
            filter(None, (environment.get(name, b"") for name in (b"CLAUDE_CONFIG_DIR", b"CODEX_HOME")))
        ),
        want_ptrace=not options.debuggable,
        linger_s=options.linger_s,
        callers=gateway.callers if gateway is not None else None,
        guard=(ports.tcp, ports.dns) if ports is not None else None,
        capture=_capture(following),
        landlock=bool(around.plan and around.plan.landlock.handled_ports),
        layers=_layers(following),
        plan=around.plan,
        servers=around.servers,
        gated=around.gated,
        root_server=options.server,
        relay=around.relay.channel_for_tracer if around.relay is not None else None,
    )


def _layers(following: Following) -> "tuple[Layer, ...]":
    """The policies; they let the agent read whom it is to believe, and change none of it."""
    layers, files = following.options.layers, following.around.reading.files
    if files is None or not layers:
        return layers
    from agentwrap.policy.layers import with_shown

    paths = [os.fsdecode(path) for path in dict.fromkeys(files.paths.values())]
    return with_shown(layers, tuple(dict.fromkeys(one for path in paths for one in (path, os.path.realpath(path)))))


def _capture(following: Following) -> "CaptureSettings | None":
    gateway = following.around.gateway
    if gateway is None or gateway.capture_ports is None or following.around.reading.notified != "capture":
        return None
    from agentwrap.launching.environment import model_servers
    from agentwrap.tracing.capture import CaptureSettings

    options, ports = following.options, gateway.capture_ports
    servers = following.around.servers
    urls = [one.url for one in servers.urls] if servers is not None else []
    targets = set(model_servers(options.environment, options.intercept, urls))
    if servers is not None:
        servers.urls_to(lambda url: targets.update(model_servers({}, (), [url])))
    return CaptureSettings(ports.tcp, gateway.callers, targets)
