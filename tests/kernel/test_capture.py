"""Model traffic of a run without a policy: real programs, real servers in an internet of the test's own, real TLS."""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import far_side
import pytest
from model_world import LOCAL, MODEL, OTHER, PORT, World, coverage, exchanges
from wrapping import Wrapped, command, environment


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = _world(tmp_path)
    yield made
    made.close()


def _world(folder: Path) -> World:
    try:
        return World(folder)
    except OSError as error:
        pytest.skip(f"no network of its own can be had here: {error}")


PYTHON = """
import asyncio, socket, ssl, sys, urllib.request

def blocking(url):
    with urllib.request.urlopen(url) as answer: return answer.read()

def waiting(url):
    with urllib.request.urlopen(url, timeout=300) as answer: return answer.read()

async def _async(url):
    host = url.split("/")[2]
    reader, writer = await asyncio.open_connection(host, 443, ssl=ssl.create_default_context())
    writer.write(b"GET /asyncio HTTP/1.1\\r\\nHost: %b\\r\\n\\r\\n" % host.encode())
    await writer.drain()
    data = await reader.read()
    peer = writer.get_extra_info("peername")[1]
    writer.close()
    return data.rpartition(b"\\r\\n")[2] if peer == 443 else b"peer %d" % peer

def looping(url): return asyncio.run(_async(url))

print(globals()[sys.argv[1]](sys.argv[2]))
"""


@pytest.mark.parametrize("how", ["blocking", "waiting", "looping"])
def test_python_over_tls_to_a_model_host(world: World, how: str) -> None:
    ran = world.run(sys.executable, "-c", PYTHON, how, f"https://{MODEL}/{how}")
    assert (ran.status, ran.stdout) == (0, b"b'secure\\n'\n"), ran.stderr
    assert [(scheme, host) for scheme, host, _ in exchanges(ran)] == [("https", MODEL)]
    assert coverage(ran) == "witness capture"
    assert ran.gaps() == []


@pytest.mark.parametrize("options", [("--follow", "notify"), ("--debuggable",)])
def test_without_ptrace_it_is_the_same(world: World, options: tuple[str, ...]) -> None:
    words = ("sh", "-c", 'exec "$0" "$@"', sys.executable, "-c", PYTHON, "looping", f"https://{MODEL}/x")
    ran = world.run(*words, options=options)
    assert (ran.status, ran.stdout) == (0, b"b'secure\\n'\n"), ran.stderr
    assert exchanges(ran) == [("https", MODEL, "/asyncio")]
    assert coverage(ran) == "witness capture"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_sees_whom_it_meant_to_talk_to(world: World) -> None:
    words = ("curl", "-s", "-4", "-w", "%{remote_ip} %{remote_port}\n", f"https://{MODEL}/v1/x")
    ran = world.run(*words)
    assert (ran.status, ran.stdout) == (0, b"secure\n203.0.113.10 443\n"), ran.stderr
    assert exchanges(ran) == [("https", MODEL, "/v1/x")]
    assert [e.data["host"] for e in ran.events("net.connect") if e.data["family"] == "inet"] == ["203.0.113.10"]
    assert [(e.data["host"], e.data["ending"]) for e in ran.events("net.closed")] == [(MODEL, "closed")]
    assert ran.events("net.decision") == []


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_ipv6_alone(world: World) -> None:
    ran = world.run("curl", "-s", "-w", "%{remote_ip} %{http_code}", "https://six.example.com/", )
    assert (ran.status, ran.stdout) == (0, b"secure\n2001:db8::30 200"), ran.stderr
    assert [e.data["sni"] for e in ran.events("net.closed")] == ["six.example.com"]
    assert exchanges(ran) == []


