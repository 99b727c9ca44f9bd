"""A look at the end of a run for what the policy denies and is there all the same.

What only the stop refuses can be raced: a name in memory is another one by the time the kernel reads it. Then the call
was let go for a name that is allowed, and the record knows nothing of the other. Names that have come since, and
contents that have changed, where the policy says they may not, are told here. Who did it is not known.
"""

import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence

from agentwrap.events import Sink
from agentwrap.events.file import FileEdit, FileState, FileType
from agentwrap.launching.disk import MachineDisk
from agentwrap.launching.enforcement import EnforcementPlan, closed_now
from agentwrap.launching.survey import Survey, join
from agentwrap.policy.layers import Layer
from agentwrap.policy.questions import Write
from agentwrap.policy.repositories import places_of_git

_TYPES: dict[int, FileType] = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}

_DEEPEST, _MOST = 8, 5_000
_COARSE_NS = 20_000_000  # times of files are those of the last tick of the kernel's clock


class AfterLook:
    """Made before the agent runs; `tell` when it is over."""

    def __init__(self, layers: Sequence[Layer], plan: EnforcementPlan) -> None:
        self._layers = layers
        self._began_ns = time.time_ns() - _COARSE_NS
        self._plan = plan
        # A repository that was there has a configuration, which is closed; one that has come since is the run's own.
        self._repositories = {place for path in plan.closed for place in places_of_git(path)}
        self._before, self._all = self._states(path for path in plan.closed if not self._is_mounted(path))

    def _is_mounted(self, path: str) -> bool:
        """Nothing of the run changes it: what has changed is somebody else's doing."""
        holding = self._plan.holdings.get(path)
        return holding is not None and holding.mechanism == "mount"

    def _is_own(self, path: str) -> bool:
        return any(place not in self._repositories for place in places_of_git(path))

    def _states(self, paths: Iterable[str]) -> tuple[dict[str, FileState], bool]:
        """What stands under the names there, and whether there were few enough to look at all of them."""
        survey, budget = Survey(self._layers, MachineDisk()), [_MOST]
        every = (name for path in paths for name in _not_allowed(survey, path, _DEEPEST, budget))
        return {path: state for path in every if (state := _state(path)) is not None}, budget[0] >= 0

    def tell(self, sink: Sink, at_ns: int) -> None:
        """An edit for each name that should not be there, or not as it is."""
        survey = Survey(self._layers, MachineDisk())
        closed = (one.path for one in closed_now(survey, self._plan.opened))
        now, all_of_them = self._states(path for path in closed if not self._is_mounted(path))
        # A name that was not looked at before is no new one.
        new = [path for path in now if self._all and all_of_them and _changed_ns(path) >= self._began_ns]
        new = [path for path in new if survey.ask(Write(path, own_repository=self._is_own(path))).verdict != "allow"]
        for path in dict.fromkeys((*self._before, *new)):
            before, after = self._before.get(path), now.get(path) or _state(path)
            if before != after:
                sink(
                    FileEdit(
                        at_ns=at_ns,
                        path=os.fsencode(path),
                        change="delete" if after is None else "create" if before is None else "modify",
                        via="unknown",
                        before=before or FileState(type="absent"),
                        after=after or FileState(type="absent"),
                    )
                )


def _not_allowed(survey: Survey, path: str, deep: int, budget: list[int]) -> Iterator[str]:
    """The names that may not be written, at a path and below: an empty folder of such a name may often be made."""
    budget[0] -= 1
    if budget[0] < 0:
        return
    is_folder = survey.disk.kind(path) == "folder"
    if survey.ask(Write(path, folder=is_folder)).verdict != "allow":
        yield path
    if is_folder and deep:
        for name, _ in survey.disk.entries(path):
            yield from _not_allowed(survey, join(path, name), deep - 1, budget)


def _changed_ns(path: str) -> int:
    """When anything about a name's inode last changed, which no program can set (inode(7), st_ctim)."""
    try:
        return os.lstat(path).st_ctime_ns
    except OSError:
        return 0


def _state(path: str) -> FileState | None:
    """What stands under a name, without its content; None for nothing."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    is_folder = stat.S_ISDIR(status.st_mode)  # its size and time tell about its entries, which are looked at themselves
    return FileState(
        type=_TYPES.get(stat.S_IFMT(status.st_mode), "other"),
        size=0 if is_folder else status.st_size,
        mode=stat.S_IMODE(status.st_mode),
        uid=status.st_uid,
        gid=status.st_gid,
        mtime_ns=0 if is_folder else status.st_mtime_ns,
        omitted="not-kept",
    )
