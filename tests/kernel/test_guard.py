"""Programs under the guard, in a network of their own: calls come out as they do bare, and none gets past the gateway.

`guarded.c` has the calls, `guarded.py` the gateway. Each is tried with duplicates that are taken when needed
(pidfd_getfd) and with duplicates that are kept (as in Docker), and as a 32-bit program where one can be built.
"""

import functools
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from wrapping import program

TESTS = Path(__file__).resolve().parent.parent
UNSHARE = ("unshare", "-n") if os.geteuid() == 0 else ("unshare", "-Urn")
STOPS = [pytest.param(("--stops", way), id=way) for way in ("trace", "calls")]
WAYS = [pytest.param((), id="taken"), pytest.param(("--kept",), id="kept"), *STOPS]
LOOPBACK_UP = "import guarded, os, sys; guarded.loopback_up(); os.execv(sys.argv[1], sys.argv[1:])"


@dataclass(frozen=True)
class Ran:
    status: int
    stdout: str
    record: dict[str, Any]

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [event for event in self.record["events"] if event["kind"] in kinds]

    @property
    def callers(self) -> Counter[tuple[str, str, int]]:
        """What the gateway was told: transport, host, port."""
        return Counter((transport, host, port) for _pid, _span, transport, host, port in self.record["callers"])

    @property
    def gaps(self) -> list[str]:
        return [event["cause"] for event in self.of("gap")]


Guarded = Callable[..., Ran]


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    if subprocess.run([*UNSHARE, "true"], capture_output=True).returncode:
        pytest.skip("no network of its own can be had here")

    def run(*command: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None) -> Ran:
        out = tmp_path / "record.json"
        words = [*UNSHARE, sys.executable, str(TESTS / "guarded.py"), *options, "--out", str(out), "--", *command]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=_environment(env))
        assert out.exists(), done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return Ran(done.returncode, done.stdout, json.loads(out.read_text()))

    return run


def _environment(more: dict[str, str] | None = None) -> dict[str, str]:
    path = f"{TESTS}{os.pathsep}{TESTS.parent}"
    return {"PATH": os.environ["PATH"], "PYTHONPATH": path, "LANG": "C.UTF-8", **(more or {})}


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], str]:
    folder = tmp_path_factory.mktemp("guarded")
    source = Path(__file__).with_name("guarded.c")

    @functools.cache
    def build(bits: int) -> str:
        path = folder / f"guarded{bits}"
        words = ["cc", f"-m{bits}", "-O1", "-w", "-pthread", "-static", "-o", path, source]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no {bits}-bit programs can be built here: {done.stderr.splitlines()[:1]}")
        return str(path)

    return build


both = pytest.mark.parametrize("options", WAYS)
# What a stop is of makes no difference to a 32-bit program: a filter's are enough.
each = pytest.mark.parametrize(
    ("bits", "options"),
    [
        pytest.param(bits, way.values[0], id=f"{bits}-{way.id}")
        for bits in (64, 32)
        for way in (WAYS if bits == 64 else WAYS[:-1])
    ],
)


@each
def test_calls_come_out_as_they_do_bare(guarded: Guarded, binaries: Any, bits: int, options: tuple[str, ...]) -> None:
    """Errors of every kind, and services of the program's own on loopback, to the letter."""
    path = binaries(bits)
    bare = subprocess.run(
        [*UNSHARE, sys.executable, "-c", LOOPBACK_UP, path, "natives"],
        capture_output=True, text=True, env=_environment(), check=True,
    )  # fmt: skip
    ran = guarded(path, "natives", options=options)
    assert (ran.status, ran.stdout) == (0, bare.stdout)
    assert len(ran.stdout.splitlines()) > 55
    assert ran.callers == {}
    # Arguments of socketcall(2) lie in memory that others may share; at a stop they are put into registers.
    assert ran.gaps == (["shared-descriptors"] if bits == 32 and "--stops" not in options else [])


