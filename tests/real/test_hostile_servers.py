"""Servers and clients that do not keep to the protocol: through us a client gets what it gets without us.

Byte for byte and with the same end, in a run that reads model traffic and behind the wall; what could not be read is
said in the recording.
"""

import base64
import json
import select
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import far_side
import hostile_shapes
import pytest
from internet import Internet
from wrapping import PATIENCE, command, environment, events

HOST, ADDRESS, PORT = "api.anthropic.com", "203.0.113.10", 8123
CLIENT = str(Path(__file__).resolve().parents[1] / "raw_client.py")
WALL = ("--tier", "wall", "--allow", HOST)


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.net = Internet(folder, {HOST: [ADDRESS]})
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*far_side.certificate(folder, (HOST,)))
        shapes = hostile_shapes.Server(HOST.encode())
        self._talk = shapes.talk
        self.servers = [
            far_side.Server(self.net.listen(ADDRESS, PORT), shapes.talk),
            far_side.Server(self.net.listen(ADDRESS, 443), self._in_tls),
        ]
        self.sent = folder / "sent.json"
        told = {name: one.sent.replace(b"HOST", HOST.encode()) for name, one in hostile_shapes.shapes().items()}
        self.sent.write_text(json.dumps({name: base64.b64encode(one).decode() for name, one in told.items()}))

    def _in_tls(self, sock: socket.socket) -> None:
        if not sock.recv(1, socket.MSG_PEEK):
            return  # an SSLSocket that meets a reset on its way up is never closed
        with self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False) as inner:
            inner.do_handshake()
            self._talk(inner)
            if not inner.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER):
                inner.settimeout(300)
                inner.unwrap().close()

    def client(self, tls: bool) -> list[str]:
        how = ["443", "tls"] if tls else [str(PORT), "plain"]
        return [sys.executable, CLIENT, HOST, HOST, *how, str(self.sent)]

    def run(self, argv: list[str]) -> dict[str, Any]:
        env = {**environment(self.folder), "SSL_CERT_FILE": str(self.folder / "ca.pem")}
        env["ANTHROPIC_BASE_URL"] = f"http://{HOST}:{PORT}"
        done = self.net.run(argv, env=env, cwd=self.folder, capture_output=True, timeout=300 * PATIENCE)
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def close(self) -> None:
        for server in self.servers:
            server.close()
        self.net.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("hostile"))
    yield made
    made.close()


def told(recording: Path) -> dict[str, str]:
    """What the recording says of each shape, in words."""
    found: dict[str, str] = {}
    asked = {}
    for row in events(recording, "model.request", "model.response", "http.exchange"):
        name = str(row.data.get("path", "")).rpartition("shape=")[2]
        if row.kind == "model.request":
            asked[row.data["call"]] = name
            found[name] = str(row.data.get("problem", ""))
        elif row.kind == "model.response":
            found[asked[row.data["call"]]] += f" {row.data['ending']} {row.data.get('error', '')}"
        else:
            found[name] = f"{row.data.get('ending', '')} {row.data.get('detail', '')}"
    return found


