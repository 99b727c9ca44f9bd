"""Connections that are not one request and one answer, behind the wall and under the guard: long, many, large, odd."""

import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from real import client_programs as programs
from real import sites
from real.confined import DENIED, PYTHON, TIERS, Place, Ran
from real.programs import need

pytestmark = pytest.mark.parametrize("tier", TIERS)


def python(place: Place, tier: str, code: str, *arguments: str, options: tuple[str, ...] = ()) -> Ran:
    ran = place.run([sys.executable, "-c", code, *arguments], tier, *options, env=place.trusting())
    assert ran.status == 0, ran.err.decode()
    ran.whole()
    place.untouched()
    return ran


def line(process: "subprocess.Popen[bytes]") -> str:
    """The next line that the program writes; fails when none comes for minutes."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], 300)
    assert ready, "nothing came"
    text = process.stdout.readline().decode()
    assert text or process.stderr is None, process.stderr and process.stderr.read().decode()
    assert text, "it has ended"
    return text.rstrip("\n")


@pytest.mark.parametrize("client", ["curl", "python"])
def test_server_sent_events_come_as_they_are_sent(place: Place, site: sites.Site, client: str, tier: str) -> None:
    """Each event is sent only when the one before has arrived: were one held back, the next would never come."""
    need("curl")
    code = (
        "import sys, urllib.request\nfor line in urllib.request.urlopen(sys.argv[1]): print(line.decode(), flush=True)"
    )
    argv = {"curl": ["curl", "-sN"], "python": [sys.executable, "-c", code]}[client]
    scheme = "http" if client == "python" else "https"
    argv += ["--cacert", str(place.folder / "ca.pem")] if client == "curl" else []
    process = place.start([*argv, f"{scheme}://allowed.example/events"], tier)
    for number in range(20):
        site.events.put(b"event %d" % number)
        while not (text := line(process)):
            pass
        assert text == f"data: event {number}"
    site.events.put(b"")
    assert place.finish(process).status == 0


WEBSOCKET = """
import os, ssl, sys
from websockets.sync.client import connect
trusted = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
PATIENT = {"open_timeout": 300, "close_timeout": 300, "ping_timeout": 300}
for url in sys.argv[1:]:
    try:
        with connect(url, ssl=trusted if url.startswith("wss") else None, proxy=None, **PATIENT) as socket:
            for number in range(50):
                socket.send("x" * number * 100)
                assert socket.recv() == "x" * number * 100
            print("echoed")
    except Exception as error:
        print(type(error).__name__)
"""


def test_websockets(place: Place, site: sites.Site, tier: str) -> None:
    programs.need_modules("websockets.sync.client")
    urls = ["wss://allowed.example/ws", "ws://allowed.example/ws", "wss://denied.example/ws", f"ws://{DENIED}/ws"]
    ran = python(place, tier, WEBSOCKET, *urls)
    allowed, plain, *refused = ran.out.decode().split()
    assert (allowed, plain) == ("echoed", "echoed")
    assert "echoed" not in refused
    assert ran.refused() == {("denied.example", PYTHON), (f"{DENIED}:80", PYTHON)}


BUN_WEBSOCKET = """
const socket = new WebSocket(process.env.URL)
socket.onopen = () => socket.send('hello')
socket.onmessage = message => { console.log(message.data); socket.close() }
socket.onerror = () => { console.log('error'); process.exitCode = 1 }
"""


def test_a_websocket_of_bun(place: Place, site: sites.Site, tier: str) -> None:
    need("bun")
    argv = ["sh", "-c", 'for URL; do export URL; bun -e "$0"; done', BUN_WEBSOCKET]
    ran = place.run([*argv, "ws://allowed.example/ws", "ws://denied.example/ws"], tier)
    assert (ran.out, ran.status) == (b"hello\nerror\n", 1), ran.err
    assert ran.refused() == {("denied.example", "bun")}
    place.untouched()


GRPC_SERVER = """
import os, sys, grpc
from concurrent.futures import ThreadPoolExecutor
def echo(messages, context):
    for message in messages:
        yield message.upper()
handlers = {"Say": grpc.unary_unary_rpc_method_handler(lambda message, context: message.upper()),
            "Talk": grpc.stream_stream_rpc_method_handler(echo)}
