"""Attributes of spans under OpenTelemetry's names: GenAI, process, file, network, HTTP; our own begin `agentwrap.`.

Names are those of open-telemetry/semantic-conventions-genai (development status; both names of tokens written to a
cache are given, since backends know the older) and of semantic-conventions 1.37. Pure: fills `Attributes`, which is
anything that takes a name and a value; knows nothing of protobuf.
"""

from typing import Any

from agentwrap.export import genai
from agentwrap.export.spans import Ended
from agentwrap.rows import Row, number
from agentwrap.views.source import Source, foreign_text, mapping, texts

Attributes = dict[str, Any]

_PROVIDERS = {
    "anthropic.messages": "anthropic", "openai.chat": "openai", "openai.responses": "openai",
    "gemini.generate": "gcp.gemini",
}  # fmt: skip
_TOKENS = {
    "input_tokens": ("input_tokens",),
    "output_tokens": ("output_tokens",),
    "cache_read_tokens": ("cache_read.input_tokens",),
    "cache_write_tokens": ("cache_write.input_tokens", "cache_creation.input_tokens"),
    "reasoning_tokens": ("reasoning.output_tokens",),
}
# Types of OpenAI's conventions that say "it went well" are no reasons to stop.
_NO_REASON = ("completed",)
_FILE = ("change", "via", "klass", "type", "link")


def model(ended: Ended, source: Source, *, content: bool) -> Attributes:
    """Of a call of a model."""
    asked, told = _data(ended.asked), _data(ended.answered)
    api = str(asked.get("api") or ended.data.get("api") or "")
    made: Attributes = {
        "gen_ai.operation.name": "generate_content" if api.startswith("gemini") else "chat",
        "gen_ai.provider.name": _PROVIDERS.get(api, api),
        "gen_ai.request.model": foreign_text(asked.get("model")),
        "gen_ai.request.stream": True if asked.get("stream") is True else None,
        "gen_ai.conversation.id": foreign_text(asked.get("session")),
        "gen_ai.agent.id": asked.get("agent"),
        "gen_ai.response.model": foreign_text(told.get("model")),
        "gen_ai.response.id": foreign_text(told.get("response_id")),
        "server.address": foreign_text(asked.get("host")),
        "server.port": number(asked.get("port")) or None,
        "http.response.status_code": number(told.get("status")) or None,
        "agentwrap.model.call": ended.id,
        "agentwrap.model.api": api,
        "agentwrap.model.ending": told.get("ending"),
        "agentwrap.model.attempt": number(asked.get("attempt"), 1),
        "agentwrap.model.retry_of": asked.get("retry_of"),
        "agentwrap.model.request_id": foreign_text(told.get("request_id")),
        "agentwrap.turn": asked.get("turn"),
        "agentwrap.cost.usd": _decimal(told.get("cost_usd")),
        "agentwrap.cost.prices": told.get("prices"),
    }
    stop = foreign_text(told.get("stop"))
    if stop and stop not in _NO_REASON:
        made["gen_ai.response.finish_reasons"] = [stop]
    if number(told.get("first_token_ns")):
        waited_ns = number(told.get("first_token_ns")) - number(told.get("requested_ns"))
        made["gen_ai.response.time_to_first_chunk"] = max(waited_ns, 0) / 1e9
    for field, names in _TOKENS.items():
        if told.get(field) is not None:
            made |= {f"gen_ai.usage.{name}": number(told[field]) for name in names}
    failed = _failure(told)
    if failed:
        made["error.type"] = failed
    return made | _told(ended, source, content=content)


def _told(ended: Ended, source: Source, *, content: bool) -> Attributes:
    """What the bodies say: settings always, what was said only where it is asked for."""
    made: Attributes = {}
    body = whole(source, ended.asked, "request")
    if body is not None:
        told = genai.request(body)
        made |= {f"gen_ai.request.{name}": value for name, value in told.settings.items()}
        if content:
            given = {"system_instructions": told.system, "input.messages": told.messages}
            given["tool.definitions"] = told.tools
            made |= {f"gen_ai.{name}": genai.encoded(value) for name, value in given.items() if value}
    answer = whole(source, ended.answered, "message") if content else None
    if answer is not None:
        made["gen_ai.output.messages"] = genai.encoded(genai.answer(answer))
    return made


def conversation(source: Source, first: Row | None, last: Row | None) -> Attributes:
    """What an agent was asked first and answered last, for those who look at the top of a trace."""
    made: Attributes = {}
    body, answer = whole(source, first, "request"), whole(source, last, "message")
    if body is not None:
        asked = [one for one in genai.request(body).messages if one["role"] not in ("system", "developer")]
        made["gen_ai.input.messages"] = genai.encoded(asked)
    if answer is not None:
        made["gen_ai.output.messages"] = genai.encoded(genai.answer(answer))
    return made


