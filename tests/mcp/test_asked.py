"""What requests ask for and responses say."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.mcp import rpc
from agentwrap.mcp.asked import answered, asked

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["name", "uri", "_meta", "arguments", "content", "text", "type", "isError", "resultType"])
        | st.text(max_size=3),
        inner,
        max_size=4,
    ),
    max_leaves=10,
)


@given(JSON, st.sampled_from(["tools/call", "prompts/get", "initialize", "x"]))
def test_no_request_makes_it_raise(params: object, method: str) -> None:
    asked(rpc.read(json.dumps({"id": 1, "method": method, "params": params}).encode()))


@given(JSON, st.sampled_from(["result", "error"]))
def test_no_response_makes_it_raise(result: object, member: str) -> None:
    found = answered(rpc.read(json.dumps({"id": 1, member: result}).encode()))
    assert len(found.text) <= 4096
    assert (found.ending == "error") is (member == "error")


def test_arguments_are_a_slice() -> None:
    raw = b'{ "a" : 1E400 }'
    found = asked(rpc.read(b'{"id":1,"method":"tools/call","params":{"name":"t","arguments":%b}}' % raw))
    assert (found.tool, found.arguments) == (b"t", raw)
    other = asked(rpc.read(b'{"id":1,"method":"sampling/createMessage","params":%b}' % raw))
    assert other.arguments == raw


def test_ids_that_a_client_may_mean() -> None:
    meta = {"progressToken": "progress-token", "callId": "c1", "short": "abc", "x": "long enough", "n": 7, "o": {}}
    request = {"id": 1, "method": "tools/call", "params": {"name": "t", "_meta": meta}}
    assert asked(rpc.read(json.dumps(request).encode())).marks == (b"c1", b"long enough")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "image", "data": "x"}, {"text": "b"}]}, b"a\nb"),
        ({"content": {"type": "text", "text": "of a model"}}, b"of a model"),
        ({"contents": [{"uri": "file:///a", "text": "whole"}]}, b"whole"),
        ({"messages": [{"role": "user", "content": {"type": "text", "text": "ask"}}]}, b"ask"),
        ({"content": [{"type": "resource", "resource": {"text": "inner"}}]}, b"inner"),
        ({"structuredContent": {"n": 1}}, b'{"n": 1}'),
        ({"tools": []}, b""),
    ],
)
def test_what_of_a_result_is_text(result: object, text: bytes) -> None:
    assert answered(rpc.read(json.dumps({"id": 1, "result": result}).encode())).text == text


@pytest.mark.parametrize("letter", ["x", "\\", '"', "\n", "é", "\U0001f600"])
def test_long_texts_are_clipped_wherever_they_are_cut(letter: str) -> None:
    for text in (letter * 7000, letter * 300_000):
        first = {"type": "text", "text": text}
        for content in ([first], [first, {"type": "text", "text": "b"}]):
            found = answered(rpc.read(json.dumps({"id": 1, "result": {"content": content}}).encode()))
            assert found.text == text.encode()[:4096]


def test_many_texts_are_looked_at_as_far_as_they_are_kept() -> None:
    content = [{"type": "text", "text": f"{number:05}"} for number in range(50_000)]
    found = answered(rpc.read(json.dumps({"id": 1, "result": {"content": content, "isError": True}}).encode()))
    assert (found.ending, found.text[:12], len(found.text)) == ("tool-error", b"00000\n00001\n", 4096)
