"""The same behind the wall, under the guard, and in containers: where little is reached, and no socket can be taken."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from containers import Container
from relaying import Clients, Relayed, seen
from rows import MODES, mode_name


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    folder = Path(tempfile.mkdtemp(prefix="agentwrap-interposing-", dir="/tmp"))  # one that a container shares
    yield Clients(folder, without=("go", "first instruction"))  # personality(2) is refused there
    shutil.rmtree(folder)


def check(clients: Clients, results: dict[str, dict[str, object]], run: Relayed) -> None:
    for way in clients.ways:
        assert seen(results[way]) == seen(clients.natively[way]), way
    assert sorted(session["server"] for session in run.sessions) == clients.wanted()
    assert run.left == 0
    assert "unrelayed-mcp" not in run.gaps()
    assert run.events("act.denied") == []


@pytest.mark.parametrize("options", [one for one in MODES if one != ("--debuggable",)], ids=mode_name)
@pytest.mark.parametrize("tier", ["wall", "guard"])
def test_behind_a_wall_and_under_the_guard(clients: Clients, tier: str, options: tuple[str, ...]) -> None:
    if tier == "wall" and subprocess.run(["unshare", "-Urnm", "true"], capture_output=True).returncode:
        pytest.skip("no user namespaces here")
    check(clients, *clients.run(("--tier", tier, "--allow", "idle.example", *options)))


@pytest.mark.parametrize("tier", [(), ("--tier", "guard", "--allow", "idle.example")], ids=["witness", "guard"])
@pytest.mark.parametrize("profile", ["docker", "podman", "drop-all"])
def test_in_a_container(
    clients: Clients, container: Callable[[str], Container], profile: str, tier: tuple[str, ...]
) -> None:
    """No socket can be taken here (pidfd_getfd): the server sends them itself."""
    made = container(profile)
    made.keep.append(clients.folder)
    check(clients, *clients.run(tier, made))


def test_in_a_container_without_ptrace(clients: Clients, container: Callable[[str], Container]) -> None:
    """A pipe can be opened once more, a socket cannot be had: its server runs unrelayed, and that is told."""
    made = container("no-ptrace")
    made.keep.append(clients.folder)
    results, run = clients.run((), made)
    for way in clients.ways:
        assert seen(results[way]) == seen(clients.natively[way]), way
    unseen = [way for way in ("one socket", "two sockets", "mixed", "node") if way in clients.ways]
    assert run.gaps().count("unrelayed-mcp") == len(unseen)
    assert {results[way]["pid"] for way in unseen}.isdisjoint(session["pid"] for session in run.sessions)
    assert len(run.sessions) == len(clients.wanted()) - len(unseen)


@pytest.mark.parametrize("follow", ["trace", "calls"])
def test_in_a_container_without_a_listener(
    clients: Clients, container: Callable[[str], Container], follow: str
) -> None:
    """So, too, where nobody can lend the server a socket to send its own over."""
    made = container("docker")
    made.keep.append(clients.folder)
    results, run = clients.run(("--follow", follow), made)
    for way in clients.ways:
        assert seen(results[way]) == seen(clients.natively[way]), way
    unseen = [way for way in ("one socket", "two sockets", "mixed", "node") if way in clients.ways]
    assert run.gaps().count("unrelayed-mcp") == len(unseen)
    assert len(run.sessions) == len(clients.wanted()) - len(unseen)
