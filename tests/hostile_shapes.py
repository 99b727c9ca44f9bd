"""What servers and clients may say that is no HTTP as it should be: requests, and what a server makes of each.

A request names its shape (`shape=NAME`); `Server.talk` finds it there. Plain bytes, for TLS and without.
"""

import gzip
import json
import socket
import struct
from dataclasses import dataclass

import brotli

SSE = b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":3}}}\n\n'
BODY = json.dumps({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}).encode()
OK = b"HTTP/1.1 200 OK\r\n"
EVENTS = b"Content-Type: text/event-stream\r\n"
CHUNKED = OK + EVENTS + b"Transfer-Encoding: chunked\r\n\r\n"
SOCKET = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"


@dataclass(frozen=True)
class Shape:
    """`sent`: by the client. `answer`: pieces of the server's. `read`: whether it reads all that is sent, before.

    `deaf`: it goes without having read the rest. `reset`: it ends in the hard way.
    """

    sent: bytes
    answer: tuple[bytes, ...]
    read: bool = True
    reset: bool = False
    deaf: bool = False


def post(name: str, more: bytes = b"", body: bytes = BODY, length: bytes | None = None) -> bytes:
    size = b"%d" % len(body) if length is None else length
    head = b"POST /v1/messages?shape=%b HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\n" % name.encode()
    return head + more + (b"Content-Length: %b\r\n" % size if size else b"") + b"\r\n" + body


def upgrade(name: str) -> bytes:
    return (
        b"GET /v1/responses?shape=%b HTTP/1.1\r\nHost: HOST\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n" % name.encode()
    )


def _sized(body: bytes, more: bytes = b"", size: int | None = None) -> bytes:
    return OK + more + b"Content-Length: %d\r\n\r\n" % (len(body) if size is None else size) + body


def _gzip_bomb() -> bytes:
    layer = gzip.compress(bytes(1 << 20), mtime=0)
    return layer * 300  # members one after the other: 300 MB


