"""A policy that cannot be enforced as written stops the run before the command starts, and names what is missing."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from internet import Internet
from wrapping import AGENTWRAP, environment, events

POLICY = 'version = 1\nname = "test"\nmode = "enforce"\n[network]\ndefault = "deny"\nallow = ["allowed.example:80"{}]\n'
POLICY += '[files.write]\ndefault = "allow"\n'
MARK = "import sys; open(sys.argv[1], 'w').write('started')"


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Internet]:
    tmp_path.chmod(0o755)
    with Internet(tmp_path, {"allowed.example": ["192.0.2.1"]}) as internet:
        yield internet


def agentwrap(
    net: Internet, folder: Path, *words: str, name: str = "run", more: str = ""
) -> "subprocess.CompletedProcess[bytes]":
    (folder / "policy.toml").write_text(POLICY.format(more))
    home = folder / "home"
    home.mkdir(exist_ok=True)
    argv = [*AGENTWRAP, "run", "-q", "-o", str(folder / f"{name}.agentlog"), "--policy", str(folder / "policy.toml")]
    return net.run([*argv, *words], env=environment(home), capture_output=True, timeout=300, cwd=folder)


def refused(result: "subprocess.CompletedProcess[bytes]", folder: Path, *told: str, status: int = 125) -> None:
    """Not started, one error that says what is missing and what to do, and no recording."""
    text = result.stderr.decode()
    assert result.returncode == status, text
    assert text.startswith("error: ")
    assert "\nhint: " in text
    assert "Traceback" not in text
    for word in told:
        assert word in text
    assert not (folder / "mark").exists()
    assert not (folder / "run.agentlog").exists()


def nested(folder: Path, *options: str) -> list[str]:
    """A run inside a run, whose own files lie where the outer one lets it write."""
    own = ["env", f"XDG_STATE_HOME={folder}/state", f"XDG_CONFIG_HOME={folder}/config"]
    return [
        *own, *AGENTWRAP, "run", "-q", "-o", str(folder / "run.agentlog"), "--policy", str(folder / "policy.toml"),
        "--tier", "guard", *options, "--", sys.executable, "-c", MARK, str(folder / "mark"),
    ]  # fmt: skip


def test_a_listener_that_is_taken_is_told(net: Internet, tmp_path: Path) -> None:
    """The guard speaks through the tree's one listener; inside another run it is taken (EBUSY, seccomp(2))."""
    result = agentwrap(net, tmp_path, "--tier", "guard", "--", *nested(tmp_path), name="outer")
    # A plain user's outer run cannot look into the inner gateway, which hides its memory, and lets it do nothing.
    refused(result, tmp_path, "EBUSY" if os.geteuid() == 0 else "the gateway could not be started")


def test_a_published_port_that_is_taken_is_told(net: Internet, tmp_path: Path) -> None:
    holder = net.listen("127.0.0.1", 0)
    taken = holder.getsockname()[1]
    mark = str(tmp_path / "mark")
    result = agentwrap(net, tmp_path, "-p", f"{taken}:80", "--", sys.executable, "-c", MARK, mark)
    refused(result, tmp_path, f"127.0.0.1:{taken}", "Address already in use")
    holder.close()


@pytest.mark.parametrize(
    ("words", "told", "status"),
    [
        (("--network", "host"), ("--network host",), 125),
        (("--require", "connect:witness"), ("connect",), 3),
        (("--policy", "no-such-policy"), ("no-such-policy", "presets"), 125),
        (("--allow", "*.com"), ("*.com",), 125),
    ],
)
def test_what_contradicts_itself_is_told(
    net: Internet, tmp_path: Path, words: tuple[str, ...], told: tuple[str, ...], status: int
) -> None:
    mark = str(tmp_path / "mark")
    result = agentwrap(net, tmp_path, *words, "--", sys.executable, "-c", MARK, mark)
    refused(result, tmp_path, *told, status=status)


UPSTREAM = """
import json, socket, sys
def tried(host, port):
    try:
        with socket.create_connection((host, port), 300) as s:
            s.sendall(b"x\\r\\n")
            return s.recv(4096).decode()
    except OSError as error:
        return type(error).__name__
print(json.dumps([tried("allowed.example", 80), tried("slow.example", 80), tried("192.0.2.1", 81)]))
"""


@pytest.mark.parametrize("tier", ["wall", "guard"])
def test_the_servers_own_refusal_is_told_from_ours(net: Internet, tmp_path: Path, tier: str) -> None:
    """Nobody listens at the allowed address; a name that is allowed has no resolver to ask; a port that is not."""
    result = agentwrap(
        net, tmp_path, "--tier", tier, "--", sys.executable, "-c", UPSTREAM, more=', "slow.example:80"'
    )
    assert result.returncode == 0, result.stderr
    answers = json.loads(result.stdout)
    assert answers[0] in ("ConnectionResetError", "ConnectionRefusedError", "")
    assert answers[1] == "gaierror"
    assert answers[2] in ("ConnectionResetError", "ConnectionRefusedError", "") or "403" in answers[2]
    rows = events(tmp_path / "run.agentlog", "net.decision", "net.refused", "net.closed", "dns.query")
    theirs = [row for row in rows if row.kind == "net.closed" and row.data["ending"] == "refused"]
    assert {row.subject for row in theirs} == {"allowed.example:80"}
    allowed = [row for row in rows if row.kind == "net.decision" and row.verdict == "allow"]
    assert {row.subject for row in allowed} == {"allowed.example:80"}
    silent = [row for row in rows if row.kind == "dns.query"]
    assert {(row.subject, row.verdict, row.data["rcode"]) for row in silent} == {("slow.example", "allow", "SERVFAIL")}
    ours = [row for row in rows if row.kind in ("net.decision", "net.refused") and row.verdict == "deny"]
    assert {row.data["port"] for row in ours} == {81}


@pytest.mark.skipif(os.geteuid() != 0, reason="a plain user's outer run lets the inner gateway do nothing")
def test_best_effort_goes_on_and_says_what_is_lost(net: Internet, tmp_path: Path) -> None:
    """Inside another run neither namespaces alone nor a listener give a guard: with --best-effort it is a gap."""
    result = agentwrap(net, tmp_path, "--tier", "guard", "--", *nested(tmp_path, "--best-effort"), name="outer")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "mark").read_text() == "started"
    causes = [row.data["cause"] for row in events(tmp_path / "run.agentlog", "gap")]
    assert "no-wall" in causes
    held = {row.data["what"]: row.data["tier"] for row in events(tmp_path / "run.agentlog", "coverage")}
    assert held["connect"] != "guard"
    assert os.path.exists(tmp_path / "outer.agentlog")
