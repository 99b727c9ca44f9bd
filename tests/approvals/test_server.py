"""The control socket with real processes on the other end, also those that mean no good."""

import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentwrap.approvals import ancestry, client, folder, peers, server
from agentwrap.approvals.messages import (
    AskPending,
    Failure,
    GiveAnswer,
    LayerText,
    Pending,
    Reply,
    RunFacts,
    Taken,
    encode,
)
from agentwrap.approvals.registry import Given, Registry, Waiting
from agentwrap.errors import AgentwrapError

FACTS = RunFacts("3f2a0000", "curl https://example.org", mode="ask")
FACTS_WITH_POLICIES = RunFacts(
    "3f2a0000", "curl https://example.org", mode="ask", layers=(LayerText("user", "/p.toml", True, "version = 1"),)
)
ASKER = """
import sys
from pathlib import Path
from agentwrap.approvals import client, folder, messages
folder.connect.__defaults__ = (300.0,)
reply = client.ask(Path(sys.argv[1]), messages.GiveAnswer("a1", "once", "mallory"))
print(type(reply).__name__, getattr(reply, "why", ""), flush=True)
"""


def waiting(ask: str = "a1", until_ns: int = 100) -> Waiting:
    return Waiting(ask, f"connect {ask}.example:443", "curl (7)", 0, until_ns)


class Served:
    """A run's side: a registry, a server, what it heard."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.registry = Registry()
        self.roots: set[int] = set()
        self.answers: list[Given] = []
        self.refused: list[tuple[int, int, str]] = []
        self.now = 10
        self.broken = False
        self.before_judging = lambda: None
        self.server = server.ControlServer(
            path, self.registry, self.is_descendant, self.on_ended,
            facts=FACTS_WITH_POLICIES, now=lambda: self.now, on_refused=self.on_refused,
        )  # fmt: skip
        self.server.start()

    def is_descendant(self, pid: int) -> bool:
        self.before_judging()
        return ancestry.descends(pid, self.roots)

    def on_ended(self, given: Given) -> None:
        if self.broken:
            raise OSError("the disk is full")
        self.answers.append(given)

    def on_refused(self, pid: int, uid: int, why: str) -> None:
        self.refused.append((pid, uid, why))
        if self.broken:
            raise OSError("the disk is full")

    def add(self, one: Waiting) -> None:
        with self.server.lock:
            self.registry.add(one)

    def ask(self, request: AskPending | GiveAnswer = AskPending()) -> Reply | None:  # noqa: B008 - frozen
        return client.ask(self.path, request)

    def raw(self) -> socket.socket:
        connection = folder.connect(self.path)
        assert connection is not None
        return connection


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about how long a slow machine may take."""
    monkeypatch.setattr(server, "CONNECTION_S", 300.0)
    monkeypatch.setattr(folder.connect, "__defaults__", (300.0,))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "run").mkdir(mode=0o700)
    one = Served(tmp_path / "run" / "3f2a0000")
    yield one
    one.server.close()


def rest_of(connection: socket.socket) -> bytes:
    received = b""
    try:
        while data := connection.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    return received


def test_what_waits_is_told_and_answered_once(served: Served) -> None:
    served.add(waiting())
    assert served.ask() == Pending(FACTS, 10, (waiting(),))
    assert served.ask(AskPending(layers=True)) == Pending(FACTS_WITH_POLICIES, 10, (waiting(),))
    taken = served.ask(GiveAnswer("a1", "run", "ann", "looks fine"))
    assert isinstance(taken, Taken)
    assert (taken.given.approver, taken.given.uid, taken.given.pid) == ("ann", os.getuid(), os.getpid())
    assert served.answers == [taken.given]
    assert taken.given.reason == "looks fine"
    again = served.ask(GiveAnswer("a1", "deny", "bob"))
    assert again == Failure("answered", given=taken.given)
    assert served.ask(GiveAnswer("a9", "deny")) == Failure("unknown")
    assert served.ask() == Pending(FACTS, 10, ())
    assert len(served.answers) == 1


def test_whoever_may_not_is_refused_also_where_that_cannot_be_recorded(served: Served) -> None:
    served.add(waiting())
    served.broken, served.roots = True, {os.getpid()}
    for tries in (1, 2):
        reply = served.ask(GiveAnswer("a1", "once"))
        assert isinstance(reply, Failure)
        assert (reply.kind, len(served.refused)) == ("not-allowed", tries)
    served.broken, served.roots = False, set()
    assert isinstance(served.ask(GiveAnswer("a1", "once")), Taken)