def _answers() -> dict[str, tuple[bytes, ...]]:
    """To a request that is as it should be."""
    one = b"%x\r\n%b\r\n" % (len(SSE), SSE)
    gz, br = b"Content-Encoding: gzip\r\n", b"Content-Encoding: br\r\n"
    return {
        "length-too-long": (_sized(b"0123456789", size=1000),),
        "length-too-short": (_sized(b"0123456789" * 5, size=5),),
        "length-negative": (OK + b"Content-Length: -5\r\n\r\nhello",),
        "length-words": (OK + b"Content-Length: many\r\n\r\nhello",),
        "length-huge": (OK + b"Content-Length: 99999999999999999999999999\r\n\r\nhello",),
        "length-twice": (OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",),
        "length-and-chunked": (OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",),
        "chunked-twice": (OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",),
        "coding-unknown": (OK + b"Transfer-Encoding: xchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",),
        "chunk-negative": (CHUNKED + one + b"-5\r\nhello\r\n0\r\n\r\n",),
        "chunk-huge": (CHUNKED + one + b"FFFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n",),
        "chunk-words": (CHUNKED + one + b"zz\r\nhello\r\n0\r\n\r\n",),
        "chunk-extension-long": (CHUNKED + b"5;" + b"x" * 3_000_000 + b"\r\nhello\r\n0\r\n\r\n",),
        "chunk-no-end": (CHUNKED + one + b"5\r\nhelloXX0\r\n\r\n",),
        "chunk-cut": (CHUNKED + one + b"500\r\nhel",),
        "trailers-without-end": (CHUNKED + one + b"0\r\n", *(b"X-T: %d\r\n" % n for n in range(2000))),
        "headers-without-end": (OK, *(b"X-Header-%d: %b\r\n" % (n, b"v" * 1000) for n in range(5000))),
        "header-very-long": (OK + b"X-Long: " + b"y" * 5_000_000 + b"\r\nContent-Length: 2\r\n\r\nhi",),
        "folded": (OK + b"X-A: b\r\n  c\r\nContent-Length: 2\r\n\r\nhi",),
        "bare-lf": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi",),
        "colon-space": (OK + b"Content-Length : 2\r\n\r\nhi",),
        "no-colon": (OK + b"what is this\r\nContent-Length: 2\r\n\r\nhi",),
        "nul-in-header": (OK + b"X-A: \0\xff\r\nContent-Length: 2\r\n\r\nhi",),
        "status-words": (b"HTTP/1.1 fine OK\r\nContent-Length: 2\r\n\r\nhi",),
        "version-9": (b"HTTP/9.9 200 OK\r\nContent-Length: 2\r\n\r\nhi",),
        "version-1.0": (b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{}",),
        "not-http": (b"\x00\x01\x02SSH-2.0-none\r\n" + bytes(range(256)) * 50,),
        "nothing": (),
        "head-cut": (b"HTTP/1.1 200 O",),
        "informational": (*(b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" for _ in range(300)), _sized(b"{}")),
        "204-with-body": (b"HTTP/1.1 204 No Content\r\n\r\nbut here is one",),
        "twice-answered": (_sized(b"{}") + _sized(b"{}"),),
        "switched-unasked": (SOCKET + b"\r\n\x81\x05hello",),
        "lying-gzip": (_sized(BODY, gz),),
        "lying-br": (_sized(BODY, br),),
        "lying-zstd": (_sized(BODY, b"Content-Encoding: zstd\r\n"),),
        "unknown-coding": (_sized(BODY, b"Content-Encoding: rot13\r\n"),),
        "cut-gzip": (_sized(gzip.compress(BODY, mtime=0)[:-9], gz),),
        "bomb-gzip": (_sized(_gzip_bomb(), gz),),
        "bomb-br": (_sized(brotli.compress(bytes(300 << 20), quality=1), br),),
        "bomb-nested": (_sized(gzip.compress(_gzip_bomb(), mtime=0), b"Content-Encoding: gzip, gzip\r\n"),),
        "sse-not-utf8": (CHUNKED + b"c\r\ndata: \xff\xfe\x80\n\n\n\r\n0\r\n\r\n",),
        "sse-no-json": (OK + EVENTS + b"\r\ndata: {not json\n\ndata\n:\n\nevent: x\ndata: []\n\n",),
        "sse-one-line": (OK + EVENTS + b"\r\ndata: " + b"z" * 5_000_000,),
        "sse-many": (OK + EVENTS + b"\r\n" + b"data: 1\n\n" * 300_000,),
        "sse-types": (OK + EVENTS + b'\r\ndata: {"type":"content_block_delta","index":"x","delta":7}\n\n',),
        "json-deep": (_sized(b"[" * 500_000, b"Content-Type: application/json\r\n"),),
        "json-numbers": (_sized(b'{"usage":{"input_tokens":1e999,"output_tokens":-5}}'),),
    }


def _sockets() -> dict[str, tuple[bytes, ...]]:
    answer = SOCKET + b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
    return {
        "ws-garbage": (answer + b"\r\n", bytes(range(255, -1, -1)) * 40),
        "ws-unknown-extension": (answer + b"Sec-WebSocket-Extensions: x-secret; level=9\r\n\r\n", b"\xf1\x05hello"),
        "ws-reserved-opcode": (answer + b"\r\n", b"\x83\x05hello"),
        "ws-endless-length": (answer + b"\r\n", b"\x81\x7f\x7f\xff\xff\xff\xff\xff\xff\xffhello"),
        "ws-lying-deflate": (answer + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n", b"\xc1\x05hello"),
        "ws-fragments": (answer + b"\r\n", b"\x01\x01a" + b"\x00\x01b" * 3000),
    }


def _requests() -> dict[str, bytes]:
    """No requests as they should be. Each is answered in an ordinary way."""
    chunked = b"Transfer-Encoding: chunked\r\n"
    get = b"GET /v1/models?shape=%b HTTP/1.1\r\nHost: HOST\r\n\r\n"
    return {
        "http-0.9": b"GET /v1/messages?shape=http-0.9\r\n",
        "pipelined": post("pipelined") + get % b"second" + post("third"),
        "smuggle-cl-te": post("smuggle-cl-te", b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\nGET /x HTTP/1.1\r\n\r\n"),
        "smuggle-cl-cl": post("smuggle-cl-cl", b"Content-Length: 3\r\n"),
        "smuggle-te-tab": post("smuggle-te-tab", b"Transfer-Encoding:\x0bchunked\r\n", b"0\r\n\r\n"),
        "smuggle-te-case": post("smuggle-te-case", b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n"),
        "smuggle-folded": post("smuggle-folded", b"X: y\r\n Transfer-Encoding: chunked\r\n"),
        "smuggle-lf": post("smuggle-lf").replace(b"\r\n", b"\n"),
        "smuggle-cr": post("smuggle-cr", b"X: a\rTransfer-Encoding: chunked\r\n"),
        "request-cut": post("request-cut", length=b"5000"),
        "request-chunk-bad": post("request-chunk-bad", chunked, b"zz\r\nhi\r\n0\r\n\r\n", b""),
        "request-no-json": post("request-no-json", body=b"\xff\xfe{" * 100),
        "request-lying-gzip": post("request-lying-gzip", b"Content-Encoding: gzip\r\n"),
        "request-bomb": post("request-bomb", b"Content-Encoding: gzip\r\n", _gzip_bomb()),
        "request-deep": post("request-deep", body=b'{"messages":' + b"[" * 300_000),
    }


def shapes() -> dict[str, Shape]:
    """All of them, by name."""
    made = {name: Shape(post(name), answer) for name, answer in _answers().items()}
    made |= {name: Shape(upgrade(name), answer) for name, answer in _sockets().items()}
    made |= {name: Shape(sent, (_sized(b"{}"),)) for name, sent in _requests().items()}
    big = BODY + b" " * 3_000_000
    made["early-answer"] = Shape(post("early-answer", body=big), (_sized(b"early"),), read=False)
    made["early-and-deaf"] = Shape(post("early-and-deaf", body=big), (_sized(b"early"),), read=False, deaf=True)
    made["reset-in-body"] = Shape(post("reset-in-body"), (CHUNKED + b"5\r\nhe",), reset=True)
    made["reset-at-once"] = Shape(post("reset-at-once"), (), reset=True)
    return made


class Server:
    """Serves every shape; a connection has one. `host`: what stands in the requests."""

    def __init__(self, host: bytes) -> None:
        self._shapes = shapes()
        self._host = host

    def talk(self, sock: socket.socket) -> None:
        held = b""
        while b"shape=" not in held:
            if not (data := sock.recv(1 << 16)):
                return  # the wall refuses what it does not understand, when it has connected already
            held += data
        name = held.partition(b"shape=")[2].split(b" ")[0].split(b"\r")[0].split(b"\n")[0].decode()
        shape = self._shapes[name]
        if not shape.read:
            for piece in shape.answer:
                sock.sendall(piece)
        left = 0 if shape.deaf else len(shape.sent.replace(b"HOST", self._host)) - len(held)
        while left > 0 and (data := sock.recv(1 << 16)):
            left -= len(data)
        if shape.read:
            for piece in shape.answer:
                sock.sendall(piece)
        if shape.reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