ENDING = """
import os, signal, socket, threading
def ask():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setblocking(False)
    while True:
        try:
            sock.recvfrom(10)
        except BlockingIOError:
            pass
for _ in range(80):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        for _ in range(12):
            threading.Thread(target=ask, daemon=True).start()
        os.write(write, b".")
        signal.pause()
    os.read(read, 1)
    os.kill(child, signal.SIGTERM)
    os.wait()
print("ended")
"""


@pytest.mark.parametrize("options", WAYS[:2])
def test_threads_that_are_killed_in_a_call_are_no_gap(guarded: Guarded, options: tuple[str, ...]) -> None:
    """Who is no root may not look at a thread that is just ending. That is not kept from us: it makes no call."""
    ran = guarded(sys.executable, "-c", ENDING, options=options)
    assert (ran.status, ran.stdout) == (0, "ended\n")
    assert ran.gaps == []


@each
def test_closed_sockets_hold_no_port(guarded: Guarded, binaries: Any, bits: int, options: tuple[str, ...]) -> None:
    ran = guarded(binaries(bits), "ports", options=options)
    assert ran.stdout == "bind ok\nbind again ok\ntcp bind again ok\nlisten ok\nlisten again ok\n"


@each
def test_sockets_of_parents_and_passed_ones(
    guarded: Guarded, binaries: Any, bits: int, options: tuple[str, ...]
) -> None:
    ran = guarded(binaries(bits), "shared", options=options)
    assert ran.stdout == "by a child ok\nheard SSH-2.0-fa\npass ok\nby whom it was passed to ok\n"
    assert ran.callers == {("tcp", "203.0.113.1", 22): 2}
    # Each is told by the process that connected, not by the one that made the socket.
    assert len({span for _pid, span, *_ in ran.record["callers"]}) == 2


@each
def test_names_are_asked_for_in_every_way(guarded: Guarded, binaries: Any, bits: int, options: tuple[str, ...]) -> None:
    ran = guarded(binaries(bits), "names", options=options)
    lines = ran.stdout.splitlines()
    assert sorted(lines[1:3]) == ["answer 0 by 192.0.2.53 53 bytes 50", "answer 1 by 192.0.2.54 53 bytes 50"]
    assert lines[0] == "sendmmsg 2"
    expected = ["connect", "send", "answer", "peer", "send6", "answer6", "send mapped", "answer mapped"]
    assert lines[3:] == [f"{what} ok" for what in expected]
    assert set(ran.callers) == {("udp", host, 53) for host in ("192.0.2.53", "192.0.2.54", "2001:db8::53")}
    assert {event["host"] for event in ran.of("dns.server")} >= {"192.0.2.53"}


@each
def test_waits_end_as_they_do_by_themselves(
    guarded: Guarded, binaries: Any, bits: int, options: tuple[str, ...]
) -> None:
    """By a limit, a signal with and without SA_RESTART, a kill; receiving and connecting to a full queue."""
    ran = guarded(binaries(bits), "waits", options=options)
    told = dict(line.rsplit(" ", 1) for line in ran.stdout.splitlines())
    refused = {"now": "EAGAIN", "until the limit": "EAGAIN", "until a signal": "EINTR"}
    refused |= {"connect until the limit": "EINPROGRESS", "and again": "EALREADY", "connect until a signal": "EINTR"}
    assert {what: word for what, word in told.items() if word != "ok"} == refused
    assert {"killed", "connect killed", "past a signal", "by whom", "not before"} <= set(told)


@each
def test_other_ways_out_are_refused_and_told(
    guarded: Guarded, binaries: Any, bits: int, options: tuple[str, ...]
) -> None:
    ran = guarded(binaries(bits), "ways", options=options)
    assert ran.stdout.splitlines() == [
        "fast open EOPNOTSUPP",
        "fast open by a message EOPNOTSUPP",
        "datagram ECONNREFUSED",
        "datagram by a message ECONNREFUSED",
        "datagram to no family ECONNREFUSED",
        "raw EPERM",
        "ping EPROTONOSUPPORT",
        "mptcp EPROTONOSUPPORT",
        "sctp EPROTONOSUPPORT",
        "packet EAFNOSUPPORT",
        "vsock EAFNOSUPPORT",
        "device lo",
        "another device EPERM",
        "connected datagrams ok",
        "go ok",
        "nowhere ECONNREFUSED",
    ]
    assert ran.callers == {}
    counts: Counter[tuple[str, int]] = Counter()
    for event in ran.of("net.refused"):
        counts[event["host"], event["port"]] += event["count"]
    assert counts == {("203.0.113.1", 80): 3, ("192.0.2.9", 4444): 1}
    assert [event["target"] for event in ran.of("act.denied")] == [
        "inet raw icmp",
        "inet datagram icmp",
        "inet stream sctp",
        "packet raw",
        "vsock stream",
    ]


