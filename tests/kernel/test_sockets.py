"""Sockets as a witness sees them: what was asked for, with addresses, whatever the kernel answered. Loopback alone."""

import functools
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rows import MODES, Rows, mode_name, raw
from wrapping import program, wrap

# Prints the ports it used, so that the test knows what to look for.
SCRIPT = r"""
import errno, os, socket, sys, threading
S = socket
def told(**ports): print(*(f"{k}={v}" for k, v in ports.items()), flush=True)

server = S.socket(); server.bind(("127.0.0.1", 0)); server.listen(5)
port = server.getsockname()[1]
def accept(): server.accept()[0].close()
thread = threading.Thread(target=accept); thread.start()
S.create_connection(("127.0.0.1", port)).close(); thread.join()
told(tcp=port)

quick = S.socket(); quick.setblocking(False)
assert quick.connect_ex(("127.0.0.1", port)) in (0, errno.EINPROGRESS)

closed = S.socket(); closed.bind(("127.0.0.1", 0)); refused = closed.getsockname()[1]
assert S.socket().connect_ex(("127.0.0.1", refused)) == errno.ECONNREFUSED
told(refused=refused)

try:
    six = S.socket(S.AF_INET6); six.bind(("::1", 0)); six.listen()
    S.create_connection(("::1", six.getsockname()[1])).close()
    told(six=six.getsockname()[1])
except OSError:
    told(six=0)

udp = S.socket(S.AF_INET, S.SOCK_DGRAM); udp.bind(("127.0.0.1", 0)); to = udp.getsockname()
sender = S.socket(S.AF_INET, S.SOCK_DGRAM)
for _ in range(5): sender.sendto(b"x", to)
sender.sendmsg([b"y", b"z"], [], 0, to)
sender.connect(to); sender.send(b"not seen: it was connected"); told(udp=to[1])

stream = S.socket(S.AF_UNIX); stream.bind("stream.sock"); stream.listen()
c = S.socket(S.AF_UNIX); c.connect("stream.sock")
hidden = S.socket(S.AF_UNIX); hidden.bind("\0agentwrap test %d" % os.getpid()); hidden.listen()
c = S.socket(S.AF_UNIX); c.connect("\0agentwrap test %d" % os.getpid()); told(abstract=os.getpid())
assert S.socket(S.AF_UNIX).connect_ex("absent.sock") == errno.ENOENT
box = S.socket(S.AF_UNIX, S.SOCK_DGRAM); box.bind("box 53")
for _ in range(3): S.socket(S.AF_UNIX, S.SOCK_DGRAM).sendto(b"x", "box 53")
a, b = S.socketpair(); a.send(b"x")

net = S.socket(S.AF_NETLINK, S.SOCK_RAW, 0); net.bind((0, 0)); net.connect((0, 0)); net.close()
n = S.socket(S.AF_NETLINK, S.SOCK_RAW, 0); n.sendto(bytes([20,0,0,0,18,0,1,3]) + bytes(12), (0, 0)); n.recv(65536)

again = S.socket(S.AF_INET, S.SOCK_DGRAM)
again.connect(("127.0.0.1", 9)); sender.connect(("127.0.0.1", 9))
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
assert libc.connect(again.fileno(), bytes(16), 16) == 0   # AF_UNSPEC: a disconnect
for pointer, size in ((1, 16), (-1, 16), (0, 16), (1, 0), (-1, -1)):
    assert libc.connect(again.fileno(), ctypes.c_void_p(pointer), size) == -1
assert libc.connect(99, bytes(16), 16) == -1
"""

MANY = r"""
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    int in = socket(AF_INET, SOCK_DGRAM, 0), out = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in to[2] = {{AF_INET, 0, {htonl(INADDR_LOOPBACK)}}}; socklen_t size = sizeof *to;
    if (bind(in, (void *)to, size) || getsockname(in, (void *)to, &size)) return 1;
    to[1] = *to; to[1].sin_port = htons(9);
    struct iovec v = {"x", 1}; struct mmsghdr m[7] = {0};
    for (int i = 0; i < 7; i++)
        m[i].msg_hdr = (struct msghdr){&to[i == 6], sizeof *to, &v, 1};
    if (sendmmsg(out, m, 7, 0) != 7) return 2;
    if (sendmmsg(out, (void *)8, 3, 0) != -1) return 3;
    m[0].msg_hdr.msg_iov = (void *)8;
    if (sendmmsg(out, m, 1, 0) != -1) return 4;
    if (syscall(SYS_io_uring_setup, 4, 0) != -1 || errno != ENOSYS) return 5;
    if (syscall(426, 0, 0, 0, 0, 0, 0) != -1 || errno != ENOSYS) return 6;
    printf("%d\n", ntohs(to[0].sin_port));
    return 0;
}
"""


