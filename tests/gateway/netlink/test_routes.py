"""A namespace whose every address is its own."""

import errno
import socket

import pytest
from namespaces import inside
from walled import OWN4, OWN6

from agentwrap.gateway.netlink import routes


def test_any_address_leads_to_ourselves_from_our_own(who: str) -> None:
    def body() -> None:
        assert routes.set_up(OWN4, OWN6)
        for family, anywhere, own, hosts in (
            (socket.AF_INET, "0.0.0.0", OWN4, ("1.2.3.4", "10.0.0.1", "169.254.169.254", "240.0.0.1")),
            (socket.AF_INET6, "::", OWN6, ("2001:db8::1", "fd12::1", "64:ff9b::102:304")),
        ):
            with socket.create_server((anywhere, 0), family=family) as server:
                for host in hosts:
                    with socket.create_connection((host, server.getsockname()[1])) as sock:
                        assert sock.getsockname()[0] == own
                        assert server.accept()[0].getsockname()[0] == host

    inside(body, who)


def test_names_can_be_looked_up_for_both_families(who: str) -> None:
    """AI_ADDRCONFIG (getaddrinfo(3)) leaves out a family whose only addresses are loopback ones."""

    def body() -> None:
        families = (socket.AF_INET, "1.2.3.4"), (socket.AF_INET6, "2001:db8::1")
        for family, host in families:
            with pytest.raises(socket.gaierror):
                socket.getaddrinfo(host, 80, family, flags=socket.AI_ADDRCONFIG)
        routes.set_up(OWN4, OWN6)
        for family, host in families:
            assert socket.getaddrinfo(host, 80, family, flags=socket.AI_ADDRCONFIG)

    inside(body, who)


def test_without_a_wall_of_rules_nothing_leaves_either(who: str) -> None:
    def body() -> None:
        routes.set_up(OWN4, OWN6)
        with socket.socket() as sock:
            assert sock.connect_ex(("1.2.3.4", 443)) == errno.ECONNREFUSED

    inside(body, who)


def test_a_namespace_is_set_up_once(who: str) -> None:
    def body() -> None:
        routes.set_up(OWN4, OWN6)
        with pytest.raises(FileExistsError, match="own address"):
            routes.set_up(OWN4, OWN6)

    inside(body, who)


def test_ipv6_that_is_switched_off_is_no_error(who: str) -> None:
    def body() -> None:
        with open("/proc/sys/net/ipv6/conf/all/disable_ipv6", "w") as file:
            file.write("1")
        assert not routes.set_up(OWN4, OWN6)

    inside(body, who)