@each
def test_a_thread_that_changes_the_address_meanwhile_reaches_nobody(
    guarded: Guarded, binaries: Any, bits: int, options: tuple[str, ...]
) -> None:
    """Every other time the address is one of the run's own, and every other one a service that no rule allows."""
    ran = guarded(binaries(bits), "race", "1000", options=options)
    assert ran.record["passed"] == 0
    assert ran.gaps == []
    # Both were really meant: some came to the gateway, some did not.
    assert 0 < sum(ran.callers.values()) < int(ran.stdout.split()[-1])


@both
def test_refusals_are_counted_to_the_last(guarded: Guarded, binaries: Any, options: tuple[str, ...]) -> None:
    ran = guarded(binaries(64), "loop", "5000", options=options)
    rows = ran.of("net.refused")
    assert sum(event["count"] for event in rows) == 5000
    # The first at once, then one in a quarter of a second, and what is left at the end.
    assert len(rows) <= 2 + rows[-1]["at_ns"] / 250_000_000


def test_more_sockets_than_are_kept_are_refused_and_told(guarded: Guarded, binaries: Any) -> None:
    ran = guarded(binaries(64), "many", options=("--kept", "--limit", "16"))
    assert ran.stdout == "newest ok\noldest EPERM\nafter many ok\n"
    assert ran.gaps == ["unknown-socket"]
    assert ran.record["kept"] <= 16
    taken = guarded(binaries(64), "many", options=("--limit", "16"))
    assert taken.stdout == "newest ok\noldest ok\nafter many ok\n"
    assert taken.record["kept"] == 0


def test_a_socket_from_outside(guarded: Guarded, binaries: Any) -> None:
    taken = guarded(binaries(64), "inherited")
    assert (taken.stdout, taken.callers, taken.gaps) == ("inherited ok\n", {("tcp", "203.0.113.1", 22): 1}, [])
    kept = guarded(binaries(64), "inherited", options=("--kept",))
    assert (kept.stdout, kept.callers, kept.gaps) == ("inherited EPERM\n", {}, ["unknown-socket"])


SCRIPT = r"""
import asyncio, select, socket, sys, urllib.request
def fetch(url): return urllib.request.urlopen(url, timeout=300).read().decode().strip()
print(fetch("http://203.0.113.9/"))
print(fetch("http://[2001:db8::1]:8080/"))
def options():
    s = socket.socket(); s.setsockopt(6, 1, 1); s.setsockopt(1, 9, 1); s.settimeout(300)
    s.connect(("198.51.100.1", 80))
    return s.getsockopt(6, 1), s.getsockopt(1, 9), s.getpeername()
print(options())
async def one(i):
    r, w = await asyncio.open_connection("203.0.113.9", 1000 + i)
    w.write(b"GET / HTTP/1.0\r\n\r\n"); data = await r.read(); w.close()
    return data.endswith(b"203.0.113.9 %d\n" % (1000 + i))
async def all_of_them(): return sum(await asyncio.gather(*(one(i) for i in range(200))))
print(asyncio.run(all_of_them()))
def epoll_first():
    s = socket.socket(); s.setblocking(False); e = select.epoll(); e.register(s, select.EPOLLOUT | select.EPOLLIN)
    print(s.connect_ex(("203.0.113.1", 80)), e.poll(300)[0][1], s.getsockopt(1, 4))
    print(s.connect_ex(("203.0.113.1", 80)), s.connect_ex(("203.0.113.1", 80)))
epoll_first()
def half_closed():
    s = socket.create_connection(("203.0.113.1", 7)); s.sendall(b"hello"); s.shutdown(1); data = b""
    while part := s.recv(100): data += part
    return data
print(half_closed())
print(socket.create_connection(("203.0.113.1", 22)).recv(100))
def ended():
    s = socket.create_connection(("203.0.113.1", 80)); s.sendall(b"GET / HTTP/1.0\r\n\r\n")
    while s.recv(65536): pass
    return "the end is heard"
print(ended())
try: print(socket.create_connection(("203.0.113.1", 666)).recv(1))
except ConnectionResetError: print("reset")
def served(at, to):
    family = socket.AF_INET6 if ":" in at else socket.AF_INET
    server = socket.create_server((at, 0), family=family, dualstack_ipv6=at == "::"); to = (to, server.getsockname()[1])
    c = socket.create_connection(to); a = server.accept()[0]; a.send(b"inner")
    return c.recv(10), c.getpeername()[:2] == to
print(served("::1", "::1"), served("", "localhost")[0], served("", "192.0.2.77"), served("::", "127.0.0.1"))
sys.exit(7)
"""


