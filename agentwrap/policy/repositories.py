"""Repositories that one run made itself: their hooks and configuration are its own, those that were there are not.

Pure: hears which names came, went and moved, as the stops or the rows of a recording tell it. A `.git` belongs to the
run where it came to be in the run, in a place where no other one stood before. In doubt it does not.
"""

GIT, _WORKTREES = ".git", "worktrees"
_MOST_MADE, _MOST_LOST = 4_096, 20_000


def repository_of(path: str) -> str:
    """The outermost `.git` that a path, in normal form, is or lies in; empty for none."""
    head, found, _ = (path + "/").partition(f"/{GIT}/")
    return f"{head}/{GIT}" if found else ""


def places_of_git(path: str) -> tuple[str, ...]:
    """What a run can have made by itself and a path is or lies in: a `.git`, what git keeps in it for a worktree."""
    repository = repository_of(path)
    if not repository:
        return ()
    kept = f"{repository}/{_WORKTREES}/"
    name = path[len(kept) :].partition("/")[0] if path.startswith(kept) else ""
    return (repository, kept + name) if name else (repository,)


class OwnRepositories:
    """The `.git` folders and files (gitrepository-layout(5)) of one run's own making; too many are none.

    In a repository that was there what git keeps for a new worktree is the run's own as well.

    What moves away leaves its place for good: who makes a repository there puts it in another one's place.
    """

    def __init__(self) -> None:
        self._made: set[str] = set()
        self._lost: set[str] = set()

    def __contains__(self, path: str) -> bool:
        """Whether a path is such a place or lies in one."""
        return bool(self._made) and any(place in self._made for place in places_of_git(path))

    def may_come(self, path: str) -> bool:
        """Whether a `.git` (or what is kept for a worktree) that comes to be there now would be the run's own."""
        if path not in places_of_git(path) or len(self._lost) >= _MOST_LOST:
            return False
        return not any(place in self._lost for place in _upwards(path))

    def came(self, path: str) -> None:
        """Something was made where nothing stood."""
        if self.may_come(path) and len(self._made) < _MOST_MADE:
            self._made.add(path)

    def went(self, path: str) -> None:
        """A file or an empty folder was removed."""
        if path in places_of_git(path) and path not in self._made:
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
