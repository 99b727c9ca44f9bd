"""Writing what a command makes into a file that was not there, readable by its owner alone."""

import os
from collections.abc import Iterable
from pathlib import Path

from agentwrap.errors import AgentwrapError


def write_new(path: Path, chunks: Iterable[bytes]) -> None:
    """Write a new file. Raises AgentwrapError `exists`, `output`; leaves no half of a file."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise AgentwrapError("exists", "the output is already there", evidence=str(path), hint="name another") from None
    except OSError as failure:
        raise _cannot_write(path, failure) from failure
    try:
        with open(descriptor, "wb", buffering=1 << 20) as file:
            file.writelines(chunks)
    except BaseException as failure:
        path.unlink(missing_ok=True)
        if isinstance(failure, OSError):
            raise _cannot_write(path, failure) from failure
        raise


def _cannot_write(path: Path, failure: OSError) -> AgentwrapError:
    return AgentwrapError("output", "cannot write the output", evidence=f"{path}: {failure.strerror}")
