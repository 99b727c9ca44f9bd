"""What one recorded message says, read from its bytes again: method, id, what it names, the digest of its arguments.

Pure. Never raises for foreign bytes: what cannot be read is None.
"""

from hashlib import sha256

import msgspec

Members = dict[str, msgspec.Raw]
_object = msgspec.json.Decoder(Members)
_array = msgspec.json.Decoder(list[msgspec.Raw])
_string = msgspec.json.Decoder(str)
_FAULTS = (ValueError, RecursionError, OverflowError)
# MCP, "Tools", "Prompts", "Resources": the member of `params` that says which one is meant.
_NAMED_BY = {"tools/call": "name", "prompts/get": "name"}
_WITH_ARGUMENTS = frozenset(_NAMED_BY)
MOST_MEMBERS = 10_000
_NAME_BYTES = 1024


class Said(msgspec.Struct, frozen=True):
    """A message of JSON-RPC 2.0. `id`: as JSON text, empty for a notification; `method`: empty for a response.

    `tool`: the tool or prompt that it names, or the URI. `digest`: SHA-256 in hex of the arguments' bytes as written
    (of requests that have none: of `params`), of nothing where there are none. `error`: a response that is an error.
    """

    method: str = ""
    id: bytes = b""
    tool: str = ""
    digest: str = ""
    error: bool = False

    @property
    def is_call(self) -> bool:
        """Whether it is a request."""
        return bool(self.method and self.id)


def clipped(name: str) -> str:
    """A name as rows have it: its first KB."""
    return name.encode("utf-8", "surrogateescape")[:_NAME_BYTES].decode("utf-8", "surrogateescape")


def raw_result(message: bytes) -> bytes:
    """The JSON text of a response's `result`; nothing where it has none."""
    try:
        return bytes(_object.decode(message).get("result", b""))
    except _FAULTS:
        return b""


def said(message: bytes) -> tuple[Said, ...] | None:
    """What a message says; of a batch, what each member says. None where it is no JSON-RPC message at all."""
    try:
        if message.lstrip(b" \t\r\n")[:1] == b"[":
            members = _array.decode(message)
            if len(members) > MOST_MEMBERS:
                return None
            return tuple(_one(bytes(member)) for member in members)
        return (_one(message),)
    except _FAULTS:
        return None


def _one(message: bytes) -> Said:
    fields = _object.decode(message)
    ident = bytes(fields.get("id", b"")).strip()
    if "method" not in fields:
        return Said(id=ident, error="error" in fields)
    method = _string.decode(fields["method"])
    raw = bytes(fields.get("params", b""))
    params = _object.decode(raw) if raw.lstrip(b" \t\r\n")[:1] == b"{" else {}
    named = params.get(_NAMED_BY.get(method, "uri"))
    tool = _string.decode(named) if named is not None and bytes(named)[:1] == b'"' else ""
    arguments = bytes(params.get("arguments", b"")) if method in _WITH_ARGUMENTS else raw
    return Said(method, ident, tool, sha256(arguments).hexdigest())
