import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.approvals.messages import (
    MAX_REQUEST_BYTES,
    AskPending,
    Failure,
    GiveAnswer,
    LayerText,
    Pending,
    RunFacts,
    Taken,
    decode_reply,
    decode_request,
    encode,
    public_id,
    split_id,
)
from agentwrap.approvals.registry import ANSWERS, Given, Waiting

WAITING = Waiting("a1", "connect example.org:443", "curl (7)", 5, 9, bound=(("server", "x"),))


@given(st.sampled_from(ANSWERS), st.text(max_size=60), st.text(max_size=200))
def test_what_is_said_is_heard(answer: str, approver: str, reason: str) -> None:
    said = GiveAnswer("a1", answer, approver, reason)  # type: ignore[arg-type]
    line = encode(said)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_request(line) == said


@pytest.mark.parametrize(
    "reply",
    [
        Pending(RunFacts("3f2a", layers=(LayerText("user", "/p", True, "x"),)), 7, (WAITING,)),
        Taken(Given(WAITING, "once", 8, "ann", 1000, 4)),
        Failure("answered", "too late", Given(WAITING, "expired", 9)),
    ],
)
def test_replies_come_back_as_they_were(reply: Pending | Taken | Failure) -> None:
    assert decode_reply(encode(reply)) == reply
    assert decode_request(encode(AskPending())) == AskPending()


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{}", b"[]", b"null", b"\xff\xfe", b'{"type":"pending","more":1}', b'{"type":"other"}',
        b'{"type":"answer","ask":"a1","answer":"yes"}', b'{"type":"answer","ask":"","answer":"once"}',
        b'{"type":"answer","ask":"a\\n1","answer":"once"}', b'{"type":"answer","ask":7,"answer":"once"}',
        b'{"type":"answer","ask":"a1","answer":"once","approver":' + json.dumps("x" * 201).encode() + b"}",
        b'{"type":"answer","ask":"a1","answer":"once","reason":"\\ud800"}', b"[" * 5000,
        b'{"type":"pending"}' + b" " * MAX_REQUEST_BYTES,
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused_with_a_reason(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_request(line)


@given(st.binary(max_size=200) | st.from_regex(rb'\{"type":"(pending|answer)"[ -~]{0,80}\}', fullmatch=True))
def test_any_bytes_are_a_request_or_a_reason(line: bytes) -> None:
    for decode in (decode_request, decode_reply):
        with suppress(ValueError):
            assert isinstance(decode(line), AskPending | GiveAnswer | Pending | Taken | Failure)


def test_an_id_names_the_run_too() -> None:
    shown = public_id("a1", "3f2a99aa00112233")
    assert shown == "a1-3f2a"
    assert split_id(shown) == ("a1", "3f2a")
    assert split_id("a1") == ("a1", "")
