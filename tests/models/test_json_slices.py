"""Slices are the values that a JSON parser sees, and nothing raises."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.models import json_slices
from agentwrap.models.json_slices import elements, elements_of_a_cut_array, inside, members, read

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)
STYLES = st.sampled_from(
    [
        {"separators": (",", ":")},
        {"indent": 1},
        {"separators": (" ,\t", "\r\n: ")},
        {"ensure_ascii": False},
    ]
)


def spelled(value: object, style: dict[str, object]) -> bytes:
    return json.dumps(value, **style).encode("utf-8", "surrogatepass")  # type: ignore[arg-type]


@given(st.dictionaries(st.text(), JSON, max_size=5), STYLES, st.binary(max_size=5))
def test_members_are_the_values_of_an_object(held: dict[str, object], style: dict[str, object], before: bytes) -> None:
    text = spelled(held, style)
    found = members(before + text + b"!", len(before), len(before) + len(text))
    assert found is not None
    assert list(found) == list(held)
    assert {name: json.loads((before + text)[start:end]) for name, (start, end) in found.items()} == held


@given(st.lists(JSON, max_size=5), STYLES)
def test_elements_are_the_values_of_an_array(held: list[object], style: dict[str, object]) -> None:
    text = spelled(held, style)
    found = elements(text)
    assert found is not None
    assert [json.loads(text[start:end]) for start, end in found] == held


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": "\\ud83d", "b": 1}',
        b'{"a": "\\\\ud83d", "b": 1}',
        b'{"a": "\xff\xfe", "b": 1}',
        b'{"\\u0061": "\\ud83d\\ude00", "b": 1}',
        b'{"a": "\\ude00x\\"", "b": 1}',
    ],
)
def test_texts_cut_within_a_character_are_read_all_the_same(text: bytes) -> None:
    found = members(text)
    assert found is not None
    assert text[slice(*found["b"])] == b"1"
    assert text[slice(*found["a"])].startswith(b'"')
    assert isinstance(read(text), dict)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[1]",
        b'{"a":1,"a":2}',
        b'{"a":1,"b":2,"a":1}',
        b'{"a":1,"b":2,"a":"1,\\"b\\":2,\\"a\\":"}',
        b'{"a":1}x',
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":NaN}',
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_is_no_plain_object_has_no_members(text: bytes) -> None:
    assert members(text) is None


def test_as_many_values_as_memory_could_not_hold_are_not_read() -> None:
    text = b"[" + b"{}," * 2_000_000 + b"{}]"
    assert elements(text) is None
    with pytest.raises(json_slices.FAULTS):
        read(text)


def test_long_texts_are_read() -> None:
    text = b'{"a":"' + b"one, two, " * 500_000 + b'","b":' + b"1" * 4000 + b"}"
    found = members(text)
    assert found is not None
    assert text[slice(*found["b"])] == b"1" * 4000


@given(JSON | st.text(), st.text(min_size=1), STYLES)
def test_the_inside_of_a_string_is_found_wherever_it_lies(other: object, said: str, style: dict[str, object]) -> None:
    text = spelled({"other": other, "a,": ["text", '"text":"'], "deep": [{"text": said}], "after": said}, style)
    found = inside(text, b"text", said)
    assert found is not None
    start, end = found
    assert text[start - 1 : start] == text[end : end + 1] == b'"'
    assert json.loads(b'"' + text[start:end] + b'"') == said


def test_a_string_that_is_not_there_has_no_place() -> None:
    assert inside(b'{"text":"a","x":"b"}', b"text", "b") is None
    assert inside(b'{"a\\"text":"b"}', b"text", "b") is None
    assert inside(b'{"text":"\\ud83d"}', b"text", "\ud83d") == (9, 15)


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=3), max_size=5), st.data())
def test_elements_of_an_array_that_was_cut(held: list[dict[str, object]], data: st.DataObject) -> None:
    text = json.dumps(held, separators=(",\n", ":")).encode()
    ends = [end for _, end in elements(text) or ()]
    cut = data.draw(st.integers(0, len(text)))
    found = [json.loads(text[start:end]) for start, end in elements_of_a_cut_array(text[:cut])]
    assert found[: len(held)] == held[: sum(end <= cut for end in ends)]


@given(st.binary())
def test_nothing_raises(text: bytes) -> None:
    members(text)
    elements(text)
    list(elements_of_a_cut_array(text))
    inside(text, b"text", "a")
    try:
        read(text)
    except json_slices.FAULTS:
        pass
