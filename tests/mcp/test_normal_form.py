"""The normal form of a tool."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.mcp.normal_form import normal_form, tool_digest

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(one) for one in value] if isinstance(value, list) else value


@given(st.binary(max_size=200))
def test_nothing_foreign_makes_it_raise(data: bytes) -> None:
    assert len(tool_digest(data)) == 64


@given(VALUES, st.text(max_size=10))
def test_order_spaces_and_escapes_do_not_count(schema: object, description: str) -> None:
    tool = {"name": "t", "inputSchema": schema, "description": description, "annotations": {"x": 1}}
    forms = [
        json.dumps(tool).encode(),
        json.dumps(reversed_keys(tool), indent=2, ensure_ascii=False).encode("utf-8", "surrogatepass"),
        json.dumps({**tool, "annotations": None, "icons": []}).encode(),
    ]
    if "\\ud" not in json.dumps([schema, description]):
        assert len({normal_form(form) for form in forms}) == 1


@given(VALUES, VALUES)
def test_another_schema_is_another_digest(one: object, other: object) -> None:
    digests = {tool_digest(json.dumps({"name": "t", "inputSchema": schema}).encode()) for schema in (one, other)}
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert len(digests) == (1 if same else 2)


def test_as_the_page_of_the_format_says() -> None:
    told = b'{"name":"t\\u00e9\\/\\n\\u0001", "inputSchema": {"b":1.0,"a":[1E400, true,null]}, "title":"no"}'
    assert normal_form(told) == '{"inputSchema":{"a":[1E400,true,null],"b":1.0},"name":"té/\\n\\u0001"}'.encode()


@pytest.mark.parametrize(
    "odd",
    [
        *(b'{"name":"\\ud800"}', b'{"name":"\xff"}', b'{"name":NaN}', b"[1]"),
        b'{"name":' + b"[" * 300 + b"]" * 300 + b"}",
    ],
)
def test_what_cannot_be_read_is_taken_as_it_came(odd: bytes) -> None:
    assert normal_form(odd) == odd


def test_a_key_that_comes_twice_is_seen() -> None:
    once, twice = b'{"name":"t","description":"a"}', b'{"name":"t","description":"a","description":"a"}'
    assert tool_digest(once) != tool_digest(twice)
