"""What reading in passing costs: `python tests/bench/capture.py [--quick]`. One process, no network.

Processor time, the best of many short rounds, since others may be at work on the machine.
"""

import argparse
import time
import zlib
from collections.abc import Callable
from itertools import count

import h11

from agentwrap.events.exchange import ExchangeNews
from agentwrap.gateway.capture.about import About
from agentwrap.gateway.capture.tap import Tap
from agentwrap.models.codings import decode

ABOUT = About(connection="n1", span="p1", pid=1, scheme="https", host=b"api.example", port=443, intercepted=True)
REQUEST = (
    b"POST /v1/messages?beta=true HTTP/1.1\r\nHost: api.example\r\n"
    + b"".join(b"X-Header-Of-Sdk-%d: some value or other %d\r\n" % (number, number) for number in range(20))
    + b"Content-Length: 2\r\n\r\n{}"
)
ANSWER = (
    b"HTTP/1.1 200 OK\r\n"
    + b"".join(b"X-Header-%d: some value or other %d\r\n" % (number, number) for number in range(16))
    + b"Content-Length: 2\r\n\r\n{}"
)
UP, DOWN = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n", b"HTTP/1.1 200 OK\r\n%s\r\n"
CHUNKED = DOWN % b"Transfer-Encoding: chunked\r\n"
SOCKET_UP = b"GET /s HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"
SOCKET_DOWN = b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\n%s\r\n"
EVENT = b'event: content_block_delta\ndata: {"delta": {"type": "text_delta", "text": "some words"}}\n\n'


def tap(wanted: bool = True) -> Tap:
    heard: list[ExchangeNews] = []

    def put(news: ExchangeNews) -> None:
        heard[:] = [news]

    numbers = count(1)
    return Tap(ABOUT, put, time.monotonic_ns, lambda: next(numbers), lambda *_: wanted)


def seconds(work: Callable[[], None], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = time.thread_time()
        work()
        best = min(best, time.thread_time() - start)
    return best


def by_h11() -> None:
    for role, data in ((h11.SERVER, REQUEST), (h11.CLIENT, ANSWER)):
        connection = h11.Connection(role)
        if role is h11.CLIENT:
            connection.send(h11.Request(method="POST", target="/", headers=[("Host", "x")]))
            connection.send(h11.EndOfMessage())
        connection.receive_data(data)
        while not isinstance(connection.next_event(), h11.EndOfMessage):
            pass


def exchanges(wanted: bool, times: int) -> Callable[[], None]:
    def work() -> None:
        one = tap(wanted)
        for _ in range(times):
            one.up(REQUEST)
            one.down(ANSWER)
        assert one.active

    return work


def body(up: bool, piece: bytes, times: int, wanted: bool = True, head: bytes = b"") -> Callable[[], None]:
    """One body in `times` pieces."""

    def work() -> None:
        one = tap(wanted)
        one.up(UP % (len(piece) * times if up else 0))
        if not up:
            one.down(head)
        feed = one.up if up else one.down
        for _ in range(times):
            feed(piece)
        assert one.active

    return work


def messages(up: bool, piece: bytes, times: int, deflate: bool) -> Callable[[], None]:
    def work() -> None:
        one = tap()
        one.up(SOCKET_UP)
        one.down(SOCKET_DOWN % (b"Sec-WebSocket-Extensions: permessage-deflate\r\n" if deflate else b""))
        feed = one.up if up else one.down
        for _ in range(times):
            feed(piece)
        assert one.active

    return work


def frame(first: int, data: bytes, mask: bool) -> bytes:
    if len(data) > 0xFFFF:
        size = b"\x7f" + len(data).to_bytes(8, "big")
    else:
        size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + len(data).to_bytes(2, "big")
    return bytes([first, size[0] | 0x80 * mask]) + size[1:] + (b"\1\2\3\4" if mask else b"") + data


def compressed(data: bytes) -> bytes:
    coder = zlib.compressobj(wbits=-15)
    return (coder.compress(data) + coder.flush(zlib.Z_SYNC_FLUSH))[:-4]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: only whether it works")
    quick = parser.parse_args().quick
    rounds, times = (1, 20) if quick else (25, 200)
    for name, work in (("wanted", exchanges(True, times)), ("not wanted", exchanges(False, times))):
        took = seconds(work, rounds) / times
        print(f"small exchange, {name:22} {took * 1e6:8.1f} us {1 / took:12,.0f}/s")
    took = seconds(lambda: [by_h11() for _ in range(times)] and None, rounds) / times
    print(f"the same heads by h11                  {took * 1e6:8.1f} us {1 / took:12,.0f}/s")
    block, chunk = bytes(1 << 16), b"10000\r\n" + bytes(1 << 16) + b"\r\n"
    event = b"%x\r\n" % len(EVENT) + EVENT + b"\r\n"
    whole, large = compressed(EVENT), bytes(1 << 20)
    sized = DOWN % b"Content-Length: 999999999999\r\n"
    for name, piece, work in (
        ("request body, sized, 64 KiB pieces", block, body(True, block, times)),
        ("answer body, sized, 64 KiB pieces", block, body(False, block, times, head=sized)),
        ("answer body, not wanted", block, body(False, block, times, False, sized)),
        ("answer body, chunks of 64 KiB", chunk, body(False, chunk, times, head=CHUNKED)),
        ("events, one chunk in a piece", event, body(False, event, times, head=CHUNKED)),
        ("events, 100 chunks in a piece", event * 100, body(False, event * 100, times // 10, head=CHUNKED)),
        ("messages of events, down", event, messages(False, frame(0x81, EVENT, False), times, False)),
        ("messages of events, deflated", EVENT, messages(False, frame(0xC1, whole, False), times, True)),
        ("messages of 1 MiB, masked", large, messages(True, frame(0x82, large, True), times // 10, False)),
    ):
        pieces = times // 10 if len(piece) > len(chunk) or piece.count(EVENT) > 1 else times
        took = seconds(work, rounds) / pieces
        print(f"{name:38} {took * 1e6:8.1f} us {len(piece) / took / 1e6:12,.0f} MB/s")
    text = EVENT * (100 if quick else 5000)
    for name, data in (("gzip", zlib.compress(text, wbits=31)), ("deflate", zlib.compress(text))):
        took = seconds(lambda data=data, name=name: decode(data, name.encode(), 1 << 26) and None, rounds)
        print(f"{name + ' out of its coding':38} {'':11} {len(text) / took / 1e6:12,.0f} MB/s")


if __name__ == "__main__":
    main()
