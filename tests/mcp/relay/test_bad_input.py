"""Servers and clients that misbehave: nothing hangs, nothing is lost, memory is bounded, statuses are their own."""

import itertools
import os
import resource
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from relayed import KINDS, NO_PROCESS, Relayed, read_line, read_to_end, write_until_refused

from agentwrap.events import McpClosed, McpOpened
from agentwrap.mcp.relay import serve

SERVER = """
import os, sys
def write(data):
    while data:
        data = data[os.write(1, data):]
for line in sys.stdin.buffer:
    word = line.split()[0]
    if word == b"exit":
        sys.exit(int(line.split()[1]))
    if word == b"crash":
        write(b'{"half of an ans')
        os.abort()
    if word == b"silent":
        continue
    if word == b"flood":
        for number in range(int(line.split()[1])):
            write(b'{"method":"notifications/message","params":%d}\\n' % number)
    if word == b"close":
        os.close(1)
    if word == b"long":
        size = int(line.split()[1])
        while size:
            size -= os.write(1, b"x" * min(size, 1 << 20))
        write(b"\\n")
    if word == b"ids":
        write(b'{"id":"never asked","result":1}\\n{"id":1,"result":1}\\n{"id":1,"result":2}\\n')
    write(b"done\\n")
sys.exit(7)
"""
PYTHON = [sys.executable, "-S", "-E", "-c", SERVER]


@pytest.mark.parametrize(
    ("words", "ending", "status"),
    [
        (b"exit 3\n", "server-exited", 3),
        (b"crash\n", "server-exited", -signal.SIGABRT),
    ],
)
def test_a_server_that_ends_in_the_middle(words: bytes, ending: str, status: int) -> None:
    with Relayed() as relayed, relayed.server(PYTHON) as (pair, process):
        os.write(pair.write, words)
        got = read_to_end(pair.read)
        assert process.wait() == status
        assert relayed.closed().ending == ending
        with pytest.raises(BrokenPipeError):
            os.write(pair.write, b"more\n")
    assert got == (b'{"half of an ans' if status < 0 else b"")
    assert relayed.told(up=False) == got


def test_a_server_that_is_killed_while_it_is_flooded() -> None:
    with Relayed() as relayed, relayed.server(["/bin/cat"]) as (pair, process):
        os.write(pair.write, b"first\n")
        assert read_line(pair.read) == b"first\n"
        process.kill()
        assert write_until_refused(pair.write)
        read_to_end(pair.read)
        assert relayed.closed().ending == "server-exited"


def test_a_server_that_never_answers_ends_when_the_client_leaves() -> None:
    with Relayed() as relayed, relayed.server(PYTHON) as (pair, process):
        os.write(pair.write, b"silent\n" * 3)
        pair.close("write")
        assert read_to_end(pair.read) == b""
        assert process.wait() == 7
        assert relayed.closed().ending == "client-closed"


def test_a_server_that_closes_its_output_and_lives_on() -> None:
    with Relayed() as relayed, relayed.server(PYTHON) as (pair, process):
        os.write(pair.write, b"close\n")
        assert read_to_end(pair.read) == b""
        assert process.wait() == 1  # it writes to what it has closed
        assert relayed.closed().ending in ("server-closed", "server-exited")


ENDS_SLOWLY = """
import ctypes, os, sys, threading
def end():
    while b") Z " not in open("/proc/self/stat", "rb").read():
        os.sched_yield()
    os.close(0)
    os.close(1)
    os.read(int(sys.argv[1]), 1)
    os._exit(3)
threading.Thread(target=end).start()
ctypes.CDLL(None).syscall(60, 0)  # exit(2) of the first thread: the process is going, and stays as long as the other
"""


