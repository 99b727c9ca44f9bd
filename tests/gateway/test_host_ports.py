"""Which ports of the machine's loopback somebody listens on, out of the kernel's own table."""

import socket

from hypothesis import given
from hypothesis import strategies as st

from agentwrap.gateway.host_ports import _listed, listening_now, listening_ports


def test_a_listener_is_found_and_is_gone_when_it_closes() -> None:
    for address in ("127.0.0.1", "0.0.0.0", "127.0.0.9"):
        # `taken` has the port on every address, before and after: the kernel gives it to nobody else.
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("", 0))
            port = taken.getsockname()[1]
            with socket.socket() as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind((address, port))
                assert port not in listening_now()
                sock.listen()
                assert port in listening_now()
            assert port not in listening_now()


def test_both_ways_of_looking_see_the_same() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock, socket.create_connection(sock.getsockname()) as other:
        there, listed = listening_now(), _listed()
        assert sock.getsockname()[1] in there & listed
        assert other.getsockname()[1] not in there | listed


def test_a_listener_of_both_families_is_found() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as sock:
        assert sock.getsockname()[1] in listening_now()


@given(st.binary(max_size=400))
def test_odd_tables_never_raise(table: bytes) -> None:
    try:
        list(listening_ports(b"head\n" + table))
    except ValueError:
        pass  # a port that is no number: the kernel writes none
