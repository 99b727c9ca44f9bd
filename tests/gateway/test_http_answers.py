import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.gateway.http_answers import HEAD_MAX, Answers

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"


def looked_at(data: bytes, *asked: tuple[bytes, bool]) -> Answers:
    """After `data` in two pieces, at every place; all must say the same."""
    told = []
    for cut in range(len(data) + 1):
        answers = Answers()
        for method, switch in asked:
            answers.expect(method, switch=switch)
        answers.feed(data[:cut])
        answers.feed(data[cut:])
        told.append((answers.all_given, answers.switched, answers.lost))
    assert len(set(told)) == 1
    return answers


GET, HEAD, UPGRADE, CONNECT = (b"GET", False), (b"HEAD", False), (b"GET", True), (b"CONNECT", True)


@pytest.mark.parametrize(
    ("data", "asked"),
    [
        (b"", ()),
        (OK, (GET,)),
        (CHUNKED, (GET,)),
        (OK + CHUNKED + OK, (GET, GET, GET)),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, (GET,)),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, (GET,)),
        (b"HTTP/1.1 204 No Content\r\n\r\n", (GET,)),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n" + OK, (GET, GET)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + OK, (HEAD, GET)),
        (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", (GET,)),
        (b"HTTP/1.0 200 OK\nContent-Length: 1\n\nx", (GET,)),
        (b"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n", (UPGRADE,)),
        (b"HTTP/1.1 407 Who\r\nContent-Length: 3\r\n\r\nwho", (CONNECT,)),
    ],
)
def test_all_is_given(data: bytes, asked: tuple[tuple[bytes, bool], ...]) -> None:
    answers = looked_at(data, *asked)
    assert answers.all_given
    assert not answers.switched


@pytest.mark.parametrize(
    ("data", "asked"),
    [
        (b"", (GET,)),
        (OK, (GET, GET)),
        (OK[:-1], (GET,)),
        (CHUNKED[:-1], (GET,)),
        (OK[:10], (GET,)),
        (b"HTTP/1.1 100 Continue\r\n\r\n", (GET,)),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", (GET,)),
        (OK + b"HTTP", (GET,)),
    ],
)
def test_something_is_missing(data: bytes, asked: tuple[tuple[bytes, bool], ...]) -> None:
    answers = looked_at(data, *asked)
    assert not answers.all_given
    assert not answers.lost


@pytest.mark.parametrize(
    ("data", "asked", "switched"),
    [
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\x81\5hello", (UPGRADE,), True),
        (OK + b"HTTP/1.1 101 Switching\r\n\r\n", (GET, UPGRADE), True),
        (b"HTTP/1.1 200 Connected\r\n\r\n\x16\3\3", (CONNECT,), True),
        (OK, (UPGRADE,), False),
        (b"HTTP/1.1 403 No\r\n\r\n", (CONNECT,), False),
        (b"HTTP/1.1 100 Continue\r\n\r\n", (UPGRADE,), None),
        (OK, (GET, UPGRADE), None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHTTP/1.1 ", (GET, UPGRADE), None),
    ],
)
def test_whether_the_protocol_changed(
    data: bytes, asked: tuple[tuple[bytes, bool], ...], switched: bool | None
) -> None:
    assert looked_at(data, *asked).switched is switched


@pytest.mark.parametrize(
    ("data", "asked"),
    [
        (b"220 mail.example ESMTP\r\n\r\n", (GET,)),
        (OK, ()),
        (OK + OK, (GET,)),
        (b"HTTP/1.1 101 Switching\r\n\r\n", (GET,)),
        (b"HTTP/2 200 OK\r\n\r\n", (GET,)),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", (GET,)),
        (b"HTTP/1.1 099 OK\r\n\r\n", (GET,)),
    ],
)
def test_what_cannot_be_followed(data: bytes, asked: tuple[tuple[bytes, bool], ...]) -> None:
    answers = looked_at(data, *asked)
    assert answers.lost
    assert not answers.all_given
    answers.feed(OK)
    assert not answers.all_given


def test_an_endless_head() -> None:
    answers = Answers()
    answers.expect(b"GET", switch=False)
    answers.feed(b"HTTP/1.1 200 OK\r\n")
    for _ in range(HEAD_MAX // 1000 + 1):
        assert not answers.lost
        answers.feed(b"a: " + b"b" * 995 + b"\r\n")
    assert answers.lost


def test_a_second_upgrade_is_asked_anew() -> None:
    answers = Answers()
    answers.expect(b"GET", switch=True)
    answers.feed(OK)
    answers.expect(b"GET", switch=True)
    assert answers.switched is None


@given(st.binary(max_size=300), st.integers(0, 300))
def test_random_bytes(data: bytes, cut: int) -> None:
    for start in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        told = []
        for pieces in ((start + data,), (start + data[:cut], data[cut:])):
            answers = Answers()
            answers.expect(b"GET", switch=False)
            answers.expect(b"GET", switch=True)
            for piece in pieces:
                answers.feed(piece)
            told.append((answers.all_given, answers.switched, answers.lost))
        assert told[0] == told[1]
