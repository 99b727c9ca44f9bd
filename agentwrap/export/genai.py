"""What a model was told and what it answered, as the messages of OpenTelemetry's GenAI conventions. Pure.

A message is `{"role", "parts"}`; the parts are `text`, `reasoning`, `tool_call`, `tool_call_response`, `blob`, `uri`
and so on (open-telemetry/semantic-conventions-genai, gen-ai-spans). Read by the names that the APIs have in common,
so a part that nobody knows here is kept as JSON. Refuses to know spans, and never raises on foreign bytes.
"""

from collections.abc import Iterator
from math import isfinite
from typing import Any

import msgspec

from agentwrap.models.loose import mapping, sequence

LONGEST_TEXT = 256 << 10
LARGEST = 1 << 20
_DEEPEST = 8
_TEXTS = ("text", "input_text", "output_text", "refusal", "summary_text")
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning", "reasoning_text")
_CALLS = ("tool_use", "function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call")
_SETTINGS = {
    "max_tokens": ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens"),
    "temperature": ("temperature",),
    "top_p": ("top_p", "topP"),
    "top_k": ("top_k", "topK"),
    "frequency_penalty": ("frequency_penalty", "frequencyPenalty"),
    "presence_penalty": ("presence_penalty", "presencePenalty"),
    "seed": ("seed",),
    "choice.count": ("n", "candidateCount"),
    "stop_sequences": ("stop_sequences", "stop", "stopSequences"),
}

Part = dict[str, Any]
Message = dict[str, Any]


class Told(msgspec.Struct):
    """A request taken apart. `settings`: by their names behind `gen_ai.request.`; `problem`: why there is nothing."""

    system: list[Part] = msgspec.field(default_factory=list)
    messages: list[Message] = msgspec.field(default_factory=list)
    tools: list[Any] = msgspec.field(default_factory=list)
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    problem: str = ""


def request(body: bytes) -> Told:
    """What a request says, whichever API it is of."""
    held = _decoded(body)
    if not isinstance(held, dict):
        return Told(problem="the request is no JSON object")
    if "contents" not in held and isinstance(held.get("request"), dict):
        held = held["request"]  # Gemini's Code Assist puts it in one more object
    system = next((held[name] for name in ("system", "instructions", "systemInstruction") if held.get(name)), None)
    said = next((held[name] for name in ("messages", "input", "contents") if name in held), None)
    if isinstance(said, str):
        said = [{"role": "user", "content": said}]
    return Told(
        system=list(parts(system, 0)),
        messages=[message(one) for one in sequence(said) if isinstance(one, dict)],
        tools=[tool for one in sequence(held.get("tools")) for tool in _tools(one)],
        settings=_settings({**held, **mapping(held.get("generationConfig"))}),
    )


def answer(body: bytes) -> list[Message]:
    """The answer, out of the body `message` of a `model.response`."""
    held = mapping(_decoded(body))
    said: list[Part] = []
    for block in map(mapping, sequence(held.get("blocks"))):
        kind, told = block.get("kind"), block.get("text")
        if kind in ("tool", "provider-tool"):
            given = arguments(block.get("arguments"))
            called: Part = {"type": "tool_call" if kind == "tool" else "server_tool_call"}
            said.append({**called, "id": block.get("id"), "name": block.get("name"), "arguments": given})
        elif kind == "thinking":
            said.append({"type": "reasoning", "content": told or ""})
        elif told:
            said.append({"type": "text", "content": told})
    made: Message = {"role": held.get("role") or "assistant", "parts": said}
    if held.get("stop"):
        made["finish_reason"] = held["stop"]
    return [made] if said or held else []


def message(held: dict[str, Any]) -> Message:
    """One message or item of a request."""
    role = held.get("role")
    kind = held.get("type")
    if isinstance(role, str):
        said = list(parts(held.get("content", held.get("parts")), 0))
        if role == "tool":
            said = [{"type": "tool_call_response", "id": held.get("tool_call_id"), "response": _joined(said)}]
        thought = held.get("reasoning_content") or held.get("reasoning")
        if isinstance(thought, str):
            said.insert(0, {"type": "reasoning", "content": thought})
        for call in map(mapping, sequence(held.get("tool_calls"))):
            said.append(_call({**call, **mapping(call.get("function") or call.get("custom"))}))
        if said and role == "user" and all(part["type"] == "tool_call_response" for part in said):
            role = "tool"  # as the other APIs and the conventions have it
        return {"role": {"model": "assistant"}.get(role, role), "parts": said}
    if isinstance(kind, str) and kind.endswith("_output"):
        return {"role": "tool", "parts": list(parts(held, 0))}
    return {"role": "assistant", "parts": list(parts(held, 0))}


def parts(held: Any, depth: int) -> Iterator[Part]:
    """The parts of a content, whatever its form."""
    if isinstance(held, str):
        yield {"type": "text", "content": held}
    elif isinstance(held, list) and depth < _DEEPEST:
        for one in held:
            yield from parts(one, depth + 1)
    elif isinstance(held, dict):
        yield from _part(held, depth)


