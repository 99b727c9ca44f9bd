"""Plain HTTP through the gateway, with curl and by hand: each request is judged, and refusals are told in words."""

import far_side
import pytest
from walls import World, allow

from agentwrap.events.egress import DnsQuery, NetClosed, NetDecision

pytestmark = pytest.mark.serial

CURL = ("curl", "-sS", "-m", "300")
SPEAK = """
import socket, sys
sock = socket.create_connection((sys.argv[1] if len(sys.argv) > 1 else "a.example", 80), timeout=300)
"""


def denied(world_events: "list[NetDecision]") -> list[tuple[bytes, int]]:
    return [(event.host, event.port) for event in world_events if event.decision == "deny"]


def test_an_allowed_name_is_reached_and_told_from_beginning_to_end(world: World) -> None:
    far_side.http(world.listen("203.0.113.1", 80), "A")
    told = world.run(allow("a.example"), [*CURL, "http://a.example/x"])
    assert told.stdout == "A a.example /x\n", told.stderr
    [decision], [closed] = told.of(NetDecision), told.of(NetClosed)
    assert (decision.decision, decision.host, decision.port, decision.address) == (
        "allow", b"a.example", 80, b"203.0.113.1",
    )  # fmt: skip
    assert b"network.allow `a.example`" in decision.rule
    assert (closed.connection, closed.ending, closed.protocol) == (decision.connection, "closed", "http")
    assert closed.up_bytes > 60
    assert closed.down_bytes == len("HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n") + 15
    assert {event.decision for event in told.of(DnsQuery)} == {"allow"}


def test_a_denied_name_does_not_exist_and_was_never_looked_up(world: World) -> None:
    told = world.run(allow("a.example"), [*CURL, "http://denied.example/"])
    assert (told.status, told.stdout) == (6, "")
    assert {(event.decision, event.name, event.rcode) for event in told.of(DnsQuery)} == {
        ("deny", b"denied.example", "NXDOMAIN")
    }
    assert told.of(NetDecision) == []


def test_an_address_without_a_rule_gets_a_403_that_says_who_refused_and_why(world: World) -> None:
    server = far_side.http(world.listen("203.0.113.4", 80), "D")
    told = world.run(allow("a.example"), [*CURL, "-i", "http://203.0.113.4/"])
    assert told.stdout.startswith("HTTP/1.1 403 ")
    assert "agentwrap denied: connect 203.0.113.4:80" in told.stdout
    assert "X-Agentwrap-Denied: network.default" in told.stdout
    assert "add `203.0.113.4:80` to network.allow of policy.toml" in told.stdout
    assert denied(told.of(NetDecision)) == [(b"203.0.113.4", 80)]
    assert told.of(NetClosed) == []
    assert server.peers == 0


def test_a_refusal_of_the_server_is_the_servers(world: World) -> None:
    """Distinct from ours: the connection was allowed, and its end says what the server did."""
    told = world.run(allow("a.example"), [*CURL, "http://a.example/"])
    # The reset may come before curl has looked how its connect ended, or before it has asked.
    assert told.status in (7, 55, 56)
    assert [event.decision for event in told.of(NetDecision)] == ["allow"]
    [closed] = told.of(NetClosed)
    assert (closed.ending, closed.detail) == ("refused", b"ECONNREFUSED")


@pytest.mark.parametrize("host", ["denied.example", "b.example", "", "203.0.113.1"])
def test_another_host_on_an_allowed_connection_is_refused(world: World, host: str) -> None:
    """`b.example` is allowed, but never led to this address."""
    server = far_side.http(world.listen("203.0.113.1", 80), "A")
    told = world.run(allow("a.example", "b.example"), [*CURL, "-i", "-H", f"Host: {host}".strip(), "http://a.example/"])
    if host:
        assert "403 Forbidden" in told.stdout
    else:
        assert "HTTP/1.1 40" in told.stdout
    assert server.heard == []
    [closed] = told.of(NetClosed)
    assert closed.ending == "denied"
    assert len(denied(told.of(NetDecision))) == 1


