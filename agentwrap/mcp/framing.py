r"""Lines of the stdio transport. Pure.

A message is what stands before one `\n` (MCP, transports, stdio). Nothing else ends a line: U+2028, U+0085 and `\r` are
legal inside JSON texts. Knows nothing of JSON; refuses nothing but lines over its cap, of which it keeps nothing.
"""


class Lines:
    r"""Bytes in, whole lines out, each with its `\n`; joined they are the bytes that came in.

    `cap`: bytes of a line that are kept, without its end. Once a line is longer, `over` holds and nothing more comes
    out: what follows cannot be told from it.
    """

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._begun = bytearray()
        self.over = False

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are whole now; before one that is too long, those that stand before it."""
        if self.over:
            return []
        end = data.rfind(b"\n")
        if end < 0:
            self._begin(data)
            return []
        lines = data[:end].split(b"\n")
        first = 0
        whole: list[bytes] = []
        if self._begun:
            if len(self._begun) + len(lines[0]) > self._cap:
                return self._too_long(whole)
            self._begun += lines[0]
            self._begun += b"\n"
            whole.append(bytes(self._begun))
            self._begun = bytearray()
            first = 1
        for line in lines[first:]:
            if len(line) > self._cap:
                return self._too_long(whole)
            whole.append(line + b"\n")
        self._begin(data[end + 1 :])
        return whole

    def _too_long(self, whole: list[bytes]) -> list[bytes]:
        self.over = True
        self._begun = bytearray()
        return whole

    def _begin(self, data: bytes) -> None:
        if len(self._begun) + len(data) > self._cap:
            self._too_long([])
        else:
            self._begun += data

    @property
    def begun(self) -> int:
        """Bytes of a line that is not whole yet."""
        return len(self._begun)

    def rest(self) -> bytes:
        """At the end: what stands after the last line's end. Many servers take it for a message."""
        rest, self._begun = bytes(self._begun), bytearray()
        return rest
