"""Credentials of every kind in the model traffic of a real run: none is in the file, nor in what is made of it."""

import base64
import gzip
import json
import socket
import ssl
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import brotli
import far_side
import pytest
from model_world import MODEL, NAMES, World
from recording.redact.fakes import fakes
from wrapping import AGENTWRAP, Wrapped, environment

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PLAIN = 8300
FAKES = fakes()
# By no pattern could these be found: only because of where they stand.
OPAQUE = {
    "authorization": "opaque7authorization0value+/aa==",
    "x-api-key": "opaque7apikey0value-bb",
    "query": "opaque7query0value-cc",
    "cookie": "opaque7cookie0value-dd",
    "set-cookie": "opaque7setcookie0value-ee",
}
PLACES = (
    "prompt", "tool-result", "delta", "arguments", "gzip", "br", "zstd", "deflate", "websocket-up", "websocket-down",
    "claim", "error", "request-gzip",
)  # fmt: skip
FOUND = dict(
    zip(PLACES, (one for one in FAKES.values() if "\n" not in one and len(one) > 20), strict=False)
)
MARK = "zebra-pyramid-xylophone"


def _delta(index: int, kind: str, name: str, text: str) -> bytes:
    told = {"type": "content_block_delta", "index": index, "delta": {"type": kind, name: text}}
    return b"event: content_block_delta\ndata: " + json.dumps(told).encode() + b"\n\n"


def _event(value: dict[str, Any]) -> bytes:
    return f"event: {value['type']}\ndata: ".encode() + json.dumps(value).encode() + b"\n\n"


def stream() -> list[bytes]:
    """An answer in which a secret is said once for each place at which it can be split, in text and in arguments."""
    out = [
        _event({"type": "message_start", "message": {"id": "msg_1", "model": "m", "content": [], "usage": {}}}),
        _event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        _delta(0, "text_delta", "text", MARK),
    ]
    for at in range(1, len(FOUND["delta"])):
        parts = f" {FOUND['delta'][:at]}", f"{FOUND['delta'][at:]} "
        out += [_delta(0, "text_delta", "text", part) for part in parts]
    tool = {"type": "tool_use", "id": "tu1", "name": "Bash", "input": {}}
    out.append(_event({"type": "content_block_start", "index": 1, "content_block": tool}))
    inner = json.dumps({"command": json.dumps({"curl": f"-H 'x: {FOUND['arguments']}'"})})
    out += [_delta(1, "input_json_delta", "partial_json", inner[at : at + 3]) for at in range(0, len(inner), 3)]
    out.append(_event({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}))
    return [*out, _event({"type": "message_stop"})]


def whole(secret: str) -> bytes:
    blocks = [{"type": "text", "text": f"{MARK} {secret}"}]
    return json.dumps({"id": "m", "type": "message", "role": "assistant", "model": "m", "content": blocks}).encode()


CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress, "br": brotli.compress, "zstd": zstd.compress, "deflate": zlib.compress,
}  # fmt: skip


def frame(data: bytes) -> bytes:
    """A server's text frame (RFC 6455, 5.2)."""
    return b"\x81" + (bytes([len(data)]) if len(data) < 126 else b"\x7e" + len(data).to_bytes(2, "big")) + data


def talk(client: socket.socket) -> None:
    head = b""
    while b"\r\n\r\n" not in head:
        more = client.recv(65536)
        if not more:
            return
        head += more
    head, _, body = head.partition(b"\r\n\r\n")
    fields = [one.lower().split(b": ") for one in head.split(b"\r\n")[1:]]
    told = {field[0].decode(): field[1] for field in fields}
    length, way = int(told.get("content-length", b"0")), told["x-way"].decode()
    while len(body) < length:
        body += client.recv(65536)
    start = f"HTTP/1.1 200 OK\r\nSet-Cookie: sid={OPAQUE['set-cookie']}; Path=/\r\nConnection: close\r\n".encode()
    if way == "stream":
        client.sendall(start + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for data in stream():
            client.sendall(b"%x\r\n%b\r\n" % (len(data), data))
        client.sendall(b"0\r\n\r\n")
    elif way == "websocket":
        client.sendall(b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        while len(body) < 8:
            body += client.recv(65536)
        secret = FOUND["websocket-down"]
        for part in (secret[:9], secret[9:]):
            delta = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": part}
            client.sendall(frame(json.dumps(delta).encode()))
        client.sendall(frame(b'{"type":"response.completed","response":{"id":"r","output":[]}}'))
        client.recv(65536)
    elif way == "error":
        error = {"type": "bad", "message": f"key {FOUND['error']} is bad"}
        said = json.dumps({"type": "error", "error": error}).encode()
        client.sendall(b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said))
    else:
        data = CODINGS[way](whole(FOUND[way]))
        client.sendall(start + f"Content-Type: application/json\r\nContent-Encoding: {way}\r\n".encode())
        client.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(data), data))


