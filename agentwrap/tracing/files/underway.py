"""Calls that were told of and are not known to have happened: who makes them, which names they would change.

Decides when each is asked whether it has happened; what that means, and telling it, is the call's own business
(`calls`). Of calls of different threads about one name at most one can have succeeded where they exclude each other.
"""

from agentwrap.tracing.files.calls import Call, Truncate
from agentwrap.tracing.files.desk import Desk
from agentwrap.tracing.files.rename import Rename
from agentwrap.tracing.files.settings import Place, Who
from agentwrap.tracing.files.sweep import may_be_inside

CALL_OVER_NS = 5_000_000_000
"""A call that has not happened after this long has failed, even if its thread was not seen again."""


class UnderWay:
    """`by_tid`: the call of each thread; `claims`: the newest call about each host path."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.by_tid: dict[int, Call] = {}
        self.claims: dict[bytes, Call] = {}
        self._renames: dict[int, Call] = {}

    def begin(self, call: Call) -> None:
        """A thread makes this call now."""
        self.by_tid[call.who.tid] = call
        if type(call) is Rename:
            self._renames[call.who.tid] = call
        for name in call.names:
            rival = self.claims.get(name)
            if rival is not None and rival.who.tid != call.who.tid and call.exclusive and rival.exclusive:
                call.rival = rival
            self.claims[name] = call

    def over(self, tid: int) -> None:
        """The thread goes on: its call has happened, or has failed."""
        call = self.by_tid.pop(tid)
        self._unclaim(call)
        if call.rival is not None or call.done:
            self._try(call)
            return
        try:
            call.done = call.attempt(self._desk)  # if it has not happened now, it has failed
        except OSError as error:
            self._desk.report.missed(call.who, call.place.path, error)

    def _unclaim(self, call: Call) -> None:
        for name in call.names:
            if self.claims.get(name) is call:
                del self.claims[name]
        self._renames.pop(call.who.tid, None)
        if type(call) is Truncate:
            call.pending.calls -= 1

    def moved(self, tid: int) -> None:
        """Renames of other threads may have happened: what is followed has other names then, also below a folder."""
        for call in list(self._renames.values()):
            if call.who.tid != tid:
                self._attempt(call)

    def meet(self, who: Who, place: Place) -> None:
        """Somebody comes to a path. If another thread was about to change it, that may have happened."""
        if self._renames:
            self.moved(who.tid)
        call = self.claims.get(place.host)
        if call is not None and call.who.tid != who.tid:
            self._attempt(call)

    def explain(self, host: bytes) -> None:
        """A followed file is gone: see to the calls that may have done it."""
        self.moved(0)
        call = self.claims.get(host)
        if call is not None:
            self._attempt(call)

    def leaving(self, host: bytes) -> bool:
        """Whether a name may be about to go. A look before it has gone would be told with a later time than that."""
        call = self.claims.get(host)
        if call is not None and call.takes_away(host):
            return True
        return any(rename.takes_away(host) for rename in self._renames.values())

    def meet_below(self, who: Who, *folders: Place) -> None:
        """A folder is about to move: what others did below it must be looked at while it is there."""
        below = tuple(folder.host + b"/" for folder in folders)
        for call in list(self.by_tid.values()):
            if call.who.tid != who.tid and any(name.startswith(below) for name in call.names):
                self._attempt(call)
                # Once the folder has moved, its name tells nothing of the call any more.
                if not call.done and not may_be_inside(call.who.tid):
                    self._drop(call)

    def _attempt(self, call: Call) -> None:
        if self._try(call):
            self._drop(call)

    def _drop(self, call: Call) -> None:
        self._unclaim(call)
        if self.by_tid.get(call.who.tid) is call:
            del self.by_tid[call.who.tid]

    def _try(self, call: Call) -> bool:
        """Has it happened? Of rivals for one name only the first one found can have succeeded."""
        rival = call.rival
        if call.done or (rival is not None and rival.done):
            return True
        try:
            call.done = call.attempt(self._desk)
        except OSError as error:
            self._desk.report.missed(call.who, call.place.path, error)
            return True
        if call.done and rival is not None:
            rival.done = True  # it has failed, or will
            call.rival = None
        return call.done

    def look(self, now_ns: int) -> None:
        """Ask each whether it has happened by now; one that takes too long has not."""
        for call in list(self.by_tid.values()):
            self._attempt(call)
            if call.at_ns < now_ns - CALL_OVER_NS and self.by_tid.get(call.who.tid) is call:
                self._drop(call)