NODE = """
const https = require("https")
https.get(process.argv[1], r => { r.on("data", d => process.stdout.write(d)); r.on("end", () =>
  console.log(r.socket.remoteAddress, r.socket.remotePort)) })
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_node_with_its_own_list_of_authorities(world: World) -> None:
    """It reads no SSL_CERT_FILE unless told so; the user's NODE_EXTRA_CA_CERTS stays believed."""
    trust = {"NODE_EXTRA_CA_CERTS": str(world.folder / "ca.pem")}
    for host, read in ((MODEL, [("https", MODEL, "/node")]), (OTHER, [])):
        ran = world.run("node", "-e", NODE, f"https://{host}/node", env=trust)
        assert (ran.status, ran.stdout.splitlines()[0]) == (0, b"secure"), ran.stderr
        assert ran.stdout.splitlines()[1] in (b"203.0.113.10 443", b"2001:db8::10 443", b"203.0.113.20 443")
        assert exchanges(ran) == read


def test_what_is_not_to_be_read_passes_as_it_is(world: World) -> None:
    ran = world.run(sys.executable, "-c", PYTHON, "waiting", f"https://{OTHER}/")
    assert (ran.status, ran.stdout) == (0, b"b'secure\\n'\n"), ran.stderr
    assert exchanges(ran) == []
    assert [(e.data["host"], e.data["sni"]) for e in ran.events("net.closed")] == [(OTHER, OTHER)]
    assert ran.gaps() == []


def test_a_named_host_is_read_too(world: World) -> None:
    ran = world.run(sys.executable, "-c", PYTHON, "waiting", f"https://{OTHER}/a", options=("--intercept", OTHER))
    assert exchanges(ran) == [("https", OTHER, "/a")], ran.stderr


def test_nothing_is_led_anywhere_if_nobody_wants_it(world: World) -> None:
    script = "import os; print('NODE_EXTRA_CA_CERTS' in os.environ)"
    ran = world.run(sys.executable, "-c", script + PYTHON, "waiting", f"https://{MODEL}/", options=("--no-intercept",))
    assert ran.stdout == b"False\nb'secure\\n'\n", ran.stderr
    assert coverage(ran) == "none"
    assert ran.events("net.closed", "http.exchange") == []


SEEN = """
import http.client, socket, sys
for host in sys.argv[2:]:
    link = http.client.HTTPConnection(host, int(sys.argv[1]), timeout=300)
    link.request("GET", "/v1/models")
    print(link.getresponse().read().decode().split()[0], link.sock.getpeername()[:2])
"""


def test_servers_that_the_environment_names(world: World) -> None:
    env = {"ANTHROPIC_BASE_URL": f"http://localhost:{PORT}", "OPENAI_BASE_URL": f"http://203.0.113.10:{PORT}/v1"}
    ran = world.run(sys.executable, "-c", SEEN, str(PORT), LOCAL, "::1", "203.0.113.10", "203.0.113.20", env=env)
    told = [f"{host} {(host, PORT)}" for host in (LOCAL, "::1", "203.0.113.10", "203.0.113.20")]
    assert ran.stdout.decode().splitlines() == told, ran.stderr
    # In order of their ends, which is not that of their beginnings. The last one is nobody's model server.
    assert {e.data["host"] for e in ran.events("net.closed")} == {LOCAL, "::1", "203.0.113.10"}
    assert len(ran.events("net.closed")) == 3


def test_a_server_that_is_not_up_refuses(world: World) -> None:
    script = """
import errno, select, socket
for host, port in (("127.0.0.1", 9), ("127.0.0.1", 443), ("::1", 9)):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try: socket.socket(family).connect((host, port)); print("connected")
    except OSError as error: print(errno.errorcode[error.errno])
    s = socket.socket(family); s.setblocking(False)
    print(errno.errorcode[s.connect_ex((host, port))]); select.select([], [s], [], 300)
    print(errno.errorcode[s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)])
try: socket.create_connection(("198.51.100.1", 443), 300)
except OSError as error: print(errno.errorcode[error.errno])
"""
    bare = world.net.run([sys.executable, "-c", script], capture_output=True)
    ran = world.run(sys.executable, "-c", script, env={"OPENAI_BASE_URL": "http://localhost:9"})
    assert ran.stdout == bare.stdout
    assert len(bare.stdout.split()) == 10


