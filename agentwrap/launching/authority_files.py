"""The files that a run's programs read our authority's certificate from, beside the authorities they trust anyway.

They are named before the authority exists, since the environment of a run stands before its gateway does; `write` fills
them. Knows files. Refuses to know keys: there is none in them.
"""

import fcntl
import os
import time
from collections.abc import Mapping
from pathlib import Path

from agentwrap.launching.environment import Environment, trusted_files

SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine, BSD
)
_MAX_BYTES = 8 << 20
# Sandboxes put an empty folder over /tmp more often than over this one.
_PLACE = "/var/tmp"
_PREFIX = "agentwrap-run-"
_NEW_S = 60.0


class AuthorityFiles:
    """One run's. `paths`: variable to file, for `environment.with_authority`."""

    def __init__(self, environment: Environment, cwd: bytes) -> None:
        """Name the files for this environment; relative names in it are `cwd`'s. Raises OSError."""
        place = _PLACE if os.access(_PLACE, os.W_OK) else os.environ.get("TMPDIR", "/tmp")
        _sweep(place)
        self._folder = Path(place, _PREFIX + os.urandom(8).hex())
        self._folder.mkdir(0o700)
        self._folder.chmod(0o700)  # whatever the umask has taken from it
        self._lock = _locked(self._folder)
        self._merged: dict[bytes, Path] = {}
        self.paths: Mapping[bytes, bytes] = {
            name: os.fsencode(self._merged_path(os.path.join(cwd, base) if base else b""))
            for name, base in trusted_files(environment, _system_bundle()).items()
            if not base or os.path.isfile(os.path.join(cwd, base))
        }

    def _merged_path(self, base: bytes) -> Path:
        if base not in self._merged:
            number = f"-{len(self._merged)}" if self._merged else ""
            self._merged[base] = self._folder / f"certificates{number}.pem"
        return self._merged[base]

    def write(self, ca_pem: bytes) -> None:
        """Fill the files; where there is no authority after all, with what is trusted anyway. Raises OSError."""
        for base, path in self._merged.items():
            trusted = _read(base)
            path.write_bytes(trusted + (b"\n" if trusted and not trusted.endswith(b"\n") else b"") + ca_pem)
        # Programs of the run under another user read them, too.
        for path in self._merged.values():
            path.chmod(0o644)
        self._folder.chmod(0o755)

    def remove(self) -> None:
        """The run is over."""
        _remove(self._folder)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _locked(folder: Path) -> int:
    """A descriptor that holds the folder as long as we live (flock(2)); -1: somebody else holds it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return -1
    return descriptor


def _sweep(place: str) -> None:
    """Remove what runs left behind that were killed."""
    for name in os.listdir(place):
        folder = Path(place, name)
        if not name.startswith(_PREFIX):
            continue
        try:
            status = folder.lstat()
            # One that was made just now is about to be locked by who made it.
            old = status.st_uid == os.geteuid() and status.st_mtime < time.time() - _NEW_S
            held = _locked(folder) if old else -1
        except OSError:
            continue  # it goes away just now
        if held >= 0:
            _remove(folder)
            os.close(held)


def _remove(folder: Path) -> None:
    """The folder and the files in it; nobody puts folders there."""
    try:
        for name in os.listdir(folder):
            os.unlink(folder / name)
        folder.rmdir()
    except OSError:
        pass  # it is gone, or was never made


def _system_bundle() -> bytes | None:
    return next((path.encode() for path in SYSTEM_BUNDLES if os.path.isfile(path)), None)


def _read(path: bytes) -> bytes:
    if not path:
        return b""
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_BYTES)
    except OSError:
        return b""
