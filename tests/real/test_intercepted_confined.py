"""TLS ended in the gateway, seen by clients of every day: they believe the run's authority and get the same bytes.

Whoever does not believe it is passed through, from the second try on at the latest, and that is told.
"""

import hashlib
import select
import socket
import ssl
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import far_side
import pytest
from real import client_programs as programs
from real import sites
from real.confined import TIERS, Place, Ran
from real.programs import need
from real.test_connections_confined import MEMORY, attendants, held

pytestmark = pytest.mark.parametrize("tier", TIERS)

HOST = ("--intercept", "allowed.example")
CURL = ("curl", "-sSf", "-m", "300")
# As the other one of these, with every certificate of the file.
JAVA = programs.JAVA.replace("class Fetch", "class FetchAll").replace(
    """store.setCertificateEntry("t", CertificateFactory.getInstance("X.509").generateCertificate(file));""",
    """int n = 0; for (var one : CertificateFactory.getInstance("X.509").generateCertificates(file))
                store.setCertificateEntry("t" + n++, one);""",
)


def java_source(folder: Path) -> list[str]:
    need("java", "javac")
    made = programs._built("FetchAll.class", "FetchAll.java", JAVA, folder, "javac", "-d", ".", "FetchAll.java")
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", str(Path(made).parent), "FetchAll"]


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


CLIENTS = {
    "curl": [*CURL, "https://allowed.example/file"],
    "curl-tls1.2": [*CURL, "--tls-max", "1.2", "https://allowed.example/file"],
    "wget": ["wget", "-q", "-t", "1", "-O", "-", "--ca-certificate=/proc/self/fd/9", "https://allowed.example/file"],
    "urllib": python(programs.URLLIB),
    "requests": python(programs.REQUESTS.replace(', verify=os.environ["SSL_CERT_FILE"]', "")),
    "httpx": python(programs.HTTPX),
    "aiohttp": python(programs.AIOHTTP),
    "node": ["node", "-e", programs.FETCH],
    "bun": ["bun", "-e", programs.FETCH],
}
BUILT = {"go": programs.go_binary, "java": java_source}
MODULES = {"requests": ("requests",), "httpx": ("httpx",), "aiohttp": ("aiohttp",)}


def gaps(ran: Ran) -> list[str]:
    return [row.data["detail"] for row in ran.of("gap") if row.data["cause"] == "not-intercepted"]


def unread(ran: Ran) -> list[str]:
    return [row.data.get("detail", "") for row in ran.of("net.closed")]


def trusting(place: Place) -> dict[str, str]:
    """The wrapper, and the command, trust the servers of the test."""
    return {"SSL_CERT_FILE": str(place.folder / "ca.pem"), "NODE_EXTRA_CA_CERTS": str(place.folder / "ca.pem")}


def run(place: Place, tier: str, argv: Sequence[str], *options: str, env: dict[str, str] | None = None) -> Ran:
    ran = place.run(argv, tier, *(options or HOST), env={**trusting(place), **(env or {})})
    place.untouched()
    return ran


@pytest.mark.parametrize("client", [*CLIENTS, *BUILT])
def test_clients_believe_the_authority_of_the_run(place: Place, site: sites.Site, client: str, tier: str) -> None:
    programs.need_modules(*MODULES.get(client, ()))
    argv = BUILT[client](place.work) if client in BUILT else CLIENTS[client]
    need(argv[0])
    if client == "wget":  # it knows no variable
        argv = ["sh", "-c", 'exec 9<"$SSL_CERT_FILE"; exec "$@"', "sh", *argv]
    ran = run(place, tier, argv, env={"URL": "https://allowed.example/file"})
    assert (ran.status, ran.out) == (0, sites.BODY), ran.err.decode()
    assert gaps(ran) == []
    [exchange] = ran.of("http.exchange")
    assert (exchange.data["method"], exchange.data["path"], exchange.data["status"]) == ("GET", "/file", 200)
    assert exchange.data["response"]["size"] == len(sites.BODY)
    assert not any("not intercepted" in detail for detail in unread(ran))
    closed = [row.data for row in ran.of("net.closed")]
    assert ("tls", "allowed.example") in [(one.get("protocol"), one.get("sni")) for one in closed]


