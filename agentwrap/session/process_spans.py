"""Which span a process id is just now, from the events that pass: for whoever is told a process id by the kernel."""

import threading
from collections import OrderedDict

from agentwrap.events import Item, ProcessStart

_REMEMBERED = 65536
_WAIT_S = 10.0
"""For a tracer, or a supervisor, that is held up; who is not of the run has nothing to say here."""


class ProcessSpans:
    """Fed by the thread that hears the tracer, asked by others. A process that is gone is still found for a while."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._spans: OrderedDict[int, str] = OrderedDict()
        self._over = False

    def see(self, items: list[Item]) -> None:
        """Learn from events."""
        started = [item for item in items if type(item) is ProcessStart]
        if not started:
            return
        with self._changed:
            for one in started:
                self._spans.pop(one.pid, None)
                self._spans[one.pid] = one.span
            while len(self._spans) > _REMEMBERED:
                self._spans.popitem(last=False)
            self._changed.notify_all()

    def finish(self) -> None:
        """Nothing more is told: nobody is waited for."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def of(self, pid: int) -> str:
        """The span, waited for a moment: a program may speak before the tracer's word of it is here. Else empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or pid in self._spans, _WAIT_S)
            return self._spans.get(pid, "")
