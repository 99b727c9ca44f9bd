"""What is there: the disk as `launching.survey` asks about it, asked each time."""

import os
import stat
from collections.abc import Sequence

from agentwrap.launching.survey import Kind

_KINDS: dict[int, Kind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFSOCK: "socket",
}


class MachineDisk:
    """The machine's own file system, as this process sees it."""

    def kind(self, path: str) -> Kind:
        """What stands under a name, a link not followed; empty for what is not there or cannot be reached."""
        try:
            mode = os.lstat(path).st_mode
        except (OSError, ValueError):
            return ""
        return _KINDS.get(stat.S_IFMT(mode), "other")

    def real(self, path: str) -> str:
        """The path without links, as far as it exists; of a loop, the path itself."""
        try:
            return os.path.realpath(path)
        except (OSError, ValueError):
            return path

    def entries(self, folder: str) -> Sequence[tuple[str, Kind]]:
        """Names in a folder and what they are, in the folder's own order."""
        try:
            with os.scandir(folder) as found:
                return [(one.name, _kind_of(one)) for one in found]
        except (OSError, ValueError):
            return ()


def _kind_of(entry: "os.DirEntry[str]") -> Kind:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    if entry.is_file(follow_symlinks=False):
        return "file"
    try:
        return _KINDS.get(stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode), "other")
    except OSError:
        return "other"
