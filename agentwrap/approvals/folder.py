"""Where the control sockets of live runs lie: one folder per user, closed to others; a socket is named by its run.

A socket appears under its name only once somebody listens on it, and a run's id is never used again. So a socket that
refuses a connection belongs to a dead run and is removed by whoever notices.
"""

import os
import socket
import stat
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from agentwrap.errors import AgentwrapError

BACKLOG = 128
_TIMEVAL = struct.Struct("@ll")  # seconds, microseconds
_UCRED = struct.Struct("@iII")  # pid, uid, gid
_HANDSHAKE_S = 5.0
_PROBE_S = 0.2


def places(env: Mapping[str, str], state: Path) -> list[Path]:
    """Where sockets may lie, best first. `state`: our folder of what is kept between runs."""
    for one in (env.get("XDG_RUNTIME_DIR", ""), f"/run/user/{os.geteuid()}"):
        if one.startswith("/") and _is_ours(Path(one)):
            return [Path(one) / "agentwrap", state / "run"]
    return [state / "run"]


def _is_ours(folder: Path) -> bool:
    """Whether it is a folder of this user that nobody else can write (under sudo, XDG_RUNTIME_DIR is another's)."""
    try:
        seen = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid() and not seen.st_mode & 0o022


def prepare(env: Mapping[str, str], state: Path) -> Path:
    """The folder for this user's sockets, made if it is not there. Raises AgentwrapError `output`."""
    reasons: list[str] = []
    for folder in places(env, state):
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if _is_ours(folder):
                folder.chmod(0o700)
                return folder
            reasons.append(f"{folder}: it is not ours alone")
        except OSError as error:
            reasons.append(f"{folder}: {error.strerror}")
    raise AgentwrapError(
        "output", "there is no folder for the control socket", evidence="\n".join(reasons),
        hint="XDG_RUNTIME_DIR names a folder that is yours alone",
    )  # fmt: skip


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _short(descriptor: int, name: str) -> str:
    """A path for bind(2) and connect(2): sun_path has room for 108 bytes (unix(7)), and home folders may be longer."""
    return f"/proc/self/fd/{descriptor}/{name}"


def listen(path: Path) -> socket.socket:
    """Listen under that name. Raises OSError."""
    descriptor = _opened(path.parent)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    unready = f".{path.name}.{os.getpid()}"
    try:
        listener.bind(_short(descriptor, unready))
        os.chmod(unready, 0o600, dir_fd=descriptor)
        listener.listen(BACKLOG)
        os.rename(unready, path.name, src_dir_fd=descriptor, dst_dir_fd=descriptor)
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(descriptor)
    return listener


def connect(path: Path, timeout_s: float = _HANDSHAKE_S) -> socket.socket | None:
    """A connection to the run of that name; None where it is dead (then the socket is removed).

    Raises TimeoutError, OSError.
    """
    try:
        descriptor = _opened(path.parent)
    except FileNotFoundError:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # With a full backlog a blocking connect(2) waits its turn for as long as this; one that does not block gives up.
    connection.setsockopt(
        socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(int(timeout_s), int(timeout_s % 1 * 1e6))
    )
    try:
        connection.connect(_short(descriptor, path.name))
        connection.settimeout(timeout_s)
        return connection
    except (ConnectionRefusedError, FileNotFoundError):
        connection.close()
        path.unlink(missing_ok=True)
        return None
    except BlockingIOError as error:
        connection.close()
        raise TimeoutError(error.errno, "too many want to be heard") from error
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(descriptor)


def sockets(folder: Path) -> Iterator[Path]:
    """The sockets in a folder, oldest first, of runs that live or died. Nothing where the folder is not ours."""
    if not _is_ours(folder):
        return
    found: list[tuple[int, Path]] = []
    for entry in os.scandir(folder):
        try:
            seen = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # it ended between listing and looking
        if stat.S_ISSOCK(seen.st_mode) and not entry.name.startswith("."):
            found.append((seen.st_mtime_ns, Path(entry.path)))
    yield from (path for _, path in sorted(found))


def supervisors(folder: Path, but: Path) -> set[int]:
    """Process ids of the live runs in a folder other than `but`, as the kernel has them from listen(2)."""
    found: set[int] = set()
    for path in sockets(folder):
        if path == but:
            continue
        try:
            connection = connect(path, _PROBE_S)
        except OSError:
            continue  # it lives and is too busy to tell
        if connection is not None:
            with connection:
                found.add(peer(connection)[0])
    return found


def peer(connection: socket.socket) -> tuple[int, int]:
    """(process id, user id) of the other end when it connected or began to listen (unix(7), SO_PEERCRED)."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, _ = _UCRED.unpack(credentials)
    return pid, uid