AGENT = r"""
import base64, gzip, json, os, socket, ssl, sys, urllib.parse
there, tls, given = sys.argv[1], sys.argv[2] == "tls", json.load(open(sys.argv[3]))
opaque, found, mark = given["opaque"], given["found"], given["mark"]
def connect():
    s = socket.create_connection((there, 443 if tls else int(sys.argv[4])), 300)
    return ssl.create_default_context().wrap_socket(s, server_hostname=there) if tls else s
key = opaque["authorization"]
forms = [key, base64.b64encode(key.encode()).decode(), urllib.parse.quote(key, safe=""), json.dumps({"a": key})]
for way in ("stream", "gzip", "br", "zstd", "deflate", "error"):
    prompt = f"{mark}: {found['prompt']} and {' '.join(forms)} {opaque['x-api-key']}"
    messages = [
        {"role": "user", "content": prompt},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "tu0", "name": "Bash", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "tu0", "content": found["tool-result"]}]},
    ]
    body = json.dumps({"model": "m", "stream": way == "stream", "messages": messages}).encode()
    more = ""
    if way == "gzip":
        body = gzip.compress(body.replace(b"tu0", found["request-gzip"].encode())); more = "Content-Encoding: gzip\r\n"
    s = connect()
    s.sendall((f"POST /v1/messages?key={opaque['query']} HTTP/1.1\r\nHost: {there}\r\nX-Way: {way}\r\n"
               f"Authorization: Bearer {key}\r\nx-api-key: {opaque['x-api-key']}\r\n"
               f"Cookie: a=b; sid={opaque['cookie']}\r\nContent-Type: application/json\r\n{more}"
               f"Content-Length: {len(body)}\r\n\r\n").encode() + body)
    got = b""
    while more := s.recv(65536): got += more
    assert got.startswith(b"HTTP/1.1 "), got
s = connect()
s.sendall((f"GET /v1/responses HTTP/1.1\r\nHost: {there}\r\nX-Way: websocket\r\nUpgrade: websocket\r\n"
           f"Authorization: Bearer {key}\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
           "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n").encode())
got = b""
while b"\r\n\r\n" not in got: got += s.recv(1)
ask = json.dumps({"type": "response.create", "model": "m", "input": f"{mark} {found['websocket-up']} {key}"}).encode()
mask = b"\x01\x02\x03\x04"
s.sendall(b"\x81\xfe" + len(ask).to_bytes(2, "big") + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(ask)))
while b"completed" not in got: got += s.recv(65536)
s.close()
c = socket.socket(socket.AF_UNIX); c.connect(os.environ["AGENTWRAP_CLAIMS"])
data = {"text": f"{found['claim']} {key}", "password": opaque["x-api-key"]}
said = {"event": "message", "name": mark, "data": data}
c.sendall(json.dumps(said).encode() + b"\n"); c.close()
print("done")
"""


class Secretive(World):
    """Servers that answer with secrets, plain and over TLS."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for host in NAMES[MODEL]:
            self.serve(self.net.listen(host, PLAIN), talk)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*far_side.certificate(folder, tuple(NAMES)))
        for host in NAMES[MODEL]:

            def secretly(client: socket.socket) -> None:
                with context.wrap_socket(client, server_side=True) as inner:
                    talk(inner)
                    inner.unwrap()

            self.tls[host].talk = secretly
        (folder / "agent.py").write_text(AGENT)
        (folder / "given.json").write_text(json.dumps({"opaque": OPAQUE, "found": FOUND, "mark": MARK}))

    def tell_all(self, way: str, *options: str) -> Wrapped:
        words = (sys.executable, str(self.folder / "agent.py"), MODEL, way, str(self.folder / "given.json"), str(PLAIN))
        ran = self.run(*words, options=options, env={"ANTHROPIC_BASE_URL": f"http://{MODEL}:{PLAIN}"})
        assert (ran.status, ran.stdout) == (0, b"done\n"), ran.stderr
        return ran


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Secretive]:
    try:
        made = Secretive(tmp_path)
    except OSError as error:
        pytest.skip(f"no network of its own can be had here: {error}")
    yield made
    made.close()


def forms(secret: str) -> set[bytes]:
    """A secret as it is, in JSON, in a URL, and what is the same in base64 wherever it begins."""
    found = {secret.encode(), json.dumps(secret)[1:-1].encode(), quote(secret, safe="").encode()}
    for shift in range(3):
        coded = base64.b64encode(bytes(shift) + secret.encode())
        found.add(coded[4 if shift else 0 : len(coded) // 4 * 4 - 4])
    return found


def where_it_is(data: bytes) -> list[str]:
    return sorted(where for where, secret in {**OPAQUE, **FOUND}.items() if any(one in data for one in forms(secret)))


def test_the_search_finds_them_all() -> None:
    everywhere = sorted((*OPAQUE, *FOUND))
    assert len(everywhere) == 18
    assert where_it_is(json.dumps([OPAQUE, FOUND]).encode()) == everywhere
    for before in (b"", b"x", b"xx"):
        coded = [base64.b64encode(before + one.encode()) for one in (*OPAQUE.values(), *FOUND.values())]
        assert where_it_is(b"\n".join(coded)) == everywhere


@pytest.mark.parametrize("way", ["plain", "tls"])
def test_no_secret_is_in_the_file_or_in_what_is_made_of_it(world: Secretive, way: str, tmp_path: Path) -> None:
    ran = world.tell_all(way)
    assert len(ran.events("model.request")) == 7
    assert len(ran.events("model.response")) == 7
    assert len(ran.events("claim")) == 1
    assert [e.data["ending"] for e in ran.events("model.response")].count("complete") == 6
    left = [one for one in tmp_path.iterdir() if one.name.startswith("run.agentlog")]
    assert [one.name for one in left] == ["run.agentlog"]
    data = ran.recording.read_bytes()
    assert MARK.encode() in data
    assert where_it_is(data) == []
    for form in ("jsonl", "har", "otlp", "atif", "perfetto"):
        done = subprocess.run(
            [*AGENTWRAP, "export", f"--{form}", str(ran.recording)],
            capture_output=True, env=environment(tmp_path),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert MARK.encode() in done.stdout or form == "perfetto"
        assert where_it_is(done.stdout) == []


def test_a_shape_has_no_word_of_it(world: Secretive) -> None:
    ran = world.tell_all("plain", "--shape-only")
    assert len(ran.events("model.request")) == 7
    data = ran.recording.read_bytes()
    assert MARK.encode() not in data
    assert where_it_is(data) == []
