"""`agentwrap proxy` with real clients: tunnels, whole URLs, base URLs; what it records, and how it ends."""

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_world import MODEL, OTHER, PORT, World, exchanges
from wrapping import AGENTWRAP, Wrapped, environment


class Proxy:
    """One, in the world's network. `variables`: what it says that clients need."""

    def __init__(self, world: World, *options: str) -> None:
        self.world = world
        self.recording = world.folder / f"proxy-{len(list(world.folder.glob('proxy-*.agentlog')))}.agentlog"
        self.env = {**environment(world.folder), "SSL_CERT_FILE": str(world.folder / "ca.pem")}
        self.process = world.net.popen(
            [*AGENTWRAP, "proxy", "-o", str(self.recording), *options], env=self.env,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=world.folder,
        )  # fmt: skip
        self.variables: dict[str, str] = {}
        assert self.process.stderr is not None
        while "GOOGLE_GEMINI_BASE_URL" not in self.variables:
            line = self.process.stderr.readline().decode()
            assert line, "it ended"
            if match := re.match(r"export ([A-Za-z_]+)=(.*)\n", line):
                self.variables[match[1]] = match[2]

    @property
    def address(self) -> str:
        return self.variables["HTTPS_PROXY"]

    def curl(self, *words: str, env: dict[str, str] | None = None) -> str:
        done = self.world.net.run(
            ["curl", "-s", "-w", " %{http_code}", "--max-time", "300", *words],
            env={**self.env, **(env or {})}, capture_output=True,
        )  # fmt: skip
        return done.stdout.decode().replace("\n", "")

    def end(self, number: int = signal.SIGINT) -> Wrapped:
        self.process.send_signal(number)
        out, error = self.process.communicate(timeout=300)
        return Wrapped(self.process.returncode, out, error, self.recording)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    try:
        made = World(tmp_path)
    except OSError as error:
        pytest.skip(f"no network of its own can be had here: {error}")
    yield made
    made.close()


def test_what_clients_are_told_of_is_read_and_the_rest_passes(world: World) -> None:
    proxy = Proxy(world)
    every = proxy.variables
    only_ca = {name: every[name] for name in every if "PROXY" not in name.upper() and "URL" not in name}
    assert proxy.curl("-x", proxy.address, f"https://{MODEL}/tunnel", env=only_ca) == "secure 200"
    assert proxy.curl("-x", proxy.address, f"https://{OTHER}/blind") == "secure 200"
    assert proxy.curl("-x", proxy.address, f"http://203.0.113.10:{PORT}/whole") == (
        f"203.0.113.10 203.0.113.10:{PORT} /whole 200"
    )
    assert proxy.curl(every["ANTHROPIC_BASE_URL"] + "/base?x=1") == "secure 200"
    heard = world.tls["203.0.113.10"].heard + world.tls["2001:db8::10"].heard
    assert any(head.startswith(b"GET /base?x=1 HTTP/1.1\r\nHost: api.anthropic.com\r\n") for head in heard)
    ran = proxy.end()
    assert ran.status == 0, ran.stderr
    assert exchanges(ran) == [
        ("https", MODEL, "/tunnel"), ("http", "203.0.113.10", "/whole"), ("https", MODEL, "/base?x=1"),
    ]  # fmt: skip
    # In order of their ends, which is not that of their beginnings.
    assert sorted(e.data["host"] for e in ran.events("net.closed")) == sorted([MODEL, OTHER, "203.0.113.10", MODEL])
    assert all(e.pid for e in ran.events("net.closed"))  # whose socket it was
    assert ran.gaps() == []
    start, end = ran.events("run.start")[0].data, ran.events("run.end")[0].data
    assert (start["mode"], start["command"][:2]) == ("proxy", ["agentwrap", "proxy"])
    assert (end["status"], end["reason"]) == (0, "stopped")
    assert not Path(every["SSL_CERT_FILE"]).exists()


def test_one_client_connection_for_several_servers(world: World) -> None:
    """curl keeps its connection to a proxy for whatever is asked next."""
    proxy = Proxy(world)
    urls = [f"http://{host}:{PORT}/{host}" for host in ("203.0.113.10", "203.0.113.20", "127.0.0.1", "203.0.113.10")]
    told = proxy.curl("-x", proxy.address, *urls)
    hosts = ["203.0.113.10", "203.0.113.20", "127.0.0.1", "203.0.113.10"]
    assert told == "".join(f"{host} {host}:{PORT} /{host} 200" for host in hosts)
    ran = proxy.end(signal.SIGTERM)
    assert [host for _, host, _ in exchanges(ran)] == hosts
    assert ran.status == 0


