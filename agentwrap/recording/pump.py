"""The thread between the supervisor and the file: gathers, commits, checkpoints, and survives a full disk.

An item is in the file within 20 ms of its arrival while the disk keeps up. `put` blocks when the recorder is behind,
which slows the agent down, but never for longer than `STALL_NS` (`PATIENT_NS`), and not at all while the disk is full:
then items are held, and when there is no more room for them dropped and counted; the count becomes gaps as soon as
something can be written again. Denials and the events of the run itself are never dropped.
"""

import contextlib
import sqlite3
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

from agentwrap.events import Content, Gap, Item, Secrets
from agentwrap.recording.ahead import TOGETHER
from agentwrap.recording.loss import Losses, may_drop
from agentwrap.recording.reserve import Reserve
from agentwrap.recording.writer import Recorder

GATHER_S = 0.004
COMMIT_NS = 10_000_000
CHECKPOINT_NS = 1_000_000_000
RETRY_S = 0.1
STALL_NS = 5_000_000_000
PATIENT_NS = 60_000_000_000
MAX_QUEUED_ITEMS = 128
MAX_AGE_NS = 15_000_000
"""These two bound what a kill can lose: `put` waits while more is on its way, or something has been for longer."""
LARGE_BYTES = 1 << 18
MAX_QUEUED_BYTES = 16 << 20
MAX_HELD_ITEMS = 20_000
MAX_HELD_BYTES = 32 << 20

_BROKEN = (sqlite3.Error, OSError)