def test_a_pinned_client_is_passed_through_on_the_second_try(place: Place, site: sites.Site, tier: str) -> None:
    """It verifies the chain, then the key: it ends without a word, and its next process gets the server's own."""
    need("curl", "openssl")
    pin = (
        "openssl x509 -in ../cert.pem -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary"
    )
    script = f"""
    pin=sha256//$({pin} | base64)
    for i in 1 2 3; do {" ".join(CURL)} --pinnedpubkey $pin https://allowed.example/name; echo $?; done
    {" ".join(CURL)} --pinnedpubkey $pin https://second.example/name; echo $?
    """
    ran = run(place, tier, ["sh", "-c", script])
    assert ran.out.split() == [b"90", b"allowed.example", b"0", b"allowed.example", b"0", b"second.example", b"0"]
    first, last = gaps(ran)
    assert "allowed.example:443 not intercepted (client-refused), 1 connection" in first
    assert "3 connections" in last
    assert unread(ran).count("not intercepted: client-refused") == 3
    assert ran.of("http.exchange") == []


def test_a_client_with_a_list_of_its_own_is_passed_through(place: Place, site: sites.Site, tier: str) -> None:
    """One process that refuses, and again; another program of the same run is read all the time."""
    need("curl")
    code = """
import ssl, sys, urllib.request
context = ssl.create_default_context(cafile=sys.argv[1])
for _ in range(3):
    try:
        print(urllib.request.urlopen("https://allowed.example/name", context=context).read().decode().strip())
    except OSError as error:
        print(error.reason.verify_message)
"""
    curl = " ".join([*CURL, "https://allowed.example/name"])
    script = f'{curl}; "$0" -c "$1" ../ca.pem; {curl}'
    ran = run(place, tier, ["sh", "-c", script, sys.executable, code])
    told = ran.out.decode().splitlines()
    assert told[0] == told[2] == told[3] == told[4] == "allowed.example"
    assert told[1].startswith("self-signed certificate in") or told[1].startswith("unable to get")
    assert [ran.program(row) for row in ran.of("http.exchange")] == ["curl", "curl"]
    assert "client-refused), 3 connections: TLSV1_ALERT_UNKNOWN_CA" in gaps(ran)[-1]


def test_a_server_that_we_do_not_trust_shows_its_own_certificate(place: Place, site: sites.Site, tier: str) -> None:
    need("curl")
    curl = " ".join(CURL)
    script = f"{curl} https://allowed.example/name; echo $?; {curl} --cacert ../ca.pem https://allowed.example/name"
    ran = place.run(["sh", "-c", script], tier, *HOST)
    assert ran.out.split() == [b"60", b"allowed.example"], ran.err
    assert "allowed.example:443 not intercepted (upstream-untrusted), 1 connection: " in gaps(ran)[0]
    assert unread(ran) == ["not intercepted: upstream-untrusted"] * 2
    place.untouched()


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_a_server_that_wants_a_certificate_of_the_client_gets_it(place: Place, version: str, tier: str) -> None:
    need("curl")
    site = sites.Site()
    context = sites.context(place.folder, "allowed.example")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(place.folder / "ca.pem")
    place.serve(place.net.listen("192.0.2.1", 443), site.tls(context))
    identity = ["--cert", "../cert.pem", "--key", "../key.pem"]
    (place.folder / "key.pem").chmod(0o644)
    ran = run(place, tier, [*CURL, *identity, "-4", "--tls-max", version, "https://allowed.example/name"])
    assert ran.out == b"allowed.example\n", ran.err
    assert "(upstream-wants-certificate), 1 connection" in gaps(ran)[0]