@both
def test_python_in_every_style(guarded: Guarded, options: tuple[str, ...]) -> None:
    ran = guarded(sys.executable, "-c", SCRIPT, options=options)
    assert ran.stdout.splitlines() == [
        "203.0.113.9 80",
        "2001:db8::1 8080",
        "(1, 1, ('198.51.100.1', 80))",
        "200",
        "115 4 0",
        "0 106",
        "b'hellobye'",
        "b'SSH-2.0-fake\\r\\n'",
        "the end is heard",
        "reset",
        "(b'inner', True) b'inner' (b'inner', True) (b'inner', True)",
    ]
    assert ran.status == 7
    assert sum(ran.callers.values()) == 208
    assert ran.gaps == []


RESOLVED = """
import socket
print(sorted({one[4][0] for one in socket.getaddrinfo("www.example.test", 80, socket.AF_INET)}))
"""


def _own_resolver(tmp_path: Path, *command: str) -> list[str]:
    """The command with a name server that is not the machine's, in mounts of its own."""
    (tmp_path / "resolv.conf").write_text("nameserver 192.0.2.53\noptions timeout:30 attempts:1\n")
    (tmp_path / "nsswitch.conf").write_text("hosts: files dns\n")
    script = (
        f"mount --bind {tmp_path}/resolv.conf $(readlink -f /etc/resolv.conf) || exit 77\n"
        f"mount --bind {tmp_path}/nsswitch.conf /etc/nsswitch.conf || exit 77\n"
        'exec "$@"'
    )
    return ["unshare", "-m" if os.geteuid() == 0 else "-Urm", "sh", "-c", script, "sh", *command]


CLIENTS = {
    "curl": ["curl", "-sS", "--max-time", "300", "http://www.example.test:8080/"],
    "wget": ["wget", "-qO-", "-T", "300", "http://www.example.test:8080/"],
    "node": [
        "node",
        "-e",
        "require('http').get('http://www.example.test:8080/',r=>{r.pipe(process.stdout)}).on('error',e=>console.log(e))",
    ],
    "fetch": [
        "node",
        "-e",
        "fetch('http://www.example.test:8080/').then(r=>r.text()).then(t=>process.stdout.write(t))",
    ],
    "getaddrinfo": [sys.executable, "-c", RESOLVED],
}


@both
@pytest.mark.parametrize("name", CLIENTS)
def test_clients_find_names_and_connect(guarded: Guarded, tmp_path: Path, name: str, options: tuple[str, ...]) -> None:
    words = CLIENTS[name]
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    ran = guarded(*_own_resolver(tmp_path, *words), options=options)
    if ran.status == 77:
        pytest.skip("/etc/resolv.conf cannot be replaced here")
    answer = "['203.0.113.7']\n" if name == "getaddrinfo" else "203.0.113.7 8080\n"
    assert (ran.status, ran.stdout) == (0, answer)
    assert ran.callers[("udp", "192.0.2.53", 53)] > 0
    assert ran.of("net.refused") == []  # looking for the source address is no datagram
    # Clients with threads ask nscd first, over a unix socket.
    assert set(ran.gaps) <= ({"shared-descriptors"} if "--kept" in options else set())


