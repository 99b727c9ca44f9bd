"""Sending spans: a whole recording, or one that is being written, from a process beside the run.

The file is the only bridge to the run, and the only buffer: while a server is slow or away, what is to be sent waits in
it. So the run cannot be slowed or harmed from here.
"""

import os
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from agentwrap import text
from agentwrap.cli import reading
from agentwrap.cli.output import Output
from agentwrap.delivery.endpoint import Endpoint
from agentwrap.errors import EXIT_FAILED, AgentwrapError
from agentwrap.evidence import mcp_calls, turns
from agentwrap.views.summary import started_at

if TYPE_CHECKING:
    import subprocess

    from agentwrap.recording.reader import Reader, Row

GRACE_S = 5.0
"""So long after the end of a run what is left may take."""
_WIRE = frozenset({*turns.KINDS, *mcp_calls.KINDS})
_LOOK_EVERY_S = 0.2
_SEND_EVERY_S = 1.0
_MOST_HELD = 50_000
_LIVE_TIMEOUT_S, _LAST_TIMEOUT_S = 5.0, 2.0


def deliver(output: Output, chunks: Iterable[bytes], endpoint: Endpoint) -> int:
    """Send requests one after the other. Returns how many the server rejected. Raises AgentwrapError."""
    from agentwrap.delivery.otlp_http import Sender, attempts

    rejected, messages = 0, dict[str, None]()
    sent = 0
    with Sender(endpoint, attempts()) as sender:
        for chunk in chunks:
            answer = sender.send(chunk)
            sent += 1
            rejected += answer.rejected
            if answer.message:
                messages[answer.message] = None
    output.note(f"agentwrap sent {text.count(sent, 'request')} to {endpoint.shown}")
    if rejected or messages:
        said = "; ".join(list(messages)[:3])
        output.note(f"the server rejected {text.count(rejected, 'span')}{': ' if said else ''}{said}")
    return rejected


def follow(output: Output, source: "Reader", endpoint: Endpoint, *, content: bool) -> int:
    """Send the spans of a run as they end, until it is over. What went wrong is told at the end, in one line.

    Returns an exit status: 1 if something was not delivered.
    """
    os.nice(5)
    live = _Live(source, endpoint, content=content)
    try:
        live.run()
    except AgentwrapError as failure:
        live.failures[f"{failure.message}: {failure.evidence}"] = None
    if live.failures:
        first = next(iter(live.failures))
        again = f"`agentwrap export --otlp --to {endpoint.shown} {source.path}` sends all of it"
        output.note(f"agentwrap: not every span was delivered: {first} ({again})")
    return 1 if live.failures else 0


def check(url: str, environment: Mapping[str, str]) -> None:
    """Find out before a run what would keep spans from being sent. Raises AgentwrapError `usage`, `unsupported`."""
    from agentwrap.delivery.endpoint import endpoint
    from agentwrap.export.otlp import messages

    try:
        endpoint(url, (), environment)
        messages()
    except AgentwrapError as failure:
        failure.exit_status = EXIT_FAILED
        raise


def beside(recording: Path, url: str, *, quiet: bool) -> "subprocess.Popen[bytes] | None":
    """Start `follow` in a process of its own; None where that cannot be done. What it says is said on our stderr.

    It inherits our blocked signals: Ctrl-C is the agent's business, and spans are sent until the run is over.
    """
    import subprocess

    words = [sys.executable, "-m", "agentwrap", "export", str(recording), "--otlp", "--to", url, "--follow"]
    nowhere = subprocess.DEVNULL
    try:
        return subprocess.Popen(words, stdin=nowhere, stdout=nowhere, stderr=nowhere if quiet else None)
    except OSError:
        return None


def wait_for(process: "subprocess.Popen[bytes]", output: Output) -> None:
    """Wait for the sender after a run, not for ever."""
    import subprocess

    try:
        process.wait(3 * GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        output.note("agentwrap: not every span was delivered: the sender did not end")


class _Live:
    """A run being sent. Rows wait for a second or two before their spans are made, for who explains them comes late."""

    def __init__(self, source: "Reader", endpoint: Endpoint, *, content: bool) -> None:
        from agentwrap.delivery.otlp_http import Sender
        from agentwrap.evidence import linking
        from agentwrap.export.otlp import Batches

        self.failures: dict[str, None] = {}
        self._source = source
        self._ended_s: float | None = None
        self._last_tries = 0
        self._story = linking.following(source.meta)
        self._batches = Batches(source, self._story, started_at(source.meta), content=content)
        self._sender = Sender(endpoint, lambda: self._patience, timeout_s=_LIVE_TIMEOUT_S)

    def run(self) -> None:
        """Until the recording is no longer written, and what it holds is sent or the time for that is up."""
        after = 0
        older: list[Row] = []
        newer: list[Row] = []
        sent_s = time.monotonic()
        while True:
            # Asked before the rows are read: what was committed before the end is not missed.
            over = self._over()
            if over or self._source.changed():
                for row in reading.rows_of(self._source, after=after):
                    after = row.seq
                    if row.kind in _WIRE:
                        self._story.feed(row)  # what the wire says is known before what the kernel says is judged
                    newer.append(row)
                    if len(newer) >= _MOST_HELD:
                        older, newer = self._take(older, newer)
            if over or time.monotonic() - sent_s >= _SEND_EVERY_S:
                older, newer = self._take(older, newer)
                self._send(self._batches.flush())
                sent_s = time.monotonic()
            if over:
                break
            time.sleep(_LOOK_EVERY_S)
        self._take(older, newer)
        self._send(self._batches.finish())
        self._sender.close()

    def _take(self, older: "list[Row]", newer: "list[Row]") -> "tuple[list[Row], list[Row]]":
        """Make spans of the older rows; the newer ones are the older ones from now on."""
        for row in older:
            if row.kind not in _WIRE:
                self._story.feed(row)
            self._send(self._batches.take(row))
        return newer, []

    def _send(self, requests: Iterable[bytes]) -> None:
        for request in requests:
            if self._late():
                raise AgentwrapError("output", "no time was left", evidence=f"{GRACE_S:.0f} s after the end of the run")
            try:
                answer = self._sender.send(request)
            except AgentwrapError as failure:
                if self._over():
                    raise
                self._fail(f"{failure.message}: {failure.evidence}")
            else:
                if answer.rejected:
                    self._fail(f"{text.count(answer.rejected, 'span')} rejected: {answer.message}")

    def _fail(self, why: str) -> None:
        if len(self.failures) < 10:
            self.failures[why] = None

    def _over(self) -> bool:
        if self._ended_s is None and self._source.state() != "live":
            self._ended_s = time.monotonic()
            self._sender.timeout_s = _LAST_TIMEOUT_S
        return self._ended_s is not None

    def _late(self) -> bool:
        return self._over() and self._ended_s is not None and time.monotonic() - self._ended_s > GRACE_S

    def _patience(self, seconds: float) -> bool:
        """Wait for a server that is away as long as the run goes on; after it, once."""
        self._last_tries += self._over()
        if self._last_tries > 1:
            return False
        until_s = time.monotonic() + seconds
        while not self._late():
            if time.monotonic() >= until_s:
                return True
            time.sleep(_LOOK_EVERY_S)
        return False