def _part(held: dict[str, Any], depth: int) -> Iterator[Part]:
    kind = str(held.get("type", ""))
    called, replied = held.get("functionCall"), held.get("functionResponse")
    if kind in _THOUGHTS or held.get("thought") is True:
        yield {"type": "reasoning", "content": _thought(held)}
    elif kind in _TEXTS or (not kind and isinstance(held.get("text"), str)):
        yield {"type": "text", "content": str(held.get("text") or held.get("refusal") or "")}
    elif kind in _CALLS or isinstance(called, dict):
        yield _call(called if isinstance(called, dict) else held)
    elif isinstance(replied, dict):
        yield {"type": "tool_call_response", "id": replied.get("id") or replied.get("name"),
               "response": replied.get("response")}  # fmt: skip
    elif kind == "tool_result" or kind.endswith("_call_output"):
        told = held.get("content", held.get("output"))
        ident = held.get("tool_use_id") or held.get("call_id") or held.get("id")
        response = told if isinstance(told, str) else _joined(list(parts(told, depth + 1)))
        yield {"type": "tool_call_response", "id": ident, "response": response}
    elif kind == "server_tool_use":
        yield {**_call(held), "type": "server_tool_call"}
    elif "parts" in held and not kind:
        yield from parts(held["parts"], depth + 1)
    else:
        yield _media(held) or {"type": kind or "unknown", "content": held}


def _call(held: dict[str, Any]) -> Part:
    names = ("arguments", "input", "args", "action", "operation")
    given = next((held[name] for name in names if name in held), None)
    name = held.get("name") or str(held.get("type", "")).removesuffix("_call")
    ident = held.get("call_id") or held.get("id")
    return {"type": "tool_call", "id": ident, "name": name, "arguments": arguments(given)}


def arguments(given: Any) -> Any:
    """Arguments as an object, where they are JSON; as they are otherwise."""
    if isinstance(given, str) and given[:1] in "{[":
        try:
            return msgspec.json.decode(given.encode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError):
            return given
    return given


def _thought(held: dict[str, Any]) -> str:
    told = held.get("thinking") or held.get("text")
    if isinstance(told, str):
        return told
    texts = (mapping(one).get("text") for name in ("summary", "content") for one in sequence(held.get(name)))
    return "\n\n".join(text for text in texts if isinstance(text, str))


def _joined(said: list[Part]) -> Any:
    """The one text that the parts are, or the parts."""
    if all(part["type"] == "text" for part in said):
        return "\n".join(part["content"] for part in said)
    return said


def _media(held: dict[str, Any]) -> Part | None:
    """An image, a document or a file: as `blob` (base64) or as `uri`."""
    source = mapping(held.get("source") or held.get("inlineData") or held.get("inline_data") or held.get("fileData"))
    link = held.get("image_url")
    url = source.get("url") or source.get("fileUri") or (link if isinstance(link, str) else mapping(link).get("url"))
    kind = source.get("media_type") or source.get("mimeType") or ""
    data = source.get("data") or mapping(held.get("input_audio")).get("data")
    if isinstance(url, str) and url.startswith("data:"):
        head, _, data = url.partition(",")
        kind, url = head.removeprefix("data:").partition(";")[0], None
    if isinstance(data, str):
        modality = str(kind).partition("/")[0] or "file"
        if len(data) > LONGEST_TEXT:
            return {"type": "text", "content": f"({kind or 'data'}, {len(data):,} characters of base64, left out)"}
        return {"type": "blob", "modality": modality, "mime_type": kind, "content": data}
    if isinstance(url, str):
        return {"type": "uri", "modality": "image", "mime_type": kind, "uri": url}
    return None


def _tools(held: Any) -> Iterator[Any]:
    """Definitions of tools, one by one, with their parameters under the convention's name."""
    tool = mapping(held)
    declared = sequence(tool.get("functionDeclarations"))
    if declared:
        yield from ({"type": "function", **one} for one in declared if isinstance(one, dict))
        return
    inner = mapping(tool.get("function")) or tool
    made = {"type": tool.get("type", "function"), "name": inner.get("name"), "description": inner.get("description")}
    given = next((inner[name] for name in ("parameters", "input_schema", "inputSchema") if name in inner), None)
    yield {name: value for name, value in {**made, "parameters": given}.items() if value is not None}


def _settings(held: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, keys in _SETTINGS.items():
        value = next((held[key] for key in keys if held.get(key) is not None), None)
        if name == "stop_sequences":
            value = [one for one in ([value] if isinstance(value, str) else sequence(value)) if isinstance(one, str)]
            if value:
                found[name] = value
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = value
    return found


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None


def encoded(value: list[Any]) -> str:
    """JSON text of at most LARGEST bytes: long texts are clipped, then what is in the middle is left out."""
    text = b""
    for longest in (LONGEST_TEXT, 16 << 10, 2000):
        text = msgspec.json.encode(clipped(value, longest))
        if len(text) <= LARGEST:
            return text.decode()
    ends = value if len(value) <= 220 else [*value[:20], *value[-200:]]
    kept = [msgspec.json.encode(clipped(one, 1000)) for one in ends]
    return (b"[" + b",".join(one for one in kept if len(one) <= LARGEST // 220 - 1) + b"]").decode()


def clipped(value: Any, longest: int, depth: int = 0) -> Any:
    """A JSON value with its long texts cut, and nothing that is nested too deep to be written."""
    if isinstance(value, str):
        return value if len(value) <= longest else f"{value[:longest]}… ({len(value):,} characters in all)"
    if depth > 100:
        return "…"
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: clipped(one, longest, depth + 1) for name, one in value.items()}
    if isinstance(value, list):
        return [clipped(one, longest, depth + 1) for one in value]
    return value