def test_a_client_that_speaks_something_else_is_passed_through(place: Place, site: sites.Site, tier: str) -> None:
    code = """
import ssl, socket
for protocols in (["h2"], ["mqtt"], ["h2", "http/1.1"]):
    context = ssl.create_default_context()
    context.set_alpn_protocols(protocols)
    sock = socket.create_connection(("allowed.example", 443))
    with context.wrap_socket(sock, server_hostname="allowed.example") as inside:
        print(dict(inside.getpeercert()["issuer"][-1])["commonName"])
"""
    ran = run(place, tier, python(code))
    assert ran.out.decode().splitlines()[:2] == ["authority of a test"] * 2, ran.err
    assert ran.out.decode().splitlines()[2].startswith("agentwrap run ")
    assert "(client-protocol), 1 connection: h2" in gaps(ran)[0]
    assert "(client-protocol), 2 connections: h2" in gaps(ran)[-1] or "2 connections: mqtt" in gaps(ran)[-1]


@pytest.mark.parametrize("options", [("--no-intercept",), ("--no-intercept", *HOST), ("--intercept", "second.example")])
def test_what_nobody_asks_for_is_not_read(place: Place, site: sites.Site, options: Sequence[str], tier: str) -> None:
    need("curl")
    ran = run(place, tier, [*CURL, "--cacert", "../ca.pem", "https://allowed.example/name"], *options)
    assert ran.out == b"allowed.example\n", ran.err
    assert ran.of("http.exchange") == []
    assert (gaps(ran), unread(ran)) == ([], [""])


def test_a_request_for_another_host_inside_is_refused(place: Place, site: sites.Site, tier: str) -> None:
    """Domain fronting: the name in the hello is allowed, the one in the request is not; it never leaves."""
    need("curl")
    ran = run(place, tier, ["curl", "-sS", "-m", "300", "-H", "Host: denied.example", "https://allowed.example/name"])
    assert b"denied.example" in ran.out
    assert b"agentwrap" in ran.out
    assert site.asked == []
    assert ("denied.example:443", "curl") in ran.refused()


FIFTY = """
import asyncio, os, sys, ssl
async def one(number):
    trusted = ssl.create_default_context()
    reader, writer = await asyncio.open_connection("allowed.example", 443, ssl=trusted, ssl_handshake_timeout=300)
    for _ in range(3):
        writer.write(b"GET /file HTTP/1.1\\r\\nHost: allowed.example\\r\\n\\r\\n")
        head = await reader.readuntil(b"\\r\\n\\r\\n")
        length = int(head.lower().split(b"content-length: ")[1].split()[0])
        assert len(await reader.readexactly(length)) == length
    writer.close()
    return 1
async def main():
    print(sum(await asyncio.gather(*(one(number) for number in range(50)))))
asyncio.run(main())
"""


def test_fifty_connections_at_once(place: Place, site: sites.Site, tier: str) -> None:
    ran = run(place, tier, python(FIFTY))
    assert ran.out == b"50\n", ran.err
    assert gaps(ran) == []
    exchanges = ran.of("http.exchange")
    assert len(exchanges) == 150
    assert {row.data["response"]["size"] for row in exchanges} == {len(sites.BODY)}


def line(process: "subprocess.Popen[bytes]") -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], 300)
    assert ready, "nothing came"
    text = process.stdout.readline().decode()
    assert text or process.stderr is None, process.stderr and process.stderr.read().decode()
    assert text, "it has ended"
    return text.rstrip("\n")


def test_events_come_one_by_one(place: Place, site: sites.Site, tier: str) -> None:
    """Each event is sent only when the one before has arrived: were one held back, the next would never come."""
    need("curl")
    argv = [*CURL, "-N", "-m", "300", "https://allowed.example/events"]
    process = place.start(argv, tier, *HOST, env=trusting(place))
    for number in range(20):
        site.events.put(b"event %d" % number)
        while not (text := line(process)):
            pass
        assert text == f"data: event {number}"
    site.events.put(b"")
    ran = place.finish(process)
    assert ran.status == 0
    [exchange] = ran.of("http.exchange")
    assert exchange.data.get("ending", "complete") == "complete"


