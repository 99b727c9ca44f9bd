"""The recorder of a run, out of its options."""

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentwrap import __version__
from agentwrap.launching.options import RunOptions
from agentwrap.session.following import working_directory

if TYPE_CHECKING:
    from agentwrap.recording.pump import RecorderPump


_PATIENCE_S = 60.0
_TURN_S = 1.0


def is_written(pump: "RecorderPump") -> bool:
    """Wait until all that was put is in the file. A slow disk is waited for, one that fails is not: then False."""
    until_s = time.monotonic() + _PATIENCE_S
    while not pump.flush(_TURN_S):
        if pump.failure or time.monotonic() > until_s:
            return False
    return True


def make_pump(options: RunOptions, started_unix_ns: int, now: Callable[[], int]) -> "RecorderPump":
    """Make the file, and what writes into it. `now`: nanoseconds since `started_unix_ns`. Raises AgentwrapError."""
    from agentwrap.recording.pump import RecorderPump
    from agentwrap.recording.redact import RedactOptions, Redactor
    from agentwrap.recording.writer import Recorder

    redactor = Redactor(
        os.urandom(32),
        RedactOptions(names=options.redact_names, patterns=options.redact_patterns, json_keys=options.redact_keys),
    )
    for name, value in options.environment.items():
        redactor.learn(name, value)
    signer = None
    if options.signing_key is not None:
        from agentwrap.recording.keys import load_signer

        signer = load_signer(options.signing_key)
    recorder = Recorder.create(
        options.output,
        run_id=options.run_id,
        meta={
            "tool_version": __version__,
            "started_unix_ns": str(started_unix_ns),
            "clocks": "at_ns is CLOCK_MONOTONIC since the start; started_unix_ns is CLOCK_REALTIME then",
            "cwd": os.fsdecode(options.cwd or working_directory()),
            **options.host_facts,
        },
        redactor=redactor,
        signer=signer,
        shape_only=options.shape_only,
        undo=options.undo,
        now=now,
    )
    return RecorderPump(recorder)
