from itertools import pairwise

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.gateway.http_head import (
    HEAD_MAX,
    Forward,
    HttpError,
    Item,
    Request,
    RequestStream,
    denied_response,
    malformed_response,
    unreachable_response,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"


def get(host: str = "a.example", *fields: str, target: str = "/", method: str = "GET", version: str = "1.1") -> bytes:
    lines = [f"{method} {target} HTTP/{version}", f"Host: {host}", *fields, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def feed_bytes(stream: RequestStream, data: bytes) -> None:
    for at in range(len(data)):
        assert stream.feed(data[at : at + 1]) == []


def one(data: bytes) -> Request:
    """The one request in `data`."""
    (item,) = RequestStream().feed(data)
    assert isinstance(item, Request)
    return item


def passed(items: list[Item]) -> bytes:
    return b"".join(item.data for item in items if isinstance(item, Forward))


def run(*pieces: bytes, answer: bytes = OK) -> tuple[list[Request], bytes]:
    """Everything accepted and answered: the requests, and what went on in all."""
    stream = RequestStream()
    requests: list[Request] = []
    sent = b""
    for piece in pieces:
        items = stream.feed(piece)
        while items:
            item = items.pop(0)
            if isinstance(item, Forward):
                sent += item.data
                continue
            requests.append(item)
            sent += item.raw
            items += stream.accept()
            items += stream.observe(answer)
    return requests, sent


@pytest.mark.parametrize(
    ("data", "host", "port"),
    [
        (get("a.example"), "a.example", None),
        (get("A.Example."), "a.example", None),
        (get("a.example:8080"), "a.example", 8080),
        (get("a.example:"), "a.example", None),
        (get("192.0.2.1:80"), "192.0.2.1", 80),
        (get("0x7f.1"), "127.0.0.1", None),
        (get("[2001:db8::1]"), "2001:db8::1", None),
        (get("[::ffff:192.0.2.1]:81"), "192.0.2.1", 81),
        (get("a.example", target="http://a.example/x?y"), "a.example", 80),
        (get("a.example:80", target="HTTP://A.example/x"), "a.example", 80),
        (get("a.example:81", target="http://a.example:81"), "a.example", 81),
        (get("a.example", target="https://a.example/"), "a.example", 443),
        (get("a.example", target="*", method="OPTIONS"), "a.example", None),
        (get("a.example", target="//b.example/x"), "a.example", None),
        (get("a.example", target="/@b.example:80"), "a.example", None),
        (b"GET / HTTP/1.0\r\n\r\n", "", None),
        (b"GET / HTTP/1.0\r\nHost: a.example\r\n\r\n", "a.example", None),
        (b"GET http://b.example/ HTTP/1.0\r\n\r\n", "b.example", 80),
        (b"GET / HTTP/1.1\r\nhOST:\t a.example \t\r\n\r\n", "a.example", None),
        (b"\r\n\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n", "a.example", None),
    ],
)
def test_whom_a_request_is_for(data: bytes, host: str, port: int | None) -> None:
    request = one(data)
    assert (request.host, request.port, request.is_connect) == (host, port, False)
    assert request.raw == data.lstrip(b"\r\n")


def test_connect_names_whom_it_wants() -> None:
    request = one(get("a.example:443", target="a.example:443", method="CONNECT"))
    assert (request.host, request.port, request.is_connect) == ("a.example", 443, True)
    request = one(get("a.example", target="[::1]:22", method="CONNECT").replace(b"Host: a.example", b"Host: [::1]"))
    assert (request.host, request.port) == ("::1", 22)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "Host"),
        (get("", ""), "broken host"),
        (get("a.example", "Host: a.example"), "(?i)multiple Host"),
        (get("a.example", "HOST: b.example"), "(?i)multiple Host"),
        (get("a.example, b.example"), "broken host"),
        (get("a.example b.example"), "broken host"),
        (get("good@evil.example"), "broken host"),
        (get("a:b@evil.example"), "broken host"),
        (get("a.example:80:80"), "broken host"),
        (get("a.example:0"), "broken port"),
        (get("a.example:65536"), "broken port"),
        (get("a.example:123456"), "broken host"),
        (get("a.example:8o"), "broken host"),
        (get("::1"), "broken host"),
        (get("[::1"), "broken host"),
        (get("[v1.x]"), "broken host"),
        (get("a/b"), "broken host"),
        (get("a\\b"), "broken host"),
        (get("a%2eexample"), "broken host"),
        (get("b\xfccher.example"), "broken host"),
        (get("a..example"), "broken host"),
        (get("x" * 300), "broken host"),
        (get("a.example", target="http://b.example/"), "another host"),
        (get("a.example:81", target="http://a.example/"), "another host"),
        (get("a.example", target="http://a.example:81/"), "another host"),
        (get("a.example", target="http://a.example@b.example/"), "broken host"),
        (get("a.example", target="http://a.example\\@b.example/"), "broken host"),
        (get("a.example", target="http:///x"), "broken host"),
        (get("a.example", target="http:/x"), "neither a path"),
        (get("a.example", target="ftp://a.example/"), "neither a path"),
        (get("a.example", target="x"), "neither a path"),
        (get("a.example", target="*"), "neither a path"),
        (get("a.example", target="a.example:80"), "neither a path"),
        (get("a.example", target="b.example:443", method="CONNECT"), "another host"),
        (get("a.example:80", target="a.example:443", method="CONNECT"), "another host"),
        (get("a.example", target="a.example", method="CONNECT"), "without a port"),
        (get("a.example", target="/", method="CONNECT"), "broken host"),
        (get("a.example", "Content-Length: 3", target="a.example:443", method="CONNECT"), "CONNECT with a body"),
        (get("a.example", "Transfer-Encoding: chunked", target="a.example:443", method="CONNECT"), "CONNECT with"),
        (get("a.example", "Upgrade: websocket", target="a.example:443", method="CONNECT"), "CONNECT with"),
        (get("a.example", "X: a\r\n folded"), "folded"),
        (get("a.example\r\n .evil.example"), "folded"),
        (get("a.example", "Content-Length: 1", "Content-Length: 2"), "(?i)content-length"),
        (get("a.example", "Content-Length: 1", "Content-Length: 1"), "not exactly one length"),
        (get("a.example", "Content-Length: 1, 1"), "not exactly one length"),
        (get("a.example", "Content-Length: +1"), "Content-Length"),
        (get("a.example", "Content-Length: -1"), "Content-Length"),
        (get("a.example", "Content-Length: 0x1"), "Content-Length"),
        (get("a.example", "Content-Length: 1_0"), "Content-Length"),
        (get("a.example", "Content-Length: "), "Content-Length"),
        (get("a.example", "Content-Length: " + "1" * 19), "length"),
        (get("a.example", "Content-Length: 1", "Transfer-Encoding: chunked"), "beside a length"),
        (get("a.example", "Transfer-Encoding: gzip, chunked"), "Transfer-Encoding"),
        (get("a.example", "Transfer-Encoding: identity"), "Transfer-Encoding"),
        (get("a.example", "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), "Transfer-Encoding"),
        (get("a.example", "Transfer-Encoding: xchunked"), "Transfer-Encoding"),
        (get("a.example", "Transfer-Encoding : chunked"), "header line"),
        (get("a.example", "Transfer-Encoding: chunked", version="1.0"), "HTTP/1.0"),
        (get("a.example", version="2.0"), "HTTP/2.0"),
        (get("a.example", version="0.9"), "HTTP/0.9"),
        (get("a.example", version="1.2"), "HTTP/1.2"),
        (get("a.example", "no colon"), "header line"),
        (get("a.example", ": empty"), "header line"),
        (get("a.example", "b d: x"), "header line"),
        (get("a.example", "X: \0"), "control character"),
        (get("a.example", "X: a\rb"), "lone carriage return"),
        (get("a.example", "X: a\nHost: b"), "lone carriage return"),
        (b"GET / HTTP/1.1\nHost: a.example\n\n", "lone carriage return"),
        (b"GET / HTTP/1.1\r\nHost: a.example\n\r\n", "lone carriage return"),
        (b"GET /\r\n\r\n", "request line"),
        (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "request line"),
        (b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", "request line"),
        (b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", "request line"),
        (b" GET / HTTP/1.1\r\nHost: a\r\n\r\n", "folded"),
        (b"GET / http/1.1\r\nHost: a\r\n\r\n", "request line"),
        (b"GET /\x80 HTTP/1.1\r\nHost: a\r\n\r\n", "request line"),
        (b"GET / HTTP/1.1\r\n Host: a\r\nHost: b\r\n\r\n", "folded"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2.0"),
    ],
)
def test_what_cannot_be_judged(data: bytes, why: str) -> None:
    with pytest.raises(HttpError, match=why):
        RequestStream().feed(data)
    with pytest.raises(HttpError, match=why):
        feed_bytes(RequestStream(), data)


def test_a_head_without_end() -> None:
    for piece in (b"X: y\r\n", b"x", b"Host: a\r\n"):
        stream = RequestStream()
        stream.feed(b"GET / HTTP/1.1\r\n")
        most = HEAD_MAX // len(piece)
        for _ in range(most // 100):
            assert stream.feed(piece * 100) == []
        with pytest.raises(HttpError, match="65,536") as told:
            stream.feed(piece * 100)
        assert told.value.status == 431
    with pytest.raises(HttpError, match="65,536"):
        RequestStream().feed(get("a.example", "X: " + "y" * HEAD_MAX))


def test_blanks_between_words_do_not_stall() -> None:
    """A regular expression that tries every way to share out 60,000 spaces would take minutes."""
    assert one(get("a.example", "X:" + " " * 60_000 + "y", "Z: " + "a " * 1000)).host == "a.example"
    with pytest.raises(HttpError):
        one(get("a.example", "X:" + " " * 60_000 + "\0"))


STREAM = (
    get("a.example")
    + get("b.example", "Content-Length: 5", method="POST")
    + b"hello"
    + get("c.example", "Transfer-Encoding: chunked", method="PUT")
    + b"3;x\r\nGET\r\n0\r\nT: v\r\n\r\n"
    + get("d.example", "Content-Length: 0", method="POST")
    + get("e.example")
)


def test_pipelined_requests_split_anywhere() -> None:
    whole = run(STREAM)
    assert [request.host for request in whole[0]] == [f"{name}.example" for name in "abcde"]
    assert whole[1] == STREAM
    for cut in range(len(STREAM)):
        assert run(STREAM[:cut], STREAM[cut:]) == whole, cut
    assert run(*(STREAM[at : at + 1] for at in range(len(STREAM)))) == whole


def test_nothing_of_a_request_goes_on_before_it_is_accepted() -> None:
    stream = RequestStream()
    (first,) = stream.feed(STREAM)
    assert isinstance(first, Request)
    assert stream.state == "judging"
    assert not stream.wants_data
    with pytest.raises(ValueError, match="judging"):
        stream.feed(b"x")
    (second,) = stream.accept()
    assert isinstance(second, Request)
    assert second.host == "b.example"
    *forwarded, third = stream.accept()
    assert forwarded == [Forward(b"hello")]
    assert isinstance(third, Request)


def test_accept_without_a_request() -> None:
    with pytest.raises(ValueError, match="no request"):
        RequestStream().accept()


def test_a_client_that_waits_for_100_continue() -> None:
    stream = RequestStream()
    (request,) = stream.feed(get("a.example", "Content-Length: 3", "Expect: 100-continue", method="POST"))
    assert isinstance(request, Request)
    assert stream.accept() == []
    assert stream.wants_data
    assert stream.observe(b"HTTP/1.1 100 Continue\r\n\r\n") == []
    assert stream.feed(b"abc") == [Forward(b"abc")]
    assert not stream.answered
    stream.observe(OK)
    assert stream.answered
    assert stream.state == "head"


def test_a_large_body_is_neither_copied_nor_kept() -> None:
    stream = RequestStream()
    stream.feed(get("a.example", f"Content-Length: {5 << 30}", method="PUT"))
    stream.accept()
    piece = bytes(1 << 20)
    for _ in range(5 << 10):
        (item,) = stream.feed(piece)
        assert isinstance(item, Forward)
        assert item.data is piece
    assert stream.state == "head"


def test_a_websocket_after_the_server_agreed() -> None:
    stream = RequestStream()
    (request,) = stream.feed(get("a.example", "Connection: Upgrade", "Upgrade: WebSocket") + b"\x81\x05early")
    assert isinstance(request, Request)
    assert request.upgrade == b"websocket"
    assert stream.accept() == []
    assert stream.state == "switching"
    assert not stream.wants_data
    assert stream.observe(SWITCH[:20]) == []
    assert stream.observe(SWITCH[20:] + b"\x81\x02hi") == [Forward(b"\x81\x05early")]
    assert stream.state == "tunnel"
    assert stream.feed(b"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n") == [
        Forward(b"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n")
    ]


def test_a_server_that_is_quicker_than_we_are() -> None:
    stream = RequestStream()
    stream.feed(get("a.example", "Connection: Upgrade", "Upgrade: websocket") + b"\x81\x00")
    assert stream.observe(SWITCH) == []
    assert stream.accept() == [Forward(b"\x81\x00")]
    assert stream.state == "tunnel"
    stream = RequestStream()
    stream.feed(get("a.example"))
    stream.observe(OK[:5])
    stream.observe(OK[5:])
    assert stream.accept() == []
    assert stream.answered


def test_a_refused_upgrade_is_no_way_to_another_host() -> None:
    stream = RequestStream()
    stream.feed(get("a.example", "Connection: Upgrade", "Upgrade: websocket") + get("b.example"))
    assert stream.accept() == []
    (item,) = stream.observe(OK)
    assert isinstance(item, Request)
    assert item.host == "b.example"


def test_a_server_that_cannot_be_followed_gives_no_tunnel() -> None:
    stream = RequestStream()
    stream.feed(get("a.example", "Connection: Upgrade", "Upgrade: websocket"))
    stream.accept()
    assert stream.observe(b"nonsense\r\n\r\n") == []
    assert stream.state == "head"
    assert not stream.answered


def test_an_upgrade_that_is_answered_before_its_body_is_sent() -> None:
    stream = RequestStream()
    stream.feed(get("a.example", "Upgrade: websocket", "Content-Length: 3", method="POST") + b"ab")
    assert passed(stream.accept()) == b"ab"
    assert stream.observe(SWITCH) == []
    assert stream.feed(b"cTUNNEL") == [Forward(b"c"), Forward(b"TUNNEL")]
    assert stream.state == "tunnel"


@pytest.mark.parametrize(("answer", "state"), [(b"200 OK", "tunnel"), (b"204 OK", "tunnel"), (b"407 Who", "head")])
def test_connect(answer: bytes, state: str) -> None:
    stream = RequestStream()
    stream.feed(get("a.example:443", target="a.example:443", method="CONNECT"))
    assert stream.accept() == []
    assert stream.state == "switching"
    assert stream.observe(b"HTTP/1.1 " + answer + b"\r\n\r\n") == []
    assert stream.state == state


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        (["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"], []),
        (["Upgrade: H2C", "Connection: keep-alive, upgrade"], ["Connection: keep-alive"]),
        (["X: y", "Connection: Upgrade", "Upgrade: TLS/1.0, HTTP/1.1", "Z: z"], ["X: y", "Z: z"]),
        (["Upgrade: websocket, h2c", "Connection: upgrade"], []),
        (["Upgrade: websocket", "Upgrade: h2c"], []),
    ],
)
def test_an_upgrade_to_what_could_not_be_judged_is_not_asked_for(fields: list[str], kept: list[str]) -> None:
    request = one(get("a.example", *fields))
    assert request.upgrade == b""
    assert request.raw == get("a.example", *kept)


def test_other_upgrades_stay() -> None:
    data = get("a.example", "Upgrade: SPDY/3.1", "Connection: Upgrade")
    assert one(data).upgrade == b"spdy/3.1"
    assert one(data).raw == data


def test_broken_chunks_end_it() -> None:
    stream = RequestStream()
    stream.feed(get("a.example", "Transfer-Encoding: chunked", method="POST"))
    assert passed(stream.accept() + stream.feed(b"3\r\nabc\r\n0")) == b"3\r\nabc\r\n"
    with pytest.raises(HttpError, match="chunk"):
        stream.feed(b"\n\nGET / HTTP/1.1\nHost: b.example\n\n")


@given(st.binary(max_size=300), st.integers(0, 300))
def test_random_bytes(data: bytes, cut: int) -> None:
    for start in (b"", b"GET / HTTP/1.1\r\nHost: a\r\n", get("a", "Transfer-Encoding: chunked"), get("a") * 2):
        told: list[object] = []
        for pieces in ((start + data,), (start + data[:cut], data[cut:])):
            try:
                told.append(run(*pieces))
            except HttpError as error:
                told.append(error.status)
        assert told[0] == told[1]


@given(st.data())
def test_bent_requests(draw: st.DataObject) -> None:
    """Whatever happens, what goes on is what came, and a strict reader finds the hosts that were judged."""
    whole = bytearray(STREAM)
    for _ in range(draw.draw(st.integers(1, 3))):
        whole[draw.draw(st.integers(0, len(whole) - 1))] = draw.draw(st.integers(0, 255))
    try:
        requests, sent = run(bytes(whole))
    except HttpError:
        return
    assert bytes(whole).startswith(sent)
    reader = h11.Connection(h11.SERVER)
    reader.receive_data(sent)
    for request in requests:
        event = reader.next_event()
        assert isinstance(event, h11.Request)
        assert (event.method, event.target) == (request.method, request.target)
        while not isinstance(event, h11.EndOfMessage):
            event = reader.next_event()
            if event in (h11.NEED_DATA, h11.PAUSED):
                return
        rest = reader.trailing_data[0]
        reader = h11.Connection(h11.SERVER)
        reader.receive_data(rest)


bodies = st.one_of(st.none(), st.binary(max_size=30), st.lists(st.binary(min_size=1, max_size=9), max_size=3))


@given(st.lists(st.tuples(st.sampled_from("abc"), bodies), max_size=5), st.lists(st.integers(0, 900), max_size=9))
def test_any_sequence_of_requests(sequence: list[tuple[str, bytes | list[bytes] | None]], cuts: list[int]) -> None:
    data = b""
    for host, body in sequence:
        if body is None:
            data += get(host)
        elif isinstance(body, bytes):
            data += get(host, f"Content-Length: {len(body)}", method="POST") + body
        else:
            chunks = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in body)
            data += get(host, "Transfer-Encoding: chunked", method="PUT") + chunks + b"0\r\n\r\n"
    edges = [0, *sorted(cut for cut in cuts if cut <= len(data)), len(data)]
    pieces = [data[start:end] for start, end in pairwise(edges)]
    requests, sent = run(*pieces)
    assert [request.host for request in requests] == [host for host, _ in sequence]
    assert sent == data


def read_response(data: bytes, method: str = "GET") -> tuple[h11.Response, bytes]:
    reader = h11.Connection(h11.CLIENT)
    reader.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
    reader.send(h11.EndOfMessage())
    reader.receive_data(data)
    head = reader.next_event()
    assert isinstance(head, h11.Response)
    body = b""
    while isinstance(event := reader.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert reader.their_state is h11.MUST_CLOSE
    assert reader.trailing_data == (b"", False)
    return head, body


def test_a_denial_is_an_answer_that_says_who_gives_it() -> None:
    data = denied_response(
        "agentwrap denied it: \u00e9", rule="network.default `deny` (ci.toml:3)", change="add a.example"
    )
    head, body = read_response(data)
    assert head.status_code == 403
    assert dict(head.headers)[b"x-agentwrap-denied"] == b"network.default `deny` (ci.toml:3)"
    assert body.decode() == "agentwrap denied it: \u00e9\nadd a.example\n"
    assert read_response(denied_response("x", rule="r", head=True), "HEAD")[1] == b""


def test_a_rule_cannot_break_the_head() -> None:
    head, _ = read_response(denied_response("x", rule="a\r\nSet-Cookie: b\0\u202e\u00e9"))
    assert dict(head.headers)[b"x-agentwrap-denied"] == b"a\\r\\nSet-Cookie: b\\x00\\u202e\\xe9"


def test_other_answers_of_our_own() -> None:
    assert read_response(malformed_response("x"))[0].status_code == 400
    assert read_response(malformed_response("x", status=431))[0].status_code == 431
    head, body = read_response(unreachable_response("no route"))
    assert (head.status_code, body) == (502, b"no route\n")
    assert b"x-agentwrap-denied" not in dict(head.headers)
