"""Which project policies this user trusts: a list of (SHA-256, path) in the state folder, where no agent may write.

A project's own policy lies where the agent can change it. A trust is for one content at one path, so a changed or a
copied file has none.
"""

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from agentwrap.errors import AgentwrapError
from agentwrap.recording.places import trust_path

_HEAD = "# Project policies that are trusted: SHA-256 and path. `agentwrap policy trust FILE` adds one.\n"
_MAX_BYTES = 1 << 20


def digest(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def is_trusted(env: Mapping[str, str], path: Path, data: bytes) -> bool:
    """Whether this content at this path is trusted. Raises AgentwrapError where the list cannot be relied on."""
    return (digest(data), os.path.realpath(path)) in _entries(_read(trust_path(env)))


def trust(env: Mapping[str, str], path: Path, data: bytes) -> bool:
    """Trust this content at this path, and nothing else at it any more. Returns False if it was trusted before."""
    _refuse_inside_a_run()
    wanted = (digest(data), os.path.realpath(path))
    entries = _entries(_read(trust_path(env)))
    if wanted in entries:
        return False
    _write(trust_path(env), [*(entry for entry in entries if entry[1] != wanted[1]), wanted])
    return True


def untrust(env: Mapping[str, str], path: Path) -> bool:
    """Trust nothing at this path any more. Returns False if nothing was."""
    _refuse_inside_a_run()
    gone = os.path.realpath(path)
    entries = _entries(_read(trust_path(env)))
    kept = [entry for entry in entries if entry[1] != gone]
    if len(kept) != len(entries):
        _write(trust_path(env), kept)
    return len(kept) != len(entries)


def _refuse_inside_a_run() -> None:
    """An agent that is talked into trusting its own policy is told no (one that may write the list needs no help)."""
    from agentwrap.approvals import ancestry

    tracer = ancestry.tracer_above(os.getpid())
    if tracer:
        raise AgentwrapError(
            "refused", "trust is not given from inside a run", evidence=f"process {tracer} follows what it started",
            hint="run `agentwrap policy trust FILE` in a terminal of your own",
        )  # fmt: skip


def _entries(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for row in text.split("\n"):
        sha256, blank, path = row.partition("  ")
        if blank and not row.startswith("#"):
            found.append((sha256, path))
    return found


def _read(path: Path) -> str:
    """The list, empty where there is none yet."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    with open(descriptor, "rb") as file:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode):
            raise _unusable(path, "it is no regular file")
        if seen.st_uid not in (os.geteuid(), 0) or seen.st_mode & 0o022:
            raise _unusable(path, "others than you can write it")
        return file.read(_MAX_BYTES).decode("utf-8", "surrogateescape")


def _unusable(path: Path, why: str) -> AgentwrapError:
    return AgentwrapError(
        "refused", "the list of trusted policies cannot be relied on", evidence=f"{path}: {why}",
        hint=f"look at it, then `rm {path}` and trust again",
    )  # fmt: skip


def _write(path: Path, entries: list[tuple[str, str]]) -> None:
    """Replace the list. A path with a line break in it would be read as two entries."""
    for _, named in entries:
        if "\n" in named:
            raise AgentwrapError("refused", "a path with a line break cannot be trusted", evidence=named)
    text = _HEAD + "".join(f"{sha256}  {named}\n" for sha256, named in entries)
    fresh = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
            file.flush()
            os.fsync(descriptor)
        fresh.replace(path)
    except OSError as error:
        raise AgentwrapError(
            "output", "the list of trusted policies cannot be written", evidence=f"{path}: {error.strerror}"
        ) from error
