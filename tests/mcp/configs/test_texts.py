"""JSON with comments: equal to JSON where there are none, linear in time, never raising something else."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.mcp.configs.texts import UnreadableError, members, plain_json, to_bytes, toml, value

_LEAVES = st.none() | st.integers() | st.text()


@given(st.recursive(_LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_plain_json_means_the_same_without_its_comments(document: object) -> None:
    text = json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
    assert json.loads(plain_json(text).decode("utf-8", "surrogatepass")) == document


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (b'{"a": 1, // x\n "b": "//", /* , */ "c": [1, 2, ], }', {"a": 1, "b": "//", "c": [1, 2]}),
        (b'{"a": "x\\"// y, ]", /**/}', {"a": 'x"// y, ]'}),
        (b'\xef\xbb\xbf["/* no */" /* yes', None),
        (b'["a" // ]\n ]', ["a"]),
    ],
)
def test_comments_and_last_commas_are_no_part_of_it(text: bytes, meant: object) -> None:
    if meant is None:
        with pytest.raises(UnreadableError):
            value(text)
    else:
        assert value(text) == meant


@pytest.mark.parametrize("text", [b'"', b'"\\"', b"/*", b'/"', b",", b"\\", b", "])
def test_texts_without_an_end_take_no_endless_time(text: bytes) -> None:
    assert len(plain_json(b"{" + text * 300_000)) <= 300_000 * len(text) + 1


@given(st.binary())
def test_only_one_error_comes_out(data: bytes) -> None:
    for read in (members, value, toml):
        with contextlib.suppress(UnreadableError):
            read(data)


def test_the_last_of_equal_names_counts_and_bytes_stay() -> None:
    assert members(b'{"a": 1, "a": 2.50}') == {"a": b"2.50"}
    assert members(b" null ") == members(b"") == {}


def test_every_text_has_bytes() -> None:
    assert to_bytes("\ud800é") == b"\xed\xa0\x80\xc3\xa9"
