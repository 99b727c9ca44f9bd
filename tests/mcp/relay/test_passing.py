"""The relay lets pass what it is given, as it is given, on pipes and sockets; ends are passed on as they are met."""

import os
import socket

import pytest
from relayed import Kind, Relayed, read_to_end

KINDS: tuple[Kind, ...] = ("pipes", "sockets", "socket")


def shut(fd: int) -> None:
    with socket.socket(fileno=os.dup(fd)) as end:
        end.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("kind", KINDS)
def test_both_directions_and_both_ends(kind: Kind) -> None:
    with Relayed() as relayed:
        pair = relayed.session(kind)
        os.write(pair.write, b'{"id":1}\n')
        assert os.read(pair.stdin, 100) == b'{"id":1}\n'
        os.write(pair.stdout, b'{"id":1,"result":1E400}\n')
        assert os.read(pair.read, 100) == b'{"id":1,"result":1E400}\n'
        if kind == "pipes":
            pair.close("write")
        else:
            shut(pair.write)
        assert os.read(pair.stdin, 100) == b""
        os.write(pair.stdout, b"bye")
        pair.close("stdin", "stdout")
        assert read_to_end(pair.read) == b"bye"
        closed = relayed.closed()
        pair.close()
    assert closed.ending == "client-closed"
    assert relayed.told(up=True) == b'{"id":1}\n'
    assert relayed.told(up=False) == b'{"id":1,"result":1E400}\nbye'
    assert relayed.heard.lost is False
