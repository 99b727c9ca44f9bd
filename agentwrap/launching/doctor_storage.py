"""Probes of where recordings go: the state folder, its file system, SQLite on it, the signing key.

The folders are passed in; nothing here knows where they ought to be. Nothing is left behind in them but the state
folder itself, which a run would make in the same way.
"""

import os
import sqlite3
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from agentwrap import text
from agentwrap.launching.probes import Probe

SPACE_WANTED_BYTES = 200_000_000


def state_folder(folder: Path) -> Probe:
    """The folder can be made and written, and how much room there is (`bavail`: what a plain user may use)."""
    name = "state-folder"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"agentwrap")
            file.flush()
        room = os.statvfs(folder)
    except OSError as error:
        fix = "make it writable, or set XDG_STATE_HOME, or give each run `-o FILE`"
        return Probe(name, False, f"{folder}: {error.strerror or error}", fix, weight="needed")
    free_bytes = room.f_bavail * room.f_frsize
    enough = free_bytes >= SPACE_WANTED_BYTES
    fix = "" if enough else "free some space: a run that fills the disk goes on, and what was lost becomes a gap"
    detail = f"{folder}, {text.size(free_bytes)} free on {_file_system(folder)}"
    return Probe(name, enough, detail, fix, weight="needed")


def _file_system(folder: Path) -> str:
    """The type of the file system that holds `folder`, from the longest mount point above it (proc(5))."""
    best, kind = "", "an unknown file system"
    path = os.path.realpath(folder)
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                left, _, right = line.partition(" - ")
                point = left.split(" ")[4].encode("utf-8", "surrogateescape").decode("unicode_escape")
                inside = path == point or path.startswith(point.rstrip("/") + "/")
                if inside and len(point) >= len(best):
                    best, kind = point, right.split(" ", 1)[0]
    except (OSError, IndexError, UnicodeDecodeError):
        pass
    return kind


def sqlite(folder: Path) -> Probe:
    """SQLite in WAL mode on the state folder: shared memory and locks have to work there (sqlite.org/wal.html)."""
    name, version = "sqlite", f"SQLite {sqlite3.sqlite_version}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return Probe(name, False, f"{version}: not tried, the state folder cannot be written", weight="needed")
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix="doctor-") as place:
            mode, seen = _two_connections(Path(place) / "probe.db")
    except (OSError, sqlite3.Error) as error:
        return Probe(name, False, f"{version}: {error}", "use a local file system, not a network one", weight="needed")
    works = mode == "wal" and seen == 1
    fix = "" if works else "use a local file system, not a network one"
    detail = f"{version}, WAL works" if works else f"{version}, journal mode {mode}, a reader sees {seen} of 1 rows"
    return Probe(name, works, detail, fix, weight="needed")


def _two_connections(path: Path) -> tuple[str, int]:
    """Write on one connection and count on another: the journal mode, and the rows that were seen."""
    writer = sqlite3.connect(path, isolation_level=None)
    try:
        (mode,) = writer.execute("PRAGMA journal_mode=WAL").fetchone()
        writer.execute("CREATE TABLE probe(x)")
        writer.execute("INSERT INTO probe VALUES(1)")
        reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            (seen,) = reader.execute("SELECT count(*) FROM probe").fetchone()
        finally:
            reader.close()
    finally:
        writer.close()
    return str(mode), int(seen)


def signing_key(path: Path) -> Probe:
    """A key is there, and nobody else can read it; without one, recordings are chained but unsigned."""
    name = "signing-key"
    try:
        about = path.stat()
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            return Probe(name, False, "none: recordings are unsigned", "`agentwrap keygen`")
        return Probe(name, False, f"{path}: {error.strerror}", "let this user read it, or set XDG_CONFIG_HOME")
    if about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return Probe(name, False, f"{path}: others may read it", f"`chmod 600 {path}`")
    return Probe(name, True, str(path))


def probes(folder: Path, key: Path) -> tuple[Callable[[], Probe], ...]:
    """All of them, in the order in which they are told."""
    return (lambda: state_folder(folder), lambda: sqlite(folder), lambda: signing_key(key))
