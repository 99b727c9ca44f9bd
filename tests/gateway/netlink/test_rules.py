"""What a program in the walled namespace can reach, and what it is told about the rest. The kernel's own answers."""

import errno
import os
import select
import socket
from ipaddress import IPv4Network, ip_address, ip_network
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from namespaces import inside
from walled import GROUP, OWN4, OWN6, PORT, Wall

from agentwrap.gateway.netlink import channel, packets, routes, rules
from agentwrap.gateway.netlink.known_addresses import KnownAddresses

IPV6_RECVERR, MSG_FASTOPEN = 25, 0x20000000  # linux/in6.h, linux/socket.h

pytestmark = pytest.mark.serial  # one floods the kernel's log


@pytest.mark.parametrize(
    "host", ["1.2.3.4", "93.184.216.34", "169.254.169.254", "240.0.0.1", "2001:db8::1", "::ffff:9.9.9.9"]
)
def test_the_listener_reads_the_address_that_was_dialled(who: str, host: str) -> None:
    def body() -> None:
        wall = Wall(open_addresses=True)
        tried = wall.connect(host, 65535)
        expected = f"::ffff:{host}" if ":" not in host else host
        assert tried.end() == (expected, 65535)
        # and the program sees it, too, from an address of its own
        assert tried.sock.getpeername()[:2] == (host, 65535)
        assert tried.sock.getsockname()[0] in (OWN4, OWN6, f"::ffff:{OWN4}")

    inside(body, who)


def test_what_nothing_allows_is_refused_at_connect(who: str) -> None:
    def body() -> None:
        wall = Wall(networks=["93.184.216.0/24", "2001:db8::/32"])
        hosts = ("1.2.3.4", "93.184.217.1", "93.184.215.255", "2001:db9::1", "169.254.169.254", "::ffff:8.8.8.8")
        for host in hosts:
            assert (host, wall.connect(host, 443).error) == (host, "ECONNREFUSED")
        # at once: without an answer connect(2) asks again after a second (RFC 6298)
        assert rules.counters(wall.nft)["aw-tcp"] == len(hosts)
        for host in ("93.184.216.0", "93.184.216.255", "2001:db8::", "2001:db8:ffff::1", "::ffff:93.184.216.7"):
            assert wall.connect(host, 443).reached, host

    inside(body, who)


def test_a_refused_connect_that_does_not_wait_is_told_by_poll(who: str) -> None:
    def body() -> None:
        Wall()
        with socket.socket() as sock:
            sock.setblocking(False)
            assert sock.connect_ex(("1.2.3.4", 443)) == errno.EINPROGRESS
            assert select.select([], [sock], [], 300)[1]
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED

    inside(body, who)


def test_a_program_may_give_any_address_as_its_own(who: str) -> None:
    """Every address is local: binding to one works, and must not make a refusal hang."""

    def body() -> None:
        wall = Wall(networks=["9.9.9.0/24"])
        assert wall.connect("1.2.3.4", 443, source="5.6.7.8").error == "ECONNREFUSED"
        tried = wall.connect("9.9.9.9", 443, source="5.6.7.8")
        assert tried.end() == ("::ffff:9.9.9.9", 443)
        assert tried.end(ours=True)[0] == "::ffff:5.6.7.8"

    inside(body, who)


def test_known_addresses_come_and_go_while_connections_stand(who: str) -> None:
    def body() -> None:
        wall = Wall()
        assert wall.connect("1.2.3.4", 443).error == "ECONNREFUSED"
        wall.know("1.2.3.4", "2001:db8::5")
        wall.know("1.2.3.4")
        assert wall.connect("2001:db8::5", 443).reached
        tried = wall.connect("1.2.3.4", 443)
        rules.forget_known(wall.nft, [ip_address("1.2.3.4")])
        assert wall.connect("1.2.3.4", 443).error == "ECONNREFUSED"
        assert tried.reached
        tried.reached.setblocking(True)
        tried.sock.sendall(b"still here")
        assert tried.reached.recv(100) == b"still here"
        tried.reached.sendall(b"and back")
        assert tried.sock.recv(100) == b"and back"
        with pytest.raises(FileNotFoundError, match="known4"):
            rules.forget_known(wall.nft, [ip_address("1.2.3.4")])

    inside(body, who)


