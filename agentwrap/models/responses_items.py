"""The items and events of OpenAI's Responses: what each of them says. Pure.

Sources: the API's reference and the types of OpenAI's own clients (openai 3.57).
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from agentwrap.models.gathering import Field, Kind, Part, spelled
from agentwrap.models.loose import mapping, sequence, word
from agentwrap.models.requests import outcome
from agentwrap.models.shape import Outcome


class Delta(msgspec.Struct, frozen=True):
    """Where the deltas of an event type belong: which text of what part; `index` tells the parts of one item apart.

    Without a kind they are no part of the answer.
    """

    kind: Kind | None
    field: Field = "text"
    index: str = ""


DELTAS: Final = {
    "response.output_text.delta": Delta("text", index="content_index"),
    "response.refusal.delta": Delta("refusal", index="content_index"),
    "response.reasoning_text.delta": Delta("thinking", index="content_index"),
    "response.reasoning_summary_text.delta": Delta("thinking", index="summary_index"),
    "response.function_call_arguments.delta": Delta("tool", "arguments"),
    "response.custom_tool_call_input.delta": Delta("tool", "arguments"),
    "response.shell_call_command.delta": Delta("tool", "arguments"),
    "response.mcp_call_arguments.delta": Delta("provider-tool", "arguments"),
    "response.code_interpreter_call_code.delta": Delta("provider-tool", "arguments"),
    "response.audio.transcript.delta": Delta("other"),
    "response.shell_call_output_content.delta": Delta(None),
}

_STAGES: Final = {
    "": "created in_progress queued completed incomplete failed cancelled",
    "output_item.": "added done",
    "content_part.": "added done",
    "output_text.": "done",
    "output_text.annotation.": "added",
    "refusal.": "done",
    "reasoning_text.": "done",
    "reasoning_summary_text.": "done",
    "reasoning_summary_part.": "added done",
    "function_call_arguments.": "done",
    "custom_tool_call_input.": "done",
    "mcp_call_arguments.": "done",
    "mcp_call.": "in_progress completed failed",
    "mcp_list_tools.": "in_progress completed failed",
    "code_interpreter_call.": "in_progress interpreting completed",
    "code_interpreter_call_code.": "done",
    "file_search_call.": "in_progress searching completed",
    "web_search_call.": "in_progress searching completed",
    "image_generation_call.": "in_progress generating partial_image completed",
    "shell_call_command.": "added done",
    "shell_call_output_content.": "done",
    "audio.": "delta done",
    "audio.transcript.": "done",
    "compaction.": "compacting",
    "steer.": "accepted failed pending",
}
KNOWN_EVENTS: Final = frozenset(
    f"response.{stem}{stage}" for stem, stages in _STAGES.items() for stage in stages.split()
) | frozenset(DELTAS)

# Calls whose arguments have a member of their own, by the item's type: (member, name of the tool).
_CALLS: Final = {
    "function_call": ("arguments", ""),
    "custom_tool_call": ("input", ""),
    "local_shell_call": ("action", "local_shell"),
    "shell_call": ("action", "shell"),
    "apply_patch_call": ("operation", "apply_patch"),
    "computer_call": ("action", "computer"),
    "tool_search_call": ("arguments", "tool_search"),
}
_PROVIDERS_CALLS: Final = {
    "mcp_call": ("arguments", ""),
    "web_search_call": ("action", "web_search"),
    "file_search_call": ("queries", "file_search"),
    "code_interpreter_call": ("code", "code_interpreter"),
    "image_generation_call": ("", "image_generation"),
}
_RESULT_TEXTS: Final = ("text", "stdout", "stderr")
_OTHERS: Final = frozenset(
    "mcp_list_tools mcp_approval_request mcp_approval_response compaction compaction_trigger program program_output"
    " additional_tools tool_search_output".split()
)


def parts(item: dict[str, Any]) -> list[Part]:
    """What an item of an answer says; a part without a name where its type is not known."""
    kind = item.get("type")
    if kind == "message":
        return [_said(part) for part in map(mapping, sequence(item.get("content")))]
    if kind == "reasoning":
        return [_thought(item)]
    if isinstance(kind, str) and (kind in _CALLS or kind in _PROVIDERS_CALLS):
        return [_called(kind, item)]
    known = isinstance(kind, str) and (kind in _OTHERS or kind.endswith("_output"))
    return [Part("other", word(item.get("id")), word(kind) if known else b"")]


def first_parts(item: dict[str, Any]) -> Iterator[tuple[object, Part]]:
    """The parts of an item that has just begun, by keys under which its deltas belong to them."""
    kind = item.get("type")
    if isinstance(kind, str) and (kind in _CALLS or kind in _PROVIDERS_CALLS):
        yield "call", _called(kind, item)


def _said(part: dict[str, Any]) -> Part:
    if part.get("type") == "refusal":
        made = Part("refusal")
        made.add("text", part.get("refusal"))
        return made
    made = Part("text" if part.get("type") in ("output_text", "text") else "other")
    made.name = b"" if made.kind == "text" else word(part.get("type"))
    made.add("text", part.get("text") or part.get("transcript"))
    return made


def _thought(item: dict[str, Any]) -> Part:
    made = Part("thinking", word(item.get("id")))
    texts = [mapping(one).get("text") for name in ("summary", "content") for one in sequence(item.get(name))]
    made.add("text", "\n\n".join(one for one in texts if isinstance(one, str)))
    return made


def _called(kind: str, item: dict[str, Any]) -> Part:
    own = kind in _PROVIDERS_CALLS or (kind == "tool_search_call" and item.get("execution") == "server")
    member, name = _PROVIDERS_CALLS[kind] if kind in _PROVIDERS_CALLS else _CALLS[kind]
    made = Part("provider-tool" if own else "tool", word(item.get("call_id")) or word(item.get("id")), name.encode())
    if not name:
        space = word(item.get("namespace")) or word(item.get("server_label"))
        made.name = b".".join(one for one in (space, word(item.get("name"))) if one)
    given = item.get(member)
    if isinstance(given, str):
        made.add("arguments", given)
    elif given is not None:
        made.otherwise = spelled(given)
    return made


def outcomes(item: dict[str, Any]) -> list[Outcome]:
    """The result of a tool that an item of a request tells."""
    kind = item.get("type")
    if not isinstance(kind, str) or not (kind.endswith("_output") or kind == "mcp_call"):
        return []
    ident = word(item.get("call_id")) or word(item.get("id"))
    held = item.get("output")
    if kind == "mcp_call":
        failure = item.get("error")
        if held is None and failure is None:
            return []
        told = held if isinstance(held, str) else spelled(failure).decode()
        return [outcome(ident, [told], word(item.get("name")), failure is not None)]
    marked = kind == "apply_patch_call_output"
    error = {"failed": True, "completed": False}.get(str(item.get("status"))) if marked else None
    return [outcome(ident, list(_texts(held)), error=error)]


def _texts(held: object) -> Iterator[object]:
    if isinstance(held, str):
        yield held
    elif isinstance(held, dict):
        yield held["content"] if isinstance(held.get("content"), str) else spelled(held).decode()
    for part in map(mapping, sequence(held)):
        yield from (part[name] for name in _RESULT_TEXTS if isinstance(part.get(name), str) and part[name])
