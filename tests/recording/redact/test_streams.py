"""Streams that nobody explains: their texts are joined by the signs of their lines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recording.redact.fakes import fakes
from recording.redact.test_scattered import KEY, joined, stream

from agentwrap.recording.redact import Redactor
from agentwrap.recording.redact.streams import texts_of

FOUND = fakes()["github-token ghp_"]


def parts(data: bytes) -> list[list[bytes]]:
    return [[data[a:b] for a, b in zip(text[::2], text[1::2], strict=True)] for text in texts_of(data)]


def test_strings_of_one_name_are_one_text() -> None:
    data, places = stream("a", "b\\", 'c"')
    assert places in texts_of(data)
    for at in range(1, len(FOUND)):
        data, _ = stream("key " + FOUND[:at], FOUND[at:] + ".")
        assert joined(Redactor(KEY).clean_scattered(data, texts_of(data))).startswith("key «redacted:github-token:")


def test_numbers_tell_parallel_texts_apart() -> None:
    lines = [{"index": n % 2, "delta": {"text": word}} for n, word in enumerate(["a1", "b1", "a2", "b2"])]
    data = b"".join(b"data: " + json.dumps(line).encode() + b"\n\n" for line in lines)
    assert [b"a1", b"a2"] in parts(data)
    assert [b"b1", b"b2"] in parts(data)


def test_lines_of_json_are_a_stream_too() -> None:
    data = b"".join(json.dumps({"type": "delta", "delta": word}).encode() + b"\n" for word in ("x", "y"))
    assert [b"x", b"y"] in parts(data)


@pytest.mark.parametrize(
    "data", [b"", b'{"a": "b"}', b"plain text\nof lines\n", b'event: x\ndata: {"a": "b"}\n\n', b"data: one\ndata: 2\n"]
)
def test_other_bytes_are_none(data: bytes) -> None:
    assert texts_of(data) == ()


def test_strings_without_an_end_are_left_at_once() -> None:
    line = b'data: {"' + b'\\"' * 2000 + b"\n"
    assert texts_of(line * 200) == ()


def test_long_lines_are_no_pieces() -> None:
    lines = b"".join(json.dumps({"a": "x" * size}).encode() + b"\n" for size in (9, 9000, 10))
    assert parts(lines) == [[b"x" * 9, b"x" * 10]]


@given(st.lists(st.sampled_from([b'data: {"a":"', b'"', b"\\", b"\n", b'{"index": 3, ', b"[", b'x"}', b":", b"data:"])))
def test_any_bytes_are_taken(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    for text in texts_of(data):
        assert list(text) == sorted(text)
        assert text[-1] <= len(data)
    assert isinstance(Redactor(KEY).clean_scattered(data, texts_of(data)), bytes)