def test_the_set_of_known_addresses_is_bounded_and_the_oldest_give_way(who: str) -> None:
    def body() -> None:
        wall = Wall()
        first = int(ip_address("20.0.0.0"))
        many = [ip_address(first + one) for one in range(rules.KNOWN_SIZE)]
        rules.add_known(wall.nft, many)
        rules.add_known(wall.nft, many[:10])
        with pytest.raises(OSError, match="known4") as caught:
            wall.know("1.2.3.4", "20.0.0.1")
        assert caught.value.errno == 23  # ENFILE
        assert wall.connect("1.2.3.4", 443).error == "ECONNREFUSED"
        rules.forget_known(wall.nft, many)

        known = KnownAddresses(wall.nft)
        known.add(many)
        known.add([many[0]])
        known.add([ip_address("1.2.3.4"), ip_address("2001:db8::1")])
        assert wall.connect("1.2.3.4", 443).reached
        assert wall.connect("20.0.0.0", 443).reached
        assert wall.connect("20.0.0.1", 443).error == "ECONNREFUSED"
        assert wall.connect("20.0.0.2", 443).reached

    inside(body, who)


def test_an_inner_listener_wins_over_the_hosts_port(who: str) -> None:
    def body() -> None:
        wall = Wall(host_ports=[5432])
        assert wall.connect("127.0.0.1", 5432).end() == ("::ffff:127.0.0.1", 5432)
        with socket.create_server(("127.0.0.1", 5432)) as inner:
            tried = wall.connect("127.0.0.1", 5432, inner=inner)
            assert (tried.error, tried.reached) == ("", None)
            inner.accept()[0].close()
        assert wall.connect("127.0.0.1", 5432).reached

    inside(body, who)


def test_host_ports_can_be_changed_and_the_others_are_refused(who: str) -> None:
    def body() -> None:
        wall = Wall(host_ports=[])
        assert wall.connect("127.0.0.1", 6379).error == "ECONNREFUSED"
        rules.add_host_ports(wall.nft, [6379, 6380])
        assert wall.connect("127.0.0.1", 6379).reached
        assert wall.connect("127.8.9.10", 6380).reached
        rules.forget_host_ports(wall.nft, [6379])
        assert wall.connect("127.0.0.1", 6379).error == "ECONNREFUSED"

    inside(body, who)


def test_every_host_port_and_still_not_the_other_loopback(who: str) -> None:
    """`localhost` tries ::1 first: it must be refused there for a program to try 127.0.0.1."""

    def body() -> None:
        wall = Wall(host_ports=None, open_addresses=True)
        assert wall.connect("127.0.0.1", 8000).reached
        assert wall.connect("::1", 8000).error == "ECONNREFUSED"
        assert wall.connect(OWN4, 8000).error == "ECONNREFUSED"
        assert wall.connect(OWN6, 8000).error == "ECONNREFUSED"
        tried = [(row.prefix, row.dst, row.dport) for row in wall.refused()]
        assert tried == [("aw-lo", "::1", 8000), ("aw-lo", OWN4, 8000), ("aw-lo", OWN6, 8000)]

    inside(body, who)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", OWN4, OWN6])
def test_the_listener_itself_is_no_service(who: str, host: str) -> None:
    def body() -> None:
        wall = Wall(host_ports=None, open_addresses=True)
        assert wall.connect(host, PORT).error == "ECONNREFUSED"
        (row,) = wall.refused()
        assert (row.prefix, row.dst, row.dport, row.uid) == ("aw-lo", host, PORT, os.geteuid())
        assert wall.connect("1.2.3.4", PORT).end() == ("::ffff:1.2.3.4", PORT)

    inside(body, who)


