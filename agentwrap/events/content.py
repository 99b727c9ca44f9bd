"""What travels with the events from a producer to the recorder and is not an event: contents and secret values.

Neither is ever written as it is. Contents are redacted and become blobs; secrets only teach the redactor what to hide.
"""

from typing import Literal

import msgspec


class Content(msgspec.Struct, frozen=True, omit_defaults=True, tag="content", tag_field="kind"):
    """Bytes of a file at one moment, or of a message, sent before the event that names them by their raw hash.

    `sha`: SHA-256 of `data`, 32 bytes. `role`: `before` contents are also kept for `agentwrap undo`; `body` is a piece
    of a message. `scattered`: texts that lie in pieces in `data`, each as start, end, start, end, ... of its pieces in
    order: a secret in such a text is hidden wherever its pieces are. `plain`: somebody asked for it as it is.
    """

    sha: bytes
    data: bytes
    role: Literal["before", "after", "body"]
    scattered: tuple[tuple[int, ...], ...] = ()
    plain: bool = False


class Body(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message body: the contents which, one after the other, are its bytes.

    `pieces`: raw SHA-256 of each, as in `Content.sha` (between producer and recorder only). `size`: bytes of all of
    them. `omitted`: why they were not kept (`over-cap`, `not-kept`).
    """

    size: int = 0
    pieces: tuple[bytes, ...] = ()
    omitted: Literal["", "over-cap", "not-kept"] = ""


class Secrets(msgspec.Struct, frozen=True, tag="secrets", tag_field="kind"):
    """Environment entries (name, value) of a process, for the redactor alone."""

    values: tuple[tuple[bytes, bytes], ...]
