"""HTTP/2 requests in a client's bytes without TLS (RFC 9113), one at a time: each is judged before it goes on.

Knows frames and header blocks (decoded by hpack), and whom a request is meant for. Refuses to know what is in the other
frames: they pass as they come. Speaks as `http_head.RequestStream` does, so whoever carries one carries both.
"""

from collections.abc import Iterable

from agentwrap.gateway.first_flight import H2_PREFACE
from agentwrap.gateway.http_head import HEAD_MAX, Forward, HttpError, Item, Request, State, authority

TABLE_MAX = 0x10000  # bytes of a client's compression table: 4,096, more if its server says so (RFC 9113, 6.5.2)

_DATA, _HEADERS, _CONTINUATION = 0, 1, 9
_END_HEADERS, _PADDED, _PRIORITY = 0x4, 0x8, 0x20
_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority", b":protocol"))


class H2RequestStream:
    """One client connection. Holds one header block at most, and what came in the same piece behind it.

    Methods as of `RequestStream`. `answered` is never true: an answer of ours would have to fit between the server's
    frames, so a refusal ends the connection.
    """

    answered = False

    def __init__(self) -> None:
        self.state: State = "head"
        self._held = bytearray()
        self._preface = False
        self._passing = 0  # bytes left of a frame that is not looked at
        self._block = bytearray()
        self._frames = bytearray()  # the frames of the block, as they came
        self._stream = 0  # whose block is not complete
        self._newest = 0
        import hpack  # few runs speak HTTP/2 without TLS

        self._broken = hpack.HPACKError
        self._decoder = hpack.Decoder(HEAD_MAX)
        self._decoder.max_allowed_table_size = TABLE_MAX

    @property
    def wants_data(self) -> bool:
        """Whether the client may be read."""
        return self.state != "judging"

    @property
    def begun(self) -> bool:
        """Whether a frame or a header block has begun that is not complete."""
        return bool(self._held or self._block)

    def feed(self, data: bytes) -> list[Item]:
        """The client's next bytes. Raises HttpError (end the connection), ValueError if it may not be read now."""
        if not self.wants_data:
            raise ValueError(f"nothing is read in state {self.state}")
        if len(data) <= self._passing and not self._held:  # large frames are not copied
            self._passing -= len(data)
            return [Forward(data)] if data else []
        self._held += data
        return self._go_on()

    def accept(self) -> list[Item]:
        """The request may go on: what has come behind it already, perhaps the next request. Raises as `feed`."""
        if self.state != "judging":
            raise ValueError("no request waits")
        self.state = "body"
        return self._go_on()

    def observe(self, data: bytes) -> list[Item]:  # noqa: ARG002
        """The server's next bytes. They change nothing here."""
        return []

    def _go_on(self) -> list[Item]:
        passed = bytearray()
        request: Request | None = None
        if not self._preface:
            if len(self._held) < len(H2_PREFACE):
                return []
            if not self._held.startswith(H2_PREFACE):
                raise HttpError("no HTTP/2 preface")
            self._preface, self.state = True, "body"
            passed += self._take(len(H2_PREFACE))
        while request is None:
            passed += self._take(self._passing)
            if self._passing or len(self._held) < 9:
                break
            length, kind, flags = int.from_bytes(self._held[:3], "big"), self._held[3], self._held[4]
            stream = int.from_bytes(self._held[5:9], "big") & 0x7FFFFFFF
            if kind not in (_HEADERS, _CONTINUATION):
                if self._stream:
                    raise HttpError("a header block that is interrupted")
                self._passing = 9 + length
                continue
            if len(self._frames) + length > HEAD_MAX:
                raise HttpError(f"a header block of more than {HEAD_MAX:,} bytes", 431)
            if len(self._held) < 9 + length:
                break
            frame = bytes(self._held[: 9 + length])
            del self._held[: 9 + length]
            request = self._header_frame(kind, flags, stream, frame, passed)
        items: list[Item] = [Forward(bytes(passed))] if passed else []
        return items if request is None else [*items, request]

    def _take(self, most: int) -> bytearray:
        """Bytes of the frame that passes."""
        taken = self._held[:most]
        del self._held[:most]
        self._passing = max(0, self._passing - len(taken))
        return taken

    def _header_frame(self, kind: int, flags: int, stream: int, frame: bytes, passed: bytearray) -> Request | None:
        """A frame of a block; the request once the block is complete. Trailers go to `passed`."""
        if stream == 0 or (kind == _CONTINUATION) != bool(self._stream) or (self._stream and stream != self._stream):
            raise HttpError("a header frame where none may be")
        self._stream = stream
        self._frames += frame
        self._block += frame[9:] if kind == _CONTINUATION else _fragment(frame[9:], flags)
        if not flags & _END_HEADERS:
            return None
        raw, block = bytes(self._frames), bytes(self._block)
        self._stream, self._frames, self._block = 0, bytearray(), bytearray()
        try:
            fields = [(bytes(one[0]), bytes(one[1])) for one in self._decoder.decode(block, raw=True)]
        except self._broken as error:
            raise HttpError(f"a broken header block: {error}") from error
        if stream <= self._newest:
            if any(name.startswith(b":") for name, _ in fields):
                raise HttpError("a second head in one stream")
            passed += raw
            return None
        self._newest = stream
        request = _request(fields, raw)
        self.state = "judging"
        return request


def _fragment(payload: bytes, flags: int) -> bytes:
    """RFC 9113, 6.2: without padding and priority."""
    padding, start = (payload[0], 1) if flags & _PADDED and payload else (0, 0)
    if flags & _PRIORITY:
        start += 5
    if (flags & _PADDED and not payload) or start + padding > len(payload):
        raise HttpError("a broken header frame")
    return payload[start : len(payload) - padding]


def _request(fields: Iterable[tuple[bytes, bytes]], raw: bytes) -> Request:
    """RFC 9113, 8.3."""
    pseudo: dict[bytes, bytes] = {}
    hosts: list[bytes] = []
    regular = False
    for name, value in fields:
        if name.startswith(b":"):
            if regular or name in pseudo or name not in _PSEUDO:
                raise HttpError("a pseudo field twice, late or unknown")
            pseudo[name] = value
        else:
            regular = True
            if name.lower().strip() == b"host":
                hosts.append(value)
    method, path = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    is_connect = method == b"CONNECT" and b":protocol" not in pseudo
    stated = [*([pseudo[b":authority"]] if b":authority" in pseudo else []), *hosts]
    if not method or not stated or len(hosts) > 1 or is_connect == bool(path):
        raise HttpError("a head without its method, path or host, or with several")
    named = [authority(one) for one in stated]
    if len(set(named)) > 1:
        raise HttpError("the authority names another host than Host does")
    host, port = named[0]
    if is_connect and port is None:
        raise HttpError("CONNECT without a port")
    return Request(method, path or stated[0], host, port, is_connect, pseudo.get(b":protocol", b""), raw)