# What the wall refuses in words of its own: it could be understood in two ways, so nobody can say whom it is for.
REFUSED = {
    *("http-0.9", "smuggle-cl-te", "smuggle-cl-cl", "smuggle-te-tab", "smuggle-te-case", "smuggle-folded"),
    *("smuggle-lf", "smuggle-cr", "request-chunk-bad"),
}
# A server that goes with a reset takes away what was not yet read (RFC 9293, 3.10.7.4): how much of it was is chance.
# So is, where it did not read the request, whether its end or its reset is met first.
DEAF = "early-and-deaf"
CHANCE = {DEAF, "reset-in-body"}
# A word or two of what the recording says of a shape. The rest are calls that did not come to an end.
SAID = {
    **dict.fromkeys(("length-negative", "length-words", "length-huge"), "unread not exactly one length"),
    "length-twice": "unread not exactly one length",
    "": "unreadable an answer that nobody asked for",  # what follows a length that is too short
    "length-and-chunked": "unread a length beside a transfer encoding",
    **dict.fromkeys(("chunked-twice", "coding-unknown"), "unread a transfer encoding that is not understood"),
    **dict.fromkeys(("chunk-negative", "chunk-huge", "chunk-words"), "unread a broken chunk size"),
    "chunk-extension-long": "unread an endless chunk line",
    "chunk-no-end": "unread a chunk that is longer than its size",
    "trailers-without-end": "unread broken or too many trailers",
    **dict.fromkeys(("headers-without-end", "header-very-long"), "unread a head of more than"),
    **dict.fromkeys(("no-colon", "nul-in-header"), "unread a line in an answer's head that is no field"),
    "status-words": "unread a broken status line",
    **dict.fromkeys(("version-9", "not-http"), "unread no HTTP/1 answer"),
    "switched-unasked": "unread a change of protocol that nobody asked for",
    **{f"lying-{name}": f"incomplete the body is not the {word} data" for name, word in
       (("gzip", "gzip"), ("br", "brotli"), ("zstd", "zstd"))},
    "unknown-coding": "a content coding that is not known",
    "cut-gzip": "the compressed body ends early",
    **dict.fromkeys(("bomb-gzip", "bomb-br", "bomb-nested"), "the body inflates to more than is read"),
    "request-bomb": "the body inflates to more than is read",
    "request-lying-gzip": "the body is not the gzip data",
    **dict.fromkeys(("request-no-json", "request-deep"), "no JSON object that can be read"),
    **dict.fromkeys(("early-answer", "early-and-deaf", "request-cut"), "incomplete"),
}  # fmt: skip


@pytest.mark.parametrize("way", ["capture", "wall"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_a_client_gets_what_it_gets_without_us(world: World, tmp_path: Path, way: str, tls: bool) -> None:
    bare = world.run(world.client(tls))
    recording = tmp_path / "run.agentlog"
    found = world.run(command(recording, *world.client(tls), options=WALL if way == "wall" else ()))
    assert found.keys() == bare.keys()
    others = REFUSED if way == "wall" else set()
    for name in bare.keys() - others:
        assert name == DEAF or found[name][2] == bare[name][2], name
        assert name in CHANCE or found[name] == bare[name], name
    said = told(recording)
    for name, words in SAID.items():
        if name not in others:
            assert words in said[name], name
    for name in others:
        assert found[name] != bare[name], name
    endings = [row.data.get("ending") for row in events(recording, "model.response")]
    assert "complete" not in endings


ENDLESS_BYTES = 300_000_000
"""As much as a server sends of an answer without an end."""


def test_memory_is_bounded(world: World, tmp_path: Path) -> None:
    piece = b"10000\r\n" + b"data: x\n" * 8192 + b"\r\n"

    def talk(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        sock.sendall(hostile_shapes.CHUNKED)
        for _ in range(ENDLESS_BYTES // len(piece)):
            sock.sendall(piece)

    server = far_side.Server(world.net.listen(ADDRESS, PORT + 1), talk)
    world.sent.with_name("endless.json").write_text(
        json.dumps({"endless": base64.b64encode(hostile_shapes.post("endless").replace(b"HOST", b"x")).decode()})
    )
    client = [sys.executable, CLIENT, HOST, HOST, str(PORT + 1), "plain", str(world.sent.with_name("endless.json"))]
    recording = tmp_path / "run.agentlog"
    env = {**environment(world.folder), "ANTHROPIC_BASE_URL": f"http://{HOST}:{PORT + 1}"}
    process = world.net.popen(
        command(recording, *client), env=env, cwd=world.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    peaks: dict[int, int] = {}
    while process.poll() is None:
        peaks |= peaks_of(process.pid)
        select.select([], [], [], 0.02)
    out, error = process.communicate()
    server.close()
    assert process.returncode == 0, error
    assert json.loads(out)["endless"][0] > ENDLESS_BYTES * 0.99
    (row,) = events(recording, "model.response")
    assert row.data["response"]["omitted"] == "over-cap"
    assert len(peaks) >= 3
    assert max(peaks.values()) < MOST_KB, peaks


MOST_KB = 500_000
"""Of one process: what is kept of a body at most, several times over while it is put together and looked at."""


def peaks_of(pid: int) -> dict[int, int]:
    """The peak of the resident size of a process and those below it, in KB, by pid."""
    found = {}
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                found[pid] = int(line.split()[1])
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found |= peaks_of(int(child))
    except OSError:
        pass  # it is gone
    return found
