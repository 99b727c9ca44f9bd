"""What clients people use really send first. They talk to a socket of this test on loopback and get no answer."""

import shutil
import socket
import subprocess
import sys

import pytest

from agentwrap.gateway.client_hello import NEED_MORE, NeedMore
from agentwrap.gateway.first_flight import FirstFlight, Flight, H2PriorKnowledge, Http, Other, Tls
from agentwrap.gateway.h2_requests import H2RequestStream
from agentwrap.gateway.http_head import Item, Request, RequestStream

# undici gives a connect up that takes 10 s, by its own clock
FETCH = "(function ask() { fetch(process.argv[1]).catch(ask) })()"
HTTP2 = (
    "require('http2').connect(process.argv[1]).on('error', () => 0).request({':path': '/x'}).on('error', () => 0).end()"
)
URLLIB = "import sys, urllib.request\ntry: urllib.request.urlopen(sys.argv[1])\nexcept OSError: pass"

CLIENTS = [
    ("curl -s http://localhost:{port}/x", "http GET /x localhost"),
    ("curl -s --http2 http://localhost:{port}/x", "http GET /x localhost"),
    ("curl -s -T /etc/passwd http://localhost:{port}/x", "http PUT /x localhost"),
    ("curl -s -x http://localhost:{port} http://b.example/x", "http GET http://b.example/x b.example"),
    ("curl -s -x http://localhost:{port} https://b.example/x", "http CONNECT b.example:443 b.example"),
    ("curl -s --http2-prior-knowledge http://localhost:{port}/x", "h2 GET /x localhost"),
    ("curl -sk https://localhost:{port}/x", "tls localhost h2,http/1.1"),
    ("wget -q -t 1 -O - http://localhost:{port}/x", "http GET /x localhost"),
    ("git ls-remote http://localhost:{port}/x.git", "http GET /x.git/info/refs?service=git-upload-pack localhost"),
    ("git ls-remote git://localhost:{port}/x.git", "other binary"),
    ("ssh -p {port} -o BatchMode=yes nobody@localhost", "other ssh"),
    ("openssl s_client -connect localhost:{port} -noservername", "tls None "),
    ("openssl s_client -connect localhost:{port} -servername a.example -tls1_2", "tls a.example "),
    (["node", "-e", FETCH, "http://localhost:{port}/x"], "http GET /x localhost"),
    (["node", "-e", FETCH, "https://localhost:{port}/x"], "tls localhost http/1.1"),
    (["node", "-e", HTTP2, "http://localhost:{port}/x"], "h2 GET /x localhost"),
    ([sys.executable, "-c", URLLIB, "http://localhost:{port}/x"], "http GET /x localhost"),
    ([sys.executable, "-c", URLLIB, "https://localhost:{port}/x"], "tls localhost http/1.1"),
]


def first_words(command: list[str]) -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = subprocess.Popen(
            [word.format(port=port) if "{port}" in word else word for word in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            server.settimeout(300)
            while True:
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(300)
                    if connection.recv(1, socket.MSG_PEEK):  # one that was given up says nothing
                        return read(connection)
        finally:
            client.kill()
            client.wait()


def heard(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    assert data, "it left before it had said what it wants"
    return data


def read(connection: socket.socket) -> str:
    flight = FirstFlight()
    told: Flight = NEED_MORE
    while isinstance(told, NeedMore):
        told = flight.feed(heard(connection))
    if isinstance(told, Tls):
        return f"tls {told.hello.sni} {b','.join(told.hello.alpn).decode()}"
    if isinstance(told, Other):
        return f"other {told.reason}"
    assert isinstance(told, Http | H2PriorKnowledge)
    stream: RequestStream | H2RequestStream = RequestStream() if isinstance(told, Http) else H2RequestStream()
    items: list[Item] = stream.feed(bytes(flight.data))
    while not items or not isinstance(items[-1], Request):
        items = stream.feed(heard(connection))
    request = items[-1]
    kind = "http" if isinstance(told, Http) else "h2"
    return f"{kind} {request.method.decode()} {request.target.decode()} {request.host}"


@pytest.mark.parametrize(("command", "expected"), CLIENTS)
def test_what_they_say_first(command: str | list[str], expected: str) -> None:
    words = command.split() if isinstance(command, str) else command
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    assert first_words(words) == expected
