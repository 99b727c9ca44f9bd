"""Names behind the wall: judged before anybody is asked, answered whichever resolver was meant, remembered."""

import os
import threading

import far_side
import pytest
from walls import World, allow, are_few

from agentwrap.events import AskAnswered, AskWaiting
from agentwrap.events.egress import DnsQuery, NetClosed, NetDecision

pytestmark = pytest.mark.serial

RULES = allow("a.example", "two.example", "*.sub.example:443", deny=("bad.sub.example",))
ASK = """
import socket
def ask(name, family=0):
    try:
        return sorted({row[4][0] for row in socket.getaddrinfo(name, 80, family)})
    except socket.gaierror as error:
        return [error.errno == socket.EAI_NONAME]
"""
QUERY = """
import random, socket, struct
def query(name, kind=1, server="127.0.0.1", tcp=False):
    labels = b"".join(bytes([len(one)]) + one for one in name.encode().split(b"."))
    data = struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + b"\\0" + struct.pack("!HH", kind, 1)
    return send(data, server, tcp)
def send(data, server="127.0.0.1", tcp=False):
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as sock:
        sock.settimeout(300)
        sock.connect((server, 53))
        sock.send(struct.pack("!H", len(data)) + data if tcp else data)
        answer = sock.recv(4096)
    answer = answer[2:] if tcp else answer
    return answer[3] & 15, struct.unpack("!H", answer[6:8])[0]
"""


def told_names(events: "list[DnsQuery]") -> set[tuple[str, bytes, str, str]]:
    return {(event.decision, event.name, event.qtype, event.rcode) for event in events}


def test_the_c_librarys_lookup_gets_what_the_machine_knows(world: World) -> None:
    told = world.python(RULES, ASK + 'print(ask("two.example"), ask("denied.example"), ask("nowhere.sub.example"))')
    assert told.stdout == "['203.0.113.5', '203.0.113.6'] [True] [True]\n", told.stderr
    names = told_names(told.of(DnsQuery))
    assert ("allow", b"two.example", "A", "NOERROR") in names
    assert ("deny", b"denied.example", "A", "NXDOMAIN") in names
    assert ("allow", b"nowhere.sub.example", "A", "NXDOMAIN") in names
    [answers] = {event.answers for event in told.of(DnsQuery) if event.name == b"two.example" and event.qtype == "A"}
    assert set(answers) == {b"203.0.113.5", b"203.0.113.6"}


def test_a_denied_name_is_asked_of_nobody(world: World) -> None:
    names = ("denied.example", "bad.sub.example", "secret-data.evil.example", "sub.example", "xa.example")
    told = world.python(RULES, ASK + f"for name in {names!r}: print(ask(name))")
    assert told.stdout == "[True]\n" * 5, told.stderr
    assert world.names.asked == []
    assert {event.name.decode() for event in told.of(DnsQuery) if event.decision == "deny"} == set(names)


@pytest.mark.parametrize(
    "server", ["127.0.0.1", "127.0.0.53", "8.8.8.8", "203.0.113.99", "::1", "2001:4860:4860::8888"]
)
@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
def test_whichever_resolver_is_meant_the_gateway_answers_as_it(world: World, server: str, tcp: bool) -> None:
    """A connected datagram socket takes the answer from the address that it asked alone."""
    told = world.python(
        RULES, QUERY + f'print(query("a.example", 1, "{server}", {tcp}), query("x.example", 1, "{server}", {tcp}))'
    )
    assert told.stdout == "(0, 1) (3, 0)\n", told.stderr
    assert {event.server for event in told.of(DnsQuery)} == {server.encode()}
    assert {event.transport for event in told.of(DnsQuery)} == {"tcp" if tcp else "udp"}


def test_nothing_but_addresses_is_ever_answered(world: World) -> None:
    code = (
        QUERY
        + """
for kind in (15, 16, 33, 65, 5):
    print(query("a.example", kind))
print(query("1.113.0.203.in-addr.arpa", 12), query("a.example", 252), query("x.example", 16))
"""
    )
    told = world.python(RULES, code)
    assert told.stdout.splitlines() == ["(0, 0)"] * 5 + ["(3, 0) (5, 0) (3, 0)"], told.stderr
    assert world.names.asked == []


def test_names_of_the_machine_itself_are_answered_without_asking(world: World) -> None:
    code = (
        QUERY
        + """
for name in ("localhost", "x.localhost", "host.loopback"):
    print(query(name), query(name, 28))
"""
    )
    told = world.python(RULES, code)
    assert told.stdout.splitlines() == ["(0, 1) (0, 1)", "(0, 1) (0, 1)", "(0, 1) (0, 0)"], told.stderr
    assert world.names.asked == []


def test_no_ipv6_address_is_answered_where_the_machine_has_no_ipv6(world: World) -> None:
    """There is no route beyond the addresses of this internet itself."""
    told = world.python(RULES, QUERY + 'print(query("a.example", 28), query("a.example", 1))')
    assert told.stdout == "(0, 0) (0, 1)\n", told.stderr


def test_messages_that_are_no_questions_get_a_format_error_and_a_row(world: World) -> None:
    code = (
        QUERY
        + """
for data in (b"\\0\\1\\1\\0\\0\\2\\0\\0\\0\\0\\0\\0", b"\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\xc0\\x0c\\0\\1\\0\\1"):
    print(send(data))
"""
    )
    told = world.python(RULES, code)
    assert told.stdout == "(1, 0)\n(1, 0)\n", told.stderr
    rows = [event for event in told.of(DnsQuery) if event.rule == b"built-in.malformed"]
    assert sum(row.count for row in rows) == 2


