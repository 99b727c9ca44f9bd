"""Which question each call about files and programs asks: the argument layouts of `calls_file`, asked before recorded.

Knows flags of calls; what a name means and whether it is refused is `judged_files`' business.
"""

import struct
from collections.abc import Callable

from agentwrap.tracing.blindspots import RefusedError
from agentwrap.tracing.calls_file import Arguments, At, FileCalls, Handler
from agentwrap.tracing.files.places import follow
from agentwrap.tracing.files.settings import Place
from agentwrap.tracing.judged_files import FileQuestions
from agentwrap.tracing.processes import Process
from agentwrap.tracing.tracee import (
    AT_FDCWD,
    FAILS_BY_ITSELF,
    NOT_FOR_US,
    Memory,
    descriptor_meant,
    locate,
    locate_descriptor,
    signed,
)

_AT_EMPTY_PATH, _AT_REMOVEDIR, _AT_SYMLINK_FOLLOW, _AT_SYMLINK_NOFOLLOW = 0x1000, 0x200, 0x400, 0x100
_S_IFMT, _S_IFBLK, _S_IFCHR = 0o170000, 0o060000, 0o020000
_O_CREAT_FLAGS = 0o1 | 0o100 | 0o1000  # creat(2)
_HERE, _AT = At(None, 0), At(0, 1)