class Talk:
    """One run of the script for each way of following."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.run = functools.cache(self._run)

    def _run(self, options: tuple[str, ...]) -> tuple[dict[str, int], Rows]:
        folder = self._folder / mode_name(options)
        (folder / "work").mkdir(parents=True)
        run = wrap(folder, sys.executable, "-c", SCRIPT, options=options)
        assert run.status == 0, run.stderr
        words = dict(word.split("=") for word in run.stdout.decode().split())
        return {key: int(value) for key, value in words.items()}, Rows(run.recording, folder / "work")


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Talk:
    return Talk(tmp_path_factory.mktemp("talk"))


def _words(rows: Rows, kind: str) -> list[str]:
    return [f"{e.data['family']} {e.data.get('transport', '-')} {_end(rows, e.data)}" for e in rows.of(kind)]


def _end(rows: Rows, data: dict[str, Any]) -> str:
    if "path" in data:
        return raw(data["path"]).removeprefix(rows.base).decode()
    return f"{raw(data['host']).decode()}:{data.get('port', 0)}" if "host" in data else ""


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_connects_are_told_whatever_came_of_them(talk: Talk, options: tuple[str, ...]) -> None:
    ports, rows = talk.run(options)
    expected = [
        f"inet tcp 127.0.0.1:{ports['tcp']}",
        f"inet tcp 127.0.0.1:{ports['tcp']}",
        f"inet tcp 127.0.0.1:{ports['refused']}",
        f"inet6 tcp ::1:{ports['six']}",
        f"inet udp 127.0.0.1:{ports['udp']}",
        "unix stream stream.sock",
        f"unix stream @agentwrap test {ports['abstract']}",
        "unix stream absent.sock",
        "inet udp 127.0.0.1:9",
        "inet udp 127.0.0.1:9",
    ]
    if not ports["six"]:
        expected = [word for word in expected if not word.startswith("inet6")]
    assert [
        word for word in _words(rows, "net.connect") if not (word.startswith("inet6") and not ports["six"])
    ] == expected


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_ports_that_were_opened(talk: Talk, options: tuple[str, ...]) -> None:
    ports, rows = talk.run(options)
    listening = [f"inet - 127.0.0.1:{ports['tcp']}"]
    if ports["six"]:
        listening.append(f"inet6 - ::1:{ports['six']}")
    assert _words(rows, "net.listen") == [
        *listening,
        "unix - stream.sock",
        f"unix - @agentwrap test {ports['abstract']}",
    ]
    bound = [word for word in _words(rows, "net.bind") if not word.startswith("inet6")]
    assert bound == [
        "inet tcp 127.0.0.1:0",
        "inet tcp 127.0.0.1:0",
        "inet udp 127.0.0.1:0",
        "unix stream stream.sock",
        f"unix stream @agentwrap test {ports['abstract']}",
        "unix datagram box 53",
    ]


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_datagrams_are_counted_per_address(talk: Talk, options: tuple[str, ...]) -> None:
    ports, rows = talk.run(options)
    counts: dict[str, int] = {}
    for event in rows.of("net.send"):
        word = f"{event.data['family']} {event.data['transport']} {_end(rows, event.data)}"
        counts[word] = counts.get(word, 0) + event.data.get("count", 1)
    assert counts == {f"inet udp 127.0.0.1:{ports['udp']}": 6, "unix datagram box 53": 3}


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_socket_files_are_made_like_other_nodes(talk: Talk, options: tuple[str, ...]) -> None:
    _ports, rows = talk.run(options)
    assert rows.files() == ["socket stream.sock", "socket box 53"]


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_the_machines_own_talk_is_no_network(talk: Talk, options: tuple[str, ...]) -> None:
    _ports, rows = talk.run(options)
    assert [e for e in rows.events if e.data.get("family") in ("netlink", "other")] == []
    assert rows.of("dns.server") == []
    assert [gap.data["cause"] for gap in rows.of("gap") if gap.data["cause"] != "no-ptrace"] == []


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_many_messages_at_once_and_rings(tmp_path: Path, options: tuple[str, ...]) -> None:
    run = wrap(tmp_path, program(tmp_path, "many", MANY), options=options)
    assert run.status == 0
    rows = Rows(run.recording)
    port = int(run.stdout)
    counts: dict[int, int] = {}
    for event in rows.of("net.send"):
        counts[event.data["port"]] = counts.get(event.data["port"], 0) + event.data.get("count", 1)
    assert counts in ({port: 6, 9: 1}, {port: 7, 9: 1})  # the last call fails after its address was told
    assert [event.data["what"] for event in rows.of("process.denied")] == ["io-uring"]
    assert [gap.data["cause"] for gap in rows.of("gap") if gap.data["cause"] != "no-ptrace"] == []


RESOLVER = r"""
import fcntl, socket, struct, subprocess, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
# lo comes up: struct ifreq, SIOCSIFFLAGS, IFF_UP | IFF_RUNNING (netdevice(7))
fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 0x41))
s.bind(("127.0.0.1", 53))
lookup = "import socket; print(socket.getaddrinfo('Example.Test', 1, type=socket.SOCK_STREAM)[0][4][0])"
asks = subprocess.Popen([sys.executable, "-c", lookup, "asker"], stdout=subprocess.PIPE)
s.settimeout(300)
kinds = set()
while kinds != {1, 28}:
    query, peer = s.recvfrom(512)
    end = query.index(b"\0", 12) + 5
    kind = query[end - 3]
    kinds.add(kind)
    answer = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4\x7f\1\2\3" if kind == 1 else b""
    s.sendto(query[:2] + b"\x81\x80\0\1" + struct.pack("!3H", kind == 1, 0, 0) + query[12:end] + answer, peer)
