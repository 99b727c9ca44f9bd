"""Where recordings, undo stores and keys live: pure functions of an environment, and the look at the folder.

Knows the XDG base directories (Base Directory Specification 0.8: a relative value counts as unset). Creates nothing.
"""

import os
from collections.abc import Mapping
from pathlib import Path

SUFFIX = ".agentlog"


def _base(env: Mapping[str, str], name: str, fallback: str) -> Path:
    value = env.get(name, "")
    if value.startswith("/"):
        return Path(value)
    home = env.get("HOME", "")
    return (Path(home) if home.startswith("/") else _home_by_name()) / fallback


def _home_by_name() -> Path:
    """The home that the user database has for us, where HOME says none."""
    import pwd

    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path("/")  # a user without an entry, as in some containers


def state_dir(env: Mapping[str, str]) -> Path:
    """The folder of everything we keep between runs."""
    return _base(env, "XDG_STATE_HOME", ".local/state") / "agentwrap"


def recordings_dir(env: Mapping[str, str]) -> Path:
    """The folder recordings go to when no `--output` says otherwise (made 0700)."""
    return state_dir(env) / "recordings"


def undo_dir(env: Mapping[str, str], run_id: str) -> Path:
    """The folder with the raw contents from before the run `run_id` (made 0700, never part of the recording)."""
    return state_dir(env) / "undo" / run_id


def key_paths(env: Mapping[str, str]) -> tuple[Path, Path]:
    """(private signing key, public key) of this user."""
    folder = _base(env, "XDG_CONFIG_HOME", ".config") / "agentwrap"
    return folder / "signing.key", folder / "signing.pub"


def policy_path(env: Mapping[str, str]) -> Path:
    """The policy of this user."""
    return _base(env, "XDG_CONFIG_HOME", ".config") / "agentwrap" / "policy.toml"


def trust_path(env: Mapping[str, str]) -> Path:
    """The list of project policies that this user trusts."""
    return state_dir(env) / "trusted"


def own_paths(env: Mapping[str, str]) -> tuple[Path, ...]:
    """What of ours no agent may change: recordings, undo stores, trust, keys, the user's policy, control sockets."""
    found = [state_dir(env), key_paths(env)[0].parent]
    runtime = env.get("XDG_RUNTIME_DIR", "")
    return tuple(dict.fromkeys([*found, Path(runtime) / "agentwrap"] if runtime.startswith("/") else found))


def recording_name(command: str, started: str, run_id: str) -> str:
    """`CMD-YYYYMMDD-HHMMSS-xxxx.agentlog`; `command` loses its folder and everything that is odd in a file name."""
    stem = "".join(c if c.isascii() and (c.isalnum() or c in "._+-") else "_" for c in command.rsplit("/", 1)[-1])
    return f"{stem.lstrip('.-')[:40] or 'run'}-{started}-{run_id[:4]}{SUFFIX}"


def note_latest(env: Mapping[str, str], path: Path) -> None:
    """Remember where the newest recording is, for readers that are given no file: it may lie anywhere (`-o`).

    Raises OSError; a run goes on without.
    """
    folder = state_dir(env)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = folder / f".latest-{os.getpid()}"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(path.absolute())
    fresh.replace(folder / "latest")


def latest_recording(env: Mapping[str, str]) -> Path | None:
    """The recording begun last: the one noted, else the newest in the default folder, or None. Live ones count."""
    noted = state_dir(env) / "latest"
    try:
        if noted.is_file():
            return noted.readlink()
    except OSError:
        pass  # a state folder that is not ours to read
    try:
        found = [p for p in recordings_dir(env).iterdir() if p.name.endswith(SUFFIX)]
    except OSError:
        return None
    best: tuple[str, int, Path] | None = None
    for path in found:
        try:
            changed_ns = path.stat().st_mtime_ns
        except OSError:  # removed between listing and looking
            continue
        # Names end in -YYYYMMDD-HHMMSS-xxxx: the begin, whatever was finalised or copied later.
        parts = path.name[: -len(SUFFIX)].rsplit("-", 3)
        begun = "-".join(parts[1:3]) if len(parts) == 4 else ""
        if best is None or (begun, changed_ns) > best[:2]:
            best = (begun, changed_ns, path)
    return best[2] if best else None
