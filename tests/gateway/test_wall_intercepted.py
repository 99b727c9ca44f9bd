"""TLS ended behind a wall: in the mode that refuses nothing, and where servers and proxies are odd."""

import socket
import sys
from collections.abc import Sequence

import far_side
import pytest
from walls import Told, World, allow

from agentwrap.events import Gap
from agentwrap.events.egress import NetClosed, NetDecision
from agentwrap.events.exchange import ExchangeBegan, ExchangeEnded
from agentwrap.gateway.interception.authority import Authority

pytestmark = pytest.mark.serial

CURL = ("curl", "-sS", "-m", "300")
OBSERVED = "[network]\ndefault = 'allow'\n"


def run(world: World, argv: Sequence[str], policy: str = OBSERVED, mode: str = "observe", *options: str) -> Told:
    trusted = ("--trust", str(world.folder / "ca.pem"))
    return world.run(policy, argv, "--intercept", "a.example", *trusted, *options, mode=mode)


def believing(world: World) -> list[str]:
    return [*CURL, "--cacert", str(world.folder / "run-ca.pem")]


def gaps(told: Told) -> list[bytes]:
    return [gap.detail for gap in told.of(Gap)]


def targets(told: Told) -> list[tuple[bytes, bytes]]:
    return [(began.method, began.target) for began in told.of(ExchangeBegan)]


def test_nothing_is_refused_and_everything_is_read(world: World) -> None:
    server = far_side.tls(world.listen("203.0.113.1", 443), world.folder, "a.example")
    told = run(world, [*believing(world), "-H", "Host: other.example", "https://a.example/x"])
    assert told.stdout == "secure\n", told.stderr
    assert b"Host: other.example" in server.heard[0]
    assert targets(told) == [(b"GET", b"/x")]
    [began] = told.of(ExchangeBegan)
    assert (began.scheme, began.host, began.port, began.intercepted) == ("https", b"a.example", 443, True)
    [ended] = told.of(ExchangeEnded)
    assert ended.ending == "complete"
    assert gaps(told) == []


def proxy(listener: socket.socket, world: World, answers: Sequence[bytes]) -> far_side.Server:
    """Gives `answers` one after the other, then leads to a.example."""

    def talk(connection: socket.socket) -> None:
        with world.internet.stream("203.0.113.2") as far:
            for answer in answers:
                data = b""
                while not data.endswith(b"\r\n\r\n"):
                    if not (more := connection.recv(1)):
                        return
                    data += more
                server.heard.append(data)
                connection.sendall(answer)
            far.connect(("203.0.113.1", 443))
            far_side.join(connection, far)

    server = far_side.Server(listener, talk)
    return server


AGREED = b"HTTP/1.1 200 OK\r\n\r\n"
NOT_YET = b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=p\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("mode", ["observe", "enforce"])
@pytest.mark.parametrize("answers", [[AGREED], [NOT_YET, AGREED]])
def test_what_goes_through_a_proxys_tunnel(world: World, answers: list[bytes], mode: str) -> None:
    far_side.tls(world.listen("203.0.113.1", 443), world.folder, "a.example")
    server = proxy(world.listen("203.0.113.2", 3128), world, answers)
    policy = OBSERVED if mode == "observe" else allow("a.example:443", "b.example:3128")
    through = ["--proxy", "http://me:me@b.example:3128", "--proxy-anyauth" if len(answers) > 1 else "--proxy-basic"]
    told = run(world, [*believing(world), *through, "https://a.example/x"], policy, mode)
    assert told.stdout == "secure\n", told.stderr
    assert len(server.heard) == len(answers)
    assert (b"GET", b"/x") in targets(told)
    [began] = [one for one in told.of(ExchangeBegan) if one.intercepted]
    assert (began.host, began.port) == (b"a.example", 443)
    assert gaps(told) == []


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", b"what?\r\n\r\n", b""])
def test_an_odd_answer_of_a_proxy_is_the_clients_business(world: World, answer: bytes) -> None:
    """Nobody waits for what will not come: the run ends, with what the client would have made of it."""
    far_side.tls(world.listen("203.0.113.1", 443), world.folder, "a.example")
    proxy(world.listen("203.0.113.2", 3128), world, [answer, AGREED])
    argv = [*believing(world), "-m", "5", "--proxy", "http://b.example:3128", "https://a.example/x"]
    told = run(world, argv, OBSERVED, "observe", "--hasty")
    assert told.status in (28, 56, 35, 52, 0), told.stderr


