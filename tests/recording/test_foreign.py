"""Foreign bytes survive the way through JSON, and subjects are text whatever they were."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.recording.foreign import to_bytes, to_json, to_subject


@given(st.binary())
def test_bytes_come_back(value: bytes) -> None:
    assert to_bytes(json.loads(json.dumps(to_json(value)))) == value


@given(st.binary(max_size=50))
def test_a_subject_is_text_that_sqlite_keeps(value: bytes) -> None:
    text = to_subject(value)
    assert "\0" not in text
    assert text.encode().decode() == text


def test_long_subjects_are_clipped() -> None:
    assert len(to_subject(b"x" * 100_000)) < 17_000
    assert to_subject(b"a\xff\0") == "a\\xff\\x00"


@pytest.mark.parametrize("value", [1, [], {"b64": 1}, {"b65": ""}, {"b64": "!"}])
def test_other_shapes_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        to_bytes(value)


def test_a_field_that_was_left_out() -> None:
    assert to_bytes(None) == b""
