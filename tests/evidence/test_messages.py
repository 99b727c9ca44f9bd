import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.evidence.messages import LONGEST, holds, preview


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"role": "user", "content": "a\n  b"}, "a b"),
        ({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "source": {}}]}, "a  (image)"),
        ({"content": [{"type": "tool_use", "name": "Bash", "input": {"command": "ls"}}]}, "calls Bash ls"),
        ({"content": [{"type": "tool_result", "content": [{"type": "text", "text": "x"}]}]}, "result: x"),
        ({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}, "(thinking)  hm"),
        ({"tool_calls": [{"function": {"name": "sh", "arguments": '{"command":"ls"}'}}]}, "calls sh ls"),
        ({"role": "tool", "content": "out"}, "out"),
        ({"type": "function_call", "name": "exec_command", "arguments": '{"cmd":"ls"}'}, "calls exec_command ls"),
        ({"type": "custom_tool_call", "name": "apply_patch", "input": "*** Add File: x\n"}, "calls apply_patch A x"),
        ({"type": "function_call_output", "output": "done"}, "result: done"),
        ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]}, "(thinking)  s"),
        ({"parts": [{"text": "a"}, {"functionCall": {"name": "f", "args": {"query": "q"}}}]}, "a  calls f q"),
        ({"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"r": "ok"}}}]}, "result of f: ok"),
        ({"role": "user", "parts": [{"inlineData": {"mimeType": "image/png"}}]}, "(image)"),
    ],
)  # fmt: skip
def test_messages_of_every_api_are_told(message: object, told: str) -> None:
    assert preview(json.dumps(message).encode()) == told


def test_what_is_no_json_is_told_as_it_is() -> None:
    assert preview(b'{"role": "user", "content": \xc2\xabredacted\xc2\xbb') == '{"role": "user", "content": «redacted»'
    assert len(preview(json.dumps("x" * 10_000).encode())) == LONGEST


def test_texts_are_found_at_any_depth_without_regard_to_case() -> None:
    raw = json.dumps({"content": [{"type": "tool_use", "input": {"deep": ["Prod.INI"]}}]}).encode()
    assert holds(raw, "prod.ini")
    assert not holds(raw, "dev.ini")


@given(st.binary(max_size=200))
def test_any_bytes_are_told(raw: bytes) -> None:
    preview(raw)
    holds(raw, "x")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["type", "content", "text", "input", "tool_calls", "function", "name", "parts", "functionCall",
                         "functionResponse", "output", "arguments", "image_url"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(values, st.sampled_from(["tool_use", "tool_result", "function_call", "image", "reasoning", "x"]))
def test_messages_of_any_shape_are_told(value: object, kind: str) -> None:
    message = {**value, "type": kind} if isinstance(value, dict) else value
    preview(json.dumps(message).encode())
    holds(json.dumps(message).encode(), "x")
