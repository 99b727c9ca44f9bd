"""What every API's reader gives: the same facts, whatever the API is called. Pure; knows no API.

A reader never raises on foreign bytes: what it cannot read it leaves out and says so. Offsets are into the body it was
given, decoded from its content coding.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from agentwrap.events import Api


class Message(msgspec.Struct, frozen=True):
    """One message (or item) of a request. `identity`: digest of what it says, the same when it is sent again.

    Marks that move from request to request (cache markers, ids that the client makes anew) do not count.
    """

    role: str
    identity: bytes
    start: int
    end: int


class Outcome(msgspec.Struct, frozen=True):
    """A tool's result that a request carries. `error`: None where the API has no such mark."""

    id: bytes
    name: bytes = b""
    error: bool | None = None
    size: int = 0
    text: bytes = b""


class RequestFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says.

    `pieces`: (start, end) of slices that cover the whole body in order, cut so that what is sent again is the same
    slice again; one slice where the body could not be read. `session`: the client's own id of the conversation,
    `previous`: id of the response that this one goes on from. `problem`: why it could not be read, or empty.
    """

    model: bytes = b""
    stream: bool = False
    messages: tuple[Message, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    tools: int = 0
    session: bytes = b""
    previous: bytes = b""
    pieces: tuple[tuple[int, int], ...] = ()
    problem: str = ""


class Usage(msgspec.Struct, frozen=True):
    """The provider's numbers. `input_tokens`: all of the input, cached or not."""

    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None


class Block(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of an answer. `arguments`: JSON text (or free text) as the model wrote it, of a tool call."""

    kind: Literal["text", "thinking", "tool", "provider-tool", "refusal", "other"]
    text: bytes = b""
    id: bytes = b""
    name: bytes = b""
    arguments: bytes = b""


class ResponseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer says, as far as it came.

    `complete`: it says itself that it is at its end. `error`: (type, message). `first_token`: offset behind the first
    byte that carries content, -1 if none does (0 for an answer that is no stream). `scattered`: texts that came in
    pieces: start, end, start, end, ... of the raw JSON string pieces (without their quotes) of each, in order.
    `unknown`: types of events and parts that are not known here.
    """

    model: bytes = b""
    id: bytes = b""
    stop: bytes = b""
    usage: Usage = Usage()
    blocks: tuple[Block, ...] = ()
    complete: bool = False
    error: tuple[bytes, bytes] = (b"", b"")
    first_token: int = -1
    scattered: tuple[tuple[int, ...], ...] = ()
    unknown: tuple[bytes, ...] = ()
    problem: str = ""


Headers = Sequence[tuple[bytes, bytes]]


class Shape(Protocol):
    """The reader of one API. Adding an API is one file with one of these, and its name in `models.shapes`."""

    api: Api
    provider: str

    def matches(self, method: bytes, host: bytes, path: bytes) -> bool:
        """Whether a request line is a call of this API. `path` without query; on any host, since there are many."""
        ...

    def request(self, body: bytes, path: bytes) -> RequestFacts:
        """Read a request's body; the path may name the model."""
        ...

    def response(self, body: bytes, media: bytes) -> ResponseFacts:
        """Read an answer's body: a stream of events or one JSON document, by `media` (content-type) and by itself."""
        ...
