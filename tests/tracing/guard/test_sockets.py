"""Duplicates of the run's sockets: kept, dropped, taken, and whose a socket is."""

import os
import socket
import subprocess
from ipaddress import ip_address

import pytest

from agentwrap.tracing.guard import raw_calls
from agentwrap.tracing.guard.listeners import ESTABLISHED, Listeners, Owners, inodes_of
from agentwrap.tracing.guard.sockaddr import AF_INET, Endpoint
from agentwrap.tracing.guard.sockets import DATAGRAM, STREAM, Sockets, can_take, inode_of

ME = os.getpid()


def _sockets() -> Sockets:
    return Sockets(Owners(lambda pid: pid == ME), taking=False)


class Unreadable(Owners):
    """A run with a process that would not let us look."""

    def held(self) -> None:
        return None


def test_the_oldest_duplicate_goes_when_there_are_too_many() -> None:
    sockets = Sockets(Unreadable(lambda _pid: True), taking=False, limit=5)
    held = [socket.socket() for _ in range(12)]
    known = [sockets.add(sock, STREAM, AF_INET, ME) for sock in held]
    assert [one.kept is not None for one in known] == [False] * 7 + [True] * 5
    assert all(sockets.get(one.inode) is one for one in known)
    sockets.close()
    for sock in held:
        sock.close()


def test_what_no_other_process_has_is_dropped() -> None:
    """Ours do not count: the tracer's own duplicate would hold a socket for ever."""
    sockets = _sockets()
    one, two = socket.socket(), socket.socket()
    known = [sockets.add(sock, DATAGRAM, AF_INET, ME) for sock in (one, two)]
    holder = subprocess.Popen(["sleep", "86400"], pass_fds=[one.fileno()])
    try:
        sockets.sweep()
        assert [other.kept is not None for other in known] == [True, False]
    finally:
        holder.kill()
        holder.wait()
    sockets.sweep()
    assert known[0].kept is None
    one.close()
    two.close()


def test_a_duplicate_is_not_made_blocking_by_it() -> None:
    with socket.socket() as sock:
        sock.setblocking(False)
        with raw_calls.duplicate(sock) as other:
            assert not os.get_blocking(sock.fileno())
            assert os.fstat(other.fileno()).st_ino == os.fstat(sock.fileno()).st_ino


def test_inodes_and_what_is_no_socket() -> None:
    with socket.socket() as sock, open("/dev/null") as null:
        inode = os.fstat(sock.fileno()).st_ino
        assert inode_of(ME, sock.fileno()) == inode
        assert inode in inodes_of(ME)
        with pytest.raises(OSError, match="non-socket"):
            inode_of(ME, null.fileno())
    with pytest.raises(OSError, match="Bad file descriptor"):
        inode_of(ME, 4000)
    assert inodes_of(2**22 + 1) == set()


def test_whether_duplicates_can_be_taken_is_found_out_by_doing() -> None:
    def refusing(_pid: int, _tid: int, _descriptor: int) -> int:
        raise PermissionError(1, "refused")

    def closed(_pid: int, _tid: int, _descriptor: int) -> int:
        raise OSError(9, "closed")

    assert not can_take(ME, refusing)
    assert can_take(ME, closed)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_who_serves_a_port_is_told_by_the_kernel(host: str) -> None:
    listeners = Listeners()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("no IPv6 here")
    with server, socket.socket(family, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind((host, 0))
        for sock, stream in ((server, True), (datagrams, False)):
            to = Endpoint(ip_address(host), sock.getsockname()[1])
            inode = os.fstat(sock.fileno()).st_ino
            assert listeners.serving(to, stream=stream) == ([inode], True)
            assert inode not in listeners.serving(to, stream=not stream)[0]  # the port may be somebody else's there
            nowhere = to._replace(ip=ip_address("::" if ":" in host else "0.0.0.0"))
            assert listeners.serving(nowhere, stream=stream) == ([inode], True)
            elsewhere = "::2" if ":" in host else "127.0.0.2"
            assert listeners.serving(to._replace(ip=ip_address(elsewhere)), stream=stream) == ([], False)
    listeners.close()


def test_a_service_without_an_address_serves_each_and_comes_after_the_exact_one() -> None:
    listeners = Listeners()
    with socket.create_server(("0.0.0.0", 0), reuse_port=True) as any_address:
        port = any_address.getsockname()[1]
        to = Endpoint(ip_address("127.0.0.1"), port)
        assert listeners.serving(to, stream=True) == ([os.fstat(any_address.fileno()).st_ino], False)
        # Of those that share a port any may be chosen: all are told.
        with socket.create_server(("0.0.0.0", port), reuse_port=True) as another:
            inodes = {os.fstat(sock.fileno()).st_ino for sock in (another, any_address)}
            assert set(listeners.serving(to, stream=True)[0]) == inodes
        with socket.create_server(("127.0.0.1", port), reuse_port=True) as exact:
            assert listeners.serving(to, stream=True) == ([os.fstat(exact.fileno()).st_ino], True)
        inode = os.fstat(any_address.fileno()).st_ino
    assert inode not in listeners.serving(to, stream=True)[0]
    listeners.close()


def test_the_state_of_a_connection() -> None:
    listeners = Listeners()
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        port, inode = client.getsockname()[1], os.fstat(client.fileno()).st_ino
        assert listeners.state(AF_INET, port, inode) == ESTABLISHED
        assert listeners.state(AF_INET, port, 1) is None
        client.close()
        accepted.close()
        assert listeners.state(AF_INET, port, inode) is None
    listeners.close()


def test_owners_are_remembered_by_inode() -> None:
    asked: list[int] = []
    with socket.socket() as sock:
        inode = os.fstat(sock.fileno()).st_ino
        holder = subprocess.Popen(["sleep", "86400"], pass_fds=[sock.fileno()])
        try:
            owners = Owners(lambda pid: asked.append(pid) is None and pid == holder.pid)
            assert owners.ours(inode)
            count = len(asked)
            assert owners.ours(inode)
            assert len(asked) == count
        finally:
            holder.kill()
            holder.wait()
    assert not owners.ours(1)
