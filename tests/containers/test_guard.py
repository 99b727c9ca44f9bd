"""The guard where it is meant to work: containers as engines make them, where no namespace is to be had."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from containers import Container
from wrapping import environment, events

pytestmark = pytest.mark.container
TESTS = Path(__file__).resolve().parent.parent
Place = Callable[[str], Container]
# Whether pidfd_getfd(2) is allowed: in Docker's profile it needs a capability that nobody has there.
PROFILES = {"docker": False, "drop-all": False, "podman": True, "no-ptrace": False}
SCRIPT = """
import asyncio, socket, urllib.request
print(urllib.request.urlopen("http://203.0.113.9/", timeout=300).read().decode().strip())
async def one():
    r, w = await asyncio.open_connection("2001:db8::1", 81)
    w.write(b"GET / HTTP/1.0\\r\\n\\r\\n"); data = await r.read(); w.close()
    return data.split()[-2:]
print(asyncio.run(one()))
server = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(server.getsockname())
a, _ = server.accept(); a.send(b"inner"); print(c.recv(10), c.getpeername() == server.getsockname())
try: socket.create_connection(("203.0.113.1", 666)).recv(1)
except ConnectionResetError: print("reset")
"""
OUTPUT = "203.0.113.9 80\n[b'2001:db8::1', b'81']\nb'inner' True\nreset\n"
LOOK_UP = (
    "echo nameserver 192.0.2.53 > /etc/resolv.conf; echo 'hosts: files dns' > /etc/nsswitch.conf; "
    'exec "$@" -c "import socket; print(socket.getaddrinfo(\'www.example.test\', 80, 2, 1)[0][4])"'
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that a container shares and its user, whoever that is, may write to."""
    made = Path(tempfile.mkdtemp(prefix="agentwrap-guard-", dir="/tmp"))
    made.chmod(0o777)
    yield made
    shutil.rmtree(made)


