"""Frames between tracer and supervisor: whole, in pieces, broken, and from several threads at once."""

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.events import Content, NetConnect, ProcessStart, Secrets
from agentwrap.tracing.wire import (
    HEADER,
    MAX_FRAME_BYTES,
    AllEnded,
    Failed,
    FrameReader,
    MainEnded,
    Message,
    Sender,
    Standing,
    Stopped,
)

MESSAGES: list[Message] = [
    Standing(
        pid=7,
        mode="notify",
        attach_errno=1,
        notify_errno=0,
        filter_errno=0,
        memory_errno=0,
        in_place_wake=True,
        no_new_privs=False,
    ),
    Failed("exec", 2, b"\xff"),
    Stopped(20),
    MainEnded(256),
    AllEnded(3),
    Content(b"\0" * 32, b"data\xff", "before"),
    Secrets(((b"NAME", b"\xfe"),)),
    ProcessStart(at_ns=1, span="p1", pid=2, parent="run", how="root"),
    NetConnect(at_ns=2, family="unix", path=b"@\xff"),
]


def _sent(batches: list[list[Message]]) -> bytes:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = Sender(ours)
        out = b""
        for batch in batches:
            for message in batch:
                sender.put(message)
            sender.flush()
            ours.setblocking(False)
            theirs.setblocking(False)
            try:
                while True:
                    out += theirs.recv(1 << 20)
            except BlockingIOError:
                ours.setblocking(True)
    return out


@given(st.lists(st.lists(st.sampled_from(MESSAGES), min_size=1, max_size=5), max_size=5), st.integers(1, 40))
def test_what_is_put_comes_out_in_whatever_pieces(batches: list[list[Message]], size: int) -> None:
    stream = _sent(batches)
    whole = list(FrameReader().feed(stream))
    reader = FrameReader()
    pieces = [batch for i in range(0, len(stream), size) for batch in reader.feed(stream[i : i + size])]
    assert whole == pieces == batches


def test_an_empty_flush_sends_nothing() -> None:
    assert _sent([[]]) == b""


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_a_value_error(data: bytes) -> None:
    reader = FrameReader()
    try:
        for _ in reader.feed(data):
            pass
    except ValueError:
        pass


@given(st.binary(max_size=60))
def test_a_frame_of_any_bytes_is_messages_or_a_value_error(data: bytes) -> None:
    try:
        for batch in FrameReader().feed(HEADER.pack(len(data)) + data):
            assert isinstance(batch, list)
    except ValueError:
        pass


def test_a_frame_beyond_all_measure_is_refused_before_it_is_collected() -> None:
    with pytest.raises(ValueError, match="frame of"):
        list(FrameReader().feed(HEADER.pack(MAX_FRAME_BYTES + 1)))


def test_large_contents_go_out_at_once() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = Sender(ours)
        content = Content(b"\1" * 32, b"x" * (2 << 20), "after")
        thread = threading.Thread(target=sender.put, args=(content,))
        thread.start()
        reader, got = FrameReader(), []
        while not got:
            got += list(reader.feed(theirs.recv(1 << 20)))
        thread.join()
    assert got == [[content]]


def test_several_threads_lose_nothing() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = Sender(ours)

        def put(first: int) -> None:
            for i in range(1000):
                sender.put(MainEnded(first + i))
                if i % 97 == 0:
                    sender.flush()

        threads = [threading.Thread(target=put, args=(n * 1000,)) for n in range(4)]

        def end() -> None:
            for thread in threads:
                thread.join()
            sender.flush()
            ours.shutdown(socket.SHUT_WR)

        ending = threading.Thread(target=end)
        for thread in (*threads, ending):
            thread.start()
        reader = FrameReader()
        got: list[int] = []
        while data := theirs.recv(1 << 20):
            for batch in reader.feed(data):
                got += [message.status for message in batch if isinstance(message, MainEnded)]
        ending.join()
    assert sorted(got) == list(range(4000))
    for n in range(4):  # each thread's own order is kept
        assert [value for value in got if value // 1000 == n] == list(range(n * 1000, n * 1000 + 1000))


def test_a_dead_supervisor_is_told() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours:
        sender = Sender(ours)
        sender.put(AllEnded(0))
        with pytest.raises(OSError, match="Broken pipe"):
            sender.flush()
