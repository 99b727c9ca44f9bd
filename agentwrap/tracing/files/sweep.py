"""Looks at files when nobody tells us to: the writer closed it, is quiet for long, or is gone; and once at the end.

Reads `/proc/PID/fd` of processes that have followed files. Bounded: a slice takes about 1.5 milliseconds.
"""

import os
import time

from agentwrap.tracing.files.desk import Desk
from agentwrap.tracing.files.pending import Holder, Pending
from agentwrap.tracing.files.snapshot import Key

SLICE_NS = 1_500_000
SCAN_SHARE = 20
"""A scan of a process's descriptors that took t is not repeated before 20 t."""

SCAN_WAIT_NS = 40_000_000
UNSEEN_OPEN_NS = 300_000_000
"""A descriptor that was announced and is not there yet may still come: the call continues after we were told."""

RAN_NS = 20_000_000
"""A thread that ran for so long is through with what it was about to do with a file that it opened."""

PASSING_NS = 15_000_000
"""What comes and goes faster than this is told once, when it is gone."""

MOST_THREADS = 4096
MOST_ASKED = 64
"""So many threads are asked what they are doing before one scan."""

_OPENING = frozenset({b"2", b"85", b"257", b"304", b"437", b"5", b"8", b"295", b"342", b"running"})
"""What `/proc/TID/syscall` says of a thread that may be in an open: numbers of x86-64 and i386, or on a processor."""

LONG_OPEN_NS = 1_000_000_000
"""A file that stays open is looked at while it is open, ever less often (`desk.FREE_LOOKS`)."""


class Sweeper:
    """Works through the desk's pending files, a slice at a time."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._next_scan_ns: dict[int, int] = {}
        self._ran_ns: dict[Holder, int | None] = {}
        self._queue: list[int] | None = None

    def ended(self, pid: int) -> None:
        """A process is gone, with all its descriptors."""
        desk = self._desk
        self._next_scan_ns.pop(pid, None)
        if len(desk.moved) > MOST_THREADS:
            desk.moved.clear()  # at worst an open is waited for a little longer
        for pending in list(desk.pending.by_pid.get(pid, ())):
            looked = desk.settle_if_due(pending)
            desk.pending.release(pending, pid)
            if looked and not pending.holders:
                desk.let_go(pending)

    def shed(self, pid: int) -> None:
        """One process has very many files waiting: look at those it closed."""
        self._scan(pid, thorough=True)

    def slice(self) -> bool:
        """Do some of the work; False when the round is done."""
        desk = self._desk
        until_ns = time.perf_counter_ns() + SLICE_NS
        if self._queue is None:
            self._queue = list(desk.pending.by_pid)
        while self._queue:
            self._scan(self._queue.pop(), thorough=False)
            if time.perf_counter_ns() > until_ns:
                return True
        for pending in list(desk.pending.loose):
            if desk.settle_if_due(pending) and not pending.holders:
                desk.let_go(pending)
            if time.perf_counter_ns() > until_ns:
                return True
        self._queue = None
        return False

    def finish(self) -> None:
        """Look at all that is pending, then at all that was ever written."""
        desk = self._desk
        for pending in list(desk.pending.by_host.values()):
            desk.settle(pending)
            desk.let_go(pending)
        for host, known in desk.known.items():
            desk.late(host, known)

    def _scan(self, pid: int, *, thorough: bool) -> None:
        desk = self._desk
        files = desk.pending.by_pid.get(pid)
        now_ns = desk.now()
        if not files or (now_ns < self._next_scan_ns.get(pid, 0) and not thorough):
            return
        started_ns = time.perf_counter_ns()
        # In this order: a thread that waits elsewhere has its descriptor by now, if the open gave it one.
        elsewhere = _elsewhere({holder.who.tid for one in files if (holder := _unseen(one, pid, now_ns)) is not None})
        open_keys = _open_files(pid)
        took_ns = time.perf_counter_ns() - started_ns
        self._next_scan_ns[pid] = now_ns + max(SCAN_WAIT_NS, SCAN_SHARE * took_ns)
        if open_keys is None:
            return  # gone, which will be told; or its descriptors may not be read: its end will tell
        until_ns = started_ns + (SLICE_NS if not thorough else 100 * SLICE_NS)
        for pending in list(files):
            self._look(pending, pid, open_keys, now_ns, elsewhere)
            if time.perf_counter_ns() > until_ns:
                self._next_scan_ns[pid] = 0  # go on in the next round
                break

    def _look(self, pending: Pending, pid: int, open_keys: set[Key], now_ns: int, elsewhere: set[int]) -> None:
        desk = self._desk
        holder = pending.holders.get(pid)
        if holder is None:
            return
        key = pending.key
        if key is None:
            key = _key_now(pending.host)
            if key is not None:
                desk.pending.identify(pending, key)
        if key is not None and key in open_keys:
            if pending.seen is None:
                pending.seen = set()
            pending.seen.add(pid)
            if now_ns - holder.opened_ns > LONG_OPEN_NS and not self._held_up(holder):
                desk.settle_if_due(pending)
            return
        was_open = pending.seen is not None and pid in pending.seen
        # Or the open was over before the descriptors were read: then there was one, and it is closed.
        was_open = was_open or holder.opened_ns < desk.moved.get(holder.who.tid, 0) <= now_ns
        was_open = was_open or holder.who.tid in elsewhere
        if not was_open and (now_ns - holder.opened_ns < UNSEEN_OPEN_NS or self._held_up(holder)):
            return  # not there yet
        before = pending.before
        if desk.settle_if_due(pending):
            if pending.before is before and key is not None and _is_mapped(pid, key):
                return  # a mapping outlives its descriptor, and nobody is told of what is written through it
            desk.pending.release(pending, pid)
            if not pending.holders:
                desk.let_go(pending)

    def _held_up(self, holder: Holder) -> bool:
        """Whether its thread wants a processor, and has had one for no longer than a moment since we asked first."""
        if len(self._ran_ns) > MOST_THREADS:
            self._ran_ns.clear()  # at worst a thread is waited for a little longer
        if holder in self._ran_ns and self._ran_ns[holder] is None:
            return False
        ran_ns = _ran_ns(holder.who.tid)
        first_ns = self._ran_ns.setdefault(holder, ran_ns)
        if ran_ns is None or first_ns is None or ran_ns - first_ns >= RAN_NS:
            self._ran_ns[holder] = None  # not asked again
            return False
        return True


def _unseen(pending: Pending, pid: int, now_ns: int) -> Holder | None:
    """The process's holder of a file, if its descriptor was never seen in a while."""
    if pending.seen is not None and pid in pending.seen:
        return None
    holder = pending.holders.get(pid)
    return holder if holder is not None and now_ns - holder.opened_ns > PASSING_NS else None


