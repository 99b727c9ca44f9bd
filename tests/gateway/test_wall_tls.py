"""TLS through the gateway: the name a client asks for is held against the name that was allowed, before it goes on."""

import far_side
import pytest
from walls import World, allow

from agentwrap.events.egress import NetClosed, NetDecision

pytestmark = pytest.mark.serial

CURL = ("curl", "-sS", "-m", "300")
RULES = allow("a.example:443", "shared.example:443", "203.0.113.2:443", deny=("bad.example",))
RAW = """
import socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
def ask(host, name):
    sock = socket.create_connection((host, 443), timeout=300)
    try:
        with context.wrap_socket(sock, server_hostname=name) as inner:
            inner.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            return b"".join(iter(lambda: inner.recv(4096), b"")).decode()[:15]
    except (ssl.SSLError, OSError) as error:
        return getattr(error, "reason", "") or type(error).__name__
"""


def refusals(events: "list[NetDecision]") -> list[tuple[bytes, bytes]]:
    return [(event.host, event.sni) for event in events if event.decision == "deny"]


def test_an_allowed_name_is_carried_and_the_name_and_protocols_are_told(world: World) -> None:
    far_side.tls(world.listen("203.0.113.1", 443), world.folder, "a.example", protocols=("h2", "http/1.1"))
    told = world.run(RULES, [*CURL, "--http1.1", "--cacert", str(world.folder / "ca.pem"), "https://a.example/"])
    assert told.stdout == "secure\n", told.stderr
    [closed] = told.of(NetClosed)
    assert (closed.protocol, closed.sni, closed.alpn) == ("tls", b"a.example", (b"http/1.1",))
    assert (closed.host, closed.ending) == (b"a.example", "closed")


def test_another_name_on_an_allowed_connection_gets_an_alert_and_the_server_nothing(world: World) -> None:
    server = far_side.tls(world.listen("203.0.113.3", 443), world.folder, "shared.example", "shared-too.example")
    code = (
        RAW
        + """
for name in ("shared-too.example", "bad.example", "SHARED.example"):
    print(ask("shared.example", name))
"""
    )
    told = world.python(RULES, code)
    assert told.stdout.splitlines() == ["TLSV1_ALERT_ACCESS_DENIED"] * 2 + ["HTTP/1.1 200 OK"], told.stderr
    assert refusals(told.of(NetDecision)) == [
        (b"shared-too.example", b"shared-too.example"), (b"bad.example", b"bad.example"),
    ]  # fmt: skip
    assert sorted(event.ending for event in told.of(NetClosed)) == ["closed", "denied", "denied"]
    assert len(server.heard) == 1


def test_a_client_that_names_no_server_is_refused_where_only_a_name_is_allowed(world: World) -> None:
    far_side.tls(world.listen("203.0.113.1", 443), world.folder, "a.example")
    far_side.tls(world.listen("203.0.113.2", 443), world.folder, "b.example")
    told = world.python(RULES, RAW + 'print(ask("a.example", None)); print(ask("203.0.113.2", None))')
    assert told.stdout.splitlines() == ["TLSV1_ALERT_ACCESS_DENIED", "HTTP/1.1 200 OK"], told.stderr
    [refused] = [event for event in told.of(NetDecision) if event.decision == "deny"]
    assert refused.rule == b"built-in.sni"
    assert b"names no server" in refused.why


def test_the_name_asked_for_says_which_of_several_is_meant(world: World) -> None:
    far_side.tls(world.listen("203.0.113.3", 443), world.folder, "shared.example", "shared-too.example")
    code = (
        RAW
        + """
for host in ("shared.example", "shared-too.example"):
    socket.getaddrinfo(host, 443)
print(ask("203.0.113.3", "shared.example"), ask("203.0.113.3", "shared-too.example"))
"""
    )
    told = world.python(allow("shared.example", "shared-too.example"), code)
    assert told.stdout == "HTTP/1.1 200 OK HTTP/1.1 200 OK\n", told.stderr
    assert sorted(event.host for event in told.of(NetClosed)) == [b"shared-too.example", b"shared.example"]


def test_a_denied_destination_is_told_by_an_alert(world: World) -> None:
    server = far_side.tls(world.listen("203.0.113.4", 443), world.folder, "denied.example")
    told = world.python(RULES, RAW + 'print(ask("203.0.113.4", "a.example"))')
    assert told.stdout == "TLSV1_ALERT_ACCESS_DENIED\n", told.stderr
    assert server.peers == 0


@pytest.mark.parametrize("pause", [0.0, 0.02])
def test_a_hello_in_pieces_is_held_until_it_is_whole(world: World, pause: float) -> None:
    """Byte by byte: nothing reaches the server before the name was read, everything does after."""
    server = far_side.tls(world.listen("203.0.113.1", 443), world.folder, "a.example")
    code = (
        RAW
        + f"""
import time
inside, outside = ssl.MemoryBIO(), ssl.MemoryBIO()
half = context.wrap_bio(inside, outside, server_hostname="a.example")
try:
    half.do_handshake()
except ssl.SSLWantReadError:
    pass
hello = outside.read()
sock = socket.create_connection(("a.example", 443), timeout=300)
sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for at in range(len(hello) if {pause} == 0 else 40):
    sock.sendall(hello[at:at + 1])
    time.sleep({pause})
if {pause}:
    sock.sendall(hello[40:])
print(sock.recv(1)[0])
"""
    )
    told = world.python(RULES, code)
    assert told.stdout == "22\n", told.stderr
    assert server.peers == 1


def test_what_only_looks_like_tls_is_refused(world: World) -> None:
    heard: list[bytes] = []
    far_side.Server(world.listen("203.0.113.1", 443), lambda connection: heard.append(connection.recv(65536)))
    code = """
import socket
for data in ("16030100050200000100", "160301ffff" + "00" * 100, "1603010000"):
    sock = socket.create_connection(("a.example", 443), timeout=300)
    sock.sendall(bytes.fromhex(data))
    print(sock.recv(100).hex())
"""
    told = world.python(RULES, code)
    assert told.stdout.splitlines() == ["15030300020231"] * 3, told.stderr
    assert {event.rule for event in told.of(NetDecision) if event.decision == "deny"} == {b"built-in.malformed"}
    assert set(heard) <= {b""}