def test_an_answer_after_the_deadline_does_not_count(served: Served) -> None:
    served.add(waiting(until_ns=100))
    served.now = 100
    late = served.ask(GiveAnswer("a1", "once"))
    assert isinstance(late, Failure)
    assert late.given is not None
    assert late.given.outcome == "expired"
    assert [one.outcome for one in served.answers] in ([], ["expired"])


def test_what_nobody_answers_expires_by_itself_once(served: Served) -> None:
    served.add(waiting("a1", until_ns=100))
    served.add(waiting("a2", until_ns=200))
    served.now = 100
    served.server.look()
    assert isinstance(served.ask(), Pending)
    served.ask()
    assert [one.waiting.ask for one in served.answers] == ["a1"]
    assert served.ask() == Pending(FACTS, 100, (waiting("a2", until_ns=200),))


def test_of_a_hundred_approvers_at_once_one_is_the_first(served: Served) -> None:
    served.add(waiting())
    with ThreadPoolExecutor(100) as pool:
        start = threading.Barrier(100)

        def approve(number: int) -> Reply | None:
            start.wait()
            return served.ask(GiveAnswer("a1", "once", f"n{number}"))

        replies = list(pool.map(approve, range(100)))
    taken = [one for one in replies if isinstance(one, Taken)]
    assert len(taken) == 1
    assert len(served.answers) == 1
    others = [one for one in replies if isinstance(one, Failure)]
    assert len(others) == 99
    assert {one.given for one in others} == {taken[0].given}


def test_if_the_run_cannot_be_told_the_approver_is(served: Served) -> None:
    served.add(waiting())
    served.broken = True
    reply = served.ask(GiveAnswer("a1", "once"))
    assert reply == Failure("busy", "the run could not be told: the disk is full")
    assert isinstance(served.ask(), Pending)


# Who may not