def test_requests_to_a_proxy_before_the_tunnel(world: World) -> None:
    """On one connection: the answers to them were not looked at, so the tunnel passes unread, and nothing hangs."""
    far_side.tls(world.listen("203.0.113.1", 443), world.folder, "a.example")
    first = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    proxy(world.listen("203.0.113.2", 3128), world, [first, AGREED])
    code = f"""
import socket, ssl
sock = socket.create_connection(("b.example", 3128), timeout=300)
sock.sendall(b"GET http://c.example/ HTTP/1.1\\r\\nHost: c.example\\r\\n\\r\\n")
assert sock.recv(1000).endswith(b"ok")
sock.sendall(b"CONNECT a.example:443 HTTP/1.1\\r\\nHost: a.example:443\\r\\n\\r\\n")
assert sock.recv(1000).endswith(b"\\r\\n\\r\\n")
context = ssl.create_default_context(cafile={str(world.folder / "ca.pem")!r})
with context.wrap_socket(sock, server_hostname="a.example") as inner:
    inner.sendall(b"GET / HTTP/1.1\\r\\nHost: a.example\\r\\n\\r\\n")
    print(inner.recv(15).decode())
"""
    trusted = ("--trust", str(world.folder / "ca.pem"))
    told = world.python(OBSERVED, code, "--intercept", "a.example", *trusted, mode="observe")
    assert told.stdout == "HTTP/1.1 200 OK\n", told.stderr


def test_a_server_that_speaks_first_is_passed_through(world: World) -> None:
    def talk(connection: socket.socket) -> None:
        connection.sendall(b"220 hello\r\n")
        server.heard.append(connection.recv(3))

    server = far_side.Server(world.listen("203.0.113.1", 443), talk)
    code = """
import socket, ssl
sock = socket.create_connection(("a.example", 443), timeout=300)
print(sock.recv(100).decode().strip())
context, inside, outside = ssl.create_default_context(), ssl.MemoryBIO(), ssl.MemoryBIO()
try:
    context.wrap_bio(inside, outside, server_hostname="a.example").do_handshake()
except ssl.SSLWantReadError:
    sock.sendall(outside.read())
sock.recv(1)
"""
    told = world.python(OBSERVED, code, "--intercept", "a.example", mode="observe")
    assert told.stdout == "220 hello\n", told.stderr
    assert server.heard == [b"\x16\x03\x01"]
    assert b"(server-first)" in gaps(told)[0]


def test_a_server_that_is_no_tls_server_is_passed_through_to_the_client(world: World) -> None:
    """It answers both hellos in its own way; the client hears what it would have heard."""

    def talk(connection: socket.socket) -> None:
        server.heard.append(connection.recv(3))
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    server = far_side.Server(world.listen("203.0.113.1", 443), talk)
    told = run(world, [*believing(world), "https://a.example/"])
    assert told.status == 35
    assert "wrong version number" in told.stderr
    assert server.heard == [b"\x16\x03\x01"] * 2
    assert b"(upstream-tls)" in gaps(told)[0]


def test_a_server_that_is_there_only_once_is_a_reset(world: World) -> None:
    listener = world.listen("203.0.113.1", 443)

    def talk(connection: socket.socket) -> None:
        connection.recv(3)
        server.close()

    server = far_side.Server(listener, talk)
    told = run(world, [*believing(world), "https://a.example/"])
    assert told.status in (35, 56)
    [closed] = told.of(NetClosed)
    assert closed.ending == "reset"


