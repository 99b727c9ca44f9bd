"""A message of MCP as whoever judges it has to read it: with one meaning, or not at all. Pure.

Ids, tokens and arguments are slices of the bytes that came: `1` is not `"1"`, and nothing is written anew.
"""

from typing import Any

import msgspec

from agentwrap.policy.exact_json import Ambiguous, no_twin, parse
from agentwrap.policy.mcp_rules import WITH_ARGUMENTS

PROTOCOL = "io.modelcontextprotocol/protocolVersion"
CANCELLED = "notifications/cancelled"

_NONE = msgspec.Raw(b"")
_NO_ID = (b"{", b"[", b"t", b"f")


def _folded(*names: str) -> dict[str, str]:
    return {name.casefold(): name for name in names}


_TOP = _folded("jsonrpc", "id", "method", "params", "result", "error")
_PARAMS = _folded("name", "arguments", "uri", "_meta", "requestId", "inputResponses", "task")
_RESULT = _folded("tools", "resultType", "inputRequests")


class _Meta(msgspec.Struct):
    token: msgspec.Raw = msgspec.field(default=_NONE, name="progressToken")


class _Params(msgspec.Struct):
    arguments: msgspec.Raw = _NONE
    cancels: msgspec.Raw = msgspec.field(default=_NONE, name="requestId")
    meta: _Meta | None = msgspec.field(default=None, name="_meta")


class _Whole(msgspec.Struct):
    params: msgspec.Raw = _NONE
    result: msgspec.Raw = _NONE


class _Top(msgspec.Struct):
    id: msgspec.Raw = _NONE
    params: _Params | None = None


class _Id(msgspec.Struct):
    id: msgspec.Raw = _NONE


class _Loose(msgspec.Struct):
    id: msgspec.Raw = _NONE
    method: str = ""


class _Result(msgspec.Struct):
    tools: list[msgspec.Raw] = []


_top = msgspec.json.Decoder(_Top).decode
_id = msgspec.json.Decoder(_Id).decode
_whole = msgspec.json.Decoder(_Whole).decode
_loose = msgspec.json.Decoder(_Loose).decode
_result = msgspec.json.Decoder(_Result).decode
_members = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Message(msgspec.Struct, frozen=True):
    """One message. `id`: JSON text, empty where there is none. `method`: empty for a response.

    `arguments`: JSON text of `params.arguments`, `raw_params`: of all params, for requests without arguments of their
    own; empty where there are none. `cancels`: the id of a request; `token`: for progress. `result`: of a response;
    `raw_result`: its JSON text.
    """

    id: bytes
    method: str = ""
    params: dict[str, Any] = {}
    raw_params: bytes = b""
    arguments: bytes = b""
    cancels: bytes = b""
    token: bytes = b""
    modern: bool = False
    result: Any = None
    raw_result: bytes = b""


def read(text: bytes, *, huge: bool = False) -> tuple[list[Message], bool]:
    """The messages of a text, and whether it is a batch. Raises Ambiguous, and nothing else, for whatever bytes.

    `huge`: with numbers beyond a double, to see whether anybody has to look at them.
    """
    # White space to JSON (RFC 8259, 2), the end of a line to readers of text (Python's, Java's): what follows is a
    # message of its own to them. With a line feed in it, it is no line, but the body of a request.
    if text.find(b"\r") >= 0 and text.find(b"\n") < 0 and text.rstrip().find(b"\r") >= 0:
        raise Ambiguous("malformed", "some readers end a line at the carriage return within it")
    value = parse(text, huge=huge)
    if type(value) is dict:
        return [_message(value, text)], False
    if type(value) is not list:
        return [Message(b"")], False  # a number, a text: nobody's request
    if not all(type(one) is dict for one in value):
        raise Ambiguous("malformed", "a member of the batch is no message")
    return [_message(*pair) for pair in zip(value, map(bytes, _members(text)), strict=True)], True


def _message(value: dict[str, Any], text: bytes) -> Message:
    no_twin(value, _TOP)
    method = value.get("method")
    if method is None and "method" not in value:
        result = value.get("result")
        if isinstance(result, dict):
            no_twin(result, _RESULT)
        return Message(_checked(bytes(_id(text).id)), result=result, raw_result=bytes(_whole(text).result))
    if not isinstance(method, str):
        raise Ambiguous("malformed", "its method is no text")
    if "result" in value or "error" in value:
        raise Ambiguous("malformed", "it is a request and a response at once")
    params = value.get("params")
    if params is None:
        return Message(_checked(bytes(_id(text).id)), method)
    if not isinstance(params, dict):
        raise Ambiguous("malformed", "its params are no object")
    no_twin(params, _PARAMS)
    meta = params.get("_meta")
    if meta is not None and not isinstance(meta, dict):
        raise Ambiguous("malformed", "its _meta is no object")
    top = _top(text)
    raws = top.params
    assert raws is not None
    return Message(
        _checked(bytes(top.id)),
        method,
        params,
        b"" if method in WITH_ARGUMENTS else bytes(_whole(text).params),
        bytes(raws.arguments),
        bytes(raws.cancels) if method == CANCELLED else b"",
        bytes(raws.meta.token) if raws.meta is not None else b"",
        meta is not None and PROTOCOL in meta,
    )


def _checked(raw_id: bytes) -> bytes:
    if raw_id[:1] in _NO_ID:
        raise Ambiguous("malformed", "its id is neither a text nor a number")
    return raw_id


def loose(text: bytes) -> tuple[bytes, str] | None:
    """Id (JSON text, empty where there is none that could be answered) and method of what has no single meaning.

    As most readers would: of two members the last. None where nobody could say.
    """
    try:
        found = _loose(text)
    except (msgspec.DecodeError, UnicodeError, ValueError, RecursionError):
        return None
    raw_id = bytes(found.id)
    answerable = bool(raw_id) and raw_id[:1] in b'"-0123456789'
    return (raw_id if answerable else b""), found.method


def listed_tools(raw_result: bytes) -> list[bytes]:
    """The definitions in a listing, as they came; none where it is none."""
    try:
        return [bytes(one) for one in _result(raw_result).tools]
    except (msgspec.DecodeError, UnicodeError, ValueError, RecursionError):
        return []
