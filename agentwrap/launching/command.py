"""Which file a command word means, as a shell would find it: before anything is started, so that errors are ours."""

import os
import stat
from collections.abc import Mapping

from agentwrap.errors import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, AgentwrapError

_DEFAULT_PATH = (
    b"/usr/local/bin:/usr/bin:/bin"  # confstr(_CS_PATH) of glibc plus /usr/local/bin, as execvp(3) falls back
)


def find(word: bytes, environment: Mapping[bytes, bytes], cwd: bytes | None) -> bytes:
    """The path to execute for `word`.

    Raises AgentwrapError `not-found` (127) or `not-executable` (126), the statuses that shells and docker use.
    """
    if not word:
        raise AgentwrapError("usage", "the command is an empty word", hint="agentwrap -- COMMAND")
    base = cwd or b""
    if b"/" in word:
        return _check(word, os.path.join(base, word))
    refused: tuple[bytes, bytes] | None = None
    for directory in environment.get(b"PATH", _DEFAULT_PATH).split(b":"):
        candidate = os.path.join(directory or b".", word)
        absolute = os.path.join(base, candidate)
        if not os.path.isfile(absolute):
            continue
        if os.access(absolute, os.X_OK):
            return candidate
        refused = refused or (candidate, absolute)
    if refused is not None:
        return _check(*refused)
    shown = os.fsdecode(word)
    raise AgentwrapError(
        "not-found",
        f"no command `{shown}`",
        evidence=f"searched PATH={os.fsdecode(environment.get(b'PATH', _DEFAULT_PATH))}",
        hint=f"type -a {shown}",
        exit_status=EXIT_NOT_FOUND,
    )


def _check(word: bytes, path: bytes) -> bytes:
    shown = os.fsdecode(word)
    try:
        status = os.stat(path)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        raise AgentwrapError(
            "not-found" if missing else "not-executable",
            f"cannot run `{shown}`",
            evidence=f"{shown}: {error.strerror}",
            hint=f"ls -l {shown}",
            exit_status=EXIT_NOT_FOUND if missing else EXIT_NOT_EXECUTABLE,
        ) from error
    if stat.S_ISDIR(status.st_mode):
        raise AgentwrapError(
            "not-executable",
            f"`{shown}` is a directory",
            evidence=shown,
            hint=f"name a program in it: agentwrap -- {shown.rstrip('/')}/PROGRAM",
            exit_status=EXIT_NOT_EXECUTABLE,
        )
    if not os.access(path, os.X_OK):
        raise AgentwrapError(
            "not-executable",
            f"`{shown}` is not executable",
            evidence=f"{shown}: mode {stat.S_IMODE(status.st_mode):04o}",
            hint=f"chmod +x {shown}",
            exit_status=EXIT_NOT_EXECUTABLE,
        )
    return word
