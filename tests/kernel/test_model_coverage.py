"""Ways round the reading of model traffic in a run without a policy: what goes past is a gap, or the coverage says it.

`check --require model` is what counts: it may say *covered* of nothing that went past unsaid.
"""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import far_side
import pytest
from model_world import MODEL, OTHER, PORT, World, coverage, exchanges
from wrapping import AGENTWRAP, Wrapped, command, environment

ASK = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
THERE = "203.0.113.10"
ECHO = PORT + 1
ENV = {"ANTHROPIC_BASE_URL": f"http://{THERE}:{PORT}", "OPENAI_BASE_URL": f"http://{THERE}:{ECHO}"}
HEAD = f"import ctypes, os, socket, ssl, sys; ASK = {ASK!r}; THERE = ('{THERE}', {PORT})\n"
H2 = r"s.send(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')"
TWICE = r"s.send(b'GET /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n'); s.recv(4096)"
HEARD = "\nprint(len(s.recv(4096)) > 20)"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    try:
        made = World(tmp_path_factory.mktemp("world"))
    except OSError as error:
        pytest.skip(f"no network of its own can be had here: {error}")
    echo = far_side.echo(made.net.listen(THERE, ECHO))
    yield made
    echo.close()
    made.close()


def check(ran: Wrapped) -> tuple[int, str]:
    """What `check --require model` says."""
    words = [*AGENTWRAP, "check", "--require", "model", str(ran.recording)]
    done = subprocess.run(words, capture_output=True, env=environment(ran.recording.parent))
    return done.returncode, done.stdout.decode()


def tls(name: str, host: str = MODEL, protocols: str = "") -> str:
    """A client that says `name` (or nothing) in its hello and asks for `host` inside, whatever certificate it sees."""
    offer = f"c.set_alpn_protocols([{protocols!r}])" if protocols else ""
    return f"""
c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE; {offer}
s = c.wrap_socket(socket.create_connection(("{THERE}", 443), 300), server_hostname={name!r} or None)
s.sendall(b"GET /v1/x HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n"){HEARD}
"""


OPEN_FAST = "s = socket.socket(); "
PAST = {
    "fast-open-sendto": (OPEN_FAST + "s.sendto(ASK, socket.MSG_FASTOPEN, THERE)" + HEARD, "not-led"),
    "fast-open-sendmsg": (OPEN_FAST + "s.sendmsg([ASK], [], socket.MSG_FASTOPEN, THERE)" + HEARD, "not-led"),
    "fast-open-connect": (
        OPEN_FAST + "s.setsockopt(socket.IPPROTO_TCP, 30, 1); s.connect(THERE); s.send(ASK)" + HEARD, "not-led",
    ),
    "bound": (OPEN_FAST + "s.bind(('203.0.113.20', 0)); s.connect(THERE); s.send(ASK)" + HEARD, "not-led"),
    "multipath": ("s = socket.socket(2, 1, 262); s.connect(THERE); s.send(ASK)" + HEARD, "not-led"),
    "http2-alone": (tls(MODEL, protocols="h2"), "not-intercepted"),
    "http2-plain": (f"s = socket.create_connection((THERE[0], {ECHO})); {H2}{HEARD}", "not-intercepted"),
    "no-name": (tls(""), "not-intercepted"),
    "unreadable": (f"s = socket.create_connection(THERE); {TWICE}; s.send(ASK){HEARD}", "unreadable"),
    "a-daemon": ("s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(True)", "outside-service"),
}  # fmt: skip


@pytest.mark.parametrize("way", PAST)
def test_what_goes_past_is_a_gap(world: World, way: str, short_path: Path) -> None:
    script, cause = PAST[way]
    if way == "multipath":
        try:
            socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).close()
        except OSError as error:
            pytest.skip(f"no MPTCP here: {error}")
    (short_path / "tmux-0").mkdir()
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(short_path / "tmux-0" / "default"))
        daemon.listen()
        ran = world.run(sys.executable, "-c", HEAD + script, str(short_path / "tmux-0" / "default"), env=ENV)
    assert (ran.status, ran.stdout) == (0, b"True\n"), ran.stderr
    assert cause in ran.gaps()
    assert ran.events("model.request") == []
    status, words = check(ran)
    assert (status, "not covered model" in words, cause in words) == (3, True, True), words


def test_a_connection_of_before_the_run_is_a_gap(world: World) -> None:
    (world.folder / "run.agentlog").unlink(missing_ok=True)
    script = HEAD + "s = socket.socket(fileno=0); s.send(ASK)" + HEARD
    with world.net.stream(THERE) as before:
        before.connect((THERE, PORT))
        process = world.net.popen(
            command(world.folder / "run.agentlog", sys.executable, "-c", script),
            env={**environment(world.folder), **ENV},
            stdin=before, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=world.folder,
        )  # fmt: skip
        out, error = process.communicate(timeout=300)
    ran = Wrapped(process.returncode, out, error, world.folder / "run.agentlog")
    assert (ran.status, ran.stdout) == (0, b"True\n"), ran.stderr
    assert [(e.data["what"], e.data["cause"]) for e in ran.events("gap")] == [("connect", "inherited-socket")]
    assert check(ran)[0] == 3


# What the coverage's own words leave out, in the words that do.
UNSAID = {
    "another-port": ("s = socket.create_connection(('203.0.113.20', THERE[1])); s.send(ASK)" + HEARD, "port 443"),
    "another-name": (tls(OTHER), "hello names"),
    "quic": (
        "s = socket.socket(2, 2); s.sendto(b'\\xc0' + bytes(1200), (THERE[0], 443)); print(True)", "not QUIC",
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", UNSAID)
def test_what_the_coverage_leaves_out_is_in_its_words_and_the_connection_in_the_rows(world: World, way: str) -> None:
    script, word = UNSAID[way]
    ran = world.run(sys.executable, "-c", HEAD + script, env=ENV)
    assert (ran.status, ran.stdout) == (0, b"True\n"), ran.stderr
    (note,) = (e.data["note"] for e in ran.events("coverage") if e.data["what"] == "model")
    assert word in note
    assert len(ran.events("net.connect", "net.send")) == 1
    assert exchanges(ran) == []
    assert word in check(ran)[1]


@pytest.mark.parametrize("name", [MODEL.upper(), MODEL + "."])
def test_another_spelling_of_a_name_is_the_same_name(world: World, name: str) -> None:
    ran = world.run(sys.executable, "-c", HEAD + tls(name))
    assert (ran.status, ran.stdout) == (0, b"True\n"), ran.stderr
    assert exchanges(ran) == [("https", MODEL, "/v1/x")]


def test_a_ring_cannot_be_had(world: World) -> None:
    script = "libc = ctypes.CDLL(None, use_errno=True); print(libc.syscall(425, 8, bytes(200)), ctypes.get_errno())"
    ran = world.run(sys.executable, "-c", HEAD + script)
    assert ran.stdout.split() == [b"-1", b"38"]  # ENOSYS


def test_with_the_machines_network_only_base_urls_are_read(world: World) -> None:
    ran = world.run(sys.executable, "-c", HEAD + "s = socket.create_connection(THERE); s.send(ASK)" + HEARD,
                    options=("--network", "host"), env=ENV)  # fmt: skip
    assert coverage(ran) == "witness base-url"
    assert ran.events("model.request") == []
    status, told = check(ran)
    assert status == 3  # what went past is told by nothing else
    assert "seen in part: only clients that take a base URL" in told
