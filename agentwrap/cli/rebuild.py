"""`agentwrap rebuild`: the exact bytes of a request or an answer, put together from their pieces."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentwrap.cli import reading
from agentwrap.cli.new_file import write_new
from agentwrap.cli.output import Output, common_options, pass_output
from agentwrap.errors import AgentwrapError

if TYPE_CHECKING:
    from agentwrap.recording.reader import Reader, Row

_FIELDS = ("request", "response", "message", "timing", "content", "body", "definition")
_KINDS = {"m": ("model.request", "model.response"), "h": ("http.exchange",), "k": ("mcp.call",)}
_ID = {"m": "call", "h": "exchange", "k": "call"}


@click.command(short_help="Put a request or an answer together, byte by byte.")
@click.argument("call")
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--request", "field", flag_value="request", help="The body of the request (if nothing else is asked).")
@click.option("--response", "field", flag_value="response", help="The body of the answer, as it came.")
@click.option("--message", "field", flag_value="message", help="The answer put together, as JSON.")
@click.option("-o", "--output", "target", metavar="OUT", help="Write to OUT, which must not exist.")
@common_options()
@pass_output
def command(output: Output, call: str, file: str | None, field: str | None, target: str | None) -> int:
    """Write the body of a call to standard output, as it crossed the wire but for what was redacted.

    CALL is the id of a model call (m3), of another exchange (h1), of an MCP call (k3), or the number of an event.
    Without FILE, the latest recording. Content codings (gzip) and chunks are undone; nothing else is.
    """
    path = Path(file) if file is not None else reading.latest()
    with reading.open_recording(path) as source:
        row, name = _find(source, path, call, field)
        told = row.data.get(name)
        told = told if isinstance(told, dict) else {}
        _kept(path, call, name, told, shape_only=source.meta.get("shape_only") == "1")
        pieces = list(_pieces(source, row, name))
        if target is not None and target != "-":
            write_new(Path(target), pieces)
        elif output.is_terminal:
            output.lines(_text(b"".join(pieces)).split("\n"))
        else:
            output.write_bytes(pieces)
    if told.get("redacted"):
        output.note("what was a secret is «redacted:...» in it")
    return 0


def _find(source: "Reader", path: Path, call: str, field: str | None) -> "tuple[Row, str]":
    """The event, and which of its bodies is meant. Raises AgentwrapError."""
    known = re.fullmatch(r"([mhk])[1-9]\d{0,8}|[1-9]\d{0,14}", call)
    if known is None:
        hint = "a call is m1, m2, ...; an exchange h1; an MCP call k1; an event 12"
        raise AgentwrapError("usage", f"`{call}` is no call", hint=hint)
    letter = known[1]
    if letter is None:
        row = next((row for row in source.rows(after=int(call) - 1, limit=1) if row.seq == int(call)), None)
        bodies = [name for name in _FIELDS if row is not None and isinstance(row.data.get(name), dict)]
    elif letter == "k":
        row = _message(source, call, "response" if field == "response" else "request")
        field, bodies = ("body" if row is not None else field or "request"), []
    else:
        kind = _KINDS[letter][-1 if field in ("response", "message") else 0]
        row = next((row for row in source.rows(kinds=[kind]) if row.data.get(_ID[letter]) == call), None)
        bodies = ["request"]
    if row is None:
        raise _unknown(source, path, call, letter, field)
    return row, field or (bodies[0] if bodies else "request")


def _message(source: "Reader", call: str, sort: str) -> "Row | None":
    """The message that asks, or that answers, a call of MCP."""
    rows = source.rows(kinds=["mcp.message"])
    return next((row for row in rows if row.data.get("call") == call and row.data.get("sort") == sort), None)


def _unknown(source: "Reader", path: Path, call: str, letter: str | None, field: str | None) -> AgentwrapError:
    if letter is None:
        return AgentwrapError("not-found", f"there is no event {call}", evidence=f"{path}: {source.count()} events")
    ids = [str(row.data.get(_ID[letter], "")) for row in source.rows(kinds=[_KINDS[letter][0]])]
    if call in ids:
        return AgentwrapError("not-found", f"there is no {field} of {call}", evidence=f"{path}: no answer was seen")
    shown = ", ".join(ids[:20]) + (f" and {len(ids) - 20} more" if len(ids) > 20 else "")
    return AgentwrapError("not-found", f"there is no {call}", evidence=f"{path}: {shown or 'none'}")


def _kept(path: Path, call: str, name: str, told: dict[str, Any], *, shape_only: bool) -> None:
    """Raises AgentwrapError where the body is not in the file."""
    size = told.get("size", 0)
    if not told:
        raise AgentwrapError("not-found", f"{call} has no {name}", evidence=f"{path}: there were no bytes")
    if shape_only:
        why = f"{size} bytes; the recording was made with --shape-only"
    elif told.get("omitted") == "over-cap":
        why = f"{size} bytes are more than is kept"
    elif told.get("omitted"):
        why = f"{size} bytes that did not all reach the file"
    else:
        return
    raise AgentwrapError("not-found", f"the {name} of {call} was not kept", evidence=f"{path}: {why}")


def _pieces(source: "Reader", row: "Row", name: str) -> Iterator[bytes]:
    for piece in source.body(row.seq, name):
        if piece is None:
            why = f"event {row.seq}: a piece was given up, for want of room or on request"
            raise AgentwrapError("not-found", f"the {name} was not kept whole", evidence=why)
        yield piece


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as failure:
        size = f"{len(data)} bytes"
        raise AgentwrapError(
            "refused", "these bytes are no text for a terminal", evidence=size, hint="-o FILE, or a pipe"
        ) from failure