def test_inner_services_work_as_without_a_wall(who: str) -> None:
    def body() -> None:
        wall = Wall()
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET, OWN4)):
            with socket.create_server((host, 0), family=family) as server:
                tried = wall.connect(host, server.getsockname()[1], inner=server)
                assert (tried.error, tried.reached) == ("", None)
                server.accept()[0].close()
            with socket.socket(family, socket.SOCK_DGRAM) as one, socket.socket(family, socket.SOCK_DGRAM) as other:
                one.bind((host, 0))
                other.sendto(b"x", one.getsockname())
                assert one.recv(9) == b"x"
        # a datagram to a port where nobody is: as outside
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(300)
            sock.connect(("127.0.0.1", 9))
            sock.send(b"x")
            with pytest.raises(ConnectionRefusedError):
                sock.recv(1)
        assert wall.refused() == []

    inside(body, who)


@pytest.mark.parametrize("host", ["8.8.8.8", "127.0.0.1", "127.0.0.53", "::1", "2001:db8::53", OWN4])
def test_dns_over_tcp_reaches_the_gateway_whatever_the_resolver(who: str, host: str) -> None:
    def body() -> None:
        wall = Wall()
        expected = f"::ffff:{host}" if ":" not in host else host
        assert wall.connect(host, 53).end() == (expected, 53)

    inside(body, who)


def test_dns_over_udp_reaches_whoever_is_bound(who: str) -> None:
    def body() -> None:
        wall = Wall()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
            if who == "plain user":
                with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", "w") as file:
                    file.write("0")
            server.bind(("0.0.0.0", 53))
            for host in ("8.8.8.8", "127.0.0.53"):
                assert wall.send(host, 53) == ""
                assert server.recv(9) == b"x"

    inside(body, who)


@pytest.mark.parametrize("open_addresses", [True, False])
def test_other_datagrams_are_refused_at_once(who: str, open_addresses: bool) -> None:
    def body() -> None:
        wall = Wall(open_addresses=open_addresses, networks=["8.8.8.0/24"])
        hosts = ["8.8.8.8", "2001:db8::1", "224.0.0.251"]
        assert [wall.send(host, 443) for host in hosts] == ["EPERM"] * 3
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            with pytest.raises(PermissionError):
                sock.sendto(b"x", ("255.255.255.255", 67))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect(("8.8.8.8", 443))
            with pytest.raises(PermissionError):
                sock.send(b"x")
        rows = wall.refused()
        assert [(row.prefix, row.protocol, row.dst, row.dport) for row in rows] == [
            ("aw-udp", 17, host, port)
            for host, port in [*((host, 443) for host in hosts), ("255.255.255.255", 67), ("8.8.8.8", 443)]
        ]
        assert {row.uid for row in rows} == {os.geteuid()}
        assert rules.counters(wall.nft) == {"aw-tcp": 0, "aw-udp": 5, "aw-lo": 0}

    inside(body, who)


@pytest.mark.parametrize("protocol", ["MPTCP", "SCTP", "UDPLITE"])
def test_less_common_transports_meet_the_same_rules(who: str, protocol: str) -> None:
    number, kind = {
        "MPTCP": (262, socket.SOCK_STREAM),
        "SCTP": (132, socket.SOCK_STREAM),
        "UDPLITE": (136, socket.SOCK_DGRAM),
    }[protocol]

    def body() -> None:
        wall = Wall(networks=["9.9.9.9"])
        try:
            made = [socket.socket(socket.AF_INET, kind, number) for _ in range(2)]
        except OSError as error:
            pytest.skip(f"this kernel has no {protocol}: {error}")
        if protocol == "UDPLITE":
            with pytest.raises(PermissionError):
                made[0].sendto(b"x", ("9.9.9.9", 53))
        elif protocol == "SCTP":
            # it takes ICMP for a hint and goes on trying: the program waits, as before any packet filter
            made[0].setblocking(False)
            with pytest.raises(BlockingIOError):
                made[0].connect(("9.9.9.9", 443))
        else:
            with pytest.raises(ConnectionRefusedError):
                made[0].connect(("1.2.3.4", 443))
            made[1].connect(("9.9.9.9", 443))
            wall.listener.setblocking(True)
            assert wall.listener.accept()[0].getsockname()[:2] == ("::ffff:9.9.9.9", 443)
        # SCTP asks again after some seconds
        assert {row.protocol for row in wall.refused()} == {{"MPTCP": 6}.get(protocol, number)}

    inside(body, who)


