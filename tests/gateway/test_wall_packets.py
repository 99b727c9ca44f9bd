"""What never reaches the gateway behind the wall is told all the same; and the machine's own services."""

import resource
from collections.abc import Iterator

import far_side
import pytest
from walls import World, allow, are_few

from agentwrap.events.egress import NetClosed, NetDecision, NetRefused

pytestmark = pytest.mark.serial

RULES = allow("a.example", "host.loopback:8080")


def test_datagrams_that_are_no_questions_are_refused_at_once_and_told(world: World) -> None:
    code = """
import socket
for host, port in (("203.0.113.1", 443), ("2001:db8:1::1", 443), ("203.0.113.1", 123)):
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.sendto(b"x", (host, port))
        print("sent")
    except OSError as error:
        print(type(error).__name__)
"""
    told = world.python(RULES, code)
    assert told.stdout == "PermissionError\n" * 3, told.stderr
    assert {(event.transport, event.host, event.port, event.protocol_number) for event in told.of(NetRefused)} == {
        ("udp", b"203.0.113.1", 443, 17), ("udp", b"2001:db8:1::1", 443, 17), ("udp", b"203.0.113.1", 123, 17),
    }  # fmt: skip
    assert {(event.decision, event.rule) for event in told.of(NetRefused)} == {("deny", b"built-in.udp")}


def test_a_flood_of_refused_packets_is_few_rows_with_an_exact_count(world: World) -> None:
    code = """
import socket
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(20_000):
    try:
        sock.sendto(b"x", ("203.0.113.1", 443))
    except PermissionError:
        pass
"""
    told = world.python(RULES, code)
    rows = told.of(NetRefused)
    assert sum(row.count for row in rows) == 20_000, told.stderr
    assert are_few(rows)


def test_an_address_that_no_name_led_to_is_refused_at_connect(world: World) -> None:
    far_side.http(world.listen("203.0.113.1", 80), "A")
    code = """
import socket
def tried():
    try:
        socket.create_connection(("203.0.113.1", 80), timeout=300).close()
        return "connected"
    except OSError as error:
        return type(error).__name__
print(tried(), bool(socket.getaddrinfo("a.example", 80)), tried())
"""
    told = world.python(RULES, code, "--refuse-early")
    assert told.stdout == "ConnectionRefusedError True connected\n", told.stderr
    [row] = told.of(NetRefused)
    assert (row.transport, row.host, row.port, row.count) == ("tcp", b"203.0.113.1", 80, 1)
    assert b"203.0.113.1:80" in row.change


SERVICE = """
import socket
def tried(host, port):
    try:
        with socket.create_connection((host, port), timeout=300) as sock:
            sock.sendall(b"\\0hello")
            return repr(sock.recv(10))
    except OSError as error:
        return type(error).__name__
"""


def test_a_service_of_the_machine_is_reached_where_a_rule_names_its_port(world: World) -> None:
    far_side.echo(world.listen("127.0.0.1", 8080))
    other = far_side.echo(world.listen("127.0.0.1", 8081))
    code = (
        SERVICE
        + """
print(tried("127.0.0.1", 8080), tried("localhost", 8080), tried("host.loopback", 8080), tried("127.0.0.1", 8081))
"""
    )
    told = world.python(RULES, code, "--host-ports", "8080")
    answer = repr(b"\x00hello")
    assert told.stdout == f"{answer} {answer} {answer} ConnectionRefusedError\n", told.stderr
    assert other.peers == 0
    # refused by the kernel, and known to be there: that is a denial, not an empty port
    assert {(row.host, row.port) for row in told.of(NetRefused)} == {(b"127.0.0.1", 8081)}
    assert {(event.host, event.port, event.decision) for event in told.of(NetDecision)} == {
        (b"127.0.0.1", 8080, "allow")
    }