class Inside:
    def __init__(self, container: Place, profile: str, folder: Path) -> None:
        self._container, self._folder = container(profile), folder
        self._container.keep.append(folder)
        self.record: dict[str, object] = {}

    def run(self, *command: str, options: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
        out = self._folder / "record.json"
        path = f"{TESTS}{os.pathsep}{TESTS.parent}"
        words = [sys.executable, str(TESTS / "guarded.py"), *options, "--out", str(out), "--", *command]
        done = self._container.run(words, env={"PYTHONPATH": path})
        assert out.exists(), done.stderr
        self.record = json.loads(out.read_text())
        return done


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("guarded") / "guarded"
    source = TESTS / "kernel" / "guarded.c"
    subprocess.run(["cc", "-O1", "-w", "-pthread", "-static", "-o", path, source], check=True)
    return path


@pytest.mark.parametrize("profile", PROFILES)
def test_connections_lead_to_the_gateway(container: Place, folder: Path, profile: str) -> None:
    inside = Inside(container, profile, folder)
    done = inside.run(sys.executable, "-c", SCRIPT)
    assert (done.returncode, done.stdout) == (0, OUTPUT), done.stderr
    assert inside.record["taking"] is PROFILES[profile]
    callers = inside.record["callers"]
    assert isinstance(callers, list)
    assert sorted(tuple(one[2:]) for one in callers) == [
        ("tcp", "2001:db8::1", 81),
        ("tcp", "203.0.113.1", 666),
        ("tcp", "203.0.113.9", 80),
    ]
    events = inside.record["events"]
    assert isinstance(events, list)
    assert [event for event in events if event["kind"] == "gap"] == []


@pytest.mark.parametrize("stops", ["trace", "calls"])
def test_at_ptraces_stops_where_sockets_can_be_taken(container: Place, folder: Path, stops: str) -> None:
    """What a filter above makes of a call that is not made (an errno of its own) is not what the program hears."""
    inside = Inside(container, "podman", folder)
    done = inside.run(sys.executable, "-c", SCRIPT, options=("--stops", stops))
    assert (done.returncode, done.stdout) == (0, OUTPUT), done.stderr
    assert len(inside.record["callers"]) == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("profile", ["docker", "podman"])
def test_glibc_finds_a_name(container: Place, folder: Path, profile: str) -> None:
    inside = Inside(container, profile, folder)
    done = inside.run("/bin/sh", "-c", LOOK_UP, "sh", sys.executable)
    assert (done.returncode, done.stdout) == (0, "('203.0.113.7', 80)\n"), done.stderr


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("scenario", ["natives", "names", "shared", "ports"])
def test_what_works_outside_works_in_each_profile(
    container: Place, folder: Path, scenarios: Path, profile: str, scenario: str
) -> None:
    """All answers of these scenarios are looked at in `tests/kernel/test_guard.py`; here they must be the same."""
    shutil.copy(scenarios, folder / "guarded")
    (folder / "guarded").chmod(0o755)
    inside = Inside(container, profile, folder)
    done = inside.run(str(folder / "guarded"), scenario)
    outside = subprocess.run(
        ["unshare", "-n", sys.executable, TESTS / "guarded.py", "--out", folder / "outside.json", "--",
         folder / "guarded", scenario],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"},
    )  # fmt: skip
    assert sorted(done.stdout.splitlines()) == sorted(outside.stdout.splitlines())
    assert done.returncode == 0


@pytest.mark.parametrize("profile", ["docker", "drop-all"])
def test_a_thread_that_changes_the_address_reaches_nobody(
    container: Place, folder: Path, scenarios: Path, profile: str
) -> None:
    shutil.copy(scenarios, folder / "guarded")
    (folder / "guarded").chmod(0o755)
    inside = Inside(container, profile, folder)
    done = inside.run(str(folder / "guarded"), "race", "1000")
    assert done.returncode == 0
    assert inside.record["passed"] == 0


PRODUCT = """
import socket, urllib.error, urllib.request
def ask(url):
    try: return urllib.request.urlopen(url, timeout=300).status
    except urllib.error.HTTPError as error: return error.code
    except OSError as error: return type(error).__name__
print(ask("http://127.0.0.1:18080/"), ask("http://127.0.0.1:18081/"), ask("http://203.0.113.1/"))
try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("203.0.113.1", 443))
except OSError as error: print(type(error).__name__)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try: s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"\\0"); print("released")
except OSError as error: print(type(error).__name__)
server = socket.create_server(("127.0.0.1", 0)); print(socket.create_connection(server.getsockname()).fileno() > 0)
"""
SERVED = (
    'for port in 18080 18081; do "$0" -m http.server $port --bind 127.0.0.1 > /dev/null 2>&1 & done; '
    '"$0" -c "import socket, time\n'
    "for port in (18080, 18081):\n"
    "    while socket.socket().connect_ex(('127.0.0.1', port)): time.sleep(0.05)\n"
    '"; "$0" -m agentwrap run -q -o "$1" --allow host.loopback:18080 -- "$0" -c "$2"'
)


@pytest.mark.parametrize("profile", ["docker", "drop-all", "no-ptrace"])
def test_the_whole_product_enforces_without_namespaces(container: Place, folder: Path, profile: str) -> None:
    made = container(profile)
    made.keep.append(folder)
    recording = folder / "run.agentlog"
    words = ["/bin/sh", "-c", SERVED, sys.executable, str(recording), PRODUCT]
    done = made.run(words, cwd=folder, env=environment(folder))
    expected = "200 403 403\nConnectionRefusedError\nPermissionError\nTrue\n"
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
    told = events(recording, "net.decision", "net.refused")
    decided = {(event.subject, event.verdict, event.data["by"]) for event in told}
    assert decided == {
        ("127.0.0.1:18080", "allow", "guard"),
        ("127.0.0.1:18081", "deny", "guard"),
        ("203.0.113.1:80", "deny", "guard"),
        ("203.0.113.1:443", "deny", "guard"),
    }
    spans = {event.span for event in told}
    assert len(spans) == 1  # the program's own, and known for each of them
    assert "" not in spans
    # Every connect is told once, from the copy that was acted on.
    assert sorted(event.data["port"] for event in events(recording, "net.connect") if event.data["port"] < 18082) == [
        80,
        18080,
        18081,
    ]
