"""A JSON-RPC message of MCP, read loosely: what sort it is and where its parts lie, as the bytes that came. Pure.

Nothing is written again: an id is its JSON text (`1` is not `"1"`), arguments are a slice. What two readers could read
in two ways (a key twice, bytes that are no UTF-8, `NaN`) is read all the same, as most clients and servers do (the last
of two members counts), and `odd` says so. Nothing foreign makes it raise. Knows nothing of sessions and calls.
"""

import json
import re
from collections.abc import Iterator
from hashlib import sha256

import msgspec

from agentwrap.events.mcp import McpSort
from agentwrap.models.json_slices import FAULTS, elements

ID_BYTES = 256
TEXT_BYTES = 4096
BATCH_MAX = 10_000
_OBJECTS_MAX = 500_000
_LONG_BATCH = "a batch too long to be read"
_NAME_BYTES = 1024
_LOOKED_AT_BYTES = 256 << 10  # up to here keys that come twice are found at any depth
_TOKENS_MAX = 2_000_000
_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_TOKEN = re.compile(_STRING.pattern + rb"|[\[\]{}:,]", re.DOTALL)
_HEAD_BYTES = 512
_ID = rb'"id"\s*:\s*(-?[0-9][0-9.eE+-]{0,40}|"[^"\\]{0,200}")'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_ID_FIRST = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _ID + rb"\s*,")
_ID_LAST = re.compile(
    rb"[}\]]\s*,\s*(?:" + _VERSION + rb"\s*,\s*)?" + _ID + rb"(?:\s*,\s*" + _VERSION + rb")?\s*\}\s*\Z"
)
_ANSWER = re.compile(rb'"(result|error)"\s*:\s*')
_METHOD = re.compile(rb'"method"\s*:')
_OPEN = re.compile(rb"\{[ \t\r\n]*")
_KEYED = re.compile(_STRING.pattern + rb"[ \t\r\n]*:[ \t\r\n]*", re.DOTALL)
_NEXT = re.compile(rb"[ \t\r\n]*[,}][ \t\r\n]*")

_raws = msgspec.json.Decoder(dict[str, msgspec.Raw])
_any = msgspec.json.Decoder()

Members = dict[str, bytes]
"""Members of an object, each with its bytes."""


class Rpc(msgspec.Struct, frozen=True):
    """A message. `id`, `params`, `result`, `error`: JSON text, empty where there is none.

    `parts`: of a batch. `odd`: what makes it ambiguous. `json`: it is at least JSON (an `invalid` one).
    """

    sort: McpSort
    method: bytes = b""
    id: bytes = b""
    params: bytes = b""
    result: bytes = b""
    error: bytes = b""
    parts: "tuple[Rpc, ...]" = ()
    odd: str = ""
    json: bool = True


def read(data: bytes) -> Rpc:
    """Read one message."""
    text = data.strip(_SPACE)
    odd = ""
    if text.startswith(_BOM):
        odd, text = "a byte order mark", text[len(_BOM) :].lstrip(_SPACE)
    first = text[:1]
    if first == b"[":
        return _batch(text, odd)
    if first == b"{":
        found = _message(text)
        return msgspec.structs.replace(found, odd=odd) if odd and not found.odd else found
    return Rpc("invalid", json=_is_json(text))


def _batch(text: bytes, odd: str) -> Rpc:
    if text.count(b"{") > _OBJECTS_MAX:
        return Rpc("batch", odd=_LONG_BATCH)
    places = elements(text)
    if places is None:
        return Rpc("invalid", json=False)
    parts = tuple(_message(text[start:end]) for start, end in places[:BATCH_MAX])
    odd = odd or next((part.odd for part in parts if part.odd), "")
    if not any(part.sort != "invalid" for part in parts):
        return Rpc("invalid", odd=odd)
    return Rpc("batch", parts=parts, odd=odd or (_LONG_BATCH if len(places) > BATCH_MAX else ""))


def _message(text: bytes) -> Rpc:
    held, odd, strict = _members(text)
    if held is None:
        return Rpc("invalid", json=False)
    method = string(held.get("method", b""))
    ident = held.get("id", b"")
    if method:
        odd = odd or _doubled(text)
        sort: McpSort = "request" if ident else "notification"
        return Rpc(sort, method[:_NAME_BYTES], ident, held.get("params", b""), odd=odd)
    if ident and ("result" in held or "error" in held):
        result, error = held.get("result", b""), held.get("error", b"")
        if result and error and not odd:
            odd = "a result and an error"
        return Rpc("response", b"", ident, b"", result, error, odd=odd or _doubled(text))
    return Rpc("invalid", json=strict)