def test_data_in_the_first_segment_changes_nothing(who: str) -> None:
    """TCP Fast Open: sendto(2) that connects."""

    def body() -> None:
        wall = Wall(networks=["9.9.9.9"])
        with socket.socket() as sock, pytest.raises(ConnectionRefusedError):
            sock.sendto(b"x", MSG_FASTOPEN, ("1.2.3.4", 443))
        with socket.socket() as sock:
            assert sock.sendto(b"x", MSG_FASTOPEN, ("9.9.9.9", 443)) == 1
            wall.listener.setblocking(True)
            accepted = wall.listener.accept()[0]
            assert accepted.recv(9) == b"x"

    inside(body, who)


def test_ping_is_refused_but_for_what_is_ours(who: str) -> None:
    def body() -> None:
        wall = Wall()
        with open("/proc/sys/net/ipv4/ping_group_range", "w") as file:
            file.write(f"{os.getegid()} {os.getegid()}")
        echo = bytes([8, 0, 0, 0, 0, 1, 0, 1])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as ping:
            ping.sendto(echo, ("127.0.0.1", 0))
            assert ping.recv(100)[0] == 0
            with pytest.raises(PermissionError):
                ping.sendto(echo, ("8.8.8.8", 0))
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6) as ping6:
            # net/ipv6/icmp.c drops the error of the send; the refusal comes as ICMP, as ping(8) reads it
            ping6.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
            ping6.settimeout(300)
            ping6.sendto(bytes([128]) + echo[1:], ("2001:db8::1", 0))
            with pytest.raises(PermissionError):
                ping6.recv(100)
        assert [(row.family, row.protocol, row.dst, row.dport, row.uid) for row in wall.refused()] == [
            (4, 1, "8.8.8.8", 0, os.geteuid()),
            (6, 58, "2001:db8::1", 0, os.geteuid()),
        ]

    inside(body, who)


def test_a_row_has_the_ends_of_the_socket(who: str) -> None:
    def body() -> None:
        wall = Wall()
        assert wall.connect("1.2.3.4", 443).error == wall.connect("2001:db8::1", 8443).error == "ECONNREFUSED"
        rows = wall.refused()
        assert [(row.src, row.sport, row.dst, row.dport) for row in rows] == [
            (OWN4, rows[0].sport, "1.2.3.4", 443),
            (OWN6, rows[1].sport, "2001:db8::1", 8443),
        ]
        assert [(row.family, row.protocol, row.prefix, row.uid) for row in rows] == [
            (4, 6, "aw-tcp", os.geteuid()),
            (6, 6, "aw-tcp", os.geteuid()),
        ]
        with socket.socket() as sock:
            sock.bind((OWN4, 0))
            sport = sock.getsockname()[1]
            assert sock.connect_ex(("1.2.3.4", 443)) == errno.ECONNREFUSED
        assert wall.refused()[0].sport == sport

    inside(body, who)


def test_counters_are_exact_though_rows_are_lost(who: str) -> None:
    def body() -> None:
        wall = Wall(buffer_bytes=4096)
        for _ in range(10_000):
            with socket.socket() as sock:
                assert sock.connect_ex(("1.2.3.4", 443)) == errno.ECONNREFUSED
        assert rules.counters(wall.nft) == {"aw-tcp": 10_000, "aw-udp": 0, "aw-lo": 0}
        with pytest.raises(OSError, match="No buffer space"):
            wall.log.recv(1 << 16)
        before = wall.refused()
        assert 0 < len(before) < 10_000
        wall.connect("1.2.3.4", 443)
        (after,) = wall.refused()
        # the gap says how many were lost
        assert after.sequence == 10_000
        assert [row.sequence for row in before] == list(range(len(before)))

    inside(body, who)