def test_what_cannot_be_had_is_said_in_http(world: World) -> None:
    proxy = Proxy(world)
    base = proxy.address
    assert proxy.curl(base + "/") == (
        "agentwrap proxy: this is a proxy: it takes CONNECT, a whole URL, or a path that begins with /+/ 404"
    )
    assert proxy.curl(base + "/+/http/127.0.0.1:9/x").startswith("agentwrap proxy: 127.0.0.1:9: refused")
    assert proxy.curl(base + "/+/https/nowhere.example/x").endswith("the name leads nowhere 502")
    assert proxy.curl("-H", "Host: evil.example", base + "/+/http/127.0.0.1:9/x").endswith(" 403")
    assert proxy.curl("-H", "Origin: http://evil.example", base + "/+/http/127.0.0.1:9/x").endswith(" 403")
    assert proxy.end().gaps() == []
    # A server whose certificate nobody signed whom we trust.
    (world.folder / "ca.pem").write_text("")
    proxy = Proxy(world)
    assert "upstream-untrusted" in proxy.curl(proxy.address + f"/+/https/{MODEL}/x")
    assert proxy.end().gaps() == []


def test_a_taken_port_is_an_error(world: World) -> None:
    proxy = Proxy(world)
    port = proxy.address.rpartition(":")[2]
    words = [*AGENTWRAP, "proxy", "--port", port, "-o", str(world.folder / "x.agentlog")]
    done = world.net.run(words, env=environment(world.folder), capture_output=True)
    assert done.returncode != 0
    assert f"port {port} cannot be listened on" in done.stderr.decode()
    assert not (world.folder / "x.agentlog").exists()
    assert proxy.end().status == 0


def test_a_gateway_that_dies_ends_it(world: World) -> None:
    proxy = Proxy(world)
    pid = proxy.process.pid
    (gateway,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    os.kill(int(gateway), signal.SIGKILL)
    _, error = proxy.process.communicate(timeout=300)
    assert proxy.process.returncode == 125
    assert b"the gateway ended" in error


def test_another_user_of_the_machine_is_sent_away(world: World) -> None:
    if os.geteuid():
        pytest.skip("only root can be somebody else")
    proxy = Proxy(world)
    words = ["setpriv", "--reuid", "65534", "--clear-groups", "curl", "-s", "-w", "%{http_code}", proxy.address]
    assert world.net.run(words, capture_output=True).stdout == b"000"
    assert proxy.curl(proxy.address).endswith(" 404")
    assert proxy.end().status == 0


def test_a_change_of_protocol_an_early_answer_and_a_body_in_chunks(world: World) -> None:
    """What a base URL of ours leads to is spoken to as it is."""

    def talk(connection: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(65536)
        if b"upgrade: thing" in head.lower():
            connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: thing\r\nConnection: Upgrade\r\n\r\nhi")
            while data := connection.recv(65536):
                connection.sendall(data.upper())
        elif b"/early" in head:
            connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbig\n")
        else:
            body = head.partition(b"\r\n\r\n")[2]
            while not body.endswith(b"0\r\n\r\n"):
                body += connection.recv(65536)
            told = b"%d\n" % len(body)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(told), told))

    world.serve(world.net.listen("203.0.113.10", 8200), talk)
    proxy = Proxy(world)
    base = proxy.address + "/+/http/203.0.113.10:8200"
    with world.net.stream("127.0.0.1") as client:
        client.settimeout(300)
        client.connect(("127.0.0.1", int(proxy.address.rpartition(":")[2])))
        client.sendall(b"GET /+/http/203.0.113.10:8200/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: thing\r\n"
                       b"Connection: Upgrade\r\n\r\n")  # fmt: skip
        answer = b""
        while not answer.endswith(b"\r\n\r\nhi"):
            answer += client.recv(65536)
        for word in (b"one", b"two"):
            client.sendall(word)
            assert client.recv(65536) == word.upper()
        client.shutdown(socket.SHUT_WR)
        assert client.recv(65536) == b""
    (world.folder / "large").write_bytes(b"x" * 3_000_000)
    large = ("--data-binary", f"@{world.folder / 'large'}", "-H", "Expect:")
    assert proxy.curl(*large, base + "/early") == "big 413"
    told = proxy.curl(*large, "-H", "Transfer-Encoding: chunked", base + "/chunks")
    assert int(told.split()[0]) > 3_000_000
    ran = proxy.end()
    assert ran.status == 0
    assert [cause for cause in ran.gaps() if cause == "gateway-fault"] == []


def test_it_ends_with_connections_that_are_kept_open(world: World) -> None:
    """Clients keep theirs for the next call: nothing is under way, and nothing is lost."""

    def talk(connection: socket.socket) -> None:
        while connection.recv(65536):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    world.serve(world.net.listen("203.0.113.10", 8200), talk)
    proxy = Proxy(world)
    with world.net.stream("127.0.0.1") as client:
        client.settimeout(300)
        client.connect(("127.0.0.1", int(proxy.address.rpartition(":")[2])))
        client.sendall(b"GET /+/http/203.0.113.10:8200/v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        answer = b""
        while not answer.endswith(b"\r\n\r\nok"):
            answer += client.recv(65536)
        ran = proxy.end()
    assert (ran.status, ran.gaps()) == (0, []), ran.stderr
    assert exchanges(ran) == [("http", "203.0.113.10", "/v1/models")]