server = grpc.server(ThreadPoolExecutor(4))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("t.Echo", handlers)])
pem = [open(name, "rb").read() for name in sys.argv[1:]]
assert server.add_secure_port("192.0.2.3:50052", grpc.ssl_server_credentials([tuple(pem)]))
assert server.add_insecure_port("192.0.2.3:50051")
server.start()
print("ready", flush=True)
server.wait_for_termination()
"""
GRPC_CLIENT = """
import os, sys, grpc
trusted = grpc.ssl_channel_credentials(open(os.environ["SSL_CERT_FILE"], "rb").read())
for target in sys.argv[1:]:
    secure = not target.endswith((":50051", ":80"))
    patient = [("grpc.min_reconnect_backoff_ms", 300_000)]  # how long a connection may take to be made, too
    channel = grpc.secure_channel(target, trusted, patient) if secure else grpc.insecure_channel(target, patient)
    with channel:
        try:
            said = channel.unary_unary("/t.Echo/Say")(b"one", timeout=300)
            many = list(channel.stream_stream("/t.Echo/Talk")(iter([b"a", b"b" * 100_000]), timeout=300))
            print(said.decode(), [len(one) for one in many])
        except grpc.RpcError as error:
            print(error.code().name)
"""


def test_grpc(place: Place, tier: str) -> None:
    programs.need_modules("grpc")
    sites.context(place.folder, "http2.example")
    folder = place.folder
    place.helper(sys.executable, "-c", GRPC_SERVER, str(folder / "key.pem"), str(folder / "cert.pem"))
    targets = ["http2.example:50052", "http2.example:50051", "denied.example:443", f"{DENIED}:80"]
    ran = python(place, tier, GRPC_CLIENT, *targets)
    assert ran.out.decode().splitlines() == ["ONE [1, 100000]", "ONE [1, 100000]", "UNAVAILABLE", "UNAVAILABLE"]
    assert ran.refused() == {("denied.example", PYTHON), (f"{DENIED}:80", PYTHON)}


def test_curl_keeps_connections_to_several_hosts(place: Place, site: sites.Site, tier: str) -> None:
    """Each host on a connection of its own, kept for the second request; refused ones in between change nothing."""
    need("curl")
    hosts = ["allowed.example", "second.example", "denied.example", "allowed.example", "second.example", "four.example"]
    ran = place.run(["curl", "-s", "-m", "300", *(f"http://{host}/name" for host in hosts)], tier)
    allowed = [host for host in hosts if host != "denied.example"]
    assert ran.out.decode().split() == allowed, ran.err
    assert site.asked == [f"GET {host} /name" for host in allowed]
    opened = [row.subject for row in ran.of("net.decision", verdict="allow")]
    assert opened == ["allowed.example:80", "second.example:80", "four.example:80"]
    assert ran.refused() == {("denied.example", "curl")}
    ran.whole()
    place.untouched()


def test_names_of_one_family_only(place: Place, site: sites.Site, tier: str) -> None:
    need("curl")
    urls = [f"http://{name}/name" for name in ("four.example", "six.example")]
    ran = place.run(["curl", "-sS", "-m", "300", *urls, "-w", "%{remote_ip}\n"], tier)
    assert ran.out.decode().split() == ["four.example", "192.0.2.4", "six.example", "2001:db8::6"], ran.err
    ran.whole()


MANY = """
import asyncio, resource, sys
count, soft = int(sys.argv[1]), resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(count + 100, soft[1]), soft[1]))
async def one(number):
    reader, writer = await asyncio.open_connection("allowed.example", 9000)
    writer.write(b"%d\\n" % number)
    answer = await reader.readline()
    writer.close()
    return answer == b"answer %d\\n" % number
async def main():
    print(sum(await asyncio.gather(*(one(number) for number in range(count)))))
