"""How each call about files asks the policy: which names, whether they have to exist, what comes with them.

A call that fails by itself (the name is missing, or there already) is not refused: the program hears what it would
hear without us, and nothing was tried that a rule is about.
"""

import errno
import os
import stat
from typing import NamedTuple

from agentwrap.events.egress import Act
from agentwrap.policy.questions import Answer
from agentwrap.tracing.files.places import follow
from agentwrap.tracing.files.settings import Place
from agentwrap.tracing.files.tracker import UNNAMED
from agentwrap.tracing.judging import StopJudge
from agentwrap.tracing.mount_names import MountNames
from agentwrap.tracing.processes import Process
from agentwrap.tracing.tracee import descriptor_meant, locate_descriptor

_O_TMPFILE_ONLY = os.O_TMPFILE & ~os.O_DIRECTORY
_MAX_SCRIPTS = 4  # binfmt_script(5): as deep as interpreters of interpreters go
_SCRIPT_BYTES = 256
_REMOVING = ("unlink", "unlinkat", "rmdir")


class Named(NamedTuple):
    """A name as the machine has it. `there`: what stands under it, links not followed; None if nothing does."""

    path: bytes
    there: os.stat_result | None

    @property
    def is_folder(self) -> bool:
        """Whether a folder stands there."""
        return self.there is not None and stat.S_ISDIR(self.there.st_mode)

    @property
    def is_tree(self) -> bool:
        """Whether anything may lie below it, as far as names go. A file `.git` says where the repository is."""
        if self.there is None:
            return False
        return stat.S_IFMT(self.there.st_mode) in (stat.S_IFDIR, stat.S_IFLNK) or self.is_pointer

    @property
    def is_pointer(self) -> bool:
        """Whether it is, by name and kind, the file of a worktree or a submodule (gitrepository-layout(5))."""
        return self.there is not None and stat.S_ISREG(self.there.st_mode) and self.path.endswith(b"/.git")