class JudgedCalls:
    """`asked`: by call name, a handler that returns 0 or the errno with which the policy refuses the call."""

    def __init__(self, calls: FileCalls, questions: FileQuestions, memory: Memory, *, execs: bool) -> None:
        self._calls = calls
        self._questions = questions
        self._memory = memory
        self.asked: dict[str, Handler] = {}
        self._add_opens()
        self._add_names()
        self._add_attributes()
        if execs:
            self.asked["execve"] = lambda p, tid, a: self._run("execve", p, tid, AT_FDCWD, a[0], 0)
            self.asked["execveat"] = lambda p, tid, a: self._run("execveat", p, tid, signed(a[0]), a[1], a[4])

    def over(self, handlers: dict[str, Handler]) -> dict[str, Handler]:
        """The handlers, each asked about first where there is something to ask; a refused call is not noted as done."""
        return handlers | {name: self._first(name, ask, handlers.get(name)) for name, ask in self.asked.items()}

    def _first(self, call: str, ask: Handler, then: Handler | None) -> Handler:
        def handle(process: Process, tid: int, arguments: Arguments) -> int:
            try:
                number = ask(process, tid, arguments)
            except RefusedError as closed:
                return closed.number
            except OSError as error:
                if error.errno in FAILS_BY_ITSELF or error.errno in NOT_FOR_US:
                    raise
                number = self._questions.unclear(process, call)
            except Exception:
                # A fault of ours must not open what the policy closes. What comes next tells the fault as a gap.
                number = self._questions.unclear(process, call)
            if number or then is None:
                return number
            return then(process, tid, arguments)

        return handle

    def _add_opens(self) -> None:
        asked, place, opening = self.asked, self._calls.place, self._questions.opening

        def openat2(process: Process, tid: int, arguments: Arguments) -> int:
            data = self._memory.read(tid, arguments[2], 8)
            flags = struct.unpack("=Q", data)[0] if len(data) == 8 else 0
            return opening(process, tid, "openat2", place(process, tid, arguments, _AT), flags)

        asked["open"] = lambda p, tid, a: opening(p, tid, "open", place(p, tid, a, _HERE), a[1])
        asked["creat"] = lambda p, tid, a: opening(p, tid, "creat", place(p, tid, a, _HERE), _O_CREAT_FLAGS)
        asked["openat"] = lambda p, tid, a: opening(p, tid, "openat", place(p, tid, a, _AT), a[2])
        asked["openat2"] = openat2

    def _change(self, call: str, at: At, folder: Callable[[Arguments], bool]) -> None:
        self.asked[call] = lambda p, tid, a: self._questions.changing(
            p, tid, call, self._calls.place(p, tid, a, at), folder=folder(a)
        )

    def _make(self, call: str, at: At, *, folder: bool = False, tree: bool = False) -> None:
        self.asked[call] = lambda p, tid, a: self._questions.making(
            p, tid, call, self._calls.place(p, tid, a, at), folder=folder, tree=tree
        )

    def _make_node(self, call: str, at: At, mode: int) -> None:
        """mknod(2). The device 0:0 is none: it marks a removed name in an overlay."""

        def device(arguments: Arguments) -> bool:
            return arguments[mode] & _S_IFMT in (_S_IFBLK, _S_IFCHR) and arguments[mode + 1] & 0xFFFFFFFF != 0

        self.asked[call] = lambda p, tid, a: self._questions.making(
            p, tid, call, self._calls.place(p, tid, a, at), device=device(a)
        )

    def _move(self, call: str, old: At, new: At, *, stays: bool = False) -> None:
        place = self._calls.place
        self.asked[call] = lambda p, tid, a: self._questions.moving(
            p, tid, call, place(p, tid, a, old), place(p, tid, a, new), stays=stays
        )

    def _add_names(self) -> None:
        self._change("unlink", _HERE, lambda _: False)
        self._change("unlinkat", _AT, lambda a: bool(a[2] & _AT_REMOVEDIR))
        self._change("rmdir", _HERE, lambda _: True)
        for call, at in (("mkdir", _HERE), ("mkdirat", _AT)):
            self._make(call, at, folder=True)
        for call, at, mode in (("mknod", _HERE, 1), ("mknodat", _AT, 2)):
            self._make_node(call, at, mode)
        for call, at in (("symlink", At(None, 1)), ("symlinkat", At(1, 2))):
            self._make(call, at, tree=True)
        self._move("rename", _HERE, At(None, 1))
        self._move("renameat", _AT, At(2, 3))
        self._move("renameat2", _AT, At(2, 3))
        self._move("link", _HERE, At(None, 1), stays=True)
        self.asked["linkat"] = self._linkat

    def _linkat(self, process: Process, tid: int, arguments: Arguments) -> int:
        new = self._calls.place(process, tid, arguments, At(2, 3))
        old = self._linked(process, tid, arguments)
        if old is None:
            return self._questions.making(process, tid, "linkat", new)  # a file without a name (O_TMPFILE)
        return self._questions.moving(process, tid, "linkat", old, new, stays=True)

    def _linked(self, process: Process, tid: int, arguments: Arguments) -> Place | None:
        raw = self._memory.string(tid, arguments[1])
        if not raw and arguments[4] & _AT_EMPTY_PATH:
            return locate_descriptor(tid, signed(arguments[0]), foreign=process.foreign)
        old = locate(tid, signed(arguments[0]), raw, foreign=process.foreign)
        if not arguments[4] & _AT_SYMLINK_FOLLOW:
            return old
        meant = descriptor_meant(old)
        return locate_descriptor(*meant, foreign=process.foreign) if meant is not None else follow(old, tid) or old

    def _attribute(self, call: str, at: At, follows: Callable[[Arguments], bool]) -> None:
        self.asked[call] = lambda p, tid, a: self._questions.attributes(
            p, tid, call, self._calls.place(p, tid, a, at), follows=follows(a)
        )

    def _by_descriptor(self, call: str) -> None:
        def ask(process: Process, tid: int, arguments: Arguments) -> int:
            place = locate_descriptor(tid, signed(arguments[0]), foreign=process.foreign)
            return 0 if place is None else self._questions.changing(process, tid, call, place)

        self.asked[call] = ask

    def _add_attributes(self) -> None:
        for call in ("truncate", "truncate64", "chmod", "chown", "chown32", "setxattr", "removexattr"):
            self._attribute(call, _HERE, lambda _: True)
        for call in ("lchown", "lchown32", "lsetxattr", "lremovexattr"):
            self._attribute(call, _HERE, lambda _: False)
        self._attribute("fchmodat", _AT, lambda _: True)
        self._attribute("fchmodat2", _AT, lambda a: not a[3] & _AT_SYMLINK_NOFOLLOW)
        self._attribute("fchownat", _AT, lambda a: not a[4] & _AT_SYMLINK_NOFOLLOW)
        for call in ("setxattrat", "removexattrat"):
            self._attribute(call, _AT, lambda a: not a[2] & _AT_SYMLINK_NOFOLLOW)
        self._attribute("file_setattr", _AT, lambda a: not a[4] & _AT_SYMLINK_NOFOLLOW)
        for call in ("fchmod", "fchown", "fchown32", "fsetxattr", "fremovexattr"):
            self._by_descriptor(call)

    def _run(self, call: str, process: Process, tid: int, directory: int, pointer: int, flags: int) -> int:
        raw = self._memory.string(tid, pointer)
        if raw:
            place: Place | None = locate(tid, directory, raw, foreign=process.foreign)
        elif flags & _AT_EMPTY_PATH:
            place = locate_descriptor(tid, directory, foreign=process.foreign)
        else:
            return 0
        return 0 if place is None else self._questions.running(process, tid, call, place)