def test_what_a_program_can_tell_of_its_socket(world: World) -> None:
    """The same words with and without us: states, errors, readiness, options."""
    script = """
import errno, fcntl, os, select, socket, sys
def name(number): return errno.errorcode.get(number, number)
for family, to in ((socket.AF_INET, ("203.0.113.10", 443)), (socket.AF_INET6, ("2001:db8::10", 443)),
                   (socket.AF_INET6, ("::ffff:203.0.113.10", 443))):
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    poll = select.epoll(); poll.register(s, select.EPOLLOUT)
    s.setblocking(False)
    print(name(s.connect_ex(to)), [event for _, event in poll.poll(300)], s.getsockopt(1, socket.SO_ERROR))
    print(name(s.connect_ex(to)), name(s.connect_ex(to)), s.getpeername()[:2], s.getblocking(), s.getsockopt(1, 9))
    t = socket.socket(family); t.connect(to); print(t.getpeername()[:2], t.getblocking(), name(t.connect_ex(to)))
    t.shutdown(socket.SHUT_WR); print(t.recv(10)); t.close()
    u = socket.socket(family); u.settimeout(300); u.connect(to)
    print(u.getpeername()[:2], fcntl.fcntl(u, 3) & os.O_NONBLOCK)
    d = socket.socket(family, socket.SOCK_DGRAM); print(name(d.connect_ex(to)), d.getpeername()[:2])
"""
    bare = world.net.run([sys.executable, "-c", script], capture_output=True)
    ran = world.run(sys.executable, "-c", script)
    assert ran.stdout.decode() == bare.stdout.decode(), ran.stderr
    assert len(ran.events("net.closed")) == 9
    assert ran.gaps() == []


def test_what_cannot_be_led_goes_its_own_way_and_is_a_gap(world: World) -> None:
    script = """
import socket
for way in ("bound", "plain"):
    s = socket.socket()
    if way == "bound": s.bind(("203.0.113.20", 0))
    s.connect(("203.0.113.10", 443)); print(way, s.getpeername())
"""
    ran = world.run(sys.executable, "-c", script)
    assert ran.status == 0, ran.stderr
    assert len(ran.events("net.closed")) == 1
    (gap,) = ran.events("gap")
    assert (gap.data["what"], gap.data["cause"]) == ("model", "not-led")
    assert "bound" in gap.data["detail"]


def test_a_network_of_the_programs_own_is_left_alone(world: World) -> None:
    script = """
import socket, subprocess, sys
import fcntl, struct
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: fcntl.ioctl(s, 0x8914, struct.pack("16sH14x", b"lo", 0x41))
server = socket.create_server(("127.0.0.1", 443)); c = socket.create_connection(("127.0.0.1", 443), 300)
server.accept()[0].send(b"inner"); print(c.recv(9))
"""
    unshare = ("unshare", "-n") if os.geteuid() == 0 else ("unshare", "-Urn")
    if world.net.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("no nested network here")
    ran = world.run(*unshare, sys.executable, "-c", script)
    assert ran.stdout == b"b'inner'\n", ran.stderr
    assert ran.events("net.closed") == []


def test_a_server_of_the_runs_own_is_reached_directly(world: World) -> None:
    script = """
import socket
server = socket.create_server(("127.0.0.1", 443)); c = socket.create_connection(("127.0.0.1", 443), 300)
server.accept()[0].send(b"inner"); print(c.recv(9), c.getsockname()[0])
"""
    if os.geteuid() and int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) > 443:
        pytest.skip("a plain user has no port 443")
    ran = world.run(sys.executable, "-c", script)
    assert ran.stdout == b"b'inner' 127.0.0.1\n", ran.stderr
    assert ran.events("net.closed") == []


STATIC = r"""
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
int main(void) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(8123)};
    inet_pton(AF_INET, "203.0.113.10", &to.sin_addr);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (void *)&to, sizeof to)) { perror("connect"); return 1; }
    const char *ask = "GET /v1/models HTTP/1.0\r\nHost: x\r\n\r\n";
    write(s, ask, strlen(ask));
    char answer[200] = {0};
    read(s, answer, sizeof answer - 1);
    puts(strstr(answer, "\r\n\r\n") + 4);
    return 0;
}
"""