print(asks.communicate()[0].decode(), end='')
"""


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_name_servers_and_names_that_were_asked(tmp_path: Path, options: tuple[str, ...]) -> None:
    """glibc's resolver asks a server of the test's own, in a network of its own without any way out."""
    if subprocess.run(["unshare", "-Urnm", "true"], capture_output=True).returncode:
        pytest.skip("user namespaces are not allowed here")
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:30 attempts:1\n")
    (tmp_path / "nsswitch.conf").write_text("hosts: dns\n")
    (tmp_path / "resolver.py").write_text(RESOLVER)
    script = (
        f"mount --bind {tmp_path}/resolv.conf $(readlink -f /etc/resolv.conf) || exit 77\n"
        f"mount --bind {tmp_path}/nsswitch.conf /etc/nsswitch.conf || exit 77\n"
        f"exec {sys.executable} {tmp_path}/resolver.py\n"
    )
    run = wrap(tmp_path, "unshare", "-Urnm", "sh", "-c", script, options=options, timeout_s=300)
    if run.status == 77:
        pytest.skip(f"/etc/resolv.conf cannot be replaced here: {run.stderr!r}")
    assert (run.status, run.stdout) == (0, b"127.1.2.3\n"), run.stderr
    rows = Rows(run.recording)
    (asker,) = rows.named(b"asker")
    asked = [event for event in rows.of("dns.server") if event.span == asker["span"]]
    assert {(event.data["host"], event.data.get("port", 53)) for event in asked} == {("127.0.0.1", 53)}
    assert {name for event in asked for name in event.data.get("names", ())} == {"example.test"}
    assert [e.data for e in rows.of("net.connect") if e.span == asker["span"] and e.data["family"] != "unix"] == []


def test_a_datagram_to_a_name_server_tells_the_question(tmp_path: Path) -> None:
    """As musl, Go and Node ask: sendto with the address. Nobody listens there, and nothing leaves the machine."""
    script = (
        "import socket, struct\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "name = b''.join(bytes([len(l)]) + l for l in b'Www.Example.Test'.split(b'.')) + b'\\0'\n"
        "q = struct.pack('!6H', 7, 256, 1, 0, 0, 0) + name + struct.pack('!2H', 1, 1)\n"
        "for _ in range(3): s.sendto(q, ('127.0.0.1', 53))\n"
        "s.connect(('127.0.0.1', 53)); s.sendmsg([q])\n"
    )
    run = wrap(tmp_path, sys.executable, "-c", script)
    assert run.status == 0 or b"ConnectionRefused" in run.stderr
    told = [event.data for event in Rows(run.recording).of("dns.server")]
    assert {name for data in told for name in data.get("names", ())} == {"www.example.test"}
    assert len(told) <= 2
    assert not socket.has_dualstack_ipv6() or all(data["host"] == "127.0.0.1" for data in told)
