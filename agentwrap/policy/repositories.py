"""Repositories that one run made itself: their hooks and configuration are its own, those that were there are not.

Pure: hears which names came, went and moved, as the stops or the rows of a recording tell it. A `.git` belongs to the
run where it came to be in the run, in a place where no other one stood before. In doubt it does not.
"""

GIT = ".git"
_MOST_MADE, _MOST_LOST = 4_096, 20_000


def repository_of(path: str) -> str:
    """The outermost `.git` that a path, in normal form, is or lies in; empty for none."""
    head, found, _ = (path + "/").partition(f"/{GIT}/")
    return f"{head}/{GIT}" if found else ""


class OwnRepositories:
    """The `.git` folders and files (gitrepository-layout(5)) of one run's own making; too many are none.

    What moves away leaves its place for good: who makes a repository there puts it in another one's place.
    """

    def __init__(self) -> None:
        self._made: set[str] = set()
        self._lost: set[str] = set()

    def __contains__(self, path: str) -> bool:
        """Whether a path is such a `.git` or lies in one."""
        return bool(self._made) and repository_of(path) in self._made

    def may_come(self, path: str) -> bool:
        """Whether a `.git` that comes to be there now would be the run's own."""
        if repository_of(path) != path or len(self._lost) >= _MOST_LOST:
            return False
        return not any(place in self._lost for place in _upwards(path))

    def came(self, path: str) -> None:
        """Something was made where nothing stood."""
        if path.endswith(f"/{GIT}") and self.may_come(path) and len(self._made) < _MOST_MADE:
            self._made.add(path)

    def went(self, path: str) -> None:
        """A file or an empty folder was removed."""
        if path.endswith(f"/{GIT}") and path not in self._made:
            self._lose(path)
        self._made.discard(path)

    def moved(self, path: str, *, away: bool) -> None:
        """A folder came under this name, or (`away`) left it: what is here now may be anybody's."""
        if path in self._made:
            away = False  # its own name stays the run's
        self._made = {one for one in self._made if one != path and not one.startswith(path + "/")}
        if away:
            self._lose(path)

    def _lose(self, path: str) -> None:
        if len(self._lost) < _MOST_LOST:
            self._lost.add(path)


def _upwards(path: str) -> list[str]:
    found = []
    while path:
        found.append(path)
        path = path.rpartition("/")[0]
    return found
