"""The gateway as a process of its own: its thousands of wake-ups never queue behind the recorder's work.

Its death closes the only listener of the namespace: every connect of the agent is refused from then on. It is forked
before there is a namespace: what it needs takes as long to load as the rest of a start.
"""

import contextlib
import importlib
import os
import select
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NoReturn

from agentwrap.launching import attendant

if TYPE_CHECKING:
    from agentwrap.gateway.serve import Ports, Settings

_FAILED = 125
_SOCKETS_MAX = 250  # SCM_MAX_FD is 253 (unix(7))
_NAMES_BYTES = 16384
_FIRST_BYTES = 1 << 16
_PATIENCE_S = 10.0
_NICE = 10
_PARTS = ("ssl", "trio", "agentwrap.gateway.connection", "agentwrap.gateway.service")
SUPERVISOR = "supervisor"
LISTENERS = ("tcp", "reverse")

Sockets = Mapping[str, socket.socket]
Build = Callable[[Sockets], "tuple[Ports, Settings]"]
First = Callable[[], bytes]


class Loading:
    """The gateway's process while it loads. `give` it what it is to work on, or `end` it."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self._channel = channel

    def give(self, sockets: Sockets) -> None:
        """Hand over sockets by their names, one of them `SUPERVISOR`; there it says `wire.Ready` when it listens."""
        names = "\n".join(sockets).encode()
        socket.send_fds(self._channel, [names], [sock.fileno() for sock in sockets.values()])

    def first_word(self, patience_s: float) -> bytes:
        """What `first` gave, empty if it does not come."""
        self._channel.settimeout(patience_s)
        try:
            return self._channel.recv(_FIRST_BYTES)
        except OSError:
            return b""

    def go_on(self) -> None:
        """A patient one: load the rest. Nothing more is said here."""
        try:
            self._channel.send(b"go")
        except OSError:
            pass  # it is dead, which is told elsewhere
        self.close()

    def close(self) -> None:
        """Nothing more is said here."""
        self._channel.close()

    def end(self) -> None:
        """It is not wanted after all."""
        self.close()
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except OSError:
            pass  # it ended by itself


def fork(build: Build, first: First = bytes, *, patient: bool = False) -> Loading:
    """Fork the gateway; in it, `build` makes ports and settings of the sockets. Must run before there are threads.

    `first` is done there before anything else is loaded: somebody waits for what it gives. `patient`: the rest is
    loaded after `go_on`; until then the processors are for those whom the command waits for.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _become(build, first, theirs, parent, patient=patient)
    theirs.close()
    return Loading(pid, ours)


def _become(build: Build, first: First, channel: socket.socket, parent: int, *, patient: bool) -> NoReturn:
    status = 0
    sockets: Sockets = {}
    try:
        attendant.be_called("aw-gateway")
        attendant.die_with(parent)
        attendant.hide_memory()
        attendant.ignore_terminal_signals()
        attendant.let_go_of_streams()
        # What the tracer asks for must not wait for a switch of threads here.
        sys.setswitchinterval(0.001)
        try:
            _say(channel, first())
            if not patient:
                _load()
        finally:
            sockets = _hear(channel)
        if patient:
            channel.settimeout(_PATIENCE_S)
            try:
                channel.recv(16)
            except OSError:
                pass  # nobody will say so
            _load_aside(sockets)
        channel.close()
        from agentwrap.gateway import serve

        serve.run(*build(sockets))
    except BaseException as error:
        status = _FAILED
        if SUPERVISOR in sockets:
            from agentwrap.tracing.wire import tell_fault

            tell_fault(sockets[SUPERVISOR], "gateway", error)
    os._exit(status)


def _load() -> None:
    from agentwrap.gateway import serve

    serve.load()


def _load_aside(sockets: Sockets) -> None:
    """As `_load`, without taking a processor from the command, which has just begun (setpriority(2): of a thread).

    For whoever connects meanwhile what is left is loaded at once. Told to leave before anybody has, this process ends:
    nothing went through it, and there is nothing to tell.
    """
    aside = _Aside()
    aside.start()
    leaving = sockets[SUPERVISOR].fileno()
    listeners = {sockets[name].fileno() for name in LISTENERS if name in sockets}
    ready = _ready({aside.done, leaving, *listeners})
    if leaving in ready and not _ready(listeners, 0):
        os._exit(0)
    aside.finish()


def _ready(descriptors: Collection[int], patience_ms: int | None = None) -> set[int]:
    """Which of them can be read, or accepted from."""
    waiting = select.poll()
    for descriptor in descriptors:
        waiting.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in waiting.poll(patience_ms)}


class _Aside(threading.Thread):
    """Loads part by part, behind everybody else. `done`: an eventfd that can be read when all of it is loaded."""

    def __init__(self) -> None:
        super().__init__(name="agentwrap-loading", daemon=True)
        self.done = os.eventfd(0, os.EFD_CLOEXEC)
        self._left = deque(_PARTS)

    def run(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        try:
            self._load()
        except Exception:
            pass  # whoever needs it meets the same, and tells it
        finally:
            os.eventfd_write(self.done, 1)

    def _load(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                importlib.import_module(self._left.popleft())

    def finish(self) -> None:
        """What is left is loaded by the caller, at its own pace."""
        with contextlib.suppress(OSError):  # only root gets a priority back (RLIMIT_NICE, getrlimit(2))
            os.setpriority(os.PRIO_PROCESS, self.native_id or 0, 0)
        self._load()
        self.join()
        os.close(self.done)


def _say(channel: socket.socket, word: bytes) -> None:
    try:
        if word:
            channel.send(word)
    except OSError:
        pass  # nobody waits for it


def _hear(channel: socket.socket) -> Sockets:
    """Nothing where the supervisor has changed its mind, or is gone."""
    try:
        names, descriptors, _flags, _address = socket.recv_fds(channel, _NAMES_BYTES, _SOCKETS_MAX)
    except ConnectionResetError:
        # Whoever closes with our word unread resets the channel once (unix(7)); what was given is still there.
        names, descriptors, _flags, _address = socket.recv_fds(channel, _NAMES_BYTES, _SOCKETS_MAX)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    return dict(zip(names.decode().split("\n"), sockets, strict=True)) if names else {}
