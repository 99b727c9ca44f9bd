"""Both directions of a session, on ends that take and give as little as they like: what goes in comes out."""

import json
from collections.abc import Callable
from select import EPOLLERR
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from relay_gate import ByName, UpOnly, answer

from agentwrap.events import McpBytes, McpJudged, McpSaid
from agentwrap.mcp.relay import way as way_module
from agentwrap.mcp.relay.asks import Asks
from agentwrap.mcp.relay.judged import About, Judged
from agentwrap.mcp.relay.way import Way


class Ready:
    """In place of epoll: what is to be watched, and by whom."""

    def __init__(self) -> None:
        self.watched: dict[int, tuple[Callable[[int], None], bool]] = {}

    def change(self, fd: int, handler: Callable[[int], None], *, reads: bool, writes: bool) -> None:
        self.watched[fd] = (handler, reads or writes)

    def drop(self, fd: int) -> None:
        self.watched.pop(fd, None)

    def turn(self, chosen: int) -> bool:
        ready = [handler for handler, wanted in self.watched.values() if wanted]
        if ready:
            ready[chosen % len(ready)](1)
        return bool(ready)


class FakeEnd:
    """Gives `pieces`, then ends; takes as many bytes at a time as `takes` says, over and over."""

    def __init__(self, fd: int, pieces: list[bytes], takes: list[int]) -> None:
        self.fd = fd
        self._pieces = [piece for piece in pieces if piece]
        self._takes = takes
        self._turn = 0
        self.got = b""
        self.finished = self.closed = False

    def read(self) -> bytes | None:
        return self._pieces.pop(0) if self._pieces else b""

    def write(self, data: memoryview) -> int:
        assert not self.finished
        assert not self.closed
        self._turn += 1
        taken = bytes(data[: self._takes[self._turn % len(self._takes)]])
        self.got += taken
        return len(taken)

    def hung(self) -> bool:
        return True

    def finish(self) -> None:
        self.finished = True

    def refuse(self) -> None:
        pass

    def close(self) -> None:
        assert not self.closed
        self.closed = True


class News:
    def __init__(self) -> None:
        self.news: list[Any] = []

    def put(self, item: Any) -> None:
        self.news.append(item)

    def send(self) -> None:
        pass

    def told(self, up: bool) -> bytes:
        return b"".join(one.data for one in self.news if isinstance(one, McpBytes) and one.up is up)


def ran(
    pieces: dict[bool, list[bytes]], takes: list[int], order: list[int], gate: type[ByName] | None
) -> tuple[dict[bool, bytes], News]:
    """What came out at each side (True: at the server), and what was told."""
    watch, news = Ready(), News()
    sinks, ways = between(watch, news, pieces, takes, gate)
    turn = 0
    while watch.turn(order[turn % len(order)]):
        turn += 1
    assert all(way.over for way in ways.values())
    assert all(sink.closed for sink in sinks.values())
    assert watch.watched == {}
    return {up: sinks[up].got for up in (True, False)}, news


def between(
    watch: Ready, news: News, pieces: dict[bool, list[bytes]], takes: list[int], gate: type[ByName] | None
) -> tuple[dict[bool, FakeEnd], dict[bool, Way]]:
    """What the pieces go to, and the ways that they go."""
    judged: list[Judged] = []

    def received(way: Way, data: bytes) -> None:
        if judged:
            judged[0].received(way, data)
        else:
            news.put(McpBytes(1, 0, way.up, data))
            way.send(data)

    def ended(way: Way) -> None:
        if judged:
            judged[0].ended(way)
        way.finish()

    sinks = {True: FakeEnd(1, [], takes), False: FakeEnd(3, [], takes)}
    ways = {
        up: Way(watch, FakeEnd(0 if up else 2, pieces[up], []), sinks[up], received, ended, lambda _way: None, up=up)
        for up in (True, False)
    }
    if gate is not None:
        about = About(1, "p1", 1, ways[True], ways[False], lambda: 0, lambda: None)
        judged.append(Judged(about, gate((), b"files"), Asks(news, lambda: 0, 9.0, unattended=True), news))
    return sinks, ways


PIECES = st.lists(st.one_of(st.binary(max_size=20), st.sampled_from([b"\n", b"[]\n", b"{}", b"\xff\n"])), max_size=12)
TAKES = st.lists(st.integers(0, 7), min_size=1, max_size=6).filter(any)
ORDER = st.lists(st.integers(0, 9), min_size=1, max_size=8)