def test_websockets(place: Place, site: sites.Site, tier: str) -> None:
    programs.need_modules("websockets.sync.client")
    code = """
from websockets.sync.client import connect
patient = {"open_timeout": 300, "close_timeout": 300, "ping_timeout": 300}
with connect("wss://allowed.example/ws", proxy=None, **patient) as socket:
    for number in range(50):
        socket.send("x" * number * 100)
        assert socket.recv() == "x" * number * 100
print("echoed")
"""
    ran = run(place, tier, python(code))
    assert ran.out == b"echoed\n", ran.err
    assert gaps(ran) == []


def tunnels(place: Place, asked: list[bytes]) -> None:
    """A proxy on second.example:3128 that wants to be asked twice (407), then leads to where it is asked for."""

    def head(connection: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(1)
            if not more:
                return b""
            data += more
        return data

    def talk(connection: socket.socket) -> None:
        while request := head(connection):
            asked.append(request.split(b"\r\n")[0])
            if b"Proxy-Authorization" in request:
                break
            refusal = b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=p\r\nContent-Length: 2\r\n\r\nno"
            connection.sendall(refusal)
        else:
            return
        with place.net.stream("192.0.2.2") as far:
            far.connect(("192.0.2.1", 443))
            connection.sendall(b"HTTP/1.1 200 Yes\r\n\r\n")
            far_side.join(connection, far)

    place.serve(place.net.listen("192.0.2.2", 3128), talk)


PROXY = ("--proxy", "http://me:secret@second.example:3128", "--proxy-anyauth")


def test_tls_inside_of_a_tunnel_through_a_proxy(place: Place, site: sites.Site, tier: str) -> None:
    """Read like any other; by a client that refuses, the tunnel is asked for again, and passed through."""
    need("curl")
    asked: list[bytes] = []
    tunnels(place, asked)
    curl = " ".join([*CURL, *PROXY])
    script = f"""
    {curl} https://allowed.example/name
    {curl} --cacert ../ca.pem https://allowed.example/name; echo $?
    {curl} https://allowed.example/name; {curl} --cacert ../ca.pem https://allowed.example/name
    """
    ran = run(place, tier, ["sh", "-c", script])
    assert ran.out.split() == [b"allowed.example", b"60", b"allowed.example", b"allowed.example"], ran.err
    assert asked == [b"CONNECT allowed.example:443 HTTP/1.1"] * 8
    inside = [row.data for row in ran.of("http.exchange") if row.data["method"] == "GET"]
    assert [(one["host"], one["port"], one["path"], one["status"]) for one in inside] == [
        ("allowed.example", 443, "/name", 200)
    ]
    assert "allowed.example:443 not intercepted (client-refused), 3 connections" in gaps(ran)[-1]


def test_a_tunnel_to_a_server_that_we_do_not_trust(place: Place, site: sites.Site, tier: str) -> None:
    need("curl")
    asked: list[bytes] = []
    tunnels(place, asked)
    ran = place.run([*CURL, *PROXY, "--cacert", "../ca.pem", "https://allowed.example/name"], tier, *HOST)
    assert ran.out == b"allowed.example\n", ran.err
    # once as the client asks, and once more by us, for its own hello
    assert len(asked) == 3
    assert "(upstream-untrusted), 1 connection" in gaps(ran)[0]


# What is not HTTP, below: the server has a TLS session of its own.

INSIDE = """
import socket, ssl, sys
context = ssl.create_default_context()
sock = context.wrap_socket(socket.create_connection(("allowed.example", 443)), server_hostname="allowed.example")
"""


# Python's own TLS sockets cannot half-close, and a reset looks like an end to them: a session in memory can tell.
IN_MEMORY = """
import socket, ssl
sock = socket.create_connection(("allowed.example", 443))
inside, outside = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = ssl.create_default_context().wrap_bio(inside, outside, server_hostname="allowed.example")
def flush():
    if outside.pending:
        sock.sendall(outside.read())
def turn(act):
    while True:
        try:
            done = act()
        except ssl.SSLWantReadError:
            flush()
            if not (data := sock.recv(65536)):
                raise EOFError
            inside.write(data)
            continue
        flush()
        return done
def receive():
    try:
        return turn(lambda: tls.read(65536))
    except ssl.SSLZeroReturnError:
        return b""
turn(tls.do_handshake)
"""


def serve_tls(place: Place, talk: far_side.Talk) -> None:
    context = sites.context(place.folder, "allowed.example")

    def wrapped(connection: socket.socket) -> None:
        if not connection.recv(1, socket.MSG_PEEK):
            return
        with context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as inner:
            try:
                inner.do_handshake()
                talk(inner)
            except ssl.SSLError:
                pass

    place.serve(place.net.listen("192.0.2.1", 443), wrapped)


def test_a_large_answer_needs_no_memory(place: Place, tier: str) -> None:
    size = 200_000_000
    block = hashlib.sha512(b"x").digest() * 1024
    go = threading.Event()

    def talk(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (size // len(block) * len(block)))
        connection.sendall(block)
        assert go.wait(300)
        for _ in range(size // len(block) - 1):
            connection.sendall(block)

    serve_tls(place, talk)
    code = INSIDE + """
sock.sendall(b"GET /v HTTP/1.1\\r\\nHost: allowed.example\\r\\n\\r\\n")
count = 0
while data := sock.recv(1 << 16):
    if not count:
        print("began", flush=True)
    count += len(data)
print(count, flush=True)
sys.stdin.readline()  # its run goes on until the gateway has been looked at
"""
    process = place.start(python(code), tier, *HOST, env=trusting(place))
    assert line(process) == "began"
    [gateway] = [pid for pid in attendants(process.pid) if Path(f"/proc/{pid}/comm").read_text() == "aw-gateway\n"]
    before = held([gateway])
    go.set()
    assert int(line(process)) > size - len(block)
    grown = held([gateway]) - before
    ran = place.finish(process)
    assert ran.status == 0, ran.err
    print(f"{tier}: {size} bytes; a gateway of {before} bytes grew by {grown}")
    assert grown < MEMORY


def test_a_large_request_needs_no_memory(place: Place, tier: str) -> None:
    """The server takes it only when the client has been held up: what is on its way is in nobody's memory."""
    size, go = 200_000_000, threading.Event()

    def talk(connection: socket.socket) -> None:
        head = connection.recv(65536)
        assert go.wait(300)
        count = len(head.partition(b"\r\n\r\n")[2])
        while count < size and (data := connection.recv(1 << 18)):
            count += len(data)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n%d" % count)

    serve_tls(place, talk)
    code = INSIDE + f"""
sock.sendall(b"POST /v HTTP/1.1\\r\\nHost: allowed.example\\r\\nContent-Length: {size}\\r\\n\\r\\n")
print("began", flush=True)
for _ in range({size} // 100_000):
    sock.sendall(b"x" * 100_000)
print(sock.recv(1000).decode().split()[-1], flush=True)
sys.stdin.readline()
"""
    process = place.start(python(code), tier, *HOST, env=trusting(place))
    assert line(process) == "began"
    [gateway] = [pid for pid in attendants(process.pid) if Path(f"/proc/{pid}/comm").read_text() == "aw-gateway\n"]
    before = held([gateway])
    go.set()
    assert line(process) == str(size)
    grown = held([gateway]) - before
    assert place.finish(process).status == 0
    assert grown < MEMORY


def test_a_client_that_half_closes_gets_the_whole_answer(place: Place, tier: str) -> None:
    """The server answers only when it has seen the client's end (its close_notify, too)."""
    heard: list[int] = []

    def talk(connection: socket.socket) -> None:
        count = 0
        while data := connection.recv(65536):
            count += len(data)
        heard.append(count)
        connection.sendall(b"%d " % count * 1000)

    serve_tls(place, talk)
    code = IN_MEMORY + """
turn(lambda: tls.write(b"POST"))
turn(lambda: tls.write(b"\\0" * 100_000))
try:
    tls.unwrap()
except ssl.SSLWantReadError:
    pass
sock.sendall(outside.read())
sock.shutdown(socket.SHUT_WR)
got = b""
try:
    while data := receive():
        got += data
except EOFError:
    pass  # as Python's own servers end
print(len(got.split()), got.split()[0].decode())
"""
    ran = run(place, tier, python(code))
    assert ran.out == b"1000 100004\n", ran.err
    assert heard == [100_004]


@pytest.mark.parametrize("way", ["end", "cut", "reset"])
def test_the_servers_end_is_the_clients(place: Place, way: str, tier: str) -> None:
    """A close_notify, a bare end, a reset in mid-stream: the client sees which it was."""

    def talk(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"half of an ")
        if way == "end":
            connection.unwrap()  # type: ignore[attr-defined]
        elif way == "cut":
            connection.shutdown(socket.SHUT_RDWR)
        else:
            assert connection.recv(10) == b"heard"
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

    serve_tls(place, talk)
    code = IN_MEMORY + """
turn(lambda: tls.write(b"\\0\\0"))
try:
    while receive():
        turn(lambda: tls.write(b"heard"))
    print("end")
except EOFError:
    print("cut")
except ConnectionResetError:
    print("reset")
"""
    ran = run(place, tier, python(code))
    assert ran.out.decode() == f"{way}\n", ran.err
    assert way != "reset" or ran.of("net.closed")[-1].data["ending"] == "reset"


def test_a_client_that_goes_takes_the_server_with_it(place: Place, tier: str) -> None:
    """The server streams for ever; the client is killed in the middle: the server hears of it."""
    gone = threading.Event()

    def talk(connection: socket.socket) -> None:
        connection.recv(65536)
        try:
            while True:
                connection.sendall(b"x" * 10_000)
        except OSError:
            gone.set()

    serve_tls(place, talk)
    code = INSIDE + """
import os
sock.sendall(b"\\0\\0")
sock.recv(100)
print("heard", flush=True)
os.kill(os.getpid(), 9)
"""
    process = place.start(python(code), tier, *HOST, env=trusting(place))
    assert line(process) == "heard"
    assert gone.wait(300)
    place.finish(process)


def test_byte_by_byte(place: Place, tier: str) -> None:
    """Each byte, in a record of its own both ways, is answered before the next is sent."""

    def talk(connection: socket.socket) -> None:
        while data := connection.recv(1):
            connection.sendall(data)

    serve_tls(place, talk)
    code = INSIDE + """
for number in range(256):
    sock.sendall(bytes([number]))
    assert sock.recv(10) == bytes([number])
print("all")
"""
    ran = run(place, tier, python(code))
    assert ran.out == b"all\n", ran.err


READS = """\
version = 1
name = "reads"
mode = "enforce"
[network]
default = "allow"
[files]
write = {default = "allow"}
read = {default = "deny", allow = ["/usr/**", "/lib*/**", "/bin/**", "/etc/**", "/proc/**", "/dev/**", "/root/**"]}
"""


def test_the_certificates_are_read_though_nothing_else_is_and_changed_by_nobody(
    place: Place, site: sites.Site, tier: str
) -> None:
    need("curl")
    (place.work / "agentwrap.toml").write_text(READS)
    script = f"""
    {" ".join(CURL)} https://allowed.example/name
    cat ../ca.pem; echo x >>"$SSL_CERT_FILE"; rm "$NODE_EXTRA_CA_CERTS"; mv "$SSL_CERT_FILE" x
    """
    ran = run(place, tier, ["sh", "-c", script])
    assert ran.out == b"allowed.example\n", ran.err
    denied = {(row.data["act"], row.data["rule"]) for row in ran.of("act.denied")}
    assert ("write", "built-in.own-files") in denied
    assert {rule for act, rule in denied if act == "read"} <= {
        f"files.read.default `deny` ({place.work}/agentwrap.toml:8)"
    }
    assert gaps(ran) == []


def test_each_name_has_a_certificate_of_its_own(place: Place, site: sites.Site, tier: str) -> None:
    code = """
import ssl, socket
context = ssl.create_default_context()
for host in ("second.example", "allowed.example"):
    with context.wrap_socket(socket.create_connection((host, 443)), server_hostname=host) as inside:
        print(inside.getpeercert()["subjectAltName"])
"""
    ran = run(place, tier, python(code), *HOST, "--intercept", "second.example:443")
    assert ran.out.decode().splitlines() == [f"(('DNS', '{name}.example'),)" for name in ("second", "allowed")], ran.err
