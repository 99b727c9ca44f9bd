"""Tell the run what this program is doing: one function and one context manager, no dependencies.

    from agentwrap.emit import emit, span

    with span("plan", goal="fix the typo"):
        emit("decision", "edit hello.py", why="the test says so")

Outside of a run nothing happens. Nothing here raises because of the run, waits for it, or loads anything else of it:
what cannot be sent at once is dropped. The protocol is one line of JSON per statement (docs/reference/claims.md), so a
program can also speak it without this file.
"""

import contextlib
import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

VARIABLE = "AGENTWRAP_CLAIMS"

_lock = threading.Lock()
_numbers = itertools.count(1)
_channel: socket.socket | None = None
_owner = 0


def emit(event: str, name: str = "", *, id: str = "", parent: str = "", status: str = "", **data: Any) -> bool:  # noqa: A002
    """State one thing. `event`: `span.start`, `span.end`, `decision`, `message`, `tool.call`, `tool.result`, `retry`,
    `error` or `log`. Anything else goes into `data`. True if it was sent.
    """  # noqa: D205
    told: dict[str, Any] = {"event": event, "name": name, "time": time.time()}
    told |= {key: value for key, value in (("id", id), ("parent", parent), ("status", status)) if value}
    if data:
        told["data"] = data
    try:
        line = json.dumps(told, default=repr, separators=(",", ":")).encode() + b"\n"
    except (ValueError, TypeError, RecursionError):
        return False
    with _lock:
        return _send(line)


@contextlib.contextmanager
def span(name: str, parent: str = "", **data: Any) -> Iterator[str]:
    """State that something begins and ends; gives its id, which others may name as their parent."""
    number = f"{os.getpid()}-{next(_numbers)}"
    emit("span.start", name, id=number, parent=parent, **data)
    try:
        yield number
    except BaseException as error:
        emit("span.end", name, id=number, status="error", error=repr(error)[:1000])
        raise
    emit("span.end", name, id=number, status="ok")


def _send(line: bytes) -> bool:
    channel = _connected()
    if channel is None:
        return False
    try:
        if channel.send(line, socket.MSG_NOSIGNAL) == len(line):
            return True
        # Half a line is on its way: only the end of the connection ends it.
    except BlockingIOError:
        return False
    except OSError:
        pass  # nobody hears it any more
    close()
    return False


def _connected() -> socket.socket | None:
    global _channel, _owner
    if _channel is not None and _owner != os.getpid():
        _channel = None  # after a fork: the kernel would take what is said here for the parent's
    path = os.environ.get(VARIABLE, "")
    if _channel is None and path:
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        channel.setblocking(False)
        try:
            channel.connect(path)
        except OSError:
            channel.close()
            return None
        _channel, _owner = channel, os.getpid()
    return _channel


def close() -> None:
    """Let go of the run's socket; the next statement opens it again."""
    global _channel
    channel, _channel = _channel, None
    if channel is not None:
        channel.close()