def test_without_a_gateway_nothing_is_open(guarded: Guarded) -> None:
    script = "import socket; print(socket.socket().connect_ex(('203.0.113.1', 80)))"
    ran = guarded(sys.executable, "-c", script, options=("--dead",))
    assert ran.stdout == "111\n"


def test_a_descriptor_limit_of_the_program_is_its_own(guarded: Guarded) -> None:
    script = (
        "import resource, socket, errno\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20)); held = []\n"
        "try:\n  while True: held.append(socket.socket())\n"
        "except OSError as error: print(error.errno == errno.EMFILE, 10 < len(held) < 20)\n"
    )
    assert guarded(sys.executable, "-c", script, options=("--kept",)).stdout == "True True\n"


CARD = r"""
import os, select, socket, subprocess, sys
for words in ("ip link add out type veth peer name far", "ip addr add 203.0.113.1/24 dev out", "ip link set out up",
              "ip link set far up", "ip link set lo up", "ip neigh add 203.0.113.5 lladdr 02:00:00:00:00:05 dev out"):
    if subprocess.run(words.split(), stdout=sys.stderr).returncode: sys.exit(77)
"""
OUTSIDE = (
    CARD
    + r"""
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)); wire.bind(("far", 0x0800))
wire.setblocking(False)
left = own = 0
def hear():  # Ethernet, IPv4 without options, ports
    global left, own
    while True:
        try: frame = wire.recv(2000)
        except BlockingIOError: return
        if socket.inet_aton("203.0.113.5") == frame[30:34]:
            if frame[36:38] == bytes([0, 9]): own += 1
            else: left += 1
status = subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode
# What was sent before comes before what we send ourselves.
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); probe.sendto(b"x", ("203.0.113.5", 9))
while not own and select.select([wire], [], [], 300)[0]: hear()
print(left, own); sys.exit(status)
"""
)
BOUND = r"""
import socket
def hear(sock): sock.settimeout(300); return sock.recv(20)
four, six = "198.51.100.1", "2001:db8::1"
v4 = (("203.0.113.1", four), ("127.0.0.1", four), ("", four))
for at, to in *v4, ("::1", six), ("::", six), ("::ffff:203.0.113.1", "::ffff:" + four):
    s = socket.socket(socket.AF_INET6 if ":" in at else socket.AF_INET); s.bind((at, 0)); s.connect((to, 22))
    print(at, hear(s))
u = socket.socket(2, 2); u.bind(("203.0.113.1", 0)); u.settimeout(300)
u.sendto(b"\x12\x34\1\0\0\1\0\0\0\0\0\0\3www\7example\4test\0\0\1\0\1", ("192.0.2.53", 53)); print(u.recvfrom(512)[1])
for at in ("", "203.0.113.1"):
    server = socket.create_server((at, 0)); to = ("203.0.113.1", server.getsockname()[1])
    c = socket.create_connection(to, 300); server.accept()[0].send(b"inner"); print(hear(c), c.getpeername() == to)
try: socket.socket().bind(("198.51.100.7", 0))
except OSError as error: print(error.errno)
"""


def _slipped(binaries: Any, tmp_path: Path, scenario: str, options: tuple[str, ...]) -> tuple[int, list[str]]:
    """How many left the machine, and what the gaps say could have."""
    if shutil.which("ip") is None:
        pytest.skip("ip is not installed (iproute2)")
    out = tmp_path / "slipped.json"
    run = [sys.executable, str(TESTS / "guarded.py"), *options, "--out", str(out), "--"]
    words = [*UNSHARE, sys.executable, "-c", OUTSIDE, *run, binaries(64), scenario, "3000", "203.0.113.5"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=_environment())
    if done.returncode == 77:
        pytest.skip(f"no pair of network cards can be made here: {done.stderr.splitlines()[-1:]}")
    assert done.returncode == 0, done.stderr
    left, own = done.stdout.split()
    assert own == "1"  # the one that the test sends itself
    gaps = [event for event in json.loads(out.read_text())["events"] if event["kind"] == "gap"]
    # A descriptor that is another's by the time that it is taken is refused and told, too.
    assert {gap["cause"] for gap in gaps} <= {"unknown-socket", "shared-descriptors"}
    assert {gap["to_ns"] for gap in gaps} <= {0}
    gaps = [gap for gap in gaps if gap["cause"] == "shared-descriptors"]
    return int(left), sorted(f"{gap['what']}: {gap['could_hide'].partition(',')[0]}" for gap in gaps)