def read_ends(head: bytes, tail: bytes) -> Rpc | None:
    """The response whose beginning and end these are, as far as they tell; None where it may be something else.

    Libraries write the id first or last. `result`, `error`: as far as `head` goes.
    """
    found = _ID_FIRST.match(head) or _ID_LAST.search(tail)
    begun = _ANSWER.search(head, 0, _HEAD_BYTES)
    if found is None or begun is None or _METHOD.search(head, 0, begun.start()):
        return None
    said = head[begun.end() :]
    failed = begun[1] == b"error"
    return Rpc("response", id=found[1], result=b"" if failed else said, error=said if failed else b"")


def read_members(text: bytes) -> Members:
    """Members of an object; empty where there is none."""
    return _members(text)[0] or {} if text[:1] == b"{" else {}


def _members(text: bytes) -> tuple[Members | None, str, bool]:
    """Members, what is odd about them, and whether the text is JSON."""
    try:
        return {name: bytes(value) for name, value in _raws.decode(text).items()}, "", True
    except FAULTS:
        pass
    found: Members = {}
    doubled = False
    try:
        for key, start, end in _walk(text):
            name = _loose(key)
            doubled = doubled or name in found
            found[name] = text[start:end].strip(_SPACE)
    except FAULTS:
        return None, "", False
    return found, "a key twice" if doubled else "not strict JSON", False


def _walk(text: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Keys and places of the members of an object, whatever is within the values. Raises ValueError for no object."""
    depth, key, start, end = 0, b"", -1, -1
    for count, token in enumerate(_TOKEN.finditer(text)):
        if count > _TOKENS_MAX or end >= 0:
            raise ValueError("too much")
        first = token[0][:1]
        if first in b"[{":
            depth += 1
        elif first in b"]}":
            depth -= 1
            if depth == 0:
                end = token.end()
        if depth == 1 and first == b'"' and start < 0:
            key = token[0]
        elif depth == 1 and first == b":" and start < 0:
            start = token.end()
        elif start >= 0 and ((depth == 1 and first == b",") or depth == 0):
            if not key or not text[start : token.start()].strip(_SPACE):
                raise ValueError("no value")
            yield key, start, token.start()
            key, start = b"", -1
    if end != len(text):
        raise ValueError("no object")


def _doubled(text: bytes) -> str:
    """What is said where a key comes twice: in large texts only that of the outermost objects is seen."""
    if len(text) > _LOOKED_AT_BYTES:
        if not _is_utf8(text):
            return "not strict JSON"
        held = _raws.decode(text)
        params = bytes(held["params"]) if "params" in held else b""
        once = _each_once(text, held) and (params[:1] != b"{" or _each_once(params, _raws.decode(params)))
        return "" if once else "a key twice"
    try:
        if text.count(b":") == _keys(_any.decode(text)):  # colons in strings make more of them
            return ""
    except FAULTS:  # numbers past the range of floats, which are no fault of JSON
        pass
    try:
        json.loads(text, object_pairs_hook=_once)
    except _TwiceError:
        return "a key twice"
    except RecursionError:
        return "nested too deep"
    except FAULTS:
        return "not strict JSON"
    return ""


class _TwiceError(Exception):
    """A key comes twice."""


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    held = dict(pairs)
    if len(held) < len(pairs):
        raise _TwiceError
    return held


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _each_once(text: bytes, held: dict[str, msgspec.Raw]) -> bool:
    """Whether an object's members are all of it: of a key that comes twice one value is left over."""
    at = _end(_OPEN, text, 0)
    for value in held.values():
        raw = bytes(value)
        key = _KEYED.match(text, at) if at >= 0 else None
        if key is None or not text.startswith(raw, key.end()):
            return False
        at = _end(_NEXT, text, key.end() + len(raw))
    return at == len(text) or not held


def _end(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else -1


def _keys(value: object) -> int:
    count = 0
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            count += len(one)
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
    return count


def _is_json(text: bytes) -> bool:
    try:
        _any.decode(text)
    except FAULTS:
        return False
    return True


def _loose(raw: bytes) -> str:
    value = json.loads(raw.decode("utf-8", "replace"), strict=False)
    return value if isinstance(value, str) else ""


def string(raw: bytes) -> bytes:
    """What a JSON string says, as UTF-8; empty for anything else."""
    if raw[:1] != b'"':
        return b""
    try:
        return str(_any.decode(raw)).encode()
    except FAULTS:
        try:
            return _loose(raw).encode("utf-8", "replace")
        except FAULTS:
            return b""


def is_true(raw: bytes) -> bool:
    """Whether a member is `true`."""
    return raw == b"true"


def id_key(raw: bytes) -> bytes:
    """By what an id is remembered: its text, of a long one the hash."""
    return raw if len(raw) <= ID_BYTES else sha256(raw).digest()


def id_value(raw: bytes) -> float | None:
    """The number that an id is, so that `1` finds `1.0`, as it does for clients; None for other ids."""
    if raw[:1] not in b"-0123456789" or len(raw) > 32:
        return None
    try:
        return float(raw)
    except ValueError:
        return None