def test_a_flood_of_denied_names_is_counted_in_few_rows(world: World) -> None:
    code = (
        QUERY
        + """
for number in range(300):
    query("x.example")
"""
    )
    told = world.python(RULES, code)
    rows = told.of(DnsQuery)
    assert sum(row.count for row in rows) == 300, told.stderr
    assert are_few(rows)


def test_a_name_that_is_rebound_is_judged_by_where_it_leads_now(world: World) -> None:
    world.names.names["a.example"] = ["10.9.8.7"]
    told = world.python(RULES, """
import socket
sock = socket.create_connection(("a.example", 80), timeout=300)
try:
    sock.sendall(b"\\0")
    print(sock.recv(1))
except ConnectionResetError:
    print("reset")
""")  # fmt: skip
    [decision] = told.of(NetDecision)
    assert (decision.decision, decision.rule, decision.host) == ("deny", b"built-in.private", b"a.example")
    assert told.stdout == "reset\n", told.stderr


def test_a_dead_address_of_a_name_is_made_up_for_by_another(world: World) -> None:
    server = far_side.http(world.listen("203.0.113.6", 80), "second")
    code = (
        ASK
        + """
ask("two.example")
sock = socket.create_connection(("203.0.113.5", 80), timeout=300)
sock.sendall(b"GET / HTTP/1.1\\r\\nHost: two.example\\r\\n\\r\\n")
print(sock.recv(15))
"""
    )
    told = world.python(RULES, code)
    assert told.stdout == "b'HTTP/1.1 200 OK'\n", told.stderr
    assert server.peers == 1
    assert len(told.of(NetClosed)) == 1


def test_a_name_that_was_still_asked_for_at_the_end_is_told(world: World) -> None:
    """The program leaves as soon as the name server has heard of it, which says nothing."""
    world.names.close()
    os.mkfifo(world.folder / "heard")
    with world.internet.datagrams("127.0.0.1", 53) as silent:
        hearing = threading.Thread(target=lambda: (world.folder / "heard").write_bytes(silent.recv(4096)))
        hearing.start()
        leave = f"open({str(world.folder / 'heard')!r}, 'rb').read(); return"
        code = QUERY.replace("answer = sock.recv(4096)", leave) + 'query("a.example")'
        told = world.python(RULES, code, "--hasty")
        hearing.join()
    assert told_names(told.of(DnsQuery)) == {("allow", b"a.example", "A", "SERVFAIL")}, told.stderr


def test_a_search_list_is_tried_by_the_program_alone(world: World) -> None:
    """Names reach the resolver whole: what it would append could lead to somebody else."""
    with (world.folder / "resolv.conf").open("a") as file:
        file.write("search corp.example\n")
    told = world.python(RULES, ASK + 'print(ask("nowhere.sub.example"), ask("two.example"))')
    assert told.stdout == "[True] ['203.0.113.5', '203.0.113.6']\n", told.stderr
    assert set(world.names.asked) == {"nowhere.sub.example", "two.example"}
    assert b"nowhere.sub.example.corp.example" in {event.name for event in told.of(DnsQuery)}


class TestAsk:
    def test_a_name_waits_for_a_human_before_anybody_is_asked_for_it(self, world: World) -> None:
        far_side.http(world.listen("203.0.113.4", 80), "D")
        told = world.run(RULES, ["curl", "-sS", "-m", "300", "http://denied.example/"], "--answer", "once", mode="ask")
        assert told.stdout == "D denied.example /\n", told.stderr
        [waiting] = told.of(AskWaiting)
        assert waiting.question == b"connect to denied.example:80"
        [decision] = told.of(NetDecision)
        assert (decision.decision, decision.rule) == ("allow", b"built-in.approved")

    @pytest.mark.parametrize("answer", ["deny", ""])
    def test_no_and_silence_are_a_denial(self, world: World, answer: str) -> None:
        server = far_side.http(world.listen("203.0.113.4", 80), "D")
        options = ("--answer", answer) if answer else ("--ask-timeout", "0.3")
        argv = ["curl", "-sS", "-m", "300", "http://denied.example/", "http://denied.example/2"]
        told = world.run(RULES, argv, *options, mode="ask")
        assert told.stdout.count("agentwrap denied: connect denied.example:80") == 2, told.stderr
        # the second try does not ask again at once
        assert len(told.of(AskWaiting)) == 1
        assert [event.answer for event in told.of(AskAnswered)] == ([] if answer else ["expired"])
        assert world.names.asked == []
        assert server.peers == 0

    def test_an_approved_name_that_leads_to_a_private_network_is_another_question(self, world: World) -> None:
        far_side.http(world.listen("10.9.8.7", 80), "R")
        argv = ["curl", "-sS", "-m", "300", "http://rebound.example/", "--next", "-sS", "http://rebound.example/2"]
        told = world.run(RULES, argv, "--answer", "run", mode="ask")
        assert told.stdout.count("R rebound.example") == 2, told.stderr
        assert [event.question for event in told.of(AskWaiting)] == [
            b"connect to rebound.example:80", b"connect to rebound.example:80 at 10.9.8.7",
        ]  # fmt: skip

    def test_nobody_there_is_a_denial_at_once(self, world: World) -> None:
        told = world.run(RULES, ["curl", "-sS", "-m", "300", "http://denied.example/"], "--unattended", mode="ask")
        assert told.status == 6
        assert told.of(AskWaiting) == []
