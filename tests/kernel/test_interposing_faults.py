"""Servers started by hand, servers that cannot be relayed, and what is told of them."""

import json
import os
import pty
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from relaying import HERE, SERVER, Relayed, relayed, seen
from rows import MODES, mode_name, raw
from wrapping import AGENTWRAP, environment, program

NOTIFIED = ("--debuggable",)
ALL = pytest.mark.parametrize("options", MODES, ids=mode_name)
TWO = pytest.mark.parametrize("options", [(), NOTIFIED], ids=mode_name)  # what does not depend on how calls are stopped
ONE = {"one": ["python3", SERVER]}
TALK = f"""
import json, subprocess, sys
words = sys.argv[1:] or ["python3", {SERVER!r}]
done = subprocess.run(words, input=b"hello\\n", stdout=subprocess.PIPE)
print(json.dumps([done.returncode, done.stdout.decode().partition("\\n")[2]]))
"""
SET_ID = """
int main(void) { char line[9] = {0}; printf("%d\\n", geteuid()); fgets(line, 9, stdin); fputs(line, stdout); return 0; }
"""
SAID = [7, "echo hello\nbye\n"]


def talk(folder: Path, options: tuple[str, ...], *words: str, servers: Any = ONE, **more: Any) -> tuple[Any, Relayed]:
    """What a client of this server saw, in a run."""
    options = ("--no-intercept", "--no-undo", *options)
    run = relayed(folder, "python3", "-c", TALK, *words, servers=servers, options=options, **more)
    return json.loads(run.stdout), run


def gaps(run: Relayed) -> list[tuple[bytes, str]]:
    """Command and reason of each server that was not relayed."""
    found = [event.data for event in run.events("gap") if event.data["cause"] == "unrelayed-mcp"]
    assert all(one["what"] == "mcp-stdio" for one in found)
    return [(raw(one["detail"]), one["could_hide"].rpartition(": ")[2]) for one in found]


@ALL
def test_a_server_by_hand_within_a_run(tmp_path: Path, options: tuple[str, ...]) -> None:
    """What `agentwrap mcp` becomes is the server, whatever it is; also through a launcher of its own."""
    script = tmp_path / "agentwrap"
    script.write_text('#!/bin/sh\n[ "$1" = mcp ] && shift 4 && exec "$@"\n')
    script.chmod(0o755)
    words = (str(script), "mcp", "--name", "chosen", "--", "python3", SERVER)
    said, run = talk(tmp_path, options, *words, servers={})
    assert said == SAID
    (session,) = run.sessions
    assert (session["server"], session["how"], session["config"]) == ("chosen", "hand", "")
    assert session["command"] == ["python3", SERVER]
    assert (session["up"], gaps(run)) == ("hello\n", [])


@ALL
def test_the_command_itself_is_a_server(tmp_path: Path, options: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"hello\n")
    os.close(writing)
    with open(reading, "rb") as stdin:
        run = relayed(tmp_path, "python3", SERVER, servers={}, root="mine", stdin=stdin, options=options)
    (session,) = run.sessions
    assert (session["server"], session["how"], session["up"]) == ("mine", "hand", "hello\n")
    assert (run.status, run.stdout.decode()) == (7, session["down"])
    assert not gaps(run)


def write_for_ever(descriptor: int) -> None:
    while True:
        os.write(descriptor, b"\n")


CLOSED_BY_HAND = [(), NOTIFIED, ("--tier", "wall", "--allow", "a.example"), ("--tier", "guard", "--allow", "a.example")]


