"""A fault of ours: the traceback goes to a file in the state folder, and its name to the reader."""

import os
import sys

from agentwrap import __version__
from agentwrap.errors import AgentwrapError


def internal_fault(fault: BaseException, *, verbose: bool, exit_status: int) -> AgentwrapError:
    """The error to show for an exception nobody expected; `verbose` puts the traceback into it instead of a file."""
    import traceback

    trace = "".join(traceback.format_exception(fault))
    if verbose:
        return AgentwrapError("internal", "internal fault", evidence=trace.rstrip(), exit_status=exit_status)
    evidence = f"{type(fault).__name__}: {fault}"
    hint = keep_trace(trace)
    return AgentwrapError("internal", "internal fault", evidence=evidence, hint=hint, exit_status=exit_status)


def keep_trace(trace: str) -> str:
    """Save a traceback; the hint that names the file."""
    try:
        return f"please report it with the traceback in {_save_trace(trace)}"
    except (OSError, ImportError) as failure:
        return f"the traceback could not be saved ({failure}); run again with `-vv`"


def _save_trace(trace: str) -> str:
    import time

    from agentwrap.recording import places

    folder = places.state_dir(os.environ) / "faults"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"fault-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.txt"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.write(f"agentwrap {__version__}, Python {sys.version}\n\n{trace}")
    return str(path)
