"""What is said on the control socket: one JSON object per line, one request per connection. Pure.

Requests come from programs that nobody vouches for: sizes are bounded, types are checked, and whatever does not fit is
a ValueError with a reason. Ids as people write them (`a1-3f2a`: question, run) are read here, too.
"""

import re
from typing import Annotated, Literal

import msgspec

from agentwrap.approvals.registry import Answer, Given, Waiting

MAX_REQUEST_BYTES = 8 << 10
MAX_REPLY_BYTES = 16 << 20
RUN_DIGITS = 4

ID = re.compile(r"[A-Za-z0-9._]{1,64}\Z")
Id = Annotated[str, msgspec.Meta(pattern=rf"^{ID.pattern}")]
Name = Annotated[str, msgspec.Meta(max_length=200)]
Reason = Annotated[str, msgspec.Meta(max_length=1000)]


class AskPending(msgspec.Struct, frozen=True, tag="pending", forbid_unknown_fields=True):
    """Asks what waits; with `layers` also which policies judge the run."""

    layers: bool = False


class GiveAnswer(msgspec.Struct, frozen=True, tag="answer", forbid_unknown_fields=True):
    """An answer to one question. `approver`: who gives it, as they say."""

    ask: Id
    answer: Answer
    approver: Name = ""
    reason: Reason = ""


Request = AskPending | GiveAnswer


class LayerText(msgspec.Struct, frozen=True):
    """One policy of a run: whose it is (`user`), its file, whether it is trusted, its text as it was read."""

    name: Literal["flags", "project", "user", "system"]
    file: str
    trusted: bool
    text: str


class RunFacts(msgspec.Struct, frozen=True):
    """Which run it is. `layers`: the policies that judge it; left out where nobody asked for them."""

    run: str
    command: str = ""
    recording: str = ""
    cwd: str = ""
    mode: str = ""
    layers: tuple[LayerText, ...] = ()


class Pending(msgspec.Struct, frozen=True, tag="pending"):
    """The answer to `AskPending`. `now_ns`: the run's time, by which `until_ns` is read."""

    facts: RunFacts
    now_ns: int
    waiting: tuple[Waiting, ...] = ()


class Taken(msgspec.Struct, frozen=True, tag="taken"):
    """The answer counts."""

    given: Given


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """It does not. `given`: what counts instead. `oneself`: whom the agent acts for may not allow it; it waits on."""

    kind: Literal["unknown", "answered", "not-offered", "not-allowed", "oneself", "malformed", "busy"]
    why: str = ""
    given: Given | None = None


Reply = Pending | Taken | Failure

_request = msgspec.json.Decoder(Request)
_reply = msgspec.json.Decoder(Reply)
_encode = msgspec.json.Encoder().encode


def encode(message: Request | Reply) -> bytes:
    """One line."""
    return _encode(message) + b"\n"


def decode_request(line: bytes) -> Request:
    """Raises ValueError with the reason."""
    if len(line) > MAX_REQUEST_BYTES:
        raise ValueError(f"a request has at most {MAX_REQUEST_BYTES} bytes")
    try:
        return _request.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def decode_reply(line: bytes) -> Reply:
    """Raises ValueError with the reason."""
    try:
        return _reply.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def public_id(ask: str, run: str) -> str:
    """The id that people are shown: a later run's `a1` is another one."""
    return f"{ask}-{run[:RUN_DIGITS]}"


def split_id(text: str) -> tuple[str, str]:
    """(question, beginning of the run's id; empty where none was given)."""
    ask, _, run = text.partition("-")
    return ask, run