def tool(ended: Ended, *, content: bool) -> Attributes:
    """Of a tool call."""
    asked, told = _data(ended.asked), _data(ended.answered)
    made: Attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": foreign_text(asked.get("name")) or ended.name,
        "gen_ai.tool.type": "extension" if asked.get("provider_side") is True else "function",
        "gen_ai.tool.call.id": foreign_text(asked.get("id")),
        "gen_ai.agent.id": asked.get("agent"),
        "agentwrap.tool": ended.id,
        "agentwrap.turn": asked.get("turn"),
        "agentwrap.model.call": asked.get("call"),
    }
    if content:
        made["gen_ai.tool.call.arguments"] = foreign_text(asked.get("arguments"))
        made["gen_ai.tool.call.result"] = foreign_text(told.get("text"))
    if told.get("error") is True:
        made["error.type"] = "tool_error"
    return made


_RPC_ERRORS = ("tool-error", "denied", "expired", "unanswered", "cancelled")


def mcp(ended: Ended, session: Attributes, *, content: bool) -> Attributes:
    """Of a request over MCP. `session`: the data of its session's span."""
    asked, told = _data(ended.asked), _data(ended.answered)
    method, named = foreign_text(asked.get("method")), foreign_text(asked.get("tool"))
    ending = str(told.get("ending", ""))
    made: Attributes = {
        "mcp.method.name": method,
        "mcp.protocol.version": foreign_text(session.get("protocol")),
        "jsonrpc.request.id": foreign_text(asked.get("id")).strip('"'),
        "network.transport": "pipe" if session.get("transport", "stdio") == "stdio" else "tcp",
        "server.address": foreign_text(session.get("url")),
        "agentwrap.mcp.call": ended.id,
        "agentwrap.mcp.server": foreign_text(asked.get("server")),
        "agentwrap.mcp.session": asked.get("session"),
        "agentwrap.mcp.asked_by": "client" if asked.get("up") is not False else "server",
        "agentwrap.mcp.ending": ending,
        "agentwrap.mcp.arguments.sha256": asked.get("digest"),
        "agentwrap.mcp.result.size": number(told.get("size")) or None,
        "agentwrap.mcp.joined": ended.data.get("joined"),
        "agentwrap.tool": ended.data.get("tool_call"),
    }
    if method == "tools/call":
        made |= {"gen_ai.tool.name": named, "gen_ai.tool.type": "extension"}
        if not ended.data.get("tool_call"):
            # The span above is of the same execution, and the conventions want one of them.
            made["gen_ai.operation.name"] = "execute_tool"
        if content:
            made["gen_ai.tool.call.arguments"] = foreign_text(asked.get("arguments"))
            made["gen_ai.tool.call.result"] = foreign_text(told.get("text"))
    elif method == "prompts/get":
        made["gen_ai.prompt.name"] = named
    elif named:
        made["mcp.resource.uri"] = named
    if ending == "error":
        code = foreign_text(told.get("error")).partition(" ")[0]
        made |= {"error.type": code or "error", "rpc.response.status_code": code}
    elif ending in _RPC_ERRORS:
        made["error.type"] = ending.replace("-", "_")
    return made


def session(ended: Ended) -> Attributes:
    """Of a session with an MCP server."""
    data = ended.data
    return {
        "mcp.protocol.version": foreign_text(data.get("protocol")),
        "network.transport": "pipe" if data.get("transport", "stdio") == "stdio" else "tcp",
        "agentwrap.mcp.session": ended.id,
        "agentwrap.mcp.server": foreign_text(data.get("server")),
        "agentwrap.mcp.transport": data.get("transport", "stdio"),
        "agentwrap.mcp.how": data.get("how", "config"),
        "agentwrap.mcp.client.name": foreign_text(data.get("client_name")),
        "agentwrap.mcp.server.name": foreign_text(data.get("server_name")),
        "agentwrap.mcp.server.version": foreign_text(data.get("server_version")),
        "agentwrap.mcp.ending": ended.status,
        "url.full": foreign_text(data.get("url")),
        "process.command_args": texts(data.get("command")),
        "process.pid": number(data.get("pid")) or None,
    }


def agent(ended: Ended, program: str) -> Attributes:
    """Of an agent; `program`: the name of the process that speaks for it."""
    data = ended.data
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": program,
        "gen_ai.agent.id": ended.id,
        "gen_ai.provider.name": _PROVIDERS.get(str(data.get("api")), ""),
        "gen_ai.request.model": foreign_text(data.get("model")),
        "gen_ai.conversation.id": foreign_text(data.get("session")),
        "agentwrap.agent.joined": data.get("joined"),
        "agentwrap.agent.calls": number(data.get("calls")),
        "agentwrap.process": data.get("process"),
        "process.pid": number(data.get("pid")) or None,
    }


def process(ended: Ended) -> Attributes:
    """Of a process."""
    data = ended.data
    made: Attributes = {
        "process.pid": number(data.get("pid")) or None,
        "process.parent_pid": number(data.get("ppid")) or None,
        "process.executable.name": ended.name,
        "process.executable.path": foreign_text(data.get("exe")),
        "process.command_args": texts(data.get("argv")),
        "process.working_directory": foreign_text(data.get("cwd")),
        "process.real_user.id": number(data["uid"]) if "uid" in data else None,
        "agentwrap.process": ended.id,
        "agentwrap.process.how": data.get("how"),
        "agentwrap.process.ended_by": data.get("ended_by"),
    }
    return made | exit_of(ended.status)