asyncio.run(main())
"""


def test_a_thousand_connections_at_once(place: Place, tier: str) -> None:
    """The server answers when all of them have come, so that all are there at the same time."""
    count = 1000
    arrived = threading.Barrier(count)

    def talk(connection: socket.socket) -> None:
        word = connection.recv(100)
        arrived.wait(300)
        connection.sendall(b"answer " + word)

    server = place.serve(place.net.listen("192.0.2.1", 9000), talk)
    ran = python(place, tier, MANY, str(count))
    assert ran.out == b"%d\n" % count
    assert server.peers == count
    decisions = ran.of("net.decision", verdict="allow")
    assert sum(row.data.get("count", 1) for row in decisions) == count
    closed = ran.of("net.closed")
    assert len(closed) == count
    assert {ran.program(row) for row in closed} == {PYTHON}


LARGE = """
import hashlib, socket, sys
size, up = int(sys.argv[1]), sys.argv[2] == "up"
sock = socket.create_connection(("allowed.example", 9000))
block, done = bytes(range(256)) * 4096, 0
if up:
    while done < size:
        sock.sendall(block)
        done += len(block)
    sock.shutdown(socket.SHUT_WR)
    done = int(sock.makefile().readline())
else:
    buffer = bytearray(1 << 20)
    while count := sock.recv_into(buffer):
        assert buffer[0] == done % 256
        done += count
print(done, flush=True)
sys.stdin.readline()
"""
SIZE = int(os.environ.get("AGENTWRAP_TEST_TRANSFER", "200_000_000")) >> 20 << 20
# Of all our processes together, more than at the start; buffers of a connection are far smaller.
MEMORY = 24_000_000


def attendants(supervisor: int) -> list[int]:
    """Our own processes: the supervisor and its children; the agent is a child of one of them."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    return [supervisor, *(int(pid) for pid in children)]


def held(pids: list[int]) -> int:
    """The most memory that these held at any time, in bytes (proc_pid_status(5): VmHWM)."""
    lines = (one for pid in pids for one in Path(f"/proc/{pid}/status").read_text().splitlines())
    return sum(int(one.split()[1]) * 1024 for one in lines if one.startswith("VmHWM"))


