"""A denial is on disk before the program hears of it: asks the supervisor and waits for its word."""

import threading

from agentwrap.tracing.wire import AckWanted, Sender

_PATIENCE_S = 2.0


class Recorded:
    """Numbers what has to be on disk. `reached` comes from the thread that hears the supervisor."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._changed = threading.Condition()
        self._asked = 0
        self._reached = 0

    def hold(self) -> None:
        """Return when everything sent so far is on disk. A disk that is full holds nobody for longer than 2 s."""
        with self._changed:
            self._asked += 1
            number = self._asked
        self._sender.put(AckWanted(number))
        self._sender.flush()
        with self._changed:
            self._changed.wait_for(lambda: self._reached >= number, _PATIENCE_S)

    def reached(self, number: int) -> None:
        """The supervisor says that everything up to the request `number` is on disk."""
        with self._changed:
            self._reached = max(self._reached, number)
            self._changed.notify_all()