def test_a_port_where_nobody_listens_anywhere_is_nobodys_denial(world: World) -> None:
    told = world.python(RULES, SERVICE + 'print(tried("127.0.0.1", 8082), tried("::1", 8082))')
    assert told.stdout == "ConnectionRefusedError ConnectionRefusedError\n", told.stderr
    assert told.of(NetRefused) == []


def test_a_server_of_the_runs_own_wins_over_the_machines(world: World) -> None:
    machine = far_side.echo(world.listen("127.0.0.1", 8080))
    code = (
        SERVICE
        + """
import threading
listener = socket.create_server(("127.0.0.1", 8080))
def serve():
    connection, _ = listener.accept()
    connection.recv(10)
    connection.sendall(b"inner")
    connection.close()
threading.Thread(target=serve).start()
print(tried("127.0.0.1", 8080))
"""
    )
    told = world.python(RULES, code, "--host-ports", "8080")
    assert told.stdout == "b'inner'\n", told.stderr
    assert machine.peers == 0
    assert told.of(NetDecision) == []


def test_thousands_of_denied_connects_are_few_rows_with_an_exact_count(world: World) -> None:
    code = """
import socket
for number in range(3000):
    try:
        with socket.create_connection(("203.0.113.4", 80), timeout=300) as sock:
            sock.sendall(b"\\0")
            sock.recv(1)
    except ConnectionResetError:
        pass  # at any of these: a client that was told why thirty times is only reset
"""
    told = world.python(RULES, code, timeout=300)
    rows = told.of(NetDecision)
    assert {row.decision for row in rows} == {"deny"}, told.stderr
    assert sum(row.count for row in rows) == 3000
    assert are_few(rows)


def test_connects_that_ask_nothing_and_leave_at_once_are_all_counted(world: World) -> None:
    code = """
import socket
for number in range(500):
    try:
        socket.create_connection(("203.0.113.4", 80), timeout=300).close()
    except ConnectionResetError:
        pass  # a client that was told why so often is only reset, maybe before connect(2) has returned
"""
    told = world.python(RULES, code)
    assert sum(row.count for row in told.of(NetDecision)) == 500, told.stderr


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """The servers of this test live in its own process."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.usefixtures("many_descriptors")
def test_a_thousand_parallel_connections(world: World) -> None:
    far_side.echo(world.listen("203.0.113.1", 7))
    code = """
import resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
socks = [socket.create_connection(("a.example", 7), timeout=300) for _ in range(1000)]
for number, sock in enumerate(socks):
    sock.sendall(b"\\0%04d" % number)
print(all(sock.recv(10) == b"\\0%04d" % number for number, sock in enumerate(socks)))
for sock in socks:
    sock.close()
"""
    told = world.python(RULES, code, timeout=300)
    assert told.stdout == "True\n", told.stderr
    closed = told.of(NetClosed)
    assert len(closed) == 1000
    assert {(event.up_bytes, event.down_bytes) for event in closed} == {(5, 5)}


def test_a_half_close_and_a_reset_go_through(world: World) -> None:
    def cut(connection: "far_side.socket.socket") -> None:
        connection.recv(10)
        connection.setsockopt(far_side.socket.SOL_SOCKET, far_side.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    far_side.echo(world.listen("203.0.113.1", 7))
    far_side.Server(world.listen("203.0.113.1", 8), cut)
    code = """
import socket
sock = socket.create_connection(("a.example", 7), timeout=300)
sock.sendall(b"\\0 half")
sock.shutdown(socket.SHUT_WR)
print(b"".join(iter(lambda: sock.recv(100), b"")))
sock = socket.create_connection(("a.example", 8), timeout=300)
sock.sendall(b"\\0")
try:
    print(sock.recv(1))
except ConnectionResetError:
    print("reset")
"""
    told = world.python(RULES, code)
    assert told.stdout.splitlines() == [repr(b"\x00 half"), "reset"], told.stderr
    assert sorted((event.ending, event.detail) for event in told.of(NetClosed)) == [
        ("closed", b""), ("reset", b"by the server"),
    ]  # fmt: skip