@pytest.mark.parametrize("way", ["down", "up"])
def test_a_large_transfer_needs_no_memory(place: Place, way: str, tier: str) -> None:
    block = bytes(range(256)) * 4096
    came, go = threading.Event(), threading.Event()

    def talk(connection: socket.socket) -> None:
        came.set()
        assert go.wait(300)
        if way == "down":
            for _ in range(SIZE // len(block)):
                connection.sendall(block)
            return
        count, buffer = 0, bytearray(1 << 20)
        while got := connection.recv_into(buffer):
            assert buffer[0] == count % 256
            count += got
        connection.sendall(b"%d\n" % count)

    place.serve(place.net.listen("192.0.2.1", 9000), talk)
    process = place.start([sys.executable, "-c", LARGE, str(SIZE), way], tier)
    assert came.wait(300)
    ours = attendants(process.pid)
    before = held(ours)
    go.set()
    assert line(process) == str(SIZE)
    grown = held(ours) - before
    ran = place.finish(process)
    assert (ran.status, ran.err) == (0, b"")
    print(f"{way}, {tier}: {SIZE} bytes; {len(ours)} processes of {before} bytes grew by {grown}")
    assert grown < MEMORY
    [closed] = ran.of("net.closed")
    assert closed.data[f"{way}_bytes"] == SIZE


HALF_CLOSING = """
import socket
sock = socket.create_connection(("allowed.example", 9000))
sock.sendall(b"x" * 300_000)
sock.shutdown(socket.SHUT_WR)
answer = b""
while data := sock.recv(65536):
    answer += data
print(answer.decode())
"""


def test_a_client_that_half_closes_gets_the_whole_answer(place: Place, tier: str) -> None:
    """The server answers only when it has seen the client's end, and more than fits into one buffer."""

    def talk(connection: socket.socket) -> None:
        count = 0
        while data := connection.recv(65536):
            count += len(data)
        connection.sendall(b"%d " % count * 100_000)

    place.serve(place.net.listen("192.0.2.1", 9000), talk)
    ran = python(place, tier, HALF_CLOSING)
    assert ran.out.split() == [b"300000"] * 100_000
    [closed] = ran.of("net.closed")
    assert (closed.data["ending"], closed.data["up_bytes"], closed.data["down_bytes"]) == ("closed", 300_000, 700_000)


SERVER_ENDS = """
import socket
sock = socket.create_connection(("allowed.example", 9000))
sock.sendall(b"\\0")
while sock.recv(100):
    pass
sock.sendall(b"y" * 100_000)
"""


def test_a_server_may_end_first_and_still_listen(place: Place, tier: str) -> None:
    heard: list[bytes] = []
    done = threading.Event()

    def talk(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(b"last words")
        connection.shutdown(socket.SHUT_WR)
        while data := connection.recv(65536):
            heard.append(data)
        done.set()

    place.serve(place.net.listen("192.0.2.1", 9000), talk)
    python(place, tier, SERVER_ENDS)
    assert done.wait(300)
    assert b"".join(heard) == b"y" * 100_000


RESET = """
import socket
sock = socket.create_connection(("allowed.example", 9000))
sock.sendall(b"\\0")
try:
    while data := sock.recv(100):
        print(data.decode())
    print("end")
except ConnectionResetError:
    print("reset")
"""


def test_a_server_that_resets_is_a_reset(place: Place, tier: str) -> None:
    def talk(connection: socket.socket) -> None:
        connection.recv(100)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    place.serve(place.net.listen("192.0.2.1", 9000), talk)
    ran = python(place, tier, RESET)
    assert ran.out == b"reset\n"
    [closed] = ran.of("net.closed")
    assert closed.data["ending"] == "reset"


OWN = r"""
import http.server, json, socket, subprocess, sys, threading, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"own")
    def log_message(self, *words): pass
def get(url):
    try:
        return urllib.request.urlopen(url, timeout=300).read().decode()
    except OSError as error:
        return str(error)
told = {}
for bound in ("127.0.0.1", "", "localhost"):
    server = http.server.ThreadingHTTPServer((bound, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    for host in ("127.0.0.1", "localhost", *(["127.0.0.2"] if bound == "" else [])):
        told[f"{bound}: {host}"] = get(f"http://{host}:{port}/")
# As with a container's ports: another process has a free one, and says which.
child = '''
import socket
server = socket.create_server(("", 0))
print(server.getsockname()[1], flush=True)
client = server.accept()[0]
client.recv(65536)
client.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\nchild")
'''
children = [subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE, text=True) for _ in range(5)]
for number, one in enumerate(children):
    told[f"child {number}"] = get(f"http://localhost:{int(one.stdout.readline())}/")
    one.communicate()
six = socket.create_server(("::1", 0), family=socket.AF_INET6)
threading.Thread(target=lambda: six.accept()[0].sendall(b"six"), daemon=True).start()
told["::1"] = socket.create_connection(("::1", six.getsockname()[1])).recv(100).decode()
print(json.dumps(told))
"""


def test_servers_of_its_own_on_ports_nobody_knew_before(place: Place, tier: str) -> None:
    """By 127.0.0.1 and `localhost`, of the same process and of others: as test suites do."""
    ran = python(place, tier, OWN)
    told = json.loads(ran.out)
    assert len(told) == 7 + 5 + 1
    assert {what for key, what in told.items() if "child" not in key and key != "::1"} == {"own"}
    assert {what for key, what in told.items() if "child" in key} == {"child"}
    assert told["::1"] == "six"
    assert ran.refused() == set()


def test_a_service_of_the_machine_on_loopback(place: Place, site: sites.Site, tier: str) -> None:
    """The one that a rule names is reached, by `localhost` and by the address, the other is not."""
    need("curl")
    place.serve(place.net.listen("127.0.0.1", 7001), site.talk)
    hidden = place.serve(place.net.listen("127.0.0.1", 7002), site.talk)
    urls = ["http://localhost:7001/name", "http://127.0.0.1:7001/name", "http://127.0.0.1:7002/name"]
    ran = place.run(["curl", "-s", "-f", "-m", "300", *urls], tier)
    assert ran.out.decode().split() == ["localhost:7001", "127.0.0.1:7001"], ran.err
    assert ran.status in (7, 22)
    assert hidden.peers == 0
    assert {program for _, program in ran.refused()} == {"curl"}
    assert {subject.rpartition(":")[2] for subject, _ in ran.refused()} == {"7002"}