def test_keep_alive_to_several_hosts_is_judged_request_by_request(world: World) -> None:
    server = far_side.http(world.listen("203.0.113.3", 80), "S")
    code = (
        SPEAK.replace("a.example", "shared.example")
        + """
socket.getaddrinfo("shared-too.example", 80)
stream = sock.makefile("rb")
for host in ("shared.example", "shared-too.example", "shared.example", "denied.example"):
    sock.sendall(b"GET / HTTP/1.1\\r\\nHost: %b\\r\\n\\r\\n" % host.encode())
    status = stream.readline()
    length = 0
    while status and (line := stream.readline()) != b"\\r\\n":
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    print(status.decode().strip(), stream.read(length).decode().splitlines()[0])
"""
    )
    told = world.python(allow("shared.example", "shared-too.example"), code)
    assert told.stdout.splitlines() == [
        "HTTP/1.1 200 OK S shared.example /",
        "HTTP/1.1 200 OK S shared-too.example /",
        "HTTP/1.1 200 OK S shared.example /",
        "HTTP/1.1 403 Forbidden agentwrap denied: connect denied.example:80",
    ], told.stderr
    assert len(server.heard) == 3
    assert denied(told.of(NetDecision)) == [(b"denied.example", 80)]


def test_a_request_that_waits_behind_an_unanswered_one_is_cut_not_answered(world: World) -> None:
    """A 403 of ours in front of the server's answer would be taken for it."""

    def mute(connection: "far_side.socket.socket") -> None:
        while connection.recv(65536):
            pass

    far_side.Server(world.listen("203.0.113.1", 80), mute)
    code = (
        SPEAK
        + """
request = b"GET / HTTP/1.1\\r\\nHost: %b\\r\\n\\r\\n"
sock.sendall(request % b"a.example" + request % b"denied.example")
try:
    print(sock.recv(100))
except ConnectionResetError:
    print("reset")
"""
    )
    told = world.python(allow("a.example"), code)
    assert told.stdout == "reset\n", told.stderr
    assert denied(told.of(NetDecision)) == [(b"denied.example", 80)]


def test_requests_to_a_proxy_are_judged_by_whom_they_are_for(world: World) -> None:
    proxy = far_side.http(world.listen("203.0.113.1", 80), "P")
    rules = allow("a.example", "b.example")
    told = world.run(rules, [*CURL, "-x", "http://a.example:80", "http://b.example/1"])
    assert told.stdout == "P b.example http://b.example/1\n", told.stderr
    told = world.run(rules, [*CURL, "-x", "http://a.example:80", "http://denied.example/2"])
    assert "agentwrap denied: connect denied.example:80" in told.stdout
    assert len(proxy.heard) == 1


def test_a_tunnel_through_a_proxy_is_judged_by_where_it_leads_and_by_what_is_said_in_it(world: World) -> None:
    def proxy(connection: "far_side.socket.socket") -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(65536)
        server.heard.append(head.split(b"\r\n")[0])
        connection.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        server.heard.append(connection.recv(65536))

    server = far_side.Server(world.listen("203.0.113.1", 80), proxy)
    rules = allow("a.example:80", "b.example:443")
    through = ("-x", "http://a.example:80", "-p")
    told = world.run(rules, [*CURL, *through, "https://denied.example/"])
    # The reset may come before curl has looked how its connect ended.
    assert told.status in (7, 56)
    assert denied(told.of(NetDecision)) == [(b"denied.example", 443)]
    assert server.heard == []
    told = world.run(
        rules, [*CURL, *through, "--connect-to", "other.example:443:b.example:443", "https://other.example/"]
    )
    assert told.status == 35
    assert "access denied" in told.stderr
    assert denied(told.of(NetDecision)) == [(b"other.example", 443)]
    assert b"".join(server.heard) == b"CONNECT b.example:443 HTTP/1.1"
    server.heard.clear()
    world.run(rules, [*CURL, *through, "https://b.example/"])
    assert server.heard[1].startswith(b"\x16\x03")


