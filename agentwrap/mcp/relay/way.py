"""One direction between client and server: a descriptor that is read, one that is written, and what is between them.

Knows when to stop reading (the taker is slow), when an end has to be told to the other side, and how. Knows nothing of
messages.
"""

from collections.abc import Callable
from select import EPOLLERR, EPOLLHUP
from typing import Protocol

from agentwrap.mcp.relay.ends import CHUNK_BYTES, End
from agentwrap.mcp.relay.outgoing import Outgoing

_DRAINED_CHUNKS = 16
_ANSWERS_BYTES = 1 << 20


class Watch(Protocol):
    """Whoever calls when descriptors are ready (epoll(7), level-triggered)."""

    def change(self, fd: int, handler: "Callable[[int], None]", *, reads: bool, writes: bool) -> None:
        """Call `handler` with the events of `fd` from now on; its end and errors always."""
        ...

    def drop(self, fd: int) -> None:
        """Do not look at `fd` any more. To be called before it is closed; twice does no harm."""
        ...


class Way:
    """From `source` to `sink`.

    `received` gets every piece that is read, `ended` is told of the source's end, `broke` that the sink takes no more.
    `answers`: the way that answers of ours go to, where the bytes of this one are judged; `answered`: the reverse.
    """

    def __init__(
        self,
        watch: Watch,
        source: End,
        sink: End,
        received: "Callable[[Way, bytes], None]",
        ended: "Callable[[Way], None]",
        broke: "Callable[[Way], None]",
        *,
        up: bool,
    ) -> None:
        self.up = up
        self.out = Outgoing()
        self.answers: Way | None = None
        self.answered: Way | None = None
        self.paused = False  # somebody is far behind: nothing is read
        self.broken = False  # whoever takes the bytes has left before whoever gives them
        self._watch = watch
        self._source: End | None = source
        self._sink: End | None = sink
        self._received, self._ended, self._broke = received, ended, broke
        self._finishing = False
        self._reads = self._writes = False
        self._half = False
        self._busy = False
        watch.change(sink.fd, self._on_sink, reads=False, writes=False)
        self.look()

    @property
    def over(self) -> bool:
        """Whether nothing goes through it any more."""
        return self._sink is None

    def look(self) -> None:
        """Watch what has to be watched now."""
        source, sink = self._source, self._sink
        if source is not None:
            reads = not self.paused and self.out.size < CHUNK_BYTES and not self._owes()
            if reads != self._reads:
                self._reads = reads
                if reads:
                    self._watch.change(source.fd, self._on_source, reads=True, writes=False)
                else:
                    # Not even its end: that would be told again and again until it can be read.
                    self._watch.drop(source.fd)
        if sink is not None and (writes := self.out.size > 0) != self._writes:
            self._writes = writes
            self._watch.change(sink.fd, self._on_sink, reads=False, writes=writes)

    def _owes(self) -> bool:
        """Whether whoever is read here does not take the answers to what it has said already."""
        answers = self.answers
        return answers is not None and answers.out.size + answers.out.unsaid > _ANSWERS_BYTES

    def send(self, data: bytes) -> tuple[bytes, ...]:
        """Bytes of the source's go on; returns lines of ours that went with them. Nothing where nobody takes them."""
        sink = self._sink
        if sink is None or not data:
            return ()
        if self.out.idle:
            try:
                count = sink.write(memoryview(data))
            except OSError:
                self.break_off()
                return ()
            if count == len(data):
                self.out.passed(data)
                return ()
            if count:
                self.out.passed(data[:count])
                data = data[count:]
        said = self.out.put(data)
        self._push()
        return said

    def say(self, line: bytes) -> tuple[bytes, ...]:
        """A line of ours goes to whoever takes this way's bytes; returned if it has found its place."""
        if self._sink is None:
            return ()
        said = self.out.say(line)
        self._push()
        return said

    def finish(self) -> None:
        """Nothing more comes: the sink is told so once it has all."""
        self._close_source()
        self._finishing = True
        self._push()

    def break_off(self) -> None:
        """Nobody takes the bytes: whoever gives them is to see that at once, as without us between."""
        sink, source = self._sink, self._source
        if sink is None:
            return
        self.broken = True
        hung = sink.hung()
        self._close_sink()
        self.out.clear()
        if source is not None and not hung:
            source.refuse()
        if not self._busy:  # a piece is being worked on: what came after it is read after it
            self._read_out()
        if self.answered is not None:
            self.answered.look()  # nobody takes answers any more: what is said goes on being read
        self._broke(self)

    def _read_out(self) -> None:
        source = self._source
        if source is None:
            return
        # What is on its way already was said, though nobody hears it; bounded, for whoever goes on writing.
        for _ in range(_DRAINED_CHUNKS):
            data = source.read()
            if not data:
                break
            self._received(self, data)
        self._close_source()

    def _on_source(self, _events: int) -> None:
        source = self._source
        if source is None:
            return
        data = source.read()
        if data is None:
            return
        if data:
            self._busy = True
            self._received(self, data)
            self._busy = False
            if self._sink is None:
                self._read_out()
            self.look()
            return
        self._half = not source.hung()
        self._close_source()
        self._ended(self)

    def _on_sink(self, events: int) -> None:
        if events & (EPOLLERR | EPOLLHUP):
            self.break_off()
        else:
            self._push()

    def _push(self) -> None:
        sink, out = self._sink, self.out
        if sink is None:
            return
        try:
            while out.size:
                front = out.front()
                count = sink.write(front)
                out.sent(count)
                if count < len(front):
                    break
        except OSError:
            self.break_off()
            return
        if self._finishing and not out.size:
            if self.up or self._half:
                sink.finish()
            self._close_sink()
        self.look()
        if self.answered is not None:
            self.answered.look()

    def _close_source(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            self._watch.drop(source.fd)
            source.close()

    def _close_sink(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            self._watch.drop(sink.fd)
            sink.close()

    def cut(self) -> None:
        """End it now, whatever is still on its way."""
        self.out.clear()
        self._close_source()
        self._close_sink()
