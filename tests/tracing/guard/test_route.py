"""Where a call leads: what the kernel does not tell is known to be unknown."""

import errno
import os
import socket
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from agentwrap.tracing.guard.listeners import Listeners, Owners
from agentwrap.tracing.guard.route import GuardSettings, Router
from agentwrap.tracing.guard.sockaddr import Endpoint
from agentwrap.tracing.guard.sockets import Sockets


@pytest.fixture
def router() -> Iterator[Router]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    owners = Owners(lambda _pid: True)
    made = Router(GuardSettings(1, 2, ours, lambda _pid: True, six=False), Sockets(owners, taking=None), owners)
    yield made
    made.close()
    ours.close()
    theirs.close()


def test_a_port_that_nobody_serves_is_vacant(router: Router) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))  # and from now on nobody else can serve it
        to = Endpoint(ip_address("127.0.0.1"), server.getsockname()[1])
        assert router.is_vacant(to)
        server.listen()
        assert not router.is_vacant(to)
    assert router.unseen == ""


def test_a_kernel_that_does_not_tell_is_remembered(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_request: int) -> bytes:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))

    monkeypatch.setattr(Listeners, "_dump", refuses)
    to = Endpoint(ip_address("127.0.0.1"), 9)
    assert not router.is_vacant(to)
    assert router.inner(to, stream=True) is None
    assert "No such file" in router.unseen
