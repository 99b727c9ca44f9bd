"""What travels with the events from a producer to the recorder and is not an event: file contents and secret values.

Neither is ever written as it is. Contents are redacted and become blobs; secrets only teach the redactor what to hide.
"""

from typing import Literal

import msgspec


class Content(msgspec.Struct, frozen=True, tag="content", tag_field="kind"):
    """The bytes of a file at one moment, sent before the event whose `FileState.raw` is `sha`.

    `sha`: SHA-256 of `data`, 32 bytes. `role`: `before` contents are also kept for `agentwrap undo`.
    """

    sha: bytes
    data: bytes
    role: Literal["before", "after"]


class Secrets(msgspec.Struct, frozen=True, tag="secrets", tag_field="kind"):
    """Environment entries (name, value) of a process, for the redactor alone."""

    values: tuple[tuple[bytes, bytes], ...]
