"""What is on its way to one side: the other side's bytes, and our own lines between its lines. Pure.

Our lines are never put inside somebody's half-written line: they wait for its end.
"""

from collections import deque

_END = 0x0A


class Outgoing:
    """A queue of bytes for one side.

    `size`: bytes in it. Everything that goes to the side is either `put` here or, while nothing is queued and nothing
    waits, sent at once and only told (`passed`).
    """

    __slots__ = ("_pieces", "_waiting", "_whole", "size")

    def __init__(self) -> None:
        self._pieces: deque[memoryview] = deque()
        self._waiting: list[bytes] = []
        self._whole = True  # the last byte that was put ends a line, or there is none
        self.size = 0

    @property
    def idle(self) -> bool:
        """Whether bytes may go past the queue."""
        return not self._pieces and not self._waiting

    def passed(self, data: bytes) -> None:
        """These were sent past the queue. They are not empty."""
        self._whole = data[-1] == _END

    def put(self, data: bytes) -> tuple[bytes, ...]:
        """Queue bytes of the other side; returns the lines of ours that have found their place by it."""
        if not data:
            return ()
        said: tuple[bytes, ...] = ()
        if self._waiting and (end := data.find(b"\n")) >= 0:
            self._add(data[: end + 1])
            said = self._release()
            data = data[end + 1 :]
            self._whole = True
        if data:
            self._add(data)
            self._whole = data[-1] == _END
        return said

    def say(self, line: bytes) -> tuple[bytes, ...]:
        r"""Queue a line of ours (with its `\n`); returns it if it has its place, else `put` will."""
        self._waiting.append(line)
        return self._release() if self._whole else ()

    @property
    def unsaid(self) -> int:
        """Bytes of ours that still wait for the end of somebody's line."""
        return sum(map(len, self._waiting))

    def front(self) -> memoryview:
        """The next bytes to send; the queue is not empty."""
        return self._pieces[0]

    def sent(self, count: int) -> None:
        """So many of `front` went out."""
        self.size -= count
        first = self._pieces[0]
        if count == len(first):
            self._pieces.popleft()
        else:
            self._pieces[0] = first[count:]

    def clear(self) -> None:
        """Nobody takes it any more."""
        self._pieces.clear()
        self._waiting.clear()
        self.size = 0

    def _add(self, data: bytes) -> None:
        self._pieces.append(memoryview(data))
        self.size += len(data)

    def _release(self) -> tuple[bytes, ...]:
        said = tuple(self._waiting)
        self._waiting.clear()
        for line in said:
            self._add(line)
        return said
