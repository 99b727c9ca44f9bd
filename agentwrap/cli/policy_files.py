"""Where policies stand that hold without being named: the project's, the user's, the system's. Looks, reads nothing.

A run without any of them must not pay for the rest of the policy language, so this imports nothing of it.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from agentwrap.recording import places

SYSTEM = Path("/etc/agentwrap/policy.toml")
PROJECT = "agentwrap.toml"
_VERSION_CONTROL = (".git", ".hg", ".jj", ".svn")


def standing(ours: Mapping[str, str], cwd: Path) -> list[tuple[Literal["project", "user", "system"], Path]]:
    """The files there are, in the order of the layers. `ours`: our environment; `cwd`: where the program runs."""
    project = project_file(cwd)
    found: list[tuple[Literal["project", "user", "system"], Path]] = []
    if project is not None:
        found.append(("project", project))
    if _is_there(places.policy_path(ours)):
        found.append(("user", places.policy_path(ours)))
    if _is_there(SYSTEM):
        found.append(("system", SYSTEM))
    return found


def project_root(cwd: Path) -> Path:
    """The nearest folder that is under version control, else `cwd` itself."""
    for folder in (cwd, *cwd.parents):
        if any(os.path.lexists(folder / name) for name in _VERSION_CONTROL):
            return folder
    return cwd


def project_file(cwd: Path) -> Path | None:
    """The project's own policy, or None."""
    file = project_root(cwd) / PROJECT
    return file if _is_there(file) else None


def _is_there(path: Path) -> bool:
    """Whether something stands under that name; a link that leads nowhere does, and is told as unreadable."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError:
        return False  # a HOME that is not ours to look into holds no policy of ours
    return True