@pytest.mark.parametrize("bits", [64, 32])
def test_a_static_binary(world: World, tmp_path: Path, bits: int) -> None:
    source = tmp_path / "static.c"
    source.write_text("#define _GNU_SOURCE\n" + STATIC)
    built = ["cc", f"-m{bits}", "-static", "-w", "-o", str(tmp_path / "static"), str(source)]
    if subprocess.run(built, capture_output=True).returncode:
        pytest.skip(f"no {bits}-bit C library is installed")
    ran = world.run(str(tmp_path / "static"), env={"OPENAI_BASE_URL": f"http://203.0.113.10:{PORT}/v1"})
    assert ran.stdout.split()[:1] == [b"203.0.113.10"], ran.stderr
    assert len(ran.events("net.closed")) == 1


PARALLEL = """
import asyncio, socket, sys, threading
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ask = b"GET /v1/models HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n"
async def one():
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(ask)
    return (await reader.readuntil(b"/v1/models\\n"))[-10:]
async def every(): return await asyncio.gather(*(one() for _ in range(count)))
good = sum(answer == b"v1/models\\n" for answer in asyncio.run(every()))
def thread():
    global good
    s = socket.create_connection((host, port)); s.sendall(ask); data = b""
    while b"/v1/models" not in data: data += s.recv(999)
    good += 1
threads = [threading.Thread(target=thread) for _ in range(count)]
for t in threads: t.start()
for t in threads: t.join()
print(good)
"""


def test_fifty_at_once_and_fifty_in_threads(world: World) -> None:
    env = {"OPENAI_BASE_URL": f"http://203.0.113.10:{PORT}/v1"}
    ran = world.run(sys.executable, "-c", PARALLEL, "203.0.113.10", str(PORT), "50", env=env)
    assert ran.stdout == b"100\n", ran.stderr
    assert len(ran.events("net.closed")) == 100
    assert {e.span for e in ran.events("net.closed")} == {"p1"}


