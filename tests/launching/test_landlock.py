import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentwrap.launching import landlock
from agentwrap.launching.enforcement import (
    CHANGES_OF_FOLDERS,
    CONNECT_TCP,
    REFER,
    SCOPE_ABSTRACT,
    SCOPE_SIGNAL,
    TRUNCATE,
    WRITE_FILE,
    LandlockPlan,
)
from tests.launching.walls import attempt

WRITING = WRITE_FILE | CHANGES_OF_FOLDERS


def needs(version: int) -> None:
    if landlock.version() < version:
        pytest.skip(f"Landlock here has version {landlock.version()}, {version} is needed")


def restricted(plan: LandlockPlan, act: Callable[[], Any]) -> Any:
    """What `act` returns in a child under the plan."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            landlock.restrict(plan)
            os.write(writing, json.dumps(act()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        told = answer.read()
    os.waitpid(pid, 0)
    return json.loads(told)


def test_files_are_written_where_it_is_granted_and_nowhere_else(tmp_path: Path) -> None:
    needs(2)
    (tmp_path / "open" / "sub").mkdir(parents=True)
    (tmp_path / "one").write_text("x")
    rights = WRITING | REFER | (TRUNCATE if landlock.version() >= 3 else 0)
    granted = ((str(tmp_path / "open"), rights), (str(tmp_path / "one"), rights), (str(tmp_path / "gone"), rights))

    def act() -> list[str]:
        return [
            attempt(lambda: (tmp_path / "open" / "a").write_text("x")),
            attempt(lambda: os.rename(tmp_path / "open" / "a", tmp_path / "open" / "sub" / "a")),
            attempt(lambda: os.unlink(tmp_path / "open" / "sub" / "a")),
            attempt(lambda: (tmp_path / "one").write_text("y")),
            attempt(lambda: (tmp_path / "new").write_text("x")),
            attempt(lambda: os.unlink(tmp_path / "one")),
            attempt((tmp_path / "one").read_text),
            attempt(lambda: Path("/dev/null").write_text("x")),
        ]

    plan = LandlockPlan(rights, granted=(*granted, ("/dev/null", WRITE_FILE | TRUNCATE)))
    assert restricted(plan, act) == ["", "", "", "", "EACCES", "EACCES", "", ""]


def test_no_connection_is_made_by_the_program_itself() -> None:
    needs(4)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()

        def act() -> list[str]:
            with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
                return [attempt(lambda: tcp.connect(address)), attempt(lambda: udp.connect(address))]

        assert restricted(LandlockPlan(handled_ports=CONNECT_TCP), act) == ["EACCES", ""]


def test_signals_and_memory_stay_inside_the_domain() -> None:
    needs(6)
    outside = os.getpid()

    def act() -> list[str]:
        child = os.fork()
        if child == 0:
            signal.pause()

        def look(pid: int) -> None:
            os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))

        told = [attempt(lambda: os.kill(outside, 0)), attempt(lambda: look(outside)), attempt(lambda: look(child))]
        told.append(attempt(lambda: os.kill(child, signal.SIGKILL)))
        os.waitpid(child, 0)
        return told

    assert restricted(LandlockPlan(scoped=SCOPE_SIGNAL), act) == ["EPERM", "EACCES", "", ""]


def test_abstract_sockets_of_others_are_out_of_reach() -> None:
    needs(6)
    with socket.socket(socket.AF_UNIX) as listener:
        name = f"\0agentwrap test {os.getpid()}"
        listener.bind(name)
        listener.listen()

        def act() -> str:
            with socket.socket(socket.AF_UNIX) as client:
                return attempt(lambda: client.connect(name))

        assert restricted(LandlockPlan(), act) == ""
        assert restricted(LandlockPlan(scoped=SCOPE_ABSTRACT), act) == "EPERM"


def test_a_domain_of_scopes_alone_lets_sandboxes_mount(tmp_path: Path) -> None:
    needs(6)
    script = ["unshare", "-Urm", "mount", "-t", "tmpfs", "none", str(tmp_path)]
    if os.spawnvp(os.P_WAIT, script[0], script):
        pytest.skip("no user namespaces here")
    assert restricted(LandlockPlan(scoped=SCOPE_SIGNAL), lambda: os.spawnvp(os.P_WAIT, script[0], script)) == 0


def test_an_empty_plan_restricts_nothing_and_keeps_set_id_programs() -> None:
    def act() -> bool:
        return "NoNewPrivs:\t1" in Path("/proc/self/status").read_text()

    assert restricted(LandlockPlan(), act) == ("NoNewPrivs:\t1" in Path("/proc/self/status").read_text())


def test_a_refusal_names_the_step(tmp_path: Path) -> None:
    needs(1)

    def act() -> str:
        try:
            landlock.restrict(LandlockPlan(handled_files=1 << 60))
        except OSError as error:
            return str(error)
        return ""

    assert "landlock_create_ruleset" in restricted(LandlockPlan(), act)