@pytest.mark.parametrize("options", CLOSED_BY_HAND, ids=lambda options: " ".join(options[:2]) or "default")
def test_ends_are_told_when_the_server_closes_them(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Not when the run is over: nobody of ours but the relay has them."""
    if "wall" in options and subprocess.run(["unshare", "-Urnm", "true"], capture_output=True).returncode:
        pytest.skip("no user namespaces here")
    os.mkfifo(tmp_path / "gate")
    script = 'echo up; exec 0<&- 1>&-; read line < gate; exit "$line"'
    words = [*AGENTWRAP, "mcp", "--name", "mine", "-o", str(tmp_path / "run.agentlog"), *options, "--"]
    client = subprocess.Popen(
        [*words, "sh", "-c", script], cwd=tmp_path, env=environment(tmp_path), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert client.stdin is not None
    assert client.stdout is not None
    lest_it_hangs = threading.Timer(300, client.kill)
    lest_it_hangs.start()
    assert client.stdout.read() == b"up\n"
    with pytest.raises(BrokenPipeError):
        write_for_ever(client.stdin.fileno())
    (tmp_path / "gate").write_text("4\n")
    _, stderr = client.communicate()
    lest_it_hangs.cancel()
    assert (client.returncode, stderr) == (4, b"")


@ALL
def test_the_command_itself_between_files(tmp_path: Path, options: tuple[str, ...]) -> None:
    """By hand whatever there is goes through the relay. What was read before is not read again."""
    (tmp_path / "in").write_bytes(b"skipped\nhello\n")
    with open(tmp_path / "in", "rb", buffering=0) as stdin, open(tmp_path / "out", "wb") as stdout:
        stdin.seek(len("skipped\n"))
        stdout.write(b"before\n")
        stdout.flush()
        run = relayed(
            tmp_path, "python3", SERVER, servers={}, root="mine", stdin=stdin, stdout=stdout, options=options
        )
    (session,) = run.sessions
    assert (session["server"], session["up"]) == ("mine", "hello\n")
    assert run.status == 7
    assert (tmp_path / "out").read_text() == "before\n" + session["down"]


@TWO
def test_a_terminal_is_left_as_it_is(tmp_path: Path, options: tuple[str, ...]) -> None:
    ours, theirs = pty.openpty()
    with open(ours, "wb", buffering=0) as terminal, open(theirs, "rb", buffering=0) as stdin:
        terminal.write(b"hello\n\x04")
        run = relayed(tmp_path, "python3", SERVER, servers={}, root="mine", stdin=stdin, options=options)
    assert (run.status, run.sessions) == (7, [])
    assert run.stdout.decode().partition("\n")[2] == "echo hello\nbye\n"
    assert gaps(run) == [(f"python3 {SERVER}".encode(), "its standard input or output is a terminal")]


@TWO
def test_without_a_relay_a_server_runs_as_ever(tmp_path: Path, options: tuple[str, ...]) -> None:
    said, run = talk(tmp_path, options, relay="none")
    assert said == SAID
    assert gaps(run) == [(f"python3 {SERVER}".encode(), "[Errno 32] there is no relay")]


@TWO
def test_a_relay_that_died_is_told(tmp_path: Path, options: tuple[str, ...]) -> None:
    said, run = talk(tmp_path, options, relay="dead")
    assert said == SAID
    assert gaps(run) == [(f"python3 {SERVER}".encode(), "[Errno 32] Broken pipe")]


@ALL
@pytest.mark.parametrize("relay", ["none", "dead"])
def test_under_rules_a_server_that_is_not_relayed_does_not_run(
    tmp_path: Path, options: tuple[str, ...], relay: str
) -> None:
    words = ["sh", "-c", f"touch began; exec python3 {SERVER} 2>err"]
    said, run = talk(tmp_path, options, *words, relay=relay, gated=True)
    assert said == [126 if options == NOTIFIED else -9, ""]
    assert (tmp_path / "work" / "began").exists()
    denied = run.events("act.denied")[0]  # a shell may try the next name of its PATH
    assert (denied.data["act"], denied.data["decision"], denied.data["by"]) == ("exec", "deny", "guard")
    assert "rules are about the MCP server one" in denied.data["why"]
    assert gaps(run) == []


@TWO
def test_under_rules_files_are_relayed_too(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Else a request in a file would reach the server past the rules."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "in").write_text("hello\n")
    run = relayed(tmp_path, "sh", "-c", f"python3 {SERVER} <in >out; exit 3", servers=ONE, options=options, gated=True)
    (session,) = run.sessions
    assert (run.status, session["up"]) == (3, "hello\n")
    assert (tmp_path / "work" / "out").read_text() == session["down"]


@TWO
def test_a_server_that_nobody_named(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "weather-mcp").write_text(f"#!/bin/sh\nexec python3 {SERVER}\n")
    (tmp_path / "weather-mcp").chmod(0o755)
    said, run = talk(tmp_path, options, str(tmp_path / "weather-mcp"), "x", servers={})
    assert (said, run.sessions) == (SAID, [])
    ((command, why),) = gaps(run)
    assert command.endswith(b"/weather-mcp x")
    assert why == "no configuration names this server"
    said, run = talk(
        tmp_path, options, str(tmp_path / "weather-mcp"), "x", servers={"w": ["weather-mcp", "x"]}, policy=["w"]
    )
    (session,) = run.sessions
    assert (said, session["server"], session["how"], gaps(run)) == (SAID, "w", "pattern", [])


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_a_server_of_another_user(options: tuple[str, ...]) -> None:
    """Its pipes are its own: it may open them once more."""
    if os.geteuid():
        pytest.skip("only root may become another user")
    with tempfile.TemporaryDirectory(prefix="agentwrap-", dir="/tmp") as made:
        folder = Path(made)
        folder.chmod(0o777)
        words = ("python3", str(HERE / "client.py"), SERVER, made, "piped", "two sockets", "to a file")
        as_other = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *words)
        natively = subprocess.run(as_other, cwd=made, env=environment(folder), capture_output=True, check=True).stdout
        options = ("--no-intercept", "--no-undo", *options)
        run = relayed(folder, *as_other, servers=ONE, options=options)
        assert run.status == 0, run.stderr.decode()
        for way, found in json.loads(run.stdout).items():
            wanted = {**seen(json.loads(natively)[way]), "cwd": f"{made}/work"}
            assert seen(found) == wanted
        assert [session["server"] for session in run.sessions] == ["one", "one"]
        assert gaps(run) == []


@pytest.mark.parametrize("options", [one for one in MODES if one != NOTIFIED], ids=mode_name)
def test_a_set_user_id_server(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Where its bit has its effect, as for root, it is relayed with it."""
    if os.geteuid():
        pytest.skip("only root's tracees gain the rights of another")
    path = program(tmp_path, "set-id", "#include <stdio.h>\n#include <unistd.h>\n#include <string.h>\n" + SET_ID)
    os.chown(path, 65534, 65534)
    os.chmod(path, 0o4755)
    said, run = talk(tmp_path, options, path, servers={"one": ["set-id"]})
    assert said == [0, "hello\n"]
    (session,) = run.sessions
    assert session["down"] == "65534\nhello\n"


@TWO
def test_sockets_of_other_kinds_are_not_relayed(tmp_path: Path, options: tuple[str, ...]) -> None:
    talk_tcp = f"""
import socket, subprocess
listening = socket.create_server(("127.0.0.1", 0))
with socket.create_connection(listening.getsockname()) as here:
    there, _ = listening.accept()
    process = subprocess.Popen(["python3", {SERVER!r}], stdin=there, stdout=there)
    there.close()
    here.sendall(b"hello\\n")
    here.shutdown(socket.SHUT_WR)
    print(here.makefile().read().partition("\\n")[2], process.wait())
"""
    options = ("--no-intercept", *options)
    run = relayed(tmp_path, "python3", "-c", talk_tcp, servers=ONE, options=options)
    assert run.stdout.decode() == "echo hello\nbye\n 7\n"
    assert gaps(run) == [(f"python3 {SERVER}".encode(), "a socket that is no stream of this machine")]


@pytest.mark.parametrize("options", [one for one in MODES if one != NOTIFIED], ids=mode_name)
def test_a_32_bit_server_is_not_relayed(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "small.S").write_text(".globl _start\n_start: movl $1, %eax; movl $6, %ebx; int $0x80\n")
    words = ["cc", "-m32", "-nostdlib", "-static", "-no-pie", "-o", tmp_path / "small", tmp_path / "small.S"]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("no assembler for 32-bit programs here")
    said, run = talk(tmp_path, options, str(tmp_path / "small"), servers={"one": ["small"]})
    assert said == [6, ""]
    assert [why for _, why in gaps(run)] == ["a 32-bit program"]


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_servers_killed_at_any_moment(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Nothing hangs, and nobody keeps a descriptor."""
    starts = 500 if options in ((), NOTIFIED) else 100
    servers = {"one": ["cat", "-u"]}
    words = ["python3", str(HERE / "race.py"), str(starts), "8", "cat", "-u"]
    run = relayed(tmp_path, *words, servers=servers, options=("--no-intercept", *options), counted=True)
    assert run.status == 0, run.stderr.decode()
    early, late = map(int, run.stdout.split())
    assert early + late == starts
    assert late
    assert run.left == 0
    before, after = json.loads((tmp_path / "sessions.tracer").read_text())
    assert after == before
    assert gaps(run) == []
    assert set(run.gaps()) <= {"no-ptrace"}
    print(f"{early} killed early, {late} later, {len(run.sessions)} relayed")


FILTERED = f"""
import os, sys
from agentwrap.launching import doctor_calls
doctor_calls._COMMON = {{**doctor_calls._COMMON, "chosen": int(sys.argv[1])}}
doctor_calls.filter_one("chosen", 0x00050001)  # SECCOMP_RET_ERRNO, EPERM
os.execvp("python3", ["python3", {SERVER!r}])
"""


@pytest.mark.parametrize(("number", "halfway"), [(293, False), (33, True)], ids=["pipe2", "dup2"])
def test_a_server_under_a_filter_of_its_own(tmp_path: Path, number: int, halfway: bool) -> None:
    """What it may not do it cannot do for us. Halfway there is no way back: then it does not run."""
    words = (sys.executable, "-c", FILTERED, str(number))
    said, run = talk(tmp_path, ("--follow", "trace"), *words)
    assert said == ([-9, ""] if halfway else SAID)
    assert gaps(run) == [(f"python3 {SERVER}".encode(), "Operation not permitted")]
    assert len(run.sessions) == halfway
    said, run = talk(tmp_path, (), *words)  # here it does nothing of it itself
    assert (said, gaps(run), len(run.sessions)) == (SAID, [], 1)


def test_a_filter_that_answers_what_we_ask_for(tmp_path: Path) -> None:
    """Then the server does everything itself, as where there is no listener."""
    said, run = talk(tmp_path, (), sys.executable, "-c", FILTERED, "83")
    assert (said, gaps(run), len(run.sessions)) == (SAID, [], 1)


STARTS = """
import subprocess, time
began = time.perf_counter()
for _ in range(50):
    subprocess.run(["cat", "-u"], input=b"x", stdout=subprocess.PIPE)
print((time.perf_counter() - began) / 50 * 1e3)
"""


@TWO
def test_each_of_many_starts_is_relayed(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Prints what a start costs: natively, in a run, and relayed in a run."""
    words = ("python3", "-c", STARTS)
    natively = subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout
    options = ("--no-intercept", *options)
    within = relayed(tmp_path, *words, servers={}, options=options)
    run = relayed(tmp_path, *words, servers={"one": ["cat", "-u"]}, options=options)
    assert [(one["up"], one["down"]) for one in run.sessions] == [("x", "x")] * 50
    assert within.sessions == []
    native_ms, within_ms, relayed_ms = map(float, (natively, within.stdout, run.stdout))
    print(f"start and end: native {native_ms:.2f} ms, in a run {within_ms:.2f}, relayed {relayed_ms:.2f}")