class RecorderPump(threading.Thread):
    """Owns `recorder` from `start` to `flush_and_close`. `failure`: what went wrong, in words, or empty."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(name="agentwrap-recorder", daemon=True)
        self.failure = ""
        self.dropped = 0
        self._recorder = recorder
        self._now: Callable[[], int] = recorder.now
        self._reserve = Reserve(recorder.path.parent)
        self._lock = threading.Condition()
        self._queue: list[Item] = []
        self._queued_bytes = 0
        self._arrived = self._taken = self._written = 0
        self._queued_since = self._busy_since = 0
        self._closing = False
        self._sealed = False
        self._hurry = threading.Event()
        self._held: deque[Item] = deque()
        self._held_bytes = 0
        self._losses = Losses()  # the thread's own
        self._stalled = Losses()  # under the lock
        self._broken = self._dead = False
        self._undo_broken = False

    # The supervisor's side.

    def put(self, items: list[Item], *, patient: bool = False) -> None:
        """Hand over items, in order. Blocks while too much is on its way to the file (see the module).

        `patient`: whoever made them holds back what makes more and holds up no system call, so that one body of many MB
        that is being redacted costs time and no rows: nothing is dropped before `PATIENT_NS`.
        """
        for start in range(0, len(items), MAX_QUEUED_ITEMS):
            self._put(items[start : start + MAX_QUEUED_ITEMS], PATIENT_NS if patient else STALL_NS)

    def _put(self, items: list[Item], patience_ns: int) -> None:
        weight = sum(len(item.data) for item in items if type(item) is Content)
        with self._lock:
            if self._dead:
                self.dropped += len(items)
                return
            if self._behind() and not self._lock.wait_for(lambda: not self._behind(), patience_ns / 1e9):
                items = self._drop_all(items, "recorder-stalled", self._stalled)
                weight = 0
            if not self._queue:
                self._queued_since = time.monotonic_ns()
            self._queue += items
            self._queued_bytes += weight
            self._arrived += len(items)
            self._lock.notify_all()
            if len(self._queue) > MAX_QUEUED_ITEMS // 2 or self._queued_bytes > MAX_QUEUED_BYTES // 2:
                self._hurry.set()

    def flush(self, timeout_s: float = 1.0) -> bool:
        """Wait until everything put so far is in the file (before a denial is answered). False: it is not.

        A recorder that is only slow is waited for (`PATIENT_NS`), one that cannot write for no more than `timeout_s`.
        """
        with self._lock:
            wanted = self._arrived

            def written() -> bool:
                return self._written >= wanted or self._sealed

            self._hurry.set()
            self._lock.notify_all()
            self._lock.wait_for(lambda: written() or self._broken or self._dead, PATIENT_NS / 1e9)
            return self._lock.wait_for(written, 0 if self._dead else timeout_s)

    def flush_and_close(self, timeout_s: float = 30.0) -> bool:
        """Write what is left, close and seal. True if the file is closed, false if it had to be left torn."""
        with self._lock:
            self._closing = True
            self._hurry.set()
            self._lock.notify_all()
        if self.ident is None:
            self.run()
        else:
            self.join(timeout_s)
        if self.is_alive():
            self.failure = self.failure or "the recorder did not finish in time"
        return self._sealed and not self.is_alive()

    def _behind(self) -> bool:
        if self._broken or self._closing or self._dead:
            return False
        if len(self._queue) > MAX_QUEUED_ITEMS or self._queued_bytes > MAX_QUEUED_BYTES:
            return True
        oldest = self._busy_since or (self._queued_since if self._queue else 0)
        return oldest > 0 and time.monotonic_ns() - oldest > MAX_AGE_NS

    def _drop_all(self, items: list[Item], cause: str, losses: Losses) -> list[Item]:
        kept: list[Item] = []
        for item in items:
            if isinstance(item, Secrets) or not may_drop(item):
                kept.append(item)
            else:
                losses.add(item, cause, self._now())
                self.dropped += 1
        return kept

    # The thread's side.

    def run(self) -> None:
        """Gather, write, checkpoint, until told to close. A fault of ours ends the recording, not the run."""
        try:
            self._loop()
        except Exception as error:
            self.failure = f"internal: {error!r}"
            with self._lock:
                self._dead = True
                self._queue = []
                self._lock.notify_all()
            self._recorder.abandon()

    def _loop(self) -> None:
        # SQLite lets go of the interpreter's lock at every step, and a busy thread keeps it for an interval (5 ms by
        # default) before it is asked to give it back: commits would be late by many of those.
        sys.setswitchinterval(min(sys.getswitchinterval(), 0.001))
        checkpoint_at = time.monotonic_ns() + CHECKPOINT_NS
        while True:
            items, closing = self._gather(checkpoint_at)
            self._write(items)
            if time.monotonic_ns() >= checkpoint_at:
                checkpoint_at += CHECKPOINT_NS
                if not self._broken and self._recorder.count:
                    self._try(self._recorder.checkpoint)
            if closing:
                break
        self._finish()

    def _gather(self, checkpoint_at: int) -> tuple[list[Item], bool]:
        with self._lock:
            if not self._queue and not self._closing:
                idle_s = RETRY_S if self._broken else max(0.0, (checkpoint_at - time.monotonic_ns()) / 1e9)
                self._lock.wait(idle_s)
            waiting = bool(self._queue) and not self._closing
        if waiting and not self._broken:
            # A moment for the rest of a burst: one commit for many events. Cut short when the queue fills.
            self._hurry.wait(GATHER_S)
        with self._lock:
            items, self._queue, self._queued_bytes = self._queue, [], 0
            self._busy_since = self._queued_since if items else 0
            self._taken += len(items)
            self._hurry.clear()
            closing = self._closing
            self._lock.notify_all()
        return items, closing

    def _write(self, items: list[Item]) -> None:
        if self._broken:
            self._hold(items)
            if not self._try(self._recorder.commit):
                return
            self._recover()
            items = []
        begun = time.monotonic_ns()
        for index, item in enumerate(items):
            if index % TOGETHER == 0:
                with contextlib.suppress(Exception):  # a fault of ours comes again with its item, and is told then
                    self._recorder.look_ahead(items[index : index + TOGETHER])
            large = type(item) is Content and len(item.data) > LARGE_BYTES
            # What came before a large content does not wait until that is redacted.
            if large and index and not self._try(self._recorder.commit):
                self._hold(items[index:])
                return
            self._add(item)
            if (large or index & 63 == 63) and time.monotonic_ns() - begun > COMMIT_NS:
                if not self._try(self._recorder.commit):
                    self._hold(items[index + 1 :])
                    return
                begun = time.monotonic_ns()
        self._tell_losses()
        if self._try(self._recorder.commit) and not self._held:
            self._all_written()

    def _all_written(self) -> None:
        with self._lock:
            self._written, self._busy_since = self._taken, 0
            self._lock.notify_all()

    def _add(self, item: Item) -> None:
        try:
            if isinstance(item, Content):
                self._recorder.content(item)
            elif isinstance(item, Secrets):
                self._recorder.secrets(item)
            else:
                self._recorder.add(item)
        except OSError as error:  # the undo store's disk
            self._tell_undo(error)
        except Exception as error:
            self.failure = self.failure or f"internal: {error!r}"
            if not isinstance(item, Secrets):
                self._losses.add(item, "internal", self._now())
                self.dropped += 1

    def _tell_undo(self, error: OSError) -> None:
        if self._undo_broken:
            return
        self._undo_broken = True
        words = "some files cannot be brought back by `agentwrap undo`; the recording itself is not affected"
        told = (error.strerror or str(error)).encode()
        at_ns = self._now()
        self._recorder.add(
            Gap(at_ns=at_ns, what="file-write", cause="undo-store", could_hide=words, from_ns=at_ns, detail=told)
        )

    def _try(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except _BROKEN as error:
            self.failure = str(error)
            self._set_broken(True)
            return False
        return True

    def _set_broken(self, broken: bool) -> None:
        with self._lock:
            self._broken = broken
            self._lock.notify_all()

    def _hold(self, items: list[Item]) -> None:
        """Keep items for when the disk has room again, within limits; count what is over them."""
        for item in items:
            weight = len(item.data) if isinstance(item, Content) else 0
            if isinstance(item, Secrets):
                self._recorder.secrets(item)
            elif may_drop(item) and (len(self._held) >= MAX_HELD_ITEMS or self._held_bytes + weight > MAX_HELD_BYTES):
                self._losses.add(item, "disk-full", self._now())
                self.dropped += 1
            else:
                self._held.append(item)
                self._held_bytes += weight

    def _recover(self) -> None:
        """A commit worked again: what was held, then what was lost."""
        self._set_broken(False)
        held, self._held, self._held_bytes = self._held, deque(), 0
        while held:
            self._add(held.popleft())
            if len(held) & 255 == 0 and not self._try(self._recorder.commit):
                self._hold(list(held))
                return
        self._tell_losses()

    def _tell_losses(self) -> None:
        with self._lock:
            stalled = list(self._stalled.gaps(self._now(), b""))
        for gap in (*stalled, *self._losses.gaps(self._now(), self.failure.encode())):
            self._recorder.add(gap)

    def _finish(self) -> None:
        self._reserve.release()
        if self._broken and not self._last_words():
            self._recorder.abandon()
            return
        try:
            self._tell_losses()
            self._recorder.close()
        except _BROKEN as error:
            self.failure = str(error)
            self._set_broken(True)
            return
        with self._lock:
            self._sealed = True
            self._lock.notify_all()

    def _last_words(self) -> bool:
        """The disk is full to the end: with the reserve freed, keep what must be kept and count the rest."""
        if not self._try(self._recorder.commit):
            self._recorder.shed()
            if not self._try(self._recorder.commit):
                return False
        kept = self._drop_all(list(self._held), "disk-full", self._losses)
        for item in kept:
            self._add(item)
        self._tell_losses()
        if self._try(self._recorder.commit):
            self._set_broken(False)
            return True
        return False