def test_a_gateway_that_dies_breaks_nothing_that_comes_after(world: World) -> None:
    script = f"""
import http.client, os, sys
def ask():
    link = http.client.HTTPConnection("127.0.0.1", {PORT}, timeout=300); link.request("GET", "/v1/models")
    return link.getresponse().read().decode().split()[0]
print(ask(), flush=True); sys.stdin.readline(); print(ask(), ask(), flush=True)
"""
    env = {"OPENAI_BASE_URL": f"http://127.0.0.1:{PORT}/v1"}
    (world.folder / "run.agentlog").unlink(missing_ok=True)
    process = world.net.popen(
        command(world.folder / "run.agentlog", sys.executable, "-c", script),
        env={**environment(world.folder), **env},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=world.folder,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"127.0.0.1\n"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (gateway,) = (one for one in children if Path(f"/proc/{one}/comm").read_text() == "aw-gateway\n")
    waiting = os.pidfd_open(int(gateway))
    os.kill(int(gateway), signal.SIGKILL)
    signal_ended(waiting)
    out, error = process.communicate(b"\n", timeout=300)
    assert (process.returncode, out) == (0, b"127.0.0.1 127.0.0.1\n"), error
    ran = Wrapped(0, out, error, world.folder / "run.agentlog")
    assert [(e.data["what"], e.data["cause"]) for e in ran.events("gap")] == [("model", "gateway-lost")]


def signal_ended(descriptor: int) -> None:
    """Wait until the process behind a pidfd has ended."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(300_000)


@pytest.mark.parametrize("options", [("--follow", "trace"), ("--follow", "calls"), ("--network", "host")])
def test_where_calls_cannot_be_answered_clients_are_told_of_a_reverse_proxy(
    world: World, options: tuple[str, ...]
) -> None:
    script = textwrap.dedent(f"""
        import http.client, os, urllib.parse
        url = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
        link = http.client.HTTPConnection(url.hostname, url.port, timeout=300)
        link.request("GET", url.path + "/models?a=b")
        print(link.getresponse().read().decode(), url.port != {PORT}, end="")
    """)
    ran = world.run(sys.executable, "-c", script, options=options, env={"OPENAI_BASE_URL": f"http://127.0.0.1:{PORT}/v1"})
    assert ran.stdout == b"127.0.0.1 127.0.0.1:8123 /v1/models?a=b\n True", ran.stderr
    assert coverage(ran) == "witness base-url"
    assert exchanges(ran) == [("http", "127.0.0.1", "/v1/models?a=b")]


def test_the_recorded_environment_is_the_one_that_the_agent_got(world: World) -> None:
    script = "import json, os; print(json.dumps(dict(os.environ)))"
    ran = world.run(sys.executable, "-c", script)
    got = json.loads(ran.stdout)
    told = dict(ran.events("run.start")[0].data["environment"])
    assert {name: told.get(name) for name in got} == got
    assert got["SSL_CERT_FILE"] != str(world.folder / "ca.pem")
    assert not Path(got["SSL_CERT_FILE"]).exists()  # the run is over


def test_the_users_own_authorities_stay_believed(world: World) -> None:
    names = ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")
    script = f"import os; print(*(open(os.environ[name]).read().count('BEGIN') for name in {names}))"
    assert world.run(sys.executable, "-c", script).stdout == b"2 1\n"


LANDLOCKED = r"""
import ctypes, errno, socket, struct, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
# landlock_create_ruleset(2), landlock_restrict_self(2): no TCP connect at all
attribute = struct.pack("=QQ", 0, 2)
ruleset = libc.syscall(444, attribute, len(attribute), 0)
if ruleset < 0: print("none"); sys.exit()
libc.prctl(38, 1, 0, 0, 0)
if libc.syscall(446, ruleset, 0): print("none"); sys.exit()
ask = "import errno, socket; print(errno.errorcode[socket.socket().connect_ex(('203.0.113.10', 443))])"
exec(ask); sys.stdout.flush(); subprocess.run([sys.executable, "-c", ask])
"""


def test_a_program_that_closed_its_own_network_does_not_get_out_through_us(world: World) -> None:
    ran = world.run(sys.executable, "-c", LANDLOCKED)
    if ran.stdout == b"none\n":
        pytest.skip("no Landlock for TCP here (Linux 6.7)")
    assert ran.stdout == b"EACCES\nEACCES\n", ran.stderr
    assert ran.events("net.closed") == []
    assert {event.data["cause"] for event in ran.events("gap")} == {"not-led"}


def _tunnels(world: World, asked: list[bytes]) -> far_side.Talk:
    """An HTTP proxy of the user's, which knows CONNECT."""

    def talk(client: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(1)
        asked.append(head.split(b"\r\n")[0])
        with world.net.stream("203.0.113.10") as server:
            server.connect(("203.0.113.10", 443))
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()
            poll = select.poll()
            poll.register(client, 0)  # until both directions have ended
            poll.poll(300_000)

    return talk


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the other direction has ended it


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_through_a_proxy_of_the_users(world: World) -> None:
    asked: list[bytes] = []
    world.serve(world.net.listen("203.0.113.20", 3128), _tunnels(world, asked))
    env = {"HTTPS_PROXY": "http://proxy.example.com:3128"}
    ran = world.run("curl", "-s", f"https://{MODEL}/by-proxy", env=env)
    assert (ran.status, ran.stdout) == (0, b"secure\n"), ran.stderr
    assert asked[0] == f"CONNECT {MODEL}:443 HTTP/1.1".encode()
    assert exchanges(ran)[-1] == ("https", MODEL, "/by-proxy")
    assert ran.gaps() == []


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_a_name_whose_first_address_is_dead_is_reached_by_its_second(tmp_path: Path) -> None:
    """Natively curl goes on to the next address; here it was told that it is connected."""
    world = _world(tmp_path)
    world.tls["2001:db8::10"].close()
    for options in ((), ("-4",)):
        ran = world.run("curl", "-s", *options, f"https://{MODEL}/x")
        assert (ran.status, ran.stdout) == (0, b"secure\n"), ran.stderr
        assert exchanges(ran) == [("https", MODEL, "/x")]
    world.close()


def test_a_remote_server_that_refuses_is_a_reset(world: World) -> None:
    script = """
import errno, socket
s = socket.create_connection(("203.0.113.20", 9999), 300)
try: s.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n"); print(s.recv(10))
except OSError as error: print(errno.errorcode[error.errno])
"""
    ran = world.run(sys.executable, "-c", script, env={"OPENAI_BASE_URL": "http://203.0.113.20:9999"})
    assert ran.stdout == b"ECONNRESET\n", ran.stderr
    assert [e.data["ending"] for e in ran.events("net.closed")] == ["refused"]


def test_under_a_policy_that_says_nothing_of_the_network(world: World) -> None:
    """Its files are closed by mounts or Landlock; its network is the machine's, and model traffic is led."""
    kept = world.folder / "kept"
    kept.mkdir()
    script = f"""
try: open({str(kept / "new")!r}, "w")
except OSError as error: print(type(error).__name__)
"""
    words = (sys.executable, "-c", script + PYTHON, "waiting", f"https://{MODEL}/x")
    ran = world.run(*words, options=("--ro", str(kept)))
    assert ran.stdout.splitlines()[1] == b"b'secure\\n'", ran.stderr
    assert ran.stdout.split()[0] in (b"OSError", b"PermissionError")
    assert exchanges(ran) == [("https", MODEL, "/x")]
    assert coverage(ran) == "witness capture"


STOPPED_AT_THE_ANSWER = """
import http.client, os, signal, urllib.parse
def words(path):
    with open(path) as file: return file.read().split()
def gateway():
    pid = os.getpid()
    while True:
        for child in words(f"/proc/{pid}/task/{pid}/children"):
            if words(f"/proc/{child}/comm") == ["aw-gateway"]: return int(child)
        pid = int(words(f"/proc/{pid}/stat")[3])
pid = gateway()
url = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
link = http.client.HTTPConnection(url.hostname, url.port, timeout=300)
link.request("GET", url.path + "/models")
answer = link.getresponse().read()
os.kill(pid, signal.SIGSTOP)
os.write(1, answer)
os._exit(0)
"""


def test_what_passed_just_before_the_end_is_told(world: World) -> None:
    """The program ends before the gateway has said a word; it is stopped and has not even told that it listens."""
    env = {"OPENAI_BASE_URL": f"http://127.0.0.1:{PORT}/v1"}
    ran = world.run(sys.executable, "-c", STOPPED_AT_THE_ANSWER, options=("--network", "host"), env=env)
    assert ran.stdout == b"127.0.0.1 127.0.0.1:8123 /v1/models\n", ran.stderr
    assert exchanges(ran) == [("http", "127.0.0.1", "/v1/models")]
    assert [e.data["status"] for e in ran.events("http.exchange")] == [200]
    assert ran.gaps() == []


def test_who_waited_while_the_gateway_loaded_is_served_though_the_run_is_over(world: World) -> None:
    script = """
import os, socket, urllib.parse
url = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
link = socket.create_connection((url.hostname, url.port))
link.sendall(f"GET {url.path}/models HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nConnection: close\\r\\n\\r\\n".encode())
link.shutdown(socket.SHUT_WR)
"""
    env = {"OPENAI_BASE_URL": f"http://127.0.0.1:{PORT}/v1"}
    ran = world.run(sys.executable, "-S", "-c", script, options=("--network", "host"), env=env)
    assert ran.status == 0, ran.stderr
    assert [path for _, _, path in exchanges(ran)] == ["/v1/models"]
    assert ran.gaps() == []


def test_a_gateway_that_nobody_came_to_is_not_waited_for(world: World) -> None:
    ran = world.run("true", options=("--network", "host"))
    assert (ran.status, ran.gaps(), exchanges(ran)) == (0, [], []), ran.stderr