def test_what_is_denied_is_not_read(world: World) -> None:
    """To be on the list allows nothing."""
    server = far_side.tls(world.listen("203.0.113.1", 443), world.folder, "a.example")
    told = run(world, [*believing(world), "https://a.example/"], allow("b.example"), "enforce")
    assert told.status != 0
    assert server.peers == 0
    assert {one.decision for one in told.of(NetDecision)} <= {"deny"}
    assert targets(told) == []


def test_an_address_is_read_as_well(world: World) -> None:
    """No name in the hello, none in the certificate: the server's, and ours, are for the address."""
    authority = Authority("the server's")
    (world.folder / "ca.pem").write_bytes(authority.pem)
    context = authority.context("203.0.113.1")

    def talk(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as inside:
            inside.recv(65536)
            inside.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nsecure\n")

    far_side.Server(world.listen("203.0.113.1", 443), talk)
    trusted = ("--intercept", "203.0.113.1:443", "--trust", str(world.folder / "ca.pem"))
    told = world.run(allow("203.0.113.1:443"), [*believing(world), "https://203.0.113.1/x"], *trusted)
    assert told.stdout == "secure\n", told.stderr
    [began] = told.of(ExchangeBegan)
    assert (began.host, began.port, began.target) == (b"203.0.113.1", 443, b"/x")
    assert gaps(told) == []


INSIDE = """
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[1])
s = context.wrap_socket(socket.create_connection(("a.example", 443), 300), server_hostname="a.example")
s.sendall(sys.argv[2].encode("latin-1").decode("unicode_escape").encode("latin-1"))
data = b""
try:
    while more := s.recv(4096): data += more
except OSError: pass
print(data.split(b"\\r\\n")[0].decode("latin-1"))
"""
H2_REQUEST = "PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n\\0\\0\\0\\x04\\0\\0\\0\\0\\0"
# HEADERS, END_STREAM and END_HEADERS: :method GET, :path /, :scheme https, :authority denied.example, unindexed
H2_REQUEST += "\\0\\0\\x13\\x01\\x05\\0\\0\\0\\x01\\x82\\x84\\x87\\x01\\x0edenied.example"
GET_A = "GET / HTTP/1.1\\r\\nHost: a.example\\r\\n\\r\\n"
FRONTS = {
    "host": "GET / HTTP/1.1\\r\\nHost: denied.example\\r\\n\\r\\n",
    "another-that-is-allowed": "GET / HTTP/1.1\\r\\nHost: b.example\\r\\n\\r\\n",
    "second-request": GET_A + "GET / HTTP/1.1\\r\\nHost: denied.example\\r\\n\\r\\n",
    "two-hosts": "GET / HTTP/1.1\\r\\nHost: a.example\\r\\nHost: denied.example\\r\\n\\r\\n",
    "target": "GET http://denied.example/ HTTP/1.1\\r\\nHost: a.example\\r\\n\\r\\n",
    "connect": "CONNECT denied.example:443 HTTP/1.1\\r\\nHost: denied.example:443\\r\\n\\r\\n",
    "http2": H2_REQUEST,
}


@pytest.mark.parametrize("front", FRONTS)
def test_whoever_else_is_asked_for_inside_is_not_reached(world: World, front: str) -> None:
    """Also another host that is allowed and read: it is not the one whose certificate was verified."""
    server = far_side.tls(world.listen("203.0.113.1", 443), world.folder, "a.example")
    trusted = ("--intercept", "a.example", "--intercept", "b.example", "--trust", str(world.folder / "ca.pem"))
    words = [sys.executable, "-c", INSIDE, str(world.folder / "run-ca.pem"), FRONTS[front]]
    told = world.run(allow("a.example", "b.example"), words, *trusted)
    assert not any(b"denied" in one or b"b.example" in one for one in server.heard), server.heard
    refused = [one for one in told.of(NetDecision) if one.decision == "deny"]
    assert refused
    # The server answers the first of two requests, and what begins HTTP/2, which it takes for one.
    assert told.stdout.split(" ")[1:2] in ([], ["400"], ["403"]) or front in ("second-request", "http2")
