"""What one message of a request says, in a line: whatever the API, its texts, its tool calls and their results. Pure.

Reads by the names that the APIs' messages have in common, so a message of an API nobody knows here is told by its
texts.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from agentwrap.evidence.tool_arguments import read

LONGEST = 2000
_DEEPEST = 8
_IMAGES = ("image", "input_image", "image_url", "inlineData", "inline_data", "document", "input_file", "input_audio")
_RESULTS = ("tool_result", "function_call_output", "custom_tool_call_output", "local_shell_call_output")
_CALLS = ("tool_use", "server_tool_use", "function_call", "custom_tool_call", "mcp_call", "local_shell_call")
_TEXTS = ("text", "content", "parts", "summary", "output", "refusal", "thinking")


def preview(raw: bytes) -> str:
    """One line of a message, at most LONGEST characters before blanks are joined. Never raises."""
    told: list[str] = []
    length = 0
    for text in _told(decoded(raw), 0):
        told.append(text[: LONGEST - length])
        length += len(text)
        if length >= LONGEST:
            break
    return "  ".join(" ".join(text.split()) for text in told if text.strip())


def holds(raw: bytes, wanted: str) -> bool:
    """Whether a text stands anywhere in a message; `wanted` is in lower case (`casefold`)."""
    return any(wanted in text.casefold() for text in _every_text(decoded(raw), 0))


def decoded(raw: bytes) -> Any:
    """The value of a JSON slice; the slice as text where it is none (redaction may have cut into it)."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        return raw.decode("utf-8", "replace")


def _told(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth >= _DEEPEST:
        return
    elif isinstance(value, list):
        for item in value:
            yield from _told(item, depth + 1)
    elif isinstance(value, dict):
        yield from _of_object(value, depth)


def _of_object(value: dict[str, Any], depth: int) -> Iterator[str]:
    kind = value.get("type")
    called = value.get("functionCall") or value.get("function_call")
    answered = value.get("functionResponse") or value.get("function_response")
    if kind in _CALLS:
        yield _call(value)
    elif kind in _RESULTS:
        yield "result: " + "  ".join(_told(value.get("content", value.get("output")), depth + 1))
    elif isinstance(called, dict):
        yield _call(called)
    elif isinstance(answered, dict):
        yield f"result of {answered.get('name')}: " + "  ".join(_every_text(answered.get("response"), depth + 1))
    elif kind in _IMAGES or any(name in value for name in _IMAGES):
        yield "(image)" if "image" in str(kind) or "inline" in str(value.keys()) else f"({kind})"
    else:
        if kind in ("thinking", "reasoning"):
            yield "(thinking)"
        for name in _TEXTS:
            yield from _told(value.get(name), depth + 1)
    for call in value.get("tool_calls") or () if isinstance(value.get("tool_calls"), list) else ():
        if isinstance(call, dict):
            function = call.get("function", call.get("custom"))
            yield _call(function if isinstance(function, dict) else call)


def _call(value: dict[str, Any]) -> str:
    given = next((value[name] for name in ("input", "arguments", "args", "action") if name in value), "")
    if not isinstance(given, str):
        try:
            given = msgspec.json.encode(given).decode()
        except (TypeError, ValueError, UnicodeError):
            given = ""
    return f"calls {value.get('name', value.get('type', '?'))} {read(given).brief}"


def _every_text(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth < _DEEPEST and isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _every_text(item, depth + 1)
