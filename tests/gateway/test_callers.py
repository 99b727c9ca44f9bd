"""Who calls: found by socket, by port and by destination, whatever way the program spelled it."""

import pytest

from agentwrap.gateway.callers import Caller, CallerTable, decode, encode


def caller(span: str, host: str = "192.0.2.1", inode: int = 0, local_port: int = 0) -> Caller:
    return Caller(inode, local_port, 1, span, "tcp", host, 443)


def test_a_caller_crosses_the_channel_whole() -> None:
    assert decode(encode(caller("p1", inode=7))) == caller("p1", inode=7)


def test_the_latest_of_a_socket_a_port_and_a_destination_is_found() -> None:
    table = CallerTable()
    for one in (caller("p1", inode=5, local_port=6), caller("p2", inode=5, local_port=6), caller("p3", inode=8)):
        table.add(one)
    found = (table.by_inode(5), table.by_port(6), table.by_inode(8), table.by_destination("192.0.2.1", 443))
    assert [one and one.span for one in found] == ["p2", "p2", "p3", "p3"]
    assert table.by_inode(9) is table.by_port(9) is table.by_destination("192.0.2.1", 80) is None


@pytest.mark.parametrize(
    ("named", "packets"),
    [("::ffff:192.0.2.9", "192.0.2.9"), ("0.0.0.0", "127.0.0.1"), ("::ffff:0.0.0.0", "127.0.0.1"), ("::", "::1")],
)
def test_a_destination_is_the_one_in_the_packets(named: str, packets: str) -> None:
    table = CallerTable()
    table.add(caller("p1", named))
    assert table.by_destination(packets, 443) == caller("p1", named)


def test_the_oldest_are_forgotten_first() -> None:
    table = CallerTable(limit=2)
    for number in (1, 2, 3):
        table.add(caller(f"p{number}", f"192.0.2.{number}", number, number))
    assert table.by_inode(1) is table.by_port(1) is table.by_destination("192.0.2.1", 443) is None
    assert table.by_inode(2) is not None
