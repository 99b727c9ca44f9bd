"""Errors that a person (or `--json`) is told: what, the evidence, one command that helps.

Inside, builtin exceptions are used; they become an `AgentwrapError` at the boundary where they can be explained.
"""

from typing import Literal

ErrorKind = Literal[
    "usage",  # the command line asks for something that cannot be
    "not-found",  # a command, file or recording that is not there
    "not-executable",  # the command exists and cannot be run
    "not-a-recording",  # the file is not an .agentlog
    "newer-format",  # the .agentlog was written by a newer version
    "damaged",  # the .agentlog cannot be read as SQLite
    "busy",  # somebody else holds what we need
    "exists",  # the output is already there
    "output",  # the recording cannot be written
    "unsupported",  # this kernel, container or machine refuses what was asked
    "not-covered",  # a coverage requirement cannot be met
    "refused",  # agentwrap itself declines (undo of a changed file, ...)
    "internal",  # a fault of ours
]

EXIT_FINDING = 1
EXIT_USAGE = 2
EXIT_NOT_COVERED = 3
EXIT_DENIED = 123
EXIT_TIMEOUT = 124
EXIT_FAILED = 125
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127


class AgentwrapError(Exception):
    """A failure to be shown as `error:` / evidence / `hint:`.

    `message` is lower case without a full stop; `evidence` is what was seen (may have several lines, may hold foreign
    text: it is escaped when shown); `hint` is one thing to do; `exit_status` is the status of the command.
    """

    def __init__(
        self, kind: ErrorKind, message: str, *, evidence: str = "", hint: str = "", exit_status: int = EXIT_USAGE
    ) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.message = message
        self.evidence = evidence
        self.hint = hint
        self.exit_status = exit_status
