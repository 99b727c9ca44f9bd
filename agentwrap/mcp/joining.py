"""Which MCP call carries out which tool call of a model, and by what that was found. Pure, bounded.

The two are heard of in any order: an agent may start a tool while the model's answer is still under way.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from agentwrap.events import ToolCall
from agentwrap.events.mcp import McpJoin
from agentwrap.mcp.asked import Asked
from agentwrap.models.json_slices import FAULTS, read

WAITING_MAX = 1024
TOOLS_MAX = 4096
_COMPARED_BYTES = 1 << 20
_PREFIX_BYTES, _KEPT_BYTES = 2048, 4096
_LEAVES_MAX = 32
_NO_NAME = re.compile(rb"[^a-z0-9]+")
_LOOSE_SPACE = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*"?)|[ \t\r\n]+', re.DOTALL)

Joined = tuple[str, str, McpJoin]
"""(MCP call, tool call, how)"""


def plain(name: bytes) -> bytes:
    """A name as agents mangle it: letters and digits stay, anything else is one `_`."""
    return _NO_NAME.sub(b"_", name.lower()).strip(b"_")


class _Waiting:
    """An MCP call that is not joined. `over`: it has ended."""

    __slots__ = ("_digest", "_prefix", "arguments", "marks", "name", "names", "over", "tool")

    def __init__(self, name: str, server: bytes, asked: Asked) -> None:
        server_name, tool = plain(server), plain(asked.tool)
        self.name = name
        self.tool = tool
        self.names = frozenset({tool, server_name + b"_" + tool, b"mcp_" + server_name + b"_" + tool})
        self.marks = frozenset(asked.marks)
        self.arguments = asked.arguments[:_KEPT_BYTES]
        # Most calls are found by an id, or wait for nothing: what short ones say is read when it is asked for.
        self._digest = _digest(asked.arguments) if len(asked.arguments) > _KEPT_BYTES else None
        self._prefix: bytes | None = None
        self.over = False

    @property
    def digest(self) -> bytes:
        """Of what the arguments say."""
        if self._digest is None:
            self._digest = _digest(self.arguments)
        return self._digest

    @property
    def prefix(self) -> bytes:
        """The beginning of the arguments, without spaces between."""
        if self._prefix is None:
            self._prefix = _compact(self.arguments)[:_PREFIX_BYTES]
        return self._prefix


class _Tool:
    """A tool call that may be carried out over MCP."""

    __slots__ = ("_plain_code", "code", "digest", "id", "name", "prefix", "tool", "used")

    def __init__(self, event: ToolCall) -> None:
        self.tool = event.tool
        self.id = event.id
        self.name = plain(event.name)
        clipped = event.omitted_bytes > 0
        self.digest = b"" if clipped else _digest(event.arguments)
        self.prefix = _compact(event.arguments)[:_PREFIX_BYTES] if clipped else b""
        self.code = event.arguments
        self._plain_code: bytes | None = None
        self.used = 0

    @property
    def plain_code(self) -> bytes:
        """The arguments as a program that calls tools by their mangled names."""
        if self._plain_code is None:
            self._plain_code = plain(self.code)
        return self._plain_code


class Joining:
    """Waiting calls of both sides."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, _Waiting] = OrderedDict()
        self._tools: OrderedDict[str, _Tool] = OrderedDict()

    def begun(self, name: str, server: bytes, asked: Asked) -> tuple[str, McpJoin]:
        """A `tools/call` began: the tool call and how it was found, or empty texts while none is known."""
        call = _Waiting(name, server, asked)
        found = self._by_id(call) or self._by_content(call) or self._in_code(call)
        if found is not None:
            return found
        self._waiting[name] = call
        if len(self._waiting) > WAITING_MAX:
            self._waiting.popitem(last=False)
        return "", ""

    def over(self, name: str) -> Iterator[Joined]:
        """An MCP call has ended: where only one open tool call has its name, and it alone waits for one, it is that."""
        call = self._waiting.get(name)
        if call is None:
            return
        call.over = True
        yield from self._by_time(call)

    def called(self, event: ToolCall) -> Iterator[Joined]:
        """A model asked for a tool."""
        if event.provider_side:
            return
        tool = self._tools[event.tool] = _Tool(event)
        if len(self._tools) > TOOLS_MAX:
            self._tools.popitem(last=False)
        for call in list(self._waiting.values()):
            found = self._by_id(call) or self._by_content(call) or self._in_code(call)
            if found is not None:
                del self._waiting[call.name]
                yield call.name, *found
        if not tool.used:
            for call in list(self._waiting.values()):
                if call.over and tool.name in call.names:
                    yield from self._by_time(call)

    def told(self, tool: str) -> Iterator[Joined]:
        """The model was told a tool's result: nothing that begins from now on belongs to it."""
        found = self._tools.get(tool)
        if found is None:
            return
        if not found.used:
            for call in [one for one in self._waiting.values() if found.name in one.names]:
                yield from self._by_time(call)
        self._tools.pop(tool, None)

    def _by_id(self, call: _Waiting) -> tuple[str, McpJoin] | None:
        if not call.marks:
            return None
        found = next((tool for tool in self._tools.values() if tool.id in call.marks), None)
        return _used(found, "id")

    def _by_content(self, call: _Waiting) -> tuple[str, McpJoin] | None:
        if call.marks and any(tool.id in call.marks for tool in self._tools.values()):
            return None
        for tool in self._tools.values():
            same = tool.digest == call.digest if tool.digest else tool.prefix and tool.prefix == call.prefix
            if not tool.used and tool.name in call.names and same:
                return _used(tool, "content")
        return None

    def _in_code(self, call: _Waiting) -> tuple[str, McpJoin] | None:
        """Code mode: the model wrote a program that calls tools by their mangled names."""
        wanted = [name for name in call.names if name != call.tool]
        leaves = None
        for tool in reversed(self._tools.values()):
            if tool.name in call.names or not any(name in tool.plain_code for name in wanted):
                continue
            leaves = _leaves(call.arguments) if leaves is None else leaves
            return _used(tool, "content" if leaves and all(leaf in tool.code for leaf in leaves) else "time")
        return None

    def _by_time(self, call: _Waiting) -> Iterator[Joined]:
        open_ones = [tool for tool in self._tools.values() if not tool.used and tool.name in call.names]
        if len(open_ones) != 1:
            return  # most calls of a run without a model: the others need not be looked at for each
        if sum(1 for one in self._waiting.values() if one.names & call.names) == 1:
            del self._waiting[call.name]
            open_ones[0].used += 1
            yield call.name, open_ones[0].tool, "time"


def _used(tool: _Tool | None, how: McpJoin) -> tuple[str, McpJoin] | None:
    if tool is None:
        return None
    tool.used += 1
    return tool.tool, how


def _digest(arguments: bytes) -> bytes:
    """Of what arguments say, however they are written: no arguments are an empty object."""
    if len(arguments) > _COMPARED_BYTES:
        return b""
    try:
        text = json.dumps(read(arguments or b"{}"), sort_keys=True).encode()
    except FAULTS:
        text = arguments
    return sha256(text).digest()


def _compact(arguments: bytes) -> bytes:
    return _LOOSE_SPACE.sub(rb"\1", arguments)


def _leaves(arguments: bytes) -> list[bytes]:
    """Texts and numbers that a program has to name to pass these arguments."""
    try:
        waiting: list[Any] = [read(arguments)]
    except FAULTS:
        return []
    found: list[bytes] = []
    while waiting and len(found) < _LEAVES_MAX:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
        elif isinstance(one, str) and one:
            found.append(json.dumps(one)[1:-1].encode())
        elif isinstance(one, int | float) and not isinstance(one, bool):
            found.append(str(one).encode())
    return found
