"""Whatever the sizes of the chunks: no secret comes through, nothing else is lost, little is held back."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from recording.redact.fakes import fakes

from agentwrap.recording.redact import Redactor
from agentwrap.recording.redact.stream import RedactedStream

FAKES = list(fakes().values())
KNOWN = "hunter22-hunter+/="


def redactor() -> Redactor:
    made = Redactor(bytes(32))
    made.learn(b"MY_PASSWORD", KNOWN.encode())
    return made


def through(data: bytes, sizes: list[int]) -> bytes:
    stream, out, at, turn = RedactedStream(redactor()), b"", 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        out += stream.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    return out + stream.flush()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 6000), st.sampled_from([*FAKES, KNOWN, json.dumps(KNOWN)])), min_size=1, max_size=6
    ),
    st.lists(st.integers(1, 9000), min_size=1, max_size=5),
    st.booleans(),
)
def test_a_secret_split_across_chunks_is_found(pieces: list[tuple[int, str]], sizes: list[int], lines: bool) -> None:
    filler = "some words, of no meaning. \n" if lines else "some,words;of=no(meaning)"
    text = "".join((filler * (gap // len(filler) + 1)) + " " + secret + " " for gap, secret in pieces)
    out = through(text.encode(), sizes).decode()
    for _, secret in pieces:
        assert secret not in out
        assert secret[8:20] not in out
    assert out.count("\xabredacted:") == len(pieces)
    assert out.count(filler) == text.count(filler)


@settings(deadline=None)
@given(st.binary(max_size=30_000), st.lists(st.integers(1, 5000), min_size=1, max_size=4))
def test_what_is_no_secret_comes_through_unchanged(data: bytes, sizes: list[int]) -> None:
    if redactor().clean(data) == data:
        assert through(data, sizes) == data


def test_a_private_key_in_small_chunks_is_one_mark() -> None:
    key = (
        b"-----BEGIN RSA PRIVATE KEY-----\n"
        + b"MIIEvQIBADANBgkqhkiG9w0BAQEF\n" * 300
        + b"-----END RSA PRIVATE KEY-----\n"
    )
    out = through(b"x " * 9000 + key + b"y " * 9000, [100])
    assert b"MIIEvQ" not in out
    assert out.count(b"redacted:private-key") == 1


def test_no_more_than_some_kilobytes_wait() -> None:
    stream, given_out = RedactedStream(redactor()), 0
    for _ in range(1000):
        given_out += len(stream.feed(b"a line of text\n" * 10))
    assert given_out > 150_000 - 10_000