@pytest.mark.parametrize(
    "request_text",
    [
        "GET / HTTP/1.1\\r\\nHost: a.example\\r\\nHost: denied.example\\r\\n\\r\\n",
        "GET http://denied.example/ HTTP/1.1\\r\\nHost: a.example\\r\\n\\r\\n",
        "GET / HTTP/1.1\\r\\nHost: a.example\\r\\n folded: x\\r\\n\\r\\n",
        "GET / HTTP/1.1\\nHost: a.example\\n\\n",
        "POST / HTTP/1.1\\r\\nHost: a.example\\r\\nContent-Length: 3\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n",
        "GET / HTTP/1.1\\r\\nHost: a.example@denied.example\\r\\n\\r\\n",
        "\\r\\nGET / HTTP/1.1\\r\\nHost: denied.example\\r\\n\\r\\n",
    ],
)
def test_requests_that_could_be_understood_in_two_ways_go_nowhere(world: World, request_text: str) -> None:
    server = far_side.http(world.listen("203.0.113.1", 80), "A")
    code = (
        SPEAK
        + f"""
sock.sendall(b"{request_text}")
print(sock.recv(12).decode())
"""
    )
    told = world.python(allow("a.example"), code)
    assert told.stdout.startswith("HTTP/1.1 4"), told.stderr
    assert server.heard == []
    assert len(denied(told.of(NetDecision))) == 1


def test_an_upgrade_is_a_tunnel_to_the_server_that_agreed(world: World) -> None:
    def agreeing(connection: "far_side.socket.socket") -> None:
        while b"\r\n\r\n" not in connection.recv(65536):
            pass
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        connection.sendall(connection.recv(65536).upper())

    far_side.Server(world.listen("203.0.113.1", 80), agreeing)
    code = (
        SPEAK
        + """
head = b"GET / HTTP/1.1\\r\\nHost: a.example\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n"
sock.sendall(head)
print(sock.recv(12).decode())
sock.sendall(b"GET / HTTP/1.1\\r\\nHost: looks like another request\\r\\n\\r\\n")
stream = sock.makefile("rb")
while stream.readline() != b"\\r\\n":
    pass
print(stream.read().decode().split("\\r\\n")[1])
"""
    )
    told = world.python(allow("a.example"), code)
    assert told.stdout == "HTTP/1.1 101\nHOST: LOOKS LIKE ANOTHER REQUEST\n", told.stderr


def test_http2_without_tls_is_carried(world: World) -> None:
    seen: list[bytes] = []

    def listen(connection: "far_side.socket.socket") -> None:
        seen.append(connection.recv(65536))

    far_side.Server(world.listen("203.0.113.1", 80), listen)
    told = world.run(allow("a.example"), [*CURL, "--http2-prior-knowledge", "http://a.example/"])
    assert seen[0].startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert told.of(NetClosed)[0].protocol == "h2c"


def test_mode_observe_lets_everything_pass_and_tells_what_it_would_refuse(world: World) -> None:
    server = far_side.http(world.listen("203.0.113.4", 80), "D")
    far_side.http(world.listen("203.0.113.1", 80), "A")
    told = world.run(allow("a.example"), [*CURL, "http://denied.example/"], mode="observe")
    assert told.stdout == "D denied.example /\n", told.stderr
    assert {event.decision for event in told.of(NetDecision)} == {"would-deny"}
    told = world.run(allow("a.example"), [*CURL, "-H", "Host: x.example", "http://a.example/"], mode="observe")
    assert told.stdout == "A x.example /\n", told.stderr
    assert [(event.decision, event.host) for event in told.of(NetDecision)] == [
        ("allow", b"a.example"), ("would-deny", b"x.example"),
    ]  # fmt: skip
    assert len(server.heard) == 1


def test_a_run_without_network_reaches_nothing(world: World) -> None:
    server = far_side.http(world.listen("203.0.113.1", 80), "A")
    told = world.run(allow("a.example", "203.0.113.1"), [*CURL, "http://a.example/"], "--closed", mode="observe")
    assert told.status == 6
    told = world.run(allow("203.0.113.1"), [*CURL, "http://203.0.113.1/"], "--closed")
    assert "built-in.no-network" in told.stdout
    assert server.peers == 0