def _elsewhere(tids: set[int]) -> set[int]:
    """Those threads that are known to be in no open(2): they wait in another call, or outside of any (proc(5))."""
    found = set()
    for tid in list(tids)[:MOST_ASKED]:
        try:
            with open(b"/proc/%d/syscall" % tid, "rb") as file:
                number = file.read(128).split(None, 1)[0]
        except (OSError, IndexError):
            continue  # gone, or not to be asked: then the descriptor is waited for
        if number not in _OPENING:
            found.add(tid)
    return found


def _ran_ns(tid: int) -> int | None:
    """How long a thread that is on a processor, or waits for one, has run (proc(5), schedstat); None for any other."""
    try:
        with open(b"/proc/%d/syscall" % tid, "rb") as file, open(b"/proc/%d/schedstat" % tid, "rb") as times:
            return int(times.read().split()[0]) if file.read(128).split(None, 1)[0] == b"running" else None
    except (OSError, IndexError):
        return None


def may_be_inside(tid: int) -> bool:
    """Whether a thread may still be in the call it was last known to make; not one that is gone or outside of any."""
    try:
        with open(b"/proc/%d/syscall" % tid, "rb") as file:
            return file.read(128).split(None, 1)[0] != b"-1"
    except (OSError, IndexError):
        return False


def _key_now(host: bytes) -> Key | None:
    try:
        status = os.lstat(host)
    except OSError:
        return None
    return (status.st_dev, status.st_ino)


def _is_mapped(pid: int, key: Key) -> bool:
    """Whether a process can write to the file through its memory (proc_pid_maps(5)), by its inode."""
    try:
        with open(b"/proc/%d/maps" % pid, "rb") as file:
            lines = [line.split(None, 5) for line in file]
    except OSError:
        return False
    return any(words[1][1:2] == b"w" and words[1][3:4] == b"s" and int(words[4]) == key[1] for words in lines)


def _open_files(pid: int) -> set[Key] | None:
    """The inodes a process has open, None where we cannot know."""
    folder = b"/proc/%d/fd" % pid
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    keys: set[Key] = set()
    for name in names:
        try:
            status = os.stat(folder + b"/" + name)
        except OSError:
            continue  # closed meanwhile
        keys.add((status.st_dev, status.st_ino))
    return keys
