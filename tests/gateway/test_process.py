"""How the gateway's process is given its sockets, whenever it is given them."""

import socket

import pytest

from agentwrap.gateway import process


@pytest.mark.parametrize("word", [b"", b"a certificate"])
@pytest.mark.parametrize("late", [True, False])
def test_sockets_arrive_though_nobody_reads_what_was_said_first(word: bytes, late: bool) -> None:
    """A channel that is closed with something unread in it is reset: the other end hears that first."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    given, other = socket.socketpair()
    loading = process.Loading(0, ours)
    if not late:
        process._say(theirs, word)
    loading.give({process.SUPERVISOR: given})
    loading.close()
    if late:
        process._say(theirs, word)
    heard = process._hear(theirs)
    with given, other, theirs, heard[process.SUPERVISOR] as ended:
        ended.sendall(b"here")
        assert other.recv(10) == b"here"
    assert list(heard) == [process.SUPERVISOR]


def test_nothing_given_is_nothing_heard() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process.Loading(0, ours).close()
    with theirs:
        assert process._hear(theirs) == {}