NEAR = "to services of this machine's own loopback"


@both
@pytest.mark.parametrize(
    ("scenario", "hidden"), [("slip", ["connect", "udp"]), ("slip-stream", ["connect"]), ("slip-fresh", ["udp"])]
)
def test_what_a_thread_slips_under_a_call_does_not_leave_the_machine(
    guarded: Guarded, binaries: Any, tmp_path: Path, scenario: str, hidden: list[str], options: tuple[str, ...]
) -> None:
    """Another thread puts an internet socket and address under a connect of a unix socket.

    Where sockets can be taken that is performed, too; else it is continued, and told what it may hide.
    """
    words = {"connect": f"connect: connections {NEAR}", "udp": f"udp: datagrams {NEAR}"}
    told = [words[what] for what in hidden] if "--kept" in options else []
    assert _slipped(binaries, tmp_path, scenario, options) == (0, told)


@both
def test_what_a_thread_slips_under_a_message_is_nothing_or_told(
    guarded: Guarded, binaries: Any, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """A message's control data may name a network card, which no binding of the socket's own overrules (IP_PKTINFO)."""
    left, told = _slipped(binaries, tmp_path, "slip-message", options)
    if "--kept" in options:
        assert told == ["udp: datagrams to any host"]
    else:
        assert (left, told) == (0, [])


@each
def test_local_sockets_of_a_program_with_threads_work_as_they_do_bare(
    guarded: Guarded, binaries: Any, tmp_path: Path, bits: int, options: tuple[str, ...]
) -> None:
    """Unix sockets by name and without, descriptors that are passed, full buffers, broken pipes, netlink, TCP."""
    path, folder = binaries(bits), tmp_path / "bare"
    folder.mkdir()
    bare = subprocess.run(
        [*UNSHARE, sys.executable, "-c", LOOPBACK_UP, path, "locals"],
        capture_output=True, text=True, env=_environment(), check=True, cwd=folder, timeout=300,
    )  # fmt: skip
    ran = guarded("/bin/sh", "-c", f'cd {tmp_path} && exec "$0" locals', path, options=options)
    assert (ran.status, ran.stdout) == (0, bare.stdout)
    assert len(ran.stdout.splitlines()) > 35


@both
def test_sockets_with_an_address_of_the_network_card(
    guarded: Guarded, tmp_path: Path, options: tuple[str, ...]
) -> None:
    if shutil.which("ip") is None:
        pytest.skip("ip is not installed (iproute2)")
    out = tmp_path / "bound.json"
    run = [sys.executable, str(TESTS / "guarded.py"), *options, "--out", str(out), "--", sys.executable, "-c", BOUND]
    become = CARD + "os.execv(sys.argv[1], sys.argv[1:])"
    words = [*UNSHARE, sys.executable, "-c", become, *run]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=_environment())
    if done.returncode == 77:
        pytest.skip(f"no pair of network cards can be made here: {done.stderr.splitlines()[-1:]}")
    banner = "b'SSH-2.0-fake\\r\\n'"
    assert done.stdout.splitlines() == [
        *(f"{at} {banner}" for at in ("203.0.113.1", "127.0.0.1", "", "::1", "::", "::ffff:203.0.113.1")),
        "('192.0.2.53', 53)",
        "b'inner' True",
        "b'inner' True",
        "99",
    ], done.stderr


UNLINKED = r"""
int main(void) { return 0; }
"""


def test_a_run_without_sockets_costs_no_question(guarded: Guarded, tmp_path: Path) -> None:
    ran = guarded(program(tmp_path, "quiet", UNLINKED))
    assert (ran.status, ran.record["calls"]) == (0, 0)
