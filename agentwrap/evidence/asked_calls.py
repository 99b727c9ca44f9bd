"""Requests over MCP in a recording, as questions to a policy. Knows rows of MCP; refuses to guess arguments.

What was refused, or waited in vain, did not happen. What a human allowed is marked as such. Arguments are asked about
only where the recording has them whole and nothing in them is hidden.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from agentwrap.policy.mcp_rules import TOOL_CALL
from agentwrap.policy.questions import Call
from agentwrap.recording.foreign import to_bytes
from agentwrap.rows import Row

_OF_NOTHING = sha256(b"").hexdigest()
_HIDDEN = (b"\xc2\xabredacted:", b"\xc2\xabshape:")
CALL, DECISION, TOOL = "mcp.call", "mcp.decision", "mcp.tool"


class Calls:
    """What is known of all calls of a recording: `decisions` are its rows of that kind, `tools` come in order."""

    def __init__(self, decisions: Iterable[Row]) -> None:
        self._refused: set[str] = set()
        self._approved: set[str] = set()
        self._listed: dict[tuple[str, str], str] = {}
        for row in decisions:
            call = str(row.data.get("call", ""))
            if row.data.get("decision") == "deny":
                self._refused.add(call)
            elif row.data.get("ask"):
                self._approved.add(call)

    def lists(self, data: Mapping[str, Any]) -> None:
        """A server listed a tool."""
        listed = "" if data.get("change") == "removed" else str(data.get("digest", ""))
        self._listed[_text(data.get("server")), _text(data.get("name"))] = listed

    def question(self, data: Mapping[str, Any]) -> Call | None:
        """The question of a call; None where it did not go on."""
        call = str(data.get("call", ""))
        if call and call in self._refused:
            return None
        server, method, tool = (_text(data.get(name)) for name in ("server", "method", "tool"))
        listed = self._listed.get((server, tool)) if method == TOOL_CALL else None
        return Call(server, method, tool, _arguments(data), listed, bool(call) and call in self._approved)


def _arguments(data: Mapping[str, Any]) -> bytes | None:
    """The arguments, where they are there whole; nothing where there were none, as the digest says."""
    if data.get("omitted_bytes"):
        return None
    try:
        found = to_bytes(data.get("arguments", ""))
    except ValueError:
        return None
    if not found:
        return found if data.get("digest", "") in ("", _OF_NOTHING) else None
    return None if any(mark in found for mark in _HIDDEN) else found


def _text(value: Any) -> str:
    try:
        return to_bytes(value).decode("utf-8", "surrogateescape")
    except ValueError:
        return ""
