"""A process of ours beside the agent, as the supervisor hears it out."""

import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

import msgspec
import pytest

from agentwrap.events import ExchangeNews, Gap, Item, McpClosed, McpNews
from agentwrap.launching import sidecar
from agentwrap.launching.sidecar import Sidecar, channel_pair
from agentwrap.tracing.wire import HEADER, AckWanted, Failed, Message


def gap(at_ns: int) -> Gap:
    return Gap(at_ns=at_ns, what="connect", cause="gateway-lost", could_hide="something", from_ns=at_ns)


class Told(Sidecar):
    """One whose news make a gap each."""

    def _made_of(self, news: ExchangeNews | McpNews) -> list[Item]:
        return [gap(news.at_ns)]

    def _left_over(self, *, lost: bool) -> list[Item]:
        return [gap(100 + lost)]

    def _loss(self, at_ns: int) -> tuple[Gap, str]:
        return gap(at_ns), "it died"


def frame(*messages: Message) -> bytes:
    data = msgspec.msgpack.encode(list(messages))
    return HEADER.pack(len(data)) + data


def begun(does: Callable[[socket.socket], None]) -> Told:
    """A child that does this with its end of the channel, and then leaves."""
    ours, theirs = channel_pair(socket.SOCK_STREAM)
    child = os.fork()
    if not child:
        try:
            ours.close()
            does(theirs)
            os._exit(0)
        finally:
            os._exit(1)  # it is no second pytest
    theirs.close()
    return Told(pid=child, channel=ours)


def until_told(channel: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n") and (byte := channel.recv(1)):
        line += byte
    return line


def heard(one: Told) -> list[Item]:
    told: list[Item] = []
    one.attend(told.extend, lambda: True, lambda: 9)
    one.close()
    return told


def test_what_it_says_until_it_leaves_is_told_in_order() -> None:
    def does(channel: socket.socket) -> None:
        channel.sendall(frame(gap(1), McpClosed(at_ns=2, session=1, ending="client-closed"), gap(3)))
        until_told(channel)
        channel.sendall(frame(gap(4)))

    one = begun(does)
    assert heard(one) == [gap(1), gap(2), gap(3), gap(4), gap(100)]
    assert one.failure == ""


def test_what_must_be_on_disk_is_answered_when_it_is() -> None:
    flushed: list[int] = []

    def does(channel: socket.socket) -> None:
        channel.sendall(frame(gap(1), AckWanted(7), gap(2), AckWanted(8)))
        if {until_told(channel), until_told(channel)} != {b"A8\n", b"Q\n"}:  # which comes first is open
            os._exit(1)

    one = begun(does)
    told: list[Item] = []

    def flush() -> bool:
        flushed.append(len(told))
        return True

    one.attend(told.extend, flush, lambda: 9)
    one.close()
    assert flushed == [2]
    assert told == [gap(1), gap(2), gap(100)]


def test_why_it_died_is_the_last_line_of_what_it_says() -> None:
    def does(channel: socket.socket) -> None:
        channel.sendall(frame(Failed(step="it", errno=0, detail=b"Traceback\n  File ...\nValueError: \xff seen\n")))
        os._exit(125)

    one = begun(does)
    assert heard(one) == [gap(101), gap(9)]
    assert one.failure == "ValueError: \ufffd seen"


def test_one_that_leaves_untold_is_a_loss() -> None:
    one = begun(lambda _channel: None)
    os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
    told: list[Item] = []
    one.attend(told.extend, lambda: True, lambda: 9)
    assert one._thread is not None
    one._thread.join()
    assert told == [gap(101), gap(9)]
    assert one.failure == "it died"
    one.close()


@pytest.mark.parametrize("stays", [True, False])
def test_one_whose_words_make_no_sense_is_ended_and_told_as_lost(stays: bool) -> None:
    def does(channel: socket.socket) -> None:
        channel.sendall(frame(gap(1)) + HEADER.pack(0xFFFFFFFF))
        if stays:
            signal.pause()

    one = begun(does)
    assert heard(one) == [gap(1), gap(101), gap(9)]
    assert one.failure == "it died"


def test_one_that_is_stopped_goes_on() -> None:
    def does(channel: socket.socket) -> None:
        until_told(channel)
        os.kill(os.getpid(), signal.SIGSTOP)
        channel.sendall(frame(gap(1)))

    assert heard(begun(does)) == [gap(1), gap(100)]


def test_one_that_hangs_at_the_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecar, "_SILENT_S", 0.0)
    one = begun(lambda _channel: signal.pause())
    assert heard(one) == [gap(101), gap(9)]


def test_one_that_stood_still_with_us_is_heard_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def does(channel: socket.socket) -> None:
        until_told(channel)
        until_told(channel)
        channel.sendall(frame(gap(1)))

    one = begun(does)
    looks = itertools.count()

    def an_hour_later() -> float:
        look = next(looks)
        if look == 2:
            one.tell(b"go on")
        return 3600.0 * min(look, 1)

    monkeypatch.setattr(sidecar.time, "monotonic", an_hour_later)
    assert heard(one) == [gap(1), gap(100)]


def test_one_that_nothing_ran_beside_is_ended() -> None:
    one = begun(lambda _channel: signal.pause())
    one.abandon()
    with pytest.raises(ChildProcessError):
        os.waitpid(one.pid, os.WNOHANG)


STRANGER = "import subprocess; one = subprocess.Popen(['cat']); print(one.pid, flush=True); one.wait()"


def test_who_has_its_number_after_it_is_left_alone() -> None:
    one = begun(lambda _channel: None)
    one.close()
    with subprocess.Popen(
        [sys.executable, "-c", STRANGER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as above:
        assert above.stdin is not None
        assert above.stdout is not None
        one.pid = int(above.stdout.readline())
        one.close()
        above.stdin.write(b"alive\n")
        assert above.stdout.readline() == b"alive\n"


@pytest.mark.parametrize(("patience_s", "stands_still"), [(300.0, False), (0.0, False), (300.0, True)])
def test_who_comes_after_it_finds_what_it_said_noted_or_does_not_wait_for_long(
    monkeypatch: pytest.MonkeyPatch, patience_s: float, stands_still: bool
) -> None:
    began, go_on = threading.Event(), threading.Event()
    noted: list[Item] = []

    def put(items: list[Item]) -> None:
        began.set()
        assert go_on.wait(300)
        noted.extend(items)

    def does(channel: socket.socket) -> None:
        channel.sendall(frame(gap(1)))
        until_told(channel)

    monkeypatch.setattr(sidecar, "_PATIENCE_S", patience_s)
    monkeypatch.setattr(sidecar.time, "sleep", lambda _s: go_on.set() if patience_s else None)  # a turn of waiting
    one = begun(does)
    one.attend(put, lambda: True, lambda: 9)
    assert began.wait(300)
    if stands_still:
        looks = itertools.count()
        monkeypatch.setattr(sidecar.time, "monotonic", lambda: 3600.0 * min(next(looks), 1))
    one.catch_up()
    assert noted == ([gap(1)] if patience_s else [])
    go_on.set()
    one.close()
    one.catch_up()
    assert noted == [gap(1), gap(100)]