def test_a_filter_stands_once(who: str) -> None:
    def body() -> None:
        wall = Wall()
        with pytest.raises(FileExistsError, match="nf_tables table agentwrap"):
            rules.install(
                wall.nft,
                port=PORT,
                own4=OWN4,
                own6=OWN6,
                group=GROUP,
                host_ports=[],
                open_addresses=True,
            )
        assert wall.connect("1.2.3.4", 443).error == "ECONNREFUSED"

    inside(body, who)


def test_a_set_that_is_large_is_taken_in_parts(who: str) -> None:
    def body() -> None:
        networks = [f"20.{one // 128}.{one % 128 * 2}.0/24" for one in range(9000)]
        ports = list(range(1, 8001))
        wall = Wall(host_ports=ports, networks=[*networks, "2001:db8::/64", "255.0.0.0/8", "::/128"])
        assert wall.connect("20.0.0.9", 443).reached
        assert wall.connect("20.0.1.9", 443).error == "ECONNREFUSED"
        assert wall.connect("20.70.38.1", 443).reached
        assert wall.connect("127.0.0.1", 8000).reached
        assert wall.connect("127.0.0.1", 8001).error == "ECONNREFUSED"

    inside(body, who)


def test_a_network_of_everything(who: str) -> None:
    def body() -> None:
        wall = Wall(networks=["0.0.0.0/0", "::/0", "10.0.0.0/8"])
        assert wall.connect("250.1.1.1", 443).reached
        assert wall.connect("fe00::1", 443).reached

    inside(body, who)


def test_without_ipv6_there_is_a_filter_all_the_same(who: str) -> None:
    def body() -> None:
        for name in ("all", "default", "lo"):
            with open(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6", "w") as file:
                file.write("1")
        wall = Wall(networks=["9.9.9.9"])
        assert not wall.has_ipv6
        assert wall.connect("9.9.9.9", 443).end() == ("9.9.9.9", 443)
        assert wall.connect("1.2.3.4", 443).error == "ECONNREFUSED"
        assert wall.connect("2001:db8::1", 443).error in ("ENETUNREACH", "EADDRNOTAVAIL")

    inside(body, who)


@pytest.mark.skipif(os.geteuid() == 0, reason="root has rights over every namespace")
def test_no_rights_over_the_namespace_is_said() -> None:
    """A socket made where one has no rights: the error names what was refused."""
    with channel.open_socket(channel.NETFILTER) as sock:
        with pytest.raises(PermissionError, match="nf_tables"):
            rules.install(sock, port=PORT, own4=OWN4, own6=OWN6, group=GROUP, host_ports=[], open_addresses=True)
        with pytest.raises(PermissionError, match="NFLOG group 5"):
            packets.subscribe(sock, GROUP, 1 << 16)
    with pytest.raises(PermissionError, match="loopback up"):
        routes.set_up(OWN4, OWN6)


networks4 = st.builds(
    lambda number, bits: IPv4Network((number >> (32 - bits) << (32 - bits), bits)),
    st.integers(0, 2**32 - 1),
    st.integers(0, 32),
)


@given(st.lists(networks4, max_size=20), st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_merged_intervals_cover_the_networks_and_nothing_else(networks: list[IPv4Network], others: list[int]) -> None:
    ranges = rules.merged(networks)
    assert all(last + 1 < following for (_, last), (following, _) in pairwise(ranges))
    edges = [edge for one in networks for edge in (int(one.network_address), int(one.broadcast_address))]
    for number in {*edges, *(edge - 1 for edge in edges), *(edge + 1 for edge in edges), *others}:
        if 0 <= number < 2**32:
            within = any(ip_address(number) in one for one in networks)
            assert any(first <= number <= last for first, last in ranges) == within


def test_networks_of_ipv6_are_merged_by_number() -> None:
    assert rules.merged([ip_network("2001:db8:1::/48"), ip_network("2001:db8::/48")]) == [
        (0x20010DB8 << 96, (0x20010DB80001 << 80) + (1 << 80) - 1)
    ]