@pytest.mark.parametrize("daemonised", [False, True])
def test_a_process_of_the_run_cannot_answer(served: Served, daemonised: bool) -> None:
    """The tracer is this script, a subreaper; the agent below it asks, also as a daemon that lost its parent."""
    served.add(waiting())
    code = "import ctypes, os, subprocess, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n" + (
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        while os.getppid() == parent: os.sched_yield()\n"
        f"        os.execv(sys.executable, [sys.executable, '-c', {ASKER!r}, sys.argv[1]])\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0); os.wait()\n".replace("== parent", "not in (root, 0)")
        if daemonised
        else f"subprocess.run([sys.executable, '-c', {ASKER!r}, sys.argv[1]], check=True)\n"
    )
    code = code.replace("import ctypes", "import os; root = os.getpid(); input()\nimport ctypes", 1)
    tracer = subprocess.Popen(
        [sys.executable, "-c", code, served.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    served.roots = {tracer.pid}
    told, _ = tracer.communicate("\n", timeout=300)
    assert tracer.returncode == 0
    assert told.startswith("Failure a process of the run may not answer for a human")
    assert served.answers == []
    assert [(uid, why) for _, uid, why in served.refused] == [
        (os.getuid(), "a process of the run may not answer for a human")
    ]
    assert isinstance(served.ask(GiveAnswer("a1", "deny")), Taken)


def test_a_process_of_another_run_cannot_answer_either(served: Served) -> None:
    """The other run is one that has a control socket of its own in the same folder."""
    served.add(waiting())
    code = (
        "import subprocess, sys; from pathlib import Path; from agentwrap.approvals import folder\n"
        "kept = folder.listen(Path(sys.argv[1]).parent / 'other')\n"
        f"subprocess.run([sys.executable, '-c', {ASKER!r}, sys.argv[1]], check=True)"
    )
    done = subprocess.run([sys.executable, "-c", code, served.path], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Failure a process of another run may not answer for a human")
    assert served.answers == []
    assert len(served.refused) == 1


def test_a_connection_left_behind_by_a_process_that_ended_is_nobodys(served: Served) -> None:
    """Its number may be another's by now. The server is kept busy until whoever connected is gone."""
    served.add(waiting())
    code = (
        "import os, socket, sys; from pathlib import Path; from agentwrap.approvals import folder\n"
        "ours, theirs = socket.socketpair()\n"
        "if os.fork() == 0:\n"
        "    one = folder.connect(Path(sys.argv[1])); socket.send_fds(theirs, [b'x'], [one.fileno()]); os._exit(0)\n"
        "os.wait()\n"
        "_, (number,), _, _ = socket.recv_fds(ours, 1, 1)\n"
        "left = socket.socket(fileno=number); left.setblocking(True)\n"
        "left.sendall(sys.argv[2].encode()); print('sent', flush=True)\n"
        "print(left.recv(4096).decode())"
    )
    entered, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        go_on.wait()

    served.before_judging = hold
    with served.raw() as first:
        entered.wait()
        other = subprocess.Popen(
            [sys.executable, "-c", code, served.path, encode(GiveAnswer("a1", "once")).decode()],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert other.stdout is not None
        assert other.stdout.readline() == "sent\n"
        go_on.set()
        first.sendall(encode(AskPending()))
        assert b'"pending"' in rest_of(first)
    told, _ = other.communicate(timeout=300)
    assert '"not-allowed"' in told
    assert "gone" in told
    assert served.answers == []


@pytest.mark.parametrize("pidfd", [True, False])
def test_a_number_that_was_used_again_is_not_who_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pidfd: bool
) -> None:
    """The process that connected is gone, and its number is that of a process like any other."""
    if not pidfd:
        monkeypatch.setattr(peers, "_SO_PEERPIDFD", 0xFFFF)  # a kernel before 6.5 has no such option
    (tmp_path / "run").mkdir(mode=0o700)
    code = (
        "import sys; from pathlib import Path; from agentwrap.approvals import folder\n"
        "kept = folder.connect(Path(sys.argv[1])); sys.stdin.read()"
    )
    with (
        folder.listen(tmp_path / "run" / "3f2a") as listener,
        subprocess.Popen([sys.executable, "-c", code, tmp_path / "run" / "3f2a"], stdin=subprocess.PIPE) as other,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE) as later,
    ):
        listener.setblocking(True)
        with listener.accept()[0] as accepted:
            peer = peers.Peer(accepted)
        assert peers.refusal(peer, lambda _pid: False) == ""
        other.communicate()
        peer.pid = later.pid
        peer._accepted_ns -= 3600 * 10**9  # the number is given out again much later
        assert peers.refusal(peer, lambda _pid: False) == "it is gone"
        peer.close()
        later.kill()


def test_another_user_is_refused_even_where_the_folder_is_open(
    plain_user: Callable[..., "subprocess.CompletedProcess[str]"],
) -> None:
    if os.geteuid():
        pytest.skip("only root can become another user")
    open_folder = Path(tempfile.mkdtemp(prefix="agentwrap-open-", dir="/tmp"))
    one = Served(open_folder / "3f2a0000")
    try:
        one.add(waiting())
        closed = plain_user([sys.executable, "-c", ASKER, str(one.path)])
        assert closed.stdout.startswith("Failure the control socket is closed to it (Permission denied)")
        open_folder.chmod(0o755)
        one.path.chmod(0o777)
        done = plain_user([sys.executable, "-c", ASKER, str(one.path)])
        assert done.stdout.startswith("Failure it belongs to another user"), done.stderr
        assert one.answers == []
        assert [why for _, _, why in one.refused] == ["it belongs to another user"]
    finally:
        one.server.close()
        open_folder.rmdir()


def test_root_may_answer_for_a_plain_user(plain_user: Callable[..., "subprocess.CompletedProcess[str]"]) -> None:
    if os.geteuid():
        pytest.skip("needs root as the approver")
    place = Path(tempfile.mkdtemp(prefix="agentwrap-plain-", dir="/tmp"))
    os.chown(place, 65534, 65534)
    code = (
        "import sys; from pathlib import Path\n"
        "from agentwrap.approvals import server, messages, registry\n"
        "server.CONNECTION_S = 300.0\n"
        "known = registry.Registry(); known.add(registry.Waiting('a1', 'q', 'w', 0, 100))\n"
        "one = server.ControlServer(Path(sys.argv[1]), known, lambda pid: False,\n"
        "    lambda one: print(one.waiting.ask, one.outcome, one.approver, one.uid),\n"
        "    facts=messages.RunFacts('3f2a'), now=lambda: 1)\n"
        "one.start(); sys.stdin.read(); one.close()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, place / "3f2a"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        user=65534, group=65534, extra_groups=[], cwd="/",
    ) as run:  # fmt: skip
        while not (place / "3f2a").exists():
            assert run.poll() is None
            os.sched_yield()
        assert isinstance(client.ask(place / "3f2a", GiveAnswer("a1", "once", "root")), Taken)
        told, _ = run.communicate()
    assert told.strip() == "a1 once root 0"
    place.rmdir()


# What is sent


@pytest.mark.parametrize("sent", [b"garbage\n", b"\0" * 5000 + b"\n", b'{"type":"answer"}\n', b"x" * 20_000])
def test_malformed_requests_cost_only_their_own_connection(served: Served, sent: bytes) -> None:
    served.add(waiting())
    with served.raw() as connection:
        connection.sendall(sent)
        assert b'"malformed"' in rest_of(connection)
    assert isinstance(served.ask(), Pending)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.binary(max_size=300) | st.just(b'{"type":"answer","ask":"a1"'), max_size=5))
