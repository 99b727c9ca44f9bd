"""The control socket: a thread that takes requests, asks the registry, and reports what was decided.

Refuses to know what an answer does. Whatever a peer sends, at whatever speed, costs it its own connection and nobody
else anything: lines are bounded, connections are few and short, and nothing here waits for a peer.
"""

import errno
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from agentwrap.approvals import ancestry, folder, messages, peers
from agentwrap.approvals.messages import AskPending, Failure, GiveAnswer, Pending, Reply, RunFacts, Taken
from agentwrap.approvals.registry import Given, Refusal, Registry, Waiting

MAX_CONNECTIONS = 64
CONNECTION_S = 3.0
_NO_DESCRIPTOR_S = 0.1
_REFUSED_TEXT = "{}; answer from a terminal outside of the run"

OnEnded = Callable[[Given], None]
"""A question ended: somebody answered, or nobody did in time. Called in the server's thread, with the lock held."""
Objection = Callable[[Waiting, GiveAnswer, int], str]
"""(question, answer, uid): why this answer may not be given by them; empty if it may. Called as `OnEnded` is."""
OnRefused = Callable[[int, int, str], None]
"""(pid, uid, why): somebody tried who may not."""


class _Connection:
    """One peer: what it has sent so far, what it has yet to be sent."""

    def __init__(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        self.socket = accepted
        self.peer = peers.Peer(accepted)
        self.deadline = time.monotonic() + CONNECTION_S
        self.received = bytearray()
        self.unsent = b""

    def close(self) -> None:
        self.peer.close()
        self.socket.close()


class ControlServer:
    """Serves one run's registry at `path`. `lock` guards the registry, also for the run's side.

    `is_descendant`: whether a process belongs to the run; may raise `ancestry.OutOfSight`. `now`: the run's time.
    Start it after the last fork: a child that keeps the listening socket would keep a dead run's questions alive.
    """

    def __init__(
        self,
        path: Path,
        registry: Registry,
        is_descendant: Callable[[int], bool],
        on_ended: OnEnded,
        *,
        facts: RunFacts,
        now: Callable[[], int],
        on_refused: OnRefused = lambda _pid, _uid, _why: None,
        objection: Objection = lambda _waiting, _answer, _uid: "",
    ) -> None:
        self.path = path
        self.lock = threading.Lock()
        self._registry, self._is_descendant, self._on_ended = registry, is_descendant, on_ended
        self._facts, self._now, self._on_refused, self._objection = facts, now, on_refused, objection
        self._connections: dict[int, _Connection] = {}
        self._closing = False
        self._wake = -1
        self._listener: socket.socket
        self._selector: selectors.DefaultSelector
        self._thread = threading.Thread(target=self._serve, name="agentwrap-control", daemon=True)

    def start(self) -> None:
        """Listen. Raises OSError where there can be no socket."""
        self._listener = folder.listen(self.path)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._thread.start()

    def look(self) -> None:
        """Something began to wait: the thread finds out until when."""
        with self.lock:
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Stop, and take the socket away."""
        self._closing = True
        self.look()
        self._thread.join()
        with self.lock:
            os.close(self._wake)
            self._wake = -1
        self.path.unlink(missing_ok=True)

    # The thread.

    def _serve(self) -> None:
        listening = True
        while not self._closing:
            looked_at = time.monotonic()
            for key, _ in self._selector.select(self._patience_s()):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fd in self._connections:
                    self._move(self._connections[key.fd])
                else:
                    os.eventfd_read(self._wake)
            self._drop_late(looked_at)
            self._expire()
            has_room = len(self._connections) < MAX_CONNECTIONS
            if has_room != listening:
                # What cannot be taken now waits in the backlog; it is taken when the slow ones are dropped.
                if has_room:
                    self._selector.register(self._listener, selectors.EVENT_READ)
                else:
                    self._selector.unregister(self._listener)
                listening = has_room
        self._listener.close()  # before them: who hears nothing more and asks whether we live is told the truth
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._selector.close()

    def _patience_s(self) -> float | None:
        """How long nothing has to be done by itself, in seconds."""
        with self.lock:
            until = min((one.until_ns for one in self._registry.waiting()), default=None)
        ends = [CONNECTION_S] if self._connections else []
        if until is not None:
            ends.append(max(0.0, (until - self._now()) / 1e9))
        return min(ends, default=None)

    def _expire(self) -> None:
        with self.lock:
            for given in self._registry.expire(self._now()):
                try:
                    self._on_ended(given)
                except Exception:
                    continue  # the gateway has its own clock, and the others are still to be told

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(_NO_DESCRIPTOR_S)  # it stays in the backlog, and select(2) would bring us back at once
            return
        try:
            connection = _Connection(accepted)
        except OSError:
            accepted.close()
            return
        self._connections[accepted.fileno()] = connection
        self._selector.register(accepted, selectors.EVENT_READ)
        why = peers.refusal(connection.peer, self._is_descendant)
        if why:
            self._refuse(connection, why)

    def _refuse(self, connection: _Connection, why: str) -> None:
        try:
            self._on_refused(connection.peer.pid, connection.peer.uid, why)
        except Exception:
            pass  # it is refused also where that cannot be recorded, and the others are still to be served
        self._reply(connection, Failure("not-allowed", _REFUSED_TEXT.format(why)))

    def _move(self, connection: _Connection) -> None:
        try:
            if connection.unsent:
                self._send(connection)
            else:
                self._receive(connection)
        except BlockingIOError:
            pass
        except OSError:
            self._drop(connection)

    def _receive(self, connection: _Connection) -> None:
        data = connection.socket.recv(messages.MAX_REQUEST_BYTES)
        connection.received += data
        line, newline, _ = bytes(connection.received).partition(b"\n")
        if newline or len(line) > messages.MAX_REQUEST_BYTES:
            self._take(connection, line)
        elif not data:
            self._drop(connection)

    def _take(self, connection: _Connection, line: bytes) -> None:
        try:
            request = messages.decode_request(line)
        except ValueError as error:
            self._reply(connection, Failure("malformed", str(error)[:200]))
            return
        try:
            elsewhere = peers.part_of_another_run(connection.peer, self.path)
        except ancestry.OutOfSight:
            elsewhere = True
        if elsewhere:
            self._refuse(connection, "a process of another run may not answer for a human")
        else:
            self._reply(connection, self._answer(request, connection.peer))

    def _answer(self, request: messages.Request, peer: peers.Peer) -> Reply:
        with self.lock:
            now = self._now()
            if isinstance(request, AskPending):
                facts = self._facts if request.layers else msgspec.structs.replace(self._facts, layers=())
                return Pending(facts, now, self._registry.waiting())
            return self._decide(request, peer, now)

    def _decide(self, request: GiveAnswer, peer: peers.Peer, now: int) -> Reply:
        waiting = self._registry.find(request.ask)
        try:
            why = self._objection(waiting, request, peer.uid) if waiting is not None else ""
        except Exception as error:
            return Failure("busy", f"the run could not be told: {error}")
        if why:
            return Failure("oneself", why)
        ended = self._registry.answer(
            request.ask, request.answer, now,
            approver=request.approver, uid=peer.uid, pid=peer.pid, reason=request.reason,
        )  # fmt: skip
        if isinstance(ended, Refusal):
            return Failure(ended.kind, given=ended.given)
        try:
            self._on_ended(ended)
        except Exception as error:  # whatever it is, the approver is told and the next one is served
            return Failure("busy", f"the run could not be told: {error}")
        return Taken(ended)

    def _reply(self, connection: _Connection, reply: Reply) -> None:
        connection.unsent = messages.encode(reply)
        self._selector.modify(connection.socket, selectors.EVENT_WRITE)
        self._move(connection)

    def _send(self, connection: _Connection) -> None:
        sent = connection.socket.send(connection.unsent, socket.MSG_NOSIGNAL)
        connection.unsent = connection.unsent[sent:]
        if not connection.unsent:
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        if self._connections.pop(connection.socket.fileno(), None) is not None:
            self._selector.unregister(connection.socket)
            connection.close()

    def _drop_late(self, looked_at: float) -> None:
        # Late is who had said nothing more when we last looked: what came while we ourselves were held up is heard.
        for connection in [one for one in self._connections.values() if looked_at > one.deadline]:
            self._drop(connection)
