"""The approver's side: which runs wait for somebody, and an answer to one of them."""

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from agentwrap.approvals import folder, messages
from agentwrap.approvals.messages import AskPending, Failure, Pending, Reply, Request
from agentwrap.errors import AgentwrapError

ELSEWHERE = "answer from a terminal outside of the run"


def ask(path: Path, request: Request) -> Reply | None:
    """One request to the run at `path`; None where that run is dead.

    Raises AgentwrapError `busy` where it does not answer.
    """
    try:
        connection = folder.connect(path)
        if connection is None:
            return None
        with connection:
            try:
                connection.sendall(messages.encode(request))
            except BrokenPipeError:
                pass  # refused before it was read: the reply says why
            line = _line(connection)
    except PermissionError as error:
        return Failure("not-allowed", f"the control socket is closed to it ({error.strerror}): {ELSEWHERE}")
    except OSError as error:
        raise _silent(path, error) from error
    if not line:
        if not _lives(path):
            return None  # it ended while we asked
        raise _silent(path, TimeoutError("we were held up, and it waits for nobody"))
    try:
        return messages.decode_reply(line)
    except ValueError as error:
        raise _silent(path, error) from error


def _lives(path: Path) -> bool:
    try:
        connection = folder.connect(path)
    except OSError:
        return True
    if connection is not None:
        connection.close()
    return connection is not None


def _line(connection: socket.socket) -> bytes:
    """Up to the newline, the end, or the bound."""
    received = bytearray()
    while not received.endswith(b"\n") and len(received) < messages.MAX_REPLY_BYTES:
        try:
            data = connection.recv(1 << 16)
        except ConnectionResetError:
            break  # closed with our request unread
        if not data:
            break
        received += data
    return bytes(received)


def _silent(path: Path, error: Exception) -> AgentwrapError:
    return AgentwrapError(
        "busy", f"the run {path.name[: messages.RUN_DIGITS]} does not answer", evidence=f"{path}: {error}",
        hint="is it stopped? `fg` or `kill -CONT` lets it go on",
    )  # fmt: skip


def paths(env: Mapping[str, str], state: Path) -> Iterator[Path]:
    """The sockets of this user's runs, in every folder where there may be some."""
    for place in dict.fromkeys(os.path.realpath(one) for one in folder.places(env, state)):
        yield from folder.sockets(Path(place))


def live(
    env: Mapping[str, str], state: Path, *, layers: bool = False
) -> Iterator[tuple[Path, Pending | Failure | AgentwrapError]]:
    """Every live run and what it says: what waits, or why it does not tell."""
    for path in paths(env, state):
        try:
            reply = ask(path, AskPending(layers))
        except AgentwrapError as error:
            yield path, error
            continue
        if isinstance(reply, Pending | Failure):
            yield path, reply