@given(PIECES, PIECES, TAKES, ORDER, st.sampled_from([None, ByName, UpOnly]))
def test_any_bytes_in_any_pieces_come_out_as_they_are(
    up: list[bytes], down: list[bytes], takes: list[int], order: list[int], gate: type[ByName] | None
) -> None:
    out, news = ran({True: up, False: down}, takes, order, gate)
    for way, pieces in ((True, up), (False, down)):
        assert out[way] == b"".join(pieces)
        assert news.told(way) == out[way]


def _cut(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[start:end] for start, end in zip([0, *at], [*at, len(data)], strict=True)]


CALLS = st.lists(
    st.one_of(
        st.builds(
            lambda identity, tool: json.dumps({"id": identity, "tool": tool, "method": "call"}).encode(),
            st.integers(0, 50),
            st.sampled_from(["deny", "hold", "watch", "read"]),
        ),
        st.sampled_from([b"", b"banner", b'{"a":1,"a":1E400}', b"\xff\xfe"]),
    ),
    max_size=8,
)


@given(CALLS, st.lists(st.integers(0, 400), max_size=12), PIECES, TAKES, ORDER, st.sampled_from([ByName, UpOnly]))
def test_lines_are_judged_the_same_however_they_are_cut(
    calls: list[bytes], cuts: list[int], down: list[bytes], takes: list[int], order: list[int], gate: type[ByName]
) -> None:
    data = b"".join(line + b"\n" for line in calls)
    out, news = ran({True: _cut(data, cuts), False: down}, takes, order, gate)
    refused = [b'"deny"' in line or b'"hold"' in line for line in calls]
    assert out[True] == b"".join(line + b"\n" for line, no in zip(calls, refused, strict=True) if not no)
    judged = {one.line: one.verdict for one in news.news if isinstance(one, McpJudged)}
    assert [number for number, verdict in judged.items() if verdict == "deny"] == [
        number for number, no in enumerate(refused, 1) if no
    ]
    # Our answers are whole lines between the server's, or, where its side had ended, nowhere.
    said = [one.data for one in news.news if isinstance(one, McpSaid)]
    left = out[False]
    for words in said:
        assert words.startswith(b'{"id":')
        assert words + b"\n" in left
        left = left.replace(words + b"\n", b"", 1)
    assert left == b"".join(down)
    assert news.told(up=True) == data


def test_what_is_judged_is_told_before_its_bytes_and_both_before_it_goes_on() -> None:
    line = b'{"id":1,"tool":"watch"}\n'
    out, news = ran({True: [line[:9], line[9:]], False: []}, [99], [0], ByName)
    assert [type(one) for one in news.news] == [McpBytes, McpJudged, McpBytes]
    assert out[True] == line


def test_who_takes_no_answers_is_not_read_until_nobody_can_take_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(way_module, "_ANSWERS_BYTES", 100)
    watch, up_source, down_sink = Ready(), 0, 3
    between(watch, News(), {True: [b'{"id":1,"tool":"deny"}\n'] * 99, False: [b"x"] * 99}, [0], ByName)
    for _ in range(99):
        watch.turn(0)
    assert up_source not in watch.watched
    watch.watched[down_sink][0](EPOLLERR)
    assert up_source in watch.watched


def test_no_more_is_judged_ahead_than_a_reader_keeps_in_mind() -> None:
    line = b'{"id":1,"tool":"watch"}\n'
    out, news = ran({True: [line[:9], line[9:] + line * 999 + line[:3], line[3:]], False: []}, [1 << 20], [0], ByName)
    assert out[True] == line * 1001
    ahead, ends = [], 0
    for one in news.news:
        if isinstance(one, McpJudged):
            ahead.append(one.line)
            assert one.line == len(ahead)
            assert len(ahead) - ends <= 64
        elif isinstance(one, McpBytes):
            ends += one.data.count(b"\n")
            assert ends == len(ahead)
    assert ends == 1001


def test_what_has_no_end_is_judged_at_the_end() -> None:
    out, _ = ran({True: [b'{"id":1,"tool":"deny"}'], False: []}, [99], [0], ByName)
    assert out == {True: b"", False: answer(b"1", "denied") + b"\n"}
    out, _ = ran({True: [b'{"id":1,"tool":"read"}'], False: []}, [99], [0], ByName)
    assert out[True] == b'{"id":1,"tool":"read"}'