class FileQuestions:
    """Asks `judge` about one call's names; every method returns 0 or an errno, and raises OSError as lookups do."""

    def __init__(self, judge: StopJudge) -> None:
        self._judge = judge
        self._names = MountNames(judge.folders)
        self._repositories = judge.repositories
        self._mounted = frozenset(os.fsencode(step.path) for step in judge.plan.mounts.steps if hasattr(step, "path"))

    def named(self, process: Process, tid: int, place: Place) -> Named | None:
        """The machine's name of a place; None for one on a file system of a sandbox's own."""
        try:
            there: os.stat_result | None = os.lstat(place.host)
        except (FileNotFoundError, NotADirectoryError):
            there = None
        if not process.foreign or place.host == place.path or self._judge.by_name(place.path):
            return Named(place.path, there)
        path = self._names.outside(tid, place)
        return None if path is None else Named(path, there)

    def changing(self, process: Process, tid: int, call: str, place: Place, *, folder: bool = False) -> int:
        """What stands there is changed or removed; nothing is asked about what does not exist."""
        named = self.named(process, tid, place)
        if named is None:
            return 0
        answer = self._judge.refusal_to_write(named.path, folder=folder, tree=named.is_pointer)
        if named.there is None:
            return 0
        if answer is None and call in _REMOVING:
            self._repositories.went(os.fsdecode(named.path))
        return self._refuse_write(process, tid, place, named, call, answer)

    def making(
        self,
        process: Process,
        tid: int,
        call: str,
        place: Place,
        *,
        folder: bool = False,
        tree: bool = False,
        device: bool = False,
    ) -> int:
        """A name comes to be; where there is one, the call fails by itself."""
        named = self.named(process, tid, place)
        if named is None or named.there is not None:
            return 0
        if device:
            return self._judge.device_node(process, named.path, call)
        tree = tree or (not folder and self._is_pointer(named))
        answer = self._judge.refusal_to_write(named.path, folder=folder, tree=tree)
        if answer is None and folder:
            self._repositories.came(os.fsdecode(named.path))
        return self._refuse_write(process, tid, place, named, call, answer)

    def moving(self, process: Process, tid: int, call: str, old: Place, new: Place, *, stays: bool = False) -> int:
        """What stands under one name comes under another; `stays`: it keeps the first one, too (link(2))."""
        source, target = self.named(process, tid, old), self.named(process, tid, new)
        if (source is not None and source.there is None) or (stays and target is not None and target.there is not None):
            return 0
        tree = source is None or source.is_tree
        if source is not None:
            refusal = self._judge.refusal_to_write(source.path, tree=tree) or self._holds_repository(source, old)
            if refusal is not None:
                return self._refuse_write(process, tid, old, source, call, refusal)
            refusal = self._judge.refusal_to_move(source.path)
            if refusal is not None:
                return self._refuse(process, "read", source.path, call, refusal)
        if target is not None:
            tree = tree or target.is_tree or self._is_pointer(target)
            answer = self._judge.refusal_to_write(target.path, tree=tree)
            if answer is not None:
                return self._refuse_write(process, tid, new, target, call, answer)
        for name, away in ((source, True), (target, target is not None and target.is_tree)):
            if name is not None and tree and not stays:
                self._repositories.moved(os.fsdecode(name.path), away=away)
        return 0

    def _holds_repository(self, named: Named, place: Place) -> Answer | None:
        """Why a folder may not move: who took a repository away could put another one in its place."""
        if not named.is_folder or not os.path.lexists(place.host + b"/.git"):
            return None
        return self._judge.refusal_to_write(named.path + b"/.git", tree=True)

    def opening(self, process: Process, tid: int, call: str, place: Place, flags: int) -> int:
        """A file is opened (open(2)); a last link is followed where the kernel follows it."""
        if flags & os.O_PATH:
            return 0
        if flags & _O_TMPFILE_ONLY:
            return self.making(process, tid, call, _in(_followed(process, place, tid) or place, UNNAMED))
        if not flags & os.O_NOFOLLOW and not (flags & os.O_CREAT and flags & os.O_EXCL):
            followed = _followed(process, place, tid)
            if followed is None:
                return 0  # a loop, or a pipe or socket behind /proc/PID/fd
            place = followed
        named = self.named(process, tid, place)
        if named is None:
            return 0
        exists, creates = named.there is not None, bool(flags & os.O_CREAT)
        if (not exists and not creates) or (exists and creates and flags & os.O_EXCL):
            return 0
        access = flags & os.O_ACCMODE
        if access != os.O_RDONLY or flags & os.O_TRUNC or not exists:
            if named.is_folder:
                return 0  # EISDIR
            answer = self._judge.refusal_to_write(named.path, tree=self._is_pointer(named))
            if answer is not None:
                return self._refuse_write(process, tid, place, named, call, answer)
            if not exists:
                self._repositories.came(os.fsdecode(named.path))
        if access != os.O_WRONLY and exists and self._judge.plan.reads:
            answer = self._judge.refusal_to_read(named.path, folder=named.is_folder)
            return self._refuse(process, "read", named.path, call, answer)
        return 0

    def _is_pointer(self, named: Named) -> bool:
        """A file `.git` that is there, or would come where one was: it says which repository's hooks count."""
        if named.there is not None or not named.path.endswith(b"/.git"):
            return named.is_pointer
        return not self._repositories.may_come(os.fsdecode(named.path))

    def attributes(self, process: Process, tid: int, call: str, place: Place, *, follows: bool) -> int:
        """Mode, owner or extended attributes of what stands there are changed."""
        if follows:
            followed = _followed(process, place, tid)
            if followed is None:
                return 0
            place = followed
        return self.changing(process, tid, call, place)

    def running(self, process: Process, tid: int, call: str, place: Place) -> int:
        """A program is run, and what its first line names (execve(2), "interpreter scripts")."""
        followed = _followed(process, place, tid)
        if followed is not None and followed.path != place.path:
            named = self.named(process, tid, place)
            if named is not None and named.there is not None and self._judge.run_by_link(process, named.path, call):
                return errno.EACCES if not self._judge.observes else 0
        for _ in range(_MAX_SCRIPTS):
            named = self.named(process, tid, followed) if followed is not None else None
            if followed is None or named is None or named.there is None:
                return 0
            refused = self._judge.run(process, named.path, call)
            is_file = stat.S_ISREG(named.there.st_mode)
            interpreter = _interpreter(followed.host) if is_file and not refused else b""
            if not interpreter:
                return refused
            prefix = followed.host[: -len(followed.path)] if followed.host.endswith(followed.path) else b""
            followed = follow(Place(interpreter, prefix + interpreter), tid)
        return 0

    def unclear(self, process: Process, call: str) -> int:
        """A call whose names cannot be found out."""
        return self._judge.unreadable(process, call)

    def _refuse_write(
        self, process: Process, tid: int, place: Place, named: Named, call: str, answer: Answer | None
    ) -> int:
        """Where a sandbox of the program's own has made the place read-only, it hears that, and nothing was tried.

        The call does not go on for that: the place may be another one, or writable, by the time the kernel looks.
        """
        if answer is None:
            return 0
        by_default = answer.rule.where.endswith(".default")
        if process.foreign and by_default and self._is_read_only(tid, place):
            return 0 if self._judge.observes else errno.EROFS
        return self._judge.refuse_file(process, "write", named.path, call, answer)

    def _is_read_only(self, tid: int, place: Place) -> bool:
        try:
            return self._names.read_only(tid, place, self._mounted)
        except OSError:
            return False  # nobody knows: then it is a denial

    def _refuse(self, process: Process, act: Act, path: bytes, call: str, answer: Answer | None) -> int:
        return 0 if answer is None else self._judge.refuse_file(process, act, path, call, answer)


def _in(folder: Place, name: bytes) -> Place:
    return Place(folder.path.rstrip(b"/") + b"/" + name, folder.host.rstrip(b"/") + b"/" + name)


def _followed(process: Process, place: Place, tid: int) -> Place | None:
    """Where a last link leads; a descriptor in /proc is the file that it was opened on (proc_pid_fd(5))."""
    found = follow(place, tid)
    meant = descriptor_meant(found) if found is not None else None
    return locate_descriptor(*meant, foreign=process.foreign) if meant is not None else found


def _interpreter(host: bytes) -> bytes:
    try:
        with open(host, "rb") as file:
            line = file.read(_SCRIPT_BYTES).split(b"\n", 1)[0]
    except OSError:
        return b""
    words = line[2:].split() if line.startswith(b"#!") else []
    return words[0] if words and words[0].startswith(b"/") else b""
