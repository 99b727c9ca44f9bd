"""Ed25519 keys (RFC 8032): making, keeping and using them. `cryptography` is imported only when a key is used.

The private key is the 32 byte seed in base64, the public key its 32 bytes, each in a file of one line.
"""

import base64
import binascii
import os
from collections.abc import Callable
from pathlib import Path

from agentwrap.errors import AgentwrapError

_SEED_PREFIX = "agentwrap-ed25519-private "
_PUBLIC_PREFIX = "agentwrap-ed25519 "


class Signer:
    """A private key in use. `public` is its public key, 32 bytes."""

    def __init__(self, seed: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.from_private_bytes(seed)
        self._sign: Callable[[bytes], bytes] = key.sign
        self.public = key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """64 bytes of signature."""
        return self._sign(message)


def holds(public_key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether `signature` is the key's signature of `message`."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _decode(path: Path, text: str, prefix: str, what: str) -> bytes:
    try:
        raw = base64.b64decode(text.strip().removeprefix(prefix), validate=True)
    except (ValueError, binascii.Error):
        raw = b""
    if len(raw) != 32 or not text.startswith(prefix):
        raise AgentwrapError("usage", f"not {what}", evidence=str(path), hint="agentwrap keygen")
    return raw


def _read(path: Path, what: str) -> str:
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            return file.read(4096)
    except OSError as error:
        raise AgentwrapError(
            "not-found", f"cannot read {what}", evidence=f"{path}: {error.strerror}", hint="agentwrap keygen"
        ) from error


def load_signer(path: Path) -> Signer:
    """The private key in `path`. Raises AgentwrapError (`not-found`, `usage`)."""
    return Signer(_decode(path, _read(path, "the signing key"), _SEED_PREFIX, "a signing key"))


def load_public(path: Path) -> bytes:
    """The public key in `path`, 32 bytes. Raises AgentwrapError (`not-found`, `usage`)."""
    return _decode(path, _read(path, "the public key"), _PUBLIC_PREFIX, "a public key")


def generate(private: Path, public: Path) -> bytes:
    """Make a key pair; never replaces one. Returns the public key. Raises AgentwrapError (`exists`, `output`)."""
    seed = os.urandom(32)
    signer = Signer(seed)
    try:
        if not private.parent.is_dir():
            os.makedirs(private.parent, mode=0o700)
        _write_new(private, _SEED_PREFIX + base64.b64encode(seed).decode() + "\n", 0o600)
        public.unlink(missing_ok=True)
        _write_new(public, public_text(signer.public), 0o644)
    except FileExistsError as error:
        if error.filename != str(private):
            raise _unwritable(error) from error
        raise AgentwrapError(
            "exists", "there is a signing key already", evidence=str(error.filename), hint="move it away first"
        ) from error
    except OSError as error:
        raise _unwritable(error) from error
    return signer.public


def _unwritable(error: OSError) -> AgentwrapError:
    why = f"{error.filename}: {error.strerror}"
    return AgentwrapError("output", "the signing key cannot be written", evidence=why)


def public_text(key: bytes) -> str:
    """A public key as the one line that `signing.pub` holds."""
    return _PUBLIC_PREFIX + base64.b64encode(key).decode() + "\n"


def _write_new(path: Path, text: str, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
