"""A streamed answer of which only half has come when something ends: the file says so, with what came."""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from model_world import World
from wrapping import AGENTWRAP, Event, Wrapped, environment

THERE, PORT = "203.0.113.20", 8200
ENV = {"ANTHROPIC_BASE_URL": f"http://{THERE}:{PORT}"}
STREAM = [
    b'{"type":"message_start","message":{"id":"msg_1","model":"claude-x","usage":{"input_tokens":10,"output_tokens":1}}}',
    b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
    b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"half an ans"}}',
]
ASKS = f"""
import os, signal, socket, sys
s = socket.create_connection(("{THERE}", {PORT}))
ASK = b'{{"model":"claude-x","stream":true,"max_tokens":5,"messages":[{{"role":"user","content":"hi"}}]}}'
s.sendall(b"POST /v1/messages HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/json\\r\\n"
          b"Content-Length: %d\\r\\n\\r\\n%b" % (len(ASK), ASK))
got = b""
while b"half" not in got: got += s.recv(4096)
print("half", flush=True)
"""
WAITS = "\nprint(s.recv(100))"


class Half(World):
    """A server of half an answer, which then waits until the test is over."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._over = threading.Event()
        self.serve(self.net.listen(THERE, PORT), self._talk)

    def _talk(self, client: socket.socket) -> None:
        head = b""
        while b'"hi"' not in head:
            head += client.recv(65536)
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for data in STREAM:
            event = b"data: %b\n\n" % data
            client.sendall(b"%x\r\n%b\r\n" % (len(event), event))
        self._over.wait(300)

    def close(self) -> None:
        self._over.set()
        super().close()

    def half(
        self, then: str, act: Callable[[int], None] = lambda _pid: None, *, limits_s: tuple[int, ...] = ()
    ) -> Wrapped:
        """An agent that has half of the answer and does `then`; `act` is given the supervisor's process in between.

        `limits_s`: the run ends after the first of these times that is enough for the half.
        """
        for limit_s in limits_s or (None,):
            options = () if limit_s is None else ("--timeout", str(limit_s))
            process = self.start(sys.executable, "-c", ASKS + then, options=options, env=ENV)
            assert process.stdout is not None
            first = process.stdout.readline()
            if first:
                break
            process.communicate()
        assert first == b"half\n"
        self._wait_for_request()
        act(process.pid)
        out, error = process.communicate(timeout=300)
        return Wrapped(process.returncode, out, error, self.folder / "run.agentlog")

    def _wait_for_request(self) -> None:
        """Until the request is in the file: from then on nothing about it may be lost."""
        recording = Wrapped(0, b"", b"", self.folder / "run.agentlog")
        for _ in range(30_000):
            if recording.events("model.request"):
                return
            select.select([], [], [], 0.01)
        raise AssertionError("no request was recorded")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Half]:
    try:
        made = Half(tmp_path)
    except OSError as error:
        pytest.skip(f"no network of its own can be had here: {error}")
    yield made
    made.close()


def helper(pid: int, name: str) -> int:
    """A child of the supervisor's, by what it is called."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(int(one) for one in children if Path(f"/proc/{one}/comm").read_text() == f"{name}\n")


def answer(ran: Wrapped) -> Event:
    """What is told of the one answer."""
    (told,) = ran.events("model.response")
    return told


def said(ran: Wrapped, *words: str) -> tuple[int, str]:
    """Status and output of one of our commands about the recording."""
    done = subprocess.run(
        [*AGENTWRAP, *words, str(ran.recording)], capture_output=True, env=environment(ran.recording.parent)
    )
    return done.returncode, done.stdout.decode()


def came(told: Event) -> tuple[str, int, str]:
    """How it ended, how much of the text is there, and what was wrong."""
    return told.data["ending"], told.data["text_bytes"], told.data["error"]


INSIDE = "inside of the answer's body"


@pytest.mark.parametrize(
    ("then", "limits_s"),
    [("\ns.close()", ()), ("\nos.kill(os.getpid(), 9)", ()), (WAITS, (3, 30, 300))],
    ids=["left", "killed", "timeout"],
)
def test_an_agent_that_does_not_hear_the_end(world: Half, then: str, limits_s: tuple[int, ...]) -> None:
    ran = world.half(then, limits_s=limits_s)
    assert came(answer(ran)) == ("cancelled", 11, INSIDE)
    assert "cancelled by the client" in said(ran, "show", "--errors")[1]
    assert ran.gaps() == []


def test_a_gateway_that_dies(world: Half) -> None:
    """However soon the run ends after it, which is what an agent does whose connection is cut."""
    ran = world.half(WAITS, lambda pid: os.kill(helper(pid, "aw-gateway"), signal.SIGKILL))
    assert came(answer(ran)) == ("unread", 11, "the gateway died")
    assert [(e.data["what"], e.data["cause"]) for e in ran.events("gap")] == [("model", "gateway-lost")]
    assert "could not be read  the gateway died" in said(ran, "show", "--errors")[1]
    assert said(ran, "check", "--require", "model")[0] == 3


STOPS = """
me, gateway = os.getppid(), 0
while not gateway:
    for one in open(f"/proc/{me}/task/{me}/children").read().split():
        if open(f"/proc/{one}/comm").read() == "aw-gateway\\n": gateway = int(one)
    me = int(open(f"/proc/{me}/stat").read().rpartition(")")[2].split()[1])
for _ in range(%d): os.kill(gateway, 19)

"""


@pytest.mark.parametrize("times", [1, 2000])
def test_a_gateway_that_the_agent_stops_goes_on(world: Half, times: int) -> None:
    ran = world.half(STOPS % times + "s.close()")
    assert ran.status == 0, ran.stderr
    assert came(answer(ran)) == ("cancelled", 11, INSIDE)
    assert ran.gaps() == []


def test_a_tracer_that_dies(world: Half) -> None:
    ran = world.half(WAITS, lambda pid: os.kill(helper(pid, "aw-tracer"), signal.SIGKILL))
    assert answer(ran).data["ending"] == "cancelled"
    assert answer(ran).data["text_bytes"] == 11
    assert said(ran, "check", "--require", "model")[0] == 3


def test_a_supervisor_that_dies(world: Half) -> None:
    """What came of the answer was in its memory: the request says that there was one."""
    ran = world.half(WAITS, lambda pid: os.kill(pid, signal.SIGKILL))
    assert ran.events("model.response") == []
    status, words = said(ran, "check", "--require", "model")
    assert (status, "torn" in words) == (3, True)
    assert "no answer seen" in said(ran, "show", "--errors")[1]
