import subprocess
import sys
from pathlib import Path

import pytest
from gateway.capture.listening import ABOUT, Listening, Step

from agentwrap.events.exchange import ExchangeBegan, ExchangeEnded, ExchangeReceived, ExchangeResponded, ExchangeSent
from agentwrap.gateway.capture.framing import DETAIL_MAX
from agentwrap.gateway.capture.heads import HEAD_MAX
from agentwrap.gateway.capture.requests import OPEN_MAX

GET = b"GET /x HTTP/1.1\r\nHost: api.example\r\n\r\n"
POST = b"POST /v1/messages?beta=true HTTP/1.1\r\nHost: api.example\r\nContent-Length: 5\r\n\r\nhello"
CONNECT = b"CONNECT a:443 HTTP/1.1\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2 ;x=1\r\nok\r\n3\r\n!!!\r\n0\r\nT: 1\r\n\r\n"


def test_an_exchange_is_told_piece_by_piece() -> None:
    listening = Listening()
    tap = listening.tap
    tap.up(POST[:10])
    tap.up(POST[10:-3])
    tap.up(POST[-3:])
    tap.down(CHUNKED[:-30])
    tap.down(CHUNKED[-30:])
    about = {name: getattr(ABOUT, name) for name in ABOUT.__struct_fields__}
    headers = ((b"Host", b"api.example"), (b"Content-Length", b"5"))
    began = {"method": b"POST", "target": b"/v1/messages?beta=true", "version": b"1.1", "headers": headers}
    assert listening.news == [
        ExchangeBegan(exchange=1, at_ns=1, **began, **about),
        ExchangeSent(1, 2, b"he"),
        ExchangeSent(1, 3, b"llo"),
        ExchangeResponded(1, 4, 200, b"OK", ((b"Transfer-Encoding", b"chunked"),)),
        ExchangeReceived(1, 5, b"ok!!!"),
        ExchangeEnded(1, 5, "complete", b"", 5, 5),
    ]
    assert tap.active
    tap.up_ended()
    assert not tap.active


