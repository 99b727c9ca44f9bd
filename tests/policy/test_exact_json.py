"""JSON with one meaning: what is refused, and that the rest means to us what it means to two other parsers."""

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentwrap.policy.exact_json import Ambiguous, no_twin, parse

REFUSED = [
    (b'{"a":1,"a":1}', "repeated-name"),
    (b'{"a":1, "a" : 1}', "repeated-name"),
    (b'{"a":1,"\\u0061":1}', "repeated-name"),
    (b'[{"x":{"y":[{"z":1,"z":2}]}}]', "repeated-name"),
    (b'{"":1,"":1}', "repeated-name"),
    (b'{"a\\":":1,"a\\":" :2}', "repeated-name"),
    (b"1E400", "number"),
    (b'{"a":-1e999}', "number"),
    (b"[" * 100_000, "deep"),
    (b"[" * 100_000 + b"]" * 100_000, "deep"),
    (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "deep"),
    (b"", "malformed"),
    (b" ", "malformed"),
    (b"NaN", "malformed"),
    (b"[Infinity]", "malformed"),
    (b"[-Infinity]", "malformed"),
    (b"\xef\xbb\xbf{}", "malformed"),
    ("{}".encode("utf-16"), "malformed"),
    ("{}".encode("utf-32-le"), "malformed"),
    (b'"\xff"', "malformed"),
    (b'"\xed\xa0\x80"', "malformed"),
    (b'"\xc0\xaf"', "malformed"),
    (b'"\\ud800"', "malformed"),
    (b'"\\udc00\\ud800"', "malformed"),
    (b'{"\\ud800":1}', "malformed"),
    (b"{} {}", "malformed"),
    (b"{}\0", "malformed"),
    (b"{'a':1}", "malformed"),
    (b"{a:1}", "malformed"),
    (b"[1,]", "malformed"),
    (b"01", "malformed"),
    (b"+1", "malformed"),
    (b"1.", "malformed"),
    (b".5", "malformed"),
    (b"0x1", "malformed"),
    (b'"\t"', "malformed"),
    (b'"\\x41"', "malformed"),
    (b"/**/1", "malformed"),
    (b"tru", "malformed"),
]


def test_a_name_that_comes_twice_is_found_among_very_many() -> None:
    names = ",".join(f'"n{number}":1' for number in range(400_000))
    with pytest.raises(Ambiguous, match="`last`"):
        parse(f'{{{names},"last":1,"last":2}}'.encode())


@pytest.mark.parametrize(("text", "kind"), REFUSED)
def test_what_is_refused(text: bytes, kind: str) -> None:
    with pytest.raises(Ambiguous) as raised:
        parse(text)
    assert raised.value.kind == kind
    assert str(raised.value)


@pytest.mark.parametrize("text", [b'{"a":":","b":"\\":"}', b'{"a" : 1}', b'[":",":"]', b'{"x":{"a":1},"y":{"a":1}}'])
def test_what_only_looks_like_it_is_not_refused(text: bytes) -> None:
    assert parse(text) == json.loads(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, st.booleans(), st.sampled_from([None, 1]))
def test_what_others_write_is_read_as_they_meant_it(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return
    if "\\ud" in text:  # halves of pairs, or whole ones: the parser knows
        return
    assert parse(data) == msgspec.json.decode(data) == value


def numbers(value: Any) -> list[float]:
    if isinstance(value, list | dict):
        inner = value.values() if isinstance(value, dict) else value
        return [one for member in inner for one in numbers(member)]
    return [value] if isinstance(value, int | float) else []


PIECES = st.lists(
    st.sampled_from([
        b'"a"', b'"a":', b'"b" :', b'"\\u0061":', b"{", b"}", b"[", b"]", b",", b":", b"1", b"1e400", b" ", b'"', b"\\",
        b"\xff", b"\\ud800", b"null", b"NaN", b"\n",
    ]) | st.binary(max_size=2),
    max_size=14,
).map(b"".join)  # fmt: skip


def duplicates(text: bytes) -> bool:
    """Whether some object of a text has a name twice, by a parser of its own."""
    found = []

    def see(pairs: list[tuple[str, Any]]) -> None:
        found.append(len({name for name, _ in pairs}) != len(pairs))

    json.loads(text, object_pairs_hook=see)
    return any(found)


@given(PIECES)
@example(b'{"a":1,"a" :":"}')
@example(b'{"a" :1,"a" :":\\":"}')
def test_any_bytes_are_read_as_by_two_others_or_refused(text: bytes) -> None:
    try:
        value = parse(text)
    except Ambiguous:
        return
    assert value == json.loads(text) == msgspec.json.decode(text)
    assert not duplicates(text)
    assert not any(isinstance(one, float) and math.isinf(one) for one in numbers(value))


def test_numbers_beyond_a_double_may_be_let_through_and_nothing_else() -> None:
    assert parse(b'{"a":1E400,"b":-1E400}', huge=True) == {"a": math.inf, "b": -math.inf}
    for text, kind in REFUSED:
        if kind != "number":
            with pytest.raises(Ambiguous):
                parse(text, huge=True)
            if text[:1] in b"{[" and text[-1:] in b"}]":
                with pytest.raises(Ambiguous):
                    parse(b"[1E400," + text + b"]", huge=True)
    with pytest.raises(Ambiguous):
        parse(b'[1E400,"\\ud800"]', huge=True)


def test_names_that_some_take_for_others() -> None:
    known = {"method": "method", "id": "id", "params": "params"}
    no_twin({"method": 1, "methods": 2}, known)
    for twin in ("Method", "METHOD", "param\u017f", "I\u0064"):
        with pytest.raises(Ambiguous):
            no_twin({twin: 1}, known)
