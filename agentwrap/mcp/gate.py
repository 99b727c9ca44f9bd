"""What the policy says of one MCP message. Pure: bytes in, a verdict out; who forwards, holds and answers is elsewhere.

A message is judged by its body alone, read strictly; the bytes that go on are never ours.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from agentwrap.policy.layers import Layer


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of a message (of one member of a batch: `part`).

    `deny`: it does not go on; `answer` is the whole JSON text to give to its sender (empty: none, as a notification or
    a response gets none). `hold`: it waits for a human; `question` is what they are asked, `refused(why)` of the gate
    makes the answer for the case that it does not go on. `would-deny`: mode `observe`; it passes.

    `id`: as JSON text, empty for a notification. `cancels`: the id (JSON text) of a request that this message cancels.
    `progress_token`: as JSON text, empty if none was given. `modern`: the request says that it is of 2026-07-28.
    """

    decision: Literal["pass", "deny", "hold", "would-deny"] = "pass"
    part: int = 0
    rule: bytes = b""
    why: bytes = b""
    change: bytes = b""
    method: bytes = b""
    tool: bytes = b""
    digest: str = ""
    id: bytes = b""
    cancels: bytes = b""
    progress_token: bytes = b""
    modern: bool = False
    answer: bytes = b""
    question: bytes = b""
    ruled: bool = False  # a rule spoke, so that it is told (`McpJudged`) also where it passes


class Gate:
    """The rules for one server. `server`: its name as in `mcp.session`."""

    def __init__(self, layers: Sequence[Layer], server: bytes) -> None:
        self._layers = layers
        self._server = server

    def reads(self, *, up: bool) -> bool:  # noqa: ARG002
        """Whether messages of a side have to be judged at all; else its bytes go on unread."""
        return False

    def judge(self, message: bytes, *, up: bool) -> tuple[Verdict, ...]:  # noqa: ARG002
        """One verdict for a message, one for each member of a batch. Never raises for foreign bytes.

        A batch goes on whole or not at all: where one member is denied or held, the caller refuses the whole.
        """
        return (Verdict(),)

    def refused(self, verdict: Verdict, why: bytes) -> bytes:  # noqa: ARG002
        """The answer for a held message that does not go on: denied by a human, expired."""
        return b""

    def progress(self, verdict: Verdict, count: int, text: bytes) -> bytes:  # noqa: ARG002
        """A `notifications/progress` for a held call that gave a token; empty where it gave none."""
        return b""
