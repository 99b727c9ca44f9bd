"""JSON-RPC messages read loosely."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.mcp import rpc

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(st.binary(max_size=400))
def test_nothing_foreign_makes_it_raise(data: bytes) -> None:
    found = rpc.read(data)
    assert found.sort in ("request", "response", "notification", "batch", "invalid")


@given(st.text(alphabet='{}[]:,"\\ \n01eE.+-ntfaul\u2028\ud800methodidrs', max_size=120))
def test_what_is_nearly_json_does_not_either(text: str) -> None:
    rpc.read(text.encode("utf-8", "surrogatepass"))


@given(st.integers() | st.text(max_size=20), st.text(min_size=1, max_size=20), JSON, st.booleans())
def test_a_request_keeps_its_bytes(ident: object, method: str, params: object, spaced: bool) -> None:
    separators = (" , ", " : ") if spaced else (",", ":")
    raw = json.dumps(params, separators=separators).encode()
    text = b'{"id":%b,"params":%b,"method":%b}' % (json.dumps(ident).encode(), raw, json.dumps(method).encode())
    found = rpc.read(b" " + text + b"\r")
    assert (found.sort, found.id, found.params) == ("request", json.dumps(ident).encode(), raw)
    assert (found.method, found.odd) == (method.encode("utf-8", "replace")[:1024], "")


@pytest.mark.parametrize("raw", [b"1", b'"1"', b"1.0", b"1e0", b"null", b'"\\u0061"', b"-7"])
def test_an_id_is_its_text(raw: bytes) -> None:
    assert rpc.read(b'{"id": %b ,"method":"ping"}' % raw).id == raw


def test_numbers_and_strings_are_not_rewritten() -> None:
    arguments = b'{"a": 1E400,  "b":0.10, "c": "\\u0041 \xe2\x80\xa8"}'
    found = rpc.read(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":%b}}' % arguments)
    assert rpc.read_members(found.params)["arguments"] == arguments


@pytest.mark.parametrize(
    ("text", "odd"),
    [
        (b'{"id":1,"id":2,"method":"x"}', "a key twice"),
        (b'{"id":1,"method":"x","params":{"a":{"b":[{"c":1,"c":2}]}}}', "a key twice"),
        (b'{"id":1,"method":"x","params":{"a":"b:c:d"}}', ""),
        (b'{"id":1,"method":"x","params":{"a":NaN}}', "not strict JSON"),
        (b'{"id":1,"method":"x","params":{"a":"\xff"}}', "not strict JSON"),
        (b'{"id":1,"method":"x","params":{"a":"\\ud800"}}', "not strict JSON"),
        (b'\xef\xbb\xbf{"id":1,"method":"x"}', "a byte order mark"),
        (b'{"id":1,"result":{},"error":{"code":1}}', "a result and an error"),
    ],
)
def test_what_is_ambiguous_is_read_and_said(text: bytes, odd: str) -> None:
    found = rpc.read(text)
    assert (found.sort, found.odd) == ("response" if b"result" in text else "request", odd)


def test_of_two_members_the_last_counts() -> None:
    found = rpc.read(b'{"id":1,"method":"a","id": "2" ,"method":"tools/call","params":{"name":"x","name":"y"}}')
    assert (found.id, found.method) == (b'"2"', b"tools/call")
    assert rpc.read_members(found.params)["name"] == b'"y"'


def test_large_texts_are_looked_at_from_outside_only() -> None:
    filler = b'"pad":"%b"' % (b"x" * (300 << 10))
    assert rpc.read(b'{"id":1,"id":2,"method":"x",%b}' % filler).odd == "a key twice"
    assert rpc.read(b'{"id":1,"method":"x","params":{"a":1,"a":2,%b}}' % filler).odd == "a key twice"
    assert rpc.read(b'{"id":1,"method":"x","params":{"a":{"b":1},%b}}' % filler).odd == ""


@pytest.mark.parametrize(
    ("text", "json_too"),
    [
        (b"Server started on stdio", False),
        (b"", False),
        (b"[]", True),
        (b"[1,2]", True),
        (b"42", True),
        (b'{"jsonrpc":"2.0"}', True),
        (b'{"id":1}', True),
        (b'{"method":7,"id":1}', True),
        (b'{"id":1,"method":"x"', False),
        (b'{"id":1,"method":"x"} {"id":2}', False),
        (b'["unclosed', False),
    ],
)
def test_what_is_no_message(text: bytes, json_too: bool) -> None:
    found = rpc.read(text)
    assert (found.sort, found.json) == ("invalid", json_too)


def test_a_batch_has_parts() -> None:
    found = rpc.read(b'[{"id":1,"method":"a"}, {"id":1,"result":{}} ,{"method":"n"},7]')
    assert found.sort == "batch"
    assert [part.sort for part in found.parts] == ["request", "response", "notification", "invalid"]


def test_deep_nesting_is_read_as_far_as_its_outside() -> None:
    deep = b"[" * 5000 + b"]" * 5000
    found = rpc.read(b'{"id":1,"method":"x","params":{"a":%b}}' % deep)
    assert (found.sort, found.method) == ("request", b"x")


def test_numbers_of_ids() -> None:
    assert rpc.id_value(b"1") == rpc.id_value(b"1.0") == 1.0
    assert rpc.id_value(b'"1"') is rpc.id_value(b"null") is rpc.id_value(b"-") is None
    assert rpc.id_value(b"") is None