@pytest.mark.parametrize(
    ("up", "down", "bodies"),
    [
        (GET, OK, [b"ok"]),
        (GET * 3, OK + CHUNKED + OK, [b"ok", b"ok!!!", b"ok"]),
        (b"\r\n" + GET + b"\r\n" + GET, OK + OK, [b"ok", b"ok"]),
        (GET, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, [b"ok"]),
        (GET.replace(b"GET", b"HEAD"), OK[:-2], [b""]),
        (GET, b"HTTP/1.1 204 No Content\r\n\r\n", [b""]),
        (GET + GET, b"HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n" + OK, [b"", b"ok"]),
        (GET, b"HTTP/1.1 200\nContent-Length: 2\n\nok", [b"ok"]),
        (GET, b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\ncontent-length: 2\r\n\r\nok", [b"ok"]),
        (GET, b"HTTP/1.1 200 OK\r\nX: a\r\n  b\r\nContent-Length:\r\n 2\r\n\r\nok", [b"ok"]),
        (GET, b"HTTP/1.1 200 OK\r\nX : a\r\nTransfer-Encoding: Chunked\r\n\r\n2\nok\n0\n\n", [b"ok"]),
        (GET.replace(b"1.1", b"1.0"), CHUNKED.replace(b"1.1", b"1.0"), [b"ok!!!"]),
        (POST, OK, [b"ok"]),
        (POST.replace(b"Host", b"Expect: 100-continue\r\nHost"), b"HTTP/1.1 100 \r\n\r\n" + OK, [b"ok"]),
        (GET.replace(b"Host", b"Upgrade: h2c\r\nHost") + GET, OK + OK, [b"ok", b"ok"]),
        (POST.replace(b"Host", b"Upgrade: h2c\r\nHost") + POST, OK + OK, [b"ok", b"ok"]),
        (CONNECT + GET, OK.replace(b"200", b"407") + OK, [b"ok", b"ok"]),
    ],
)
def test_what_peers_agree_about(up: bytes, down: bytes, bodies: list[bytes]) -> None:
    """Whole, and in pieces of one byte."""
    for size in (len(up), 1):
        listening = Listening()
        for start in range(0, len(up), size):
            listening.tap.up(up[start : start + size])
        for start in range(0, len(down), size if size == 1 else len(down)):
            listening.tap.down(down[start : start + (1 if size == 1 else len(down))])
        assert [one.received for one in listening.heard] == bodies
        assert {(one.ending, one.detail) for one in listening.heard} == {("complete", b"")}
        assert listening.tap.active


def test_an_answer_that_ends_with_the_connection() -> None:
    listening = Listening().step("up", GET).step("down", b"HTTP/1.0 200 OK\r\n\r\nsome").step("down", b" more")
    assert listening.only.ending == ""
    listening.step("down_ended")
    assert (listening.only.received, listening.only.ending) == (b"some more", "complete")
    assert not listening.tap.active


IN_BODY = b"inside of the answer's body"
UNKNOWN = b"a transfer encoding that is not understood: "
CHUNKS = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
LATE = b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n12345"
LONG = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345"


@pytest.mark.parametrize(
    ("steps", "ending", "detail"),
    [
        ([("up", b"GET /"), ("up_ended", b"")], "cut-by-client", b"inside of the request's head"),
        ([("up", b"GET /"), ("server", b"")], "cut-by-server", b"inside of the request's head"),
        ([("up", b"GET /"), ("down_ended", b"")], "cut-by-server", b"inside of the request's head"),
        ([("up", LATE), ("client", b"")], "cut-by-client", b"before an answer"),
        ([("up", LATE), ("up_ended", b""), ("down_ended", b"")], "cut-by-client", b"inside of the request's body"),
        ([("up", LATE), ("up_ended", b""), ("down", OK)], "cut-by-client", b"inside of the request's body"),
        ([("up", LATE), ("down", OK), ("down_ended", b"")], "complete", b"answered before the request had ended"),
        ([("up", LATE), ("down", OK), ("server", b"")], "complete", b"answered before the request had ended"),
        ([("up", LATE), ("down", OK), ("up_ended", b"")], "cut-by-client", b"inside of the request's body"),
        ([("up", LATE), ("down", OK), ("up", b"67890")], "complete", b""),
        ([("up", GET), ("down_ended", b"")], "cut-by-server", b"before an answer"),
        ([("up", GET), ("down", OK[:5]), ("down_ended", b"")], "cut-by-server", b"inside of the answer's head"),
        ([("up", GET), ("down", OK[:5]), ("client", b"")], "cut-by-client", b"inside of the answer's head"),
        ([("up", GET), ("down", LONG), ("server", b"")], "cut-by-server", IN_BODY),
        ([("up", GET), ("down", LONG), ("down_ended", b"")], "cut-by-server", IN_BODY),
        ([("up", GET), ("down", LONG), ("client", b"")], "cut-by-client", IN_BODY),
        ([("up", GET), ("down", LONG), ("up_ended", b""), ("down_ended", b"")], "cut-by-client", IN_BODY),
        ([("up", GET), ("up_ended", b""), ("down", LONG + b"67890")], "complete", b""),
        ([("up", GET), ("down", b"HTTP/1.0 200 OK\r\n\r\nx"), ("server", b"")], "cut-by-server", IN_BODY),
        (
            [("up", GET), ("up_ended", b""), ("down", b"HTTP/1.0 200 OK\r\n\r\nx"), ("down_ended", b"")],
            "complete",
            b"the client had ended before",
        ),
        ([("up", CONNECT), ("down", b"HTTP/1.1 200 OK\r\n\r\n\x16\3")], "complete", b"a tunnel"),
    ],
)  # fmt: skip
def test_how_an_exchange_ends(steps: list[Step], ending: str, detail: bytes) -> None:
    listening = Listening().steps(steps)
    assert (listening.only.ending, listening.only.detail) == (ending, detail)
    assert listening.tap.active == (steps[-1][0] == "up")
    listening.step("up", GET).step("down", OK).step("client")
    assert len(listening.heard) == (2 if steps[-1][0] == "up" else 1)


@pytest.mark.parametrize(
    ("up", "detail"),
    [
        (b"\x16\x03\x01\x02\x00", b"no HTTP request"),
        (b"hello\r\n", b"no HTTP request"),
        (b"SSH-2.0-x\r\n", b"no HTTP request"),
        (b" GET / HTTP/1.1\r\n\r\n", b"no HTTP request"),
        (b"GET  / HTTP/1.1\r\n\r\n", b"no HTTP request"),
        (b"GET / HTTP/1.1 \r\n\r\n", b"a broken request line"),
        (b"GET /a b HTTP/1.1\r\n\r\n", b"a broken request line"),
        (b"GET /\r\n", b"HTTP/0.9"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"HTTP/2.0"),
        (b"GET / HTTP/1.2\r\n\r\n", b"HTTP/1.2"),
        (CHUNKS[:-2] + b"Content-Length: 1\r\n\r\n", b"a length beside a transfer encoding"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", b"not exactly one length: 1, 1"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n", b"not exactly one length: 1, 1"),
        (b"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", b"not exactly one length: +1"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1" + b"0" * 18 + b"\r\n\r\n", b"not exactly one length: 1" + b"0" * 18),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: identity\r\n\r\n", UNKNOWN + b"identity"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n", UNKNOWN + b"xchunked"),
        (
            b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            UNKNOWN + b"gzip, chunked",
        ),
        (
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n",
            UNKNOWN + b"chunked, x",
        ),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", b"a transfer encoding in HTTP/1.0"),
        (b"GET / HTTP/1.1\r\nA: 1\r\n 2\r\n\r\n", b"a folded line in a request's head"),
        (b"GET / HTTP/1.1\r\n A: 1\r\n\r\n", b"a folded line in a request's head"),
        (b"GET / HTTP/1.1\nA: 1\r\n\r\n", b"a lone carriage return or line feed in a request's head"),
        (b"GET / HTTP/1.1\r\nA: 1\n\r\n", b"a lone carriage return or line feed in a request's head"),
        (b"GET / HTTP/1.1\r\nA: 1\r\n\n", b"a lone carriage return or line feed in a request's head"),
        (b"GET / HTTP/1.1\r\nA: 1\n\n", b"a lone carriage return or line feed in a request's head"),
        (b"GET / HTTP/1.1\r\nA: 1\rB: 2\r\n\r\n", b"a lone carriage return or line feed in a request's head"),
        (b"GET / HTTP/1.1\r\nA : 1\r\n\r\n", b"a line in a request's head that is no field"),
        (b"GET / HTTP/1.1\r\nA\r\n\r\n", b"a line in a request's head that is no field"),
        (b"GET / HTTP/1.1\r\n: x\r\n\r\n", b"a line in a request's head that is no field"),
        (b"GET / HTTP/1.1\r\nA: \0\r\n\r\n", b"a line in a request's head that is no field"),
        (b"GET /" + b"x" * HEAD_MAX, b"a head of more than 65,536 bytes"),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * HEAD_MAX, b"a head of more than 65,536 bytes"),
    ],
)  # fmt: skip
def test_requests_that_two_servers_could_read_in_two_ways(up: bytes, detail: bytes) -> None:
    listening = Listening().step("up", up + b"1\r\n").step("down", OK)
    assert (listening.only.ending, listening.only.detail) == ("unreadable", detail)
    assert not listening.tap.active
    slow = Listening()
    for start in range(0, len(up), 4096 if len(up) > 4096 else 1):
        slow.step("up", up[start : start + (4096 if len(up) > 4096 else 1)])
    assert (slow.only.ending, slow.only.detail) == ("unreadable", detail)


@pytest.mark.parametrize(
    ("down", "detail"),
    [
        (b"hello", b"no HTTP/1 answer"),
        (b"\r\n" + OK, b"no HTTP/1 answer"),
        (b"HTTP/2 200 OK\r\n\r\n", b"no HTTP/1 answer"),
        (b"HTTP/1.1 20 OK\r\n\r\n", b"a broken status line"),
        (b"HTTP/1.1 2000 OK\r\n", b"a broken status line"),
        (b"HTTP/1.1 200 OK\r\nA: x\0\r\n\r\n", b"a line in an answer's head that is no field"),
        (b"HTTP/1.1 200 OK\r\nA\r\n\r\n", b"a line in an answer's head that is no field"),
        (b"HTTP/1.1 200 OK\r\nA: 1\rB: 2\r\n\r\n", b"a line in an answer's head that is no field"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"x" * HEAD_MAX, b"a head of more than 65,536 bytes"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"a length beside a transfer encoding in an answer",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n", b"not exactly one length in an answer: 1, 2"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", b"not exactly one length in an answer: x"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            b"a transfer encoding that is not understood in an answer: gzip, chunked",
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", b"a broken chunk size"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", b"a chunk that is longer than its size"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;" + b"x" * 5000, b"an endless chunk line"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx\r\n", b"broken or too many trailers"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n", b"a change of protocol that nobody asked for"),
    ],
)
def test_answers_that_nobody_could_read(down: bytes, detail: bytes) -> None:
    for size in (len(down), 4096 if len(down) > 4096 else 1):
        listening = Listening().step("up", GET)
        for start in range(0, len(down), size):
            listening.step("down", down[start : start + size])
        assert (listening.only.ending, listening.only.detail) == ("unreadable", detail)
        assert not listening.tap.active


def test_what_came_before_something_unreadable_is_told() -> None:
    listening = Listening().step("up", GET).step("down", CHUNKED.replace(b"\r\n3\r\n", b"\r\nx\r\n"))
    assert (listening.only.status, listening.only.received) == (200, b"ok")
    assert (listening.only.ending, listening.only.sizes) == ("unreadable", (0, 2))


@pytest.mark.parametrize(
    ("up", "down", "method", "detail"),
    [
        (b"", OK, b"", b"an answer that nobody asked for"),
        (b"GET / HTTP/1.1\r\nHost:", OK, b"GET", b"answered before the request's head was whole"),
        (GET, OK + b"more", b"", b"an answer that nobody asked for"),
        (b"GET", b"<html>", b"", b"answered before the request's head was whole"),
        (LATE, OK + OK, b"POST", b"an answer that nobody asked for"),
    ],
)
def test_a_server_that_speaks_unasked(up: bytes, down: bytes, method: bytes, detail: bytes) -> None:
    last = Listening().step("up", up).step("down", down).heard[-1]
    assert (last.method, last.ending, last.detail) == (method, "unreadable", detail)


def test_what_is_said_of_foreign_bytes_is_short() -> None:
    listening = Listening().step("up", CHUNKS.replace(b"chunked", b"x" * 5000))
    assert listening.only.detail == (UNKNOWN + b"x" * 5000)[:DETAIL_MAX]


def test_an_unreadable_request_ends_those_before_it() -> None:
    listening = Listening().step("up", GET + GET + b"GET / HTTP/1.1\r\nA\r\n\r\n")
    assert [one.ending for one in listening.heard] == ["unreadable"] * 3


@pytest.mark.parametrize(
    ("target", "asked"),
    [
        (b"/v1/messages?beta=true", (b"api.example", b"/v1/messages")),
        (b"http://u@other.example:81/a?b", (b"other.example", b"/a")),
        (b"HTTP://[::1]/", (b"[::1]", b"/")),
        (b"http://other.example?x", (b"other.example", b"/")),
        (b"*", (b"api.example", b"*")),
        (b"/x?u=http://a/b", (b"api.example", b"/x")),
    ],
)
def test_whom_the_wanted_question_is_about(target: bytes, asked: tuple[bytes, bytes]) -> None:
    questions = []

    def wanted(method: bytes, host: bytes, path: bytes) -> bool:
        questions.append((method, host, path))
        return False

    Listening(wanted).step("up", b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % target)
    assert questions == [(b"GET", *asked)]


def test_bodies_that_nobody_wants_are_counted() -> None:
    listening = Listening(lambda *_: False).step("up", POST + POST).step("down", OK + CHUNKED)
    assert [(one.status, one.sent, one.received, one.sizes) for one in listening.heard] == [
        (200, b"", b"", (5, 2)),
        (200, b"", b"", (5, 5)),
    ]


def test_requests_without_answers_are_not_collected_for_ever() -> None:
    listening = Listening().step("up", GET * (OPEN_MAX + 1))
    assert len(listening.heard) == OPEN_MAX + 1
    assert {one.detail for one in listening.heard} == {b"too many requests without an answer"}


UPGRADE = b"GET /s HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: %s\r\n\r\n"


def test_the_benchmark_runs() -> None:
    bench = Path(__file__).parents[2] / "bench" / "capture.py"
    done = subprocess.run([sys.executable, bench, "--quick"], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr, "by h11" in done.stdout) == (0, "", True)


def test_another_protocol_is_said_by_its_name() -> None:
    listening = Listening().step("up", UPGRADE % b"h2c").step("down", SWITCH % b"h2c" + b"\0\0\x12")
    assert listening.only.detail == b"a change to another protocol: h2c"
    assert (listening.only.status, listening.only.ending) == (101, "unreadable")


def test_a_change_of_protocol_inside_of_a_request() -> None:
    up = LATE.replace(b"Content", b"Upgrade: websocket\r\nContent")
    listening = Listening().step("up", up).step("down", SWITCH % b"websocket")
    assert listening.only.detail == b"a change of protocol before the request had ended"


def test_what_waits_for_a_change_of_protocol_is_bounded() -> None:
    listening = Listening().step("up", UPGRADE % b"websocket").step("up", bytes(HEAD_MAX)).step("up", b"x")
    assert listening.only.detail == b"too much behind a request for another protocol that has no answer"


@pytest.mark.parametrize("client_first", [False, True])
def test_who_left_first_has_cut_it_whatever_the_other_then_does(client_first: bool) -> None:
    listening = Listening()
    tap = listening.tap
    tap.up(POST)
    if client_first:
        tap.up_ended()
    tap.cut("server")
    ended = listening.news[-1]
    assert isinstance(ended, ExchangeEnded)
    assert ended.ending == ("cut-by-client" if client_first else "cut-by-server")
    assert ended.detail == b"before an answer"