def test_a_server_that_takes_long_to_end_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel closes descriptors at the beginning of an exit; its end may come whenever there is time for it."""
    monkeypatch.setattr(serve, "_EXIT_S", 0.0)
    waits, go_on = os.pipe()
    words = [sys.executable, "-S", "-E", "-c", ENDS_SLOWLY, str(waits)]
    with Relayed() as relayed, relayed.server(words, pass_fds=(waits,)) as (pair, process):
        other = relayed.session()
        assert read_to_end(pair.read) == b""
        for byte in (b"x", b"y"):  # the relay has come by since
            os.write(other.write, byte)
            assert os.read(other.stdin, 9) == byte
        os.write(go_on, b"g")
        assert process.wait() == 3
        assert relayed.closed().ending == "server-exited"
        other.close()
    os.close(waits)
    os.close(go_on)


def test_ids_never_asked_and_reused_pass() -> None:
    with Relayed() as relayed, relayed.server(PYTHON) as (pair, _process):
        os.write(pair.write, b"ids\n")
        lines = [read_line(pair.read) for _ in range(4)]
        pair.close("write")
        relayed.closed()
    assert lines[1:] == [b'{"id":1,"result":1}\n', b'{"id":1,"result":2}\n', b"done\n"]


def test_a_client_that_is_killed() -> None:
    client = "import os, sys, time; os.write(1, b'half a lin'); time.sleep(600)"
    with Relayed() as relayed:
        up, down, server_in, server_out = (os.pipe() for _ in range(4))
        process = subprocess.Popen([sys.executable, "-S", "-E", "-c", client], stdin=down[0], stdout=up[1])
        os.close(down[0])
        os.close(up[1])
        relayed.hand_over((up[0], down[1], server_in[1], server_out[0]))
        assert os.read(server_in[0], 99) == b"half a lin"
        process.kill()
        process.wait()
        assert os.read(server_in[0], 99) == b""
        assert write_until_refused(server_out[1])
        assert relayed.closed().ending == "client-closed"
        os.close(server_in[0])
        os.close(server_out[1])


def test_a_flood_arrives_whole_and_in_order() -> None:
    with Relayed() as relayed, relayed.server(PYTHON) as (pair, _process):
        os.write(pair.write, b"flood 50000\n")
        pair.close("write")
        lines = read_to_end(pair.read).split(b"\n")
        relayed.closed()
    assert lines[-2:] == [b"done", b""]
    assert lines[:-2] == [b'{"method":"notifications/message","params":%d}' % number for number in range(50_000)]
    assert relayed.told(up=False) == b"\n".join(lines)


@pytest.mark.parametrize("size", [20_000_000, 200_000_000])
def test_a_line_of_any_length_passes_with_bounded_memory(size: int) -> None:
    with Relayed() as relayed, relayed.server(PYTHON) as (pair, _process):
        relayed.heard.keep = False
        os.write(pair.write, b"ids\n")  # everything is loaded
        warm = sum(len(read_line(pair.read)) for _ in range(4))
        before = _peak_kb(relayed.relay.pid)
        os.write(pair.write, b"long %d\n" % size)
        pair.close("write")
        got = 0
        while piece := os.read(pair.read, 1 << 20):
            got += len(piece)
        grown = _peak_kb(relayed.relay.pid) - before
        relayed.closed()
    assert got == size + len(b"\ndone\n")
    assert relayed.heard.sizes[False] == got + warm
    assert grown < 32_000


def _peak_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def test_a_supervisor_that_is_far_behind_stops_the_sessions_and_misses_nothing() -> None:
    with Relayed() as relayed:
        pair = relayed.session()
        relayed.heard.keep = False
        os.set_blocking(pair.write, False)
        os.set_blocking(pair.stdin, False)
        sent = got = 0
        ready = select.poll()
        ready.register(pair.write, select.POLLOUT)
        ready.register(pair.stdin, select.POLLIN)
        with relayed.heard.slow:
            while moving := dict(ready.poll(500)):
                if pair.write in moving:
                    sent += os.write(pair.write, b"x" * 65536)
                if pair.stdin in moving:
                    got += len(os.read(pair.stdin, 1 << 20))
            before = _peak_kb(relayed.relay.pid)
        assert 0 < sent < 64 << 20
        os.set_blocking(pair.stdin, True)
        pair.close("write")
        got += len(read_to_end(pair.stdin))
        pair.close()
        relayed.closed()
        assert _peak_kb(relayed.relay.pid) - before < 32_000
    assert sent == got == relayed.heard.sizes[True]


def leave_room(pid: int, count: int) -> None:
    """Let a process open so many descriptors more: it was forked with those of whoever runs the tests."""
    taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    limit = 0
    while count:
        count -= limit not in taken
        limit += 1
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limit))


def test_sessions_one_after_the_other_leave_no_descriptors_behind() -> None:
    with Relayed() as relayed:
        leave_room(relayed.relay.pid, 32)
        for number in range(1, 301):
            pair = relayed.session(KINDS[number % 3], pid=NO_PROCESS)
            os.write(pair.write, b"x")
            assert os.read(pair.stdin, 9) == b"x"
            pair.close(*(("write", "read") if number % 2 else ("stdin", "stdout")))
            relayed.closed(number)
            pair.close()
            relayed.heard.news.clear()


def test_too_many_at_once_are_refused_and_told() -> None:
    with Relayed() as relayed:
        first = relayed.session()
        os.write(first.write, b"x")
        assert os.read(first.stdin, 9) == b"x"
        leave_room(relayed.relay.pid, 24)
        pairs = [relayed.session() for _ in range(12)]
        gap = relayed.heard.wait(lambda: next(iter(relayed.heard.items), None))
        assert gap.cause == "no-descriptors"
        assert read_to_end(pairs[-1].read) == b""
        os.write(first.write, b"y")
        assert os.read(first.stdin, 9) == b"y"
        for pair in (first, *pairs):
            pair.close()


def test_a_relay_without_servers_ends_at_once() -> None:
    with Relayed() as relayed:
        assert not relayed.heard.news
    assert relayed.heard.lost is False
    with Relayed() as relayed:
        relayed.relay.forked_all()  # the tracer is gone, and nothing was handed over
    assert relayed.heard.lost is False


def test_what_is_still_open_at_the_end_of_the_run_is_told() -> None:
    with Relayed() as relayed:
        pair = relayed.session()
        os.write(pair.write, b"unread until now\n")
    assert isinstance(relayed.heard.news[0], McpOpened)
    last = relayed.heard.news[-1]
    assert isinstance(last, McpClosed)
    assert last.ending == "run-ended"
    assert relayed.told(up=True) == b"unread until now\n"
    assert read_to_end(pair.stdin) == b"unread until now\n"
    pair.close()


def test_what_is_owed_at_the_end_arrives_though_the_relay_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, looks = os.pipe()
    count = itertools.count()

    def an_hour_later() -> float:
        if (look := next(count)) == 3:
            os.write(looks, b"x")
        return 3600.0 * min(look, 1)

    def read_late() -> None:
        os.read(looked, 1)
        got.append(read_to_end(pair.stdin))

    monkeypatch.setattr(serve, "time", SimpleNamespace(monotonic=an_hour_later))
    got: list[bytes] = []
    reader = threading.Thread(target=read_late)
    with Relayed() as relayed:
        pair = relayed.session()
        os.close(looks)  # the relay has it
        for _ in range(2):  # what the pipe to the server holds, and as much again
            os.write(pair.write, b"x" * (1 << 16))
        relayed.heard.wait(lambda: relayed.heard.sizes[True] == 2 << 16)
        reader.start()
    reader.join()
    assert sum(map(len, got)) == 2 << 16
    pair.close()
    os.close(looked)


def test_a_relay_that_is_killed_ends_its_sessions_and_is_told() -> None:
    with Relayed() as relayed:
        pair = relayed.session()
        os.write(pair.write, b"x")
        assert os.read(pair.stdin, 9) == b"x"
        os.kill(relayed.relay.pid, signal.SIGKILL)
        assert read_to_end(pair.stdin) == b""
        assert read_to_end(pair.read) == b""
        gap = relayed.heard.wait(lambda: next(iter(relayed.heard.items), None))
        assert (gap.what, gap.cause) == ("mcp-stdio", "relay-lost")
        with pytest.raises(BrokenPipeError):
            relayed.session()
        relayed.relay.close()
        assert relayed.relay.failure
        relayed.relay.failure = ""
        pair.close()
    assert relayed.heard.lost is True


def test_a_relay_that_is_stopped_goes_on() -> None:
    with Relayed() as relayed:
        pair = relayed.session()
        os.write(pair.write, b"x")
        assert os.read(pair.stdin, 9) == b"x"
        os.kill(relayed.relay.pid, signal.SIGSTOP)
        os.write(pair.write, b"y")
        os.waitid(os.P_PID, relayed.relay.pid, os.WSTOPPED | os.WNOWAIT)
        relayed.relay.keep_going()
        assert os.read(pair.stdin, 9) == b"y"
        os.kill(relayed.relay.pid, signal.SIGSTOP)
        pair.close()
    assert relayed.told(up=True) == b"xy"