def exit_of(status: str) -> Attributes:
    """`exit 1`, `signal 9` as attributes."""
    word, _, told = status.partition(" ")
    code = int(told) if told.isascii() and told.isdigit() and len(told) < 10 else None
    if code is None or word not in ("exit", "signal"):
        return {}
    if word == "signal":
        return {"agentwrap.process.exit.signal": code, "error.type": f"signal {code}"}
    return {"process.exit.code": code} | ({"error.type": str(code)} if code else {})


def connection(ended: Ended) -> Attributes:
    """Of a connection through the gateway."""
    data = ended.data
    return {
        "server.address": foreign_text(data.get("host")),
        "server.port": number(data.get("port")) or None,
        "network.peer.address": foreign_text(data.get("address")),
        "network.transport": data.get("transport", "tcp"),
        "network.protocol.name": data.get("protocol"),
        "tls.client.server_name": foreign_text(data.get("sni")),
        "agentwrap.connection": ended.id,
        "agentwrap.connection.sent_bytes": number(data.get("up_bytes")),
        "agentwrap.connection.received_bytes": number(data.get("down_bytes")),
        "agentwrap.connection.detail": foreign_text(data.get("detail")),
        "process.pid": number(data.get("pid")) or None,
    }


def moment(row: Row) -> Attributes:
    """Of what has only a moment: a change of a file, a socket, a name that was asked for, something refused."""
    data = row.data
    made: Attributes = {"agentwrap.event": row.kind, "process.pid": row.pid or None, "agentwrap.process": row.span}
    if row.kind.startswith("file."):
        after = mapping(data.get("after"))
        made |= {
            "file.path": foreign_text(data.get("path")),
            "file.size": number(after.get("size")) if after else None,
            "file.mode": f"{number(after['mode']):04o}" if "mode" in after else None,
            "agentwrap.file.target": foreign_text(data.get("target")),
        }
        made |= {f"agentwrap.file.{name}": data.get(name) for name in _FILE if isinstance(data.get(name), str)}
    elif row.kind.startswith("dns."):
        made |= {
            "dns.question.name": foreign_text(data.get("name")) or texts(data.get("names")),
            "dns.answers": texts(data.get("answers")),
            "server.address": foreign_text(data.get("server") or data.get("host")),
        }
    else:
        made |= {
            "network.transport": data.get("transport"),
            "network.type": {"inet": "ipv4", "inet6": "ipv6"}.get(str(data.get("family"))),
            "network.peer.address": foreign_text(data.get("address") or data.get("path")),
            "server.address": foreign_text(data.get("host")),
            "server.port": number(data.get("port")) or None,
            "agentwrap.count": number(data.get("count")) or None,
        }
    return made


def exchange(row: Row) -> Attributes:
    """Of an HTTP exchange that was no call of a model."""
    data = row.data
    host, port, path = foreign_text(data.get("host")), number(data.get("port")), foreign_text(data.get("path"))
    return {
        "http.request.method": foreign_text(data.get("method")),
        "http.response.status_code": number(data.get("status")) or None,
        "url.full": f"{data.get('scheme', 'https')}://{host}{f':{port}' if port else ''}{path}",
        "server.address": host,
        "server.port": port or None,
        "process.pid": row.pid or None,
        "agentwrap.exchange": data.get("exchange"),
        "agentwrap.exchange.ending": data.get("ending", "complete"),
    }


def note(row: Row) -> Attributes:
    """Of an event of a span: all fields of the row, decisions under `agentwrap.policy.`."""
    prefix = "agentwrap.policy." if row.verdict else f"agentwrap.{row.kind}."
    made: Attributes = {f"{prefix}subject": row.subject}
    if row.verdict:
        made |= {"agentwrap.policy.verdict": row.verdict, "agentwrap.policy.kind": row.kind}
    for name, value in row.data.items():
        if isinstance(value, bool | int | float | str):
            made[f"{prefix}{name}"] = value
        elif isinstance(value, list):
            told = (" ".join(texts(one)) if isinstance(one, list) else foreign_text(one) for one in value)
            made[f"{prefix}{name}"] = list(told)
        elif isinstance(value, dict) and "b64" in value:
            made[f"{prefix}{name}"] = foreign_text(value)
    return made


def whole(source: Source, row: Row | None, field: str) -> bytes | None:
    """A body of a row, None where it or a part of it was not kept."""
    pieces = list(source.body(row.seq, field)) if row is not None else []
    return b"".join(piece for piece in pieces if piece is not None) if pieces and None not in pieces else None


def _failure(told: dict[str, Any]) -> str:
    """The type of what went wrong with a call, or nothing."""
    status, ending = number(told.get("status")), str(told.get("ending", ""))
    if status >= 400:
        return str(status)
    return ending if ending not in ("", "complete", "unread") else ""


def _decimal(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, str) and len(value) < 40 else None
    except ValueError:
        return None


def _data(row: Row | None) -> dict[str, Any]:
    return row.data if row is not None else {}
