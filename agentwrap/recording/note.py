"""Checkpoint notes: the text that states how many events there are and what their Merkle root is. Pure.

C2SP tlog-checkpoint (origin, tree size, base64 root) with extension lines of ours, in a C2SP signed-note envelope.
Knows the texts and the bytes that are signed; whether a signature holds is asked of a function given by the caller.
"""

import base64
import binascii
from hashlib import sha256

import msgspec

_DASH = "\u2014 "
_ED25519 = b"\x01"


def key_id(name: str, public_key: bytes) -> bytes:
    """Four bytes that hint at the key (C2SP signed-note): SHA-256(name, newline, 0x01, public key)."""
    return sha256(name.encode() + b"\n" + _ED25519 + public_key).digest()[:4]


class Note(msgspec.Struct, frozen=True):
    """One checkpoint. `at_ns`: when it was made; `meta`: SHA-256 of the meta table; `close`: it is the close record."""

    origin: str
    count: int
    root: bytes
    at_ns: int
    meta: bytes
    close: bool = False
    signatures: tuple[tuple[str, bytes], ...] = ()
    """(key name, key id and signature)."""

    def body(self) -> str:
        """The signed text."""
        b64 = base64.b64encode
        text = f"{self.origin}\n{self.count}\n{b64(self.root).decode()}\n"
        text += f"at {self.at_ns}\nmeta {b64(self.meta).decode()}\n"
        return text + ("close\n" if self.close else "")

    def text(self) -> str:
        """The whole note as it is stored; without a signature it is the body alone."""
        lines = "".join(f"{_DASH}{name} {base64.b64encode(sig).decode()}\n" for name, sig in self.signatures)
        return self.body() + ("\n" + lines if lines else "")


def parse(text: str) -> Note:
    """Read a note back. Raises ValueError unless writing it again gives the very same text."""
    body, _, tail = text.partition("\n\n")
    lines = body.rstrip("\n").split("\n") if not tail else body.split("\n")
    try:
        origin, count, root, at_line, meta_line = lines[:5]
        close = lines[5:]
        signatures = tuple(_signature(line) for line in tail.splitlines())
        note = Note(
            origin=origin,
            count=int(count),
            root=base64.b64decode(root, validate=True),
            at_ns=int(at_line.removeprefix("at ")),
            meta=base64.b64decode(meta_line.removeprefix("meta "), validate=True),
            close=bool(close),
            signatures=signatures,
        )
    except (ValueError, binascii.Error) as error:
        raise ValueError(f"not a checkpoint note: {error}") from error
    if note.text() != text or len(note.root) != 32 or len(note.meta) != 32:
        raise ValueError("not a checkpoint note in its canonical form")
    return note


def _signature(line: str) -> tuple[str, bytes]:
    if not line.startswith(_DASH):
        raise ValueError("a signature line begins with an em dash")
    name, _, encoded = line[len(_DASH) :].rpartition(" ")
    return name, base64.b64decode(encoded, validate=True)