def test_any_bytes_in_any_pieces_answer_nothing(served: Served, pieces: list[bytes]) -> None:
    with served.raw() as connection:
        for piece in pieces:
            try:
                connection.sendall(piece)
            except OSError:
                break  # it has heard enough
        connection.shutdown(socket.SHUT_WR)
        rest_of(connection)
    assert isinstance(served.ask(), Pending)
    assert served.answers == []


def test_an_endless_line_is_cut_off(served: Served) -> None:
    with served.raw() as connection, pytest.raises((BrokenPipeError, ConnectionResetError)):
        connection.sendall(b"x" * (64 << 20))
    assert isinstance(served.ask(), Pending)


def test_silent_connections_do_not_keep_others_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said by the time that its turn comes is heard: the server is kept busy until all of them wait."""
    monkeypatch.setattr(server, "CONNECTION_S", 0.2)
    go_on = threading.Event()
    served.before_judging = lambda: go_on.wait(300)
    silent = [served.raw() for _ in range(server.MAX_CONNECTIONS + 20)]
    with served.raw() as asking:
        asking.sendall(encode(AskPending()))
        go_on.set()
        assert b'"pending"' in rest_of(asking)
    for one in silent:
        one.close()


def test_what_came_while_the_server_was_held_up_is_heard(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTION_S", 0.0)  # the deadline has passed as soon as it is taken
    go_on = threading.Event()
    served.before_judging = lambda: go_on.wait(300)
    with served.raw() as asking:
        asking.sendall(encode(AskPending()))
        go_on.set()
        assert b'"pending"' in rest_of(asking)


def test_who_was_held_up_while_asking_does_not_take_the_run_for_dead(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CONNECTION_S", 0.0)
    dropped, drop = threading.Event(), served.server._drop
    monkeypatch.setattr(served.server, "_drop", lambda connection: (drop(connection), dropped.set()))
    monkeypatch.setattr(client.messages, "encode", lambda request: encode(request) if dropped.wait(300) else b"")
    with pytest.raises(AgentwrapError, match="does not answer"):
        served.ask()


def test_a_peer_that_goes_away_in_the_middle_is_forgotten(served: Served) -> None:
    for piece in (b"", b'{"type":', encode(AskPending())):
        connection = served.raw()
        connection.sendall(piece)
        # Closed with a reset: what was sent to it is lost.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    assert isinstance(served.ask(), Pending)


def test_a_request_that_comes_byte_by_byte_is_understood(served: Served) -> None:
    with served.raw() as connection:
        for byte in encode(AskPending()):
            connection.send(bytes([byte]))
        assert b'"pending"' in rest_of(connection)


def test_a_reader_that_does_not_read_is_dropped_and_long_lists_arrive(served: Served) -> None:
    with served.server.lock:
        for number in range(256):
            served.registry.add(Waiting(f"a{number}", "q" * 4000, "w" * 1000, 0, 100))
    with served.raw() as slow:
        slow.sendall(encode(AskPending()))
        assert slow.recv(1, socket.MSG_PEEK)  # it is being told, as far as there is room
        reply = served.ask()
        assert isinstance(reply, Pending)
        assert len(reply.waiting) == 256
        for one in list(served.server._connections.values()):
            one.deadline = 0.0
        assert isinstance(served.ask(), Pending)  # taken in one turn of the server's, told in a later one
        assert not rest_of(slow).endswith(b"\n")


# The end


def test_closing_takes_the_socket_away(served: Served, tmp_path: Path) -> None:
    other = Served(tmp_path / "run" / "bbbb")
    kept = other.raw()
    other.server.close()
    assert not other.path.exists()
    assert rest_of(kept) == b""
    assert client.ask(other.path, AskPending()) is None
    kept.close()
    assert isinstance(served.ask(), Pending)


def test_a_killed_run_leaves_a_socket_that_the_next_one_removes(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    path = tmp_path / "run" / "3f2a"
    code = (
        "import sys; from pathlib import Path\n"
        "from agentwrap.approvals import server, messages, registry\n"
        "server.CONNECTION_S = 300.0\n"
        "one = server.ControlServer(Path(sys.argv[1]), registry.Registry(), lambda pid: False, lambda one: None,\n"
        "    facts=messages.RunFacts('3f2a'), now=lambda: 1)\n"
        "one.start(); print('ready', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"ready\n"
        assert isinstance(client.ask(path, AskPending()), Pending)
        run.kill()
        run.wait()
    assert path.exists()
    assert client.ask(path, AskPending()) is None
    assert not path.exists()
