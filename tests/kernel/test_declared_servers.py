"""Servers that a configuration declares, on the real kernel: relayed under their names, found while a run goes on."""

import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from textwrap import dedent

import pytest
from wrapping import AGENTWRAP, Wrapped, environment, events, wrap

REQUEST = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{}}\n'
SERVER = f"import sys\nfor line in sys.stdin:\n    print({ANSWER.decode()!r}, end='', flush=True)\nsys.exit(7)\n"
CLIENT = """
    import subprocess, sys
    server = subprocess.Popen({words}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    server.stdin.write({request!r})
    server.stdin.flush()
    sys.stdout.buffer.write(server.stdout.readline())
    server.stdin.close()
    sys.exit(server.wait())
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "srv.py").write_text(SERVER)
    return tmp_path / "work"


def client(*words: str, before: str = "") -> str:
    return dedent(before) + dedent(CLIENT).format(words=list(words), request=REQUEST)


def declare(path: Path, *words: str, name: str = "mine") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": {name: {"command": words[0], "args": words[1:]}}}))
    return path


def sessions(run: Wrapped | Path) -> list[tuple[str, str, str]]:
    recording = run if isinstance(run, Path) else run.recording
    found = [event.data for event in events(recording, "mcp.session")]
    return [(one["server"], one.get("how", "config"), one.get("config", "")) for one in found]


def run_client(work: Path, source: str, *options: str) -> Wrapped:
    run = wrap(work.parent, sys.executable, "-c", source, options=options)
    assert (run.status, run.stdout) == (7, ANSWER), run.stderr
    return run


def test_a_projects_server_is_relayed_under_its_name(work: Path) -> None:
    file = declare(work / ".mcp.json", sys.executable, "srv.py")
    run = run_client(work, client(sys.executable, "srv.py"))
    assert sessions(run) == [("mine", "config", str(file))]
    assert [event.data["up"] for event in run.events("mcp.message")] == [True, False]
    note = next(event.data["note"] for event in run.events("coverage") if event.data["what"] == "mcp-stdio")
    assert note == "1 server declared (mcp.json 1) in one configuration"


def test_a_script_of_the_users_in_a_folder_of_path_is_relayed(work: Path) -> None:
    script = work.parent / "bin" / "srv"
    script.parent.mkdir()
    script.write_text(f"#!/usr/bin/env {sys.executable}\n{SERVER}")
    script.chmod(0o755)
    file = declare(work.parent / ".cursor" / "mcp.json", "srv", "--dir", "${workspaceFolder}")
    run = wrap(
        work.parent, sys.executable, "-c", client("srv", "--dir", str(work)), env={"PATH": f"{script.parent}:/usr/bin"}
    )
    assert run.status == 7, run.stderr
    assert sessions(run) == [("mine", "config", str(file))]


def test_a_server_behind_a_shell_is_relayed_once(work: Path) -> None:
    declare(work / ".mcp.json", sys.executable, "srv.py")
    run = run_client(work, client("sh", "-c", f"{sys.executable} srv.py; exit $?"))
    assert [name for name, _how, _config in sessions(run)] == ["mine"]


def test_a_server_that_is_added_while_the_run_goes_on_is_relayed(work: Path) -> None:
    entry = json.dumps({"mcpServers": {"late": {"command": sys.executable, "args": ["srv.py"]}}})
    before = f"""
        import os, time
        began = time.monotonic()
        while time.monotonic() - began < 0.1:
            pass  # as long as an agent thinks at least
        open(os.path.expanduser("~/.claude.json"), "w").write({entry!r})
    """
    run = run_client(work, client(sys.executable, "srv.py", before=before))
    assert sessions(run) == [("late", "config", str(work.parent / ".claude.json"))]


def test_servers_of_an_agents_command_line_are_relayed(work: Path) -> None:
    declare(work / "named.json", sys.executable, "srv.py")
    run = wrap(work.parent, sys.executable, "-c", client(sys.executable, "srv.py"), "--mcp-config", "named.json")
    assert run.status == 7
    assert sessions(run) == [("mine", "config", "named.json")]


def test_a_configuration_that_cannot_be_read_is_a_gap(work: Path) -> None:
    (work / ".mcp.json").write_text("{ no")
    run = wrap(work.parent, "true")
    (gap,) = run.events("gap")
    assert (gap.data["what"], gap.data["cause"]) == ("mcp-stdio", "config-unreadable")
    assert gap.data["detail"].startswith(f"{work}/.mcp.json: ")


class _Answering(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *_: object) -> None:
        pass


def test_a_server_behind_a_url_on_this_machine_is_read_under_its_name(work: Path) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), _Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/mcp"
        (work / ".mcp.json").write_text(json.dumps({"mcpServers": {"far": {"type": "http", "url": url}}}))
        source = f"""
            import sys, urllib.request
            request = urllib.request.Request({url!r}, {REQUEST!r}, {{"Content-Type": "application/json"}})
            sys.stdout.buffer.write(urllib.request.urlopen(request).read())
        """
        run = wrap(work.parent, sys.executable, "-c", dedent(source))
        server.shutdown()
    assert (run.status, run.stdout) == (0, ANSWER), run.stderr
    assert sessions(run) == [("far", "config", str(work / ".mcp.json"))]
    assert run.events("mcp.session")[0].data["transport"] == "http"
    note = next(event.data["note"] for event in run.events("coverage") if event.data["what"] == "mcp-http")
    assert note.startswith("1 declared by URL")


def test_a_run_without_servers_has_neither_sessions_nor_gaps(work: Path) -> None:
    run = run_client(work, client(sys.executable, "srv.py"))
    assert sessions(run) == run.gaps() == []


def test_a_server_by_hand_has_a_run_of_its_own(work: Path) -> None:
    recording = work.parent / "m.agentlog"
    done = subprocess.run(
        [*AGENTWRAP, "mcp", "--name", "hand", "-o", str(recording), "--", sys.executable, "srv.py"],
        input=REQUEST, capture_output=True, cwd=work, env=environment(work.parent), timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (7, ANSWER, b"")
    assert sessions(recording) == [("hand", "hand", "")]


def test_a_server_by_hand_inside_of_a_run_belongs_to_that_run(work: Path) -> None:
    words = [*AGENTWRAP, "mcp", "--name", "hand", "--reads", "--", sys.executable, "srv.py"]
    run = run_client(work, client(*words))
    assert sessions(run) == [("hand", "hand", "")]
    assert run.stderr == b"agentwrap inside of a run: --reads without effect\n"
    assert list(work.parent.rglob("*.agentlog")) == [run.recording]


def test_a_server_that_rules_are_about_keeps_its_declared_name(work: Path) -> None:
    """Else an agent would only have to call it otherwise to get around them."""
    file = declare(work / ".mcp.json", sys.executable, "srv.py")
    rules = '[[mcp]]\nserver = "mine"\ntools = ["no_such"]\ndecision = "deny"\n'
    policy = work.parent / "policy.toml"
    rest = '[network]\ndefault = "allow"\n[files]\nwrite = { default = "allow" }\n'
    policy.write_text(f'version = 1\nname = "p"\nmode = "enforce"\n{rest}{rules}')
    words = [*AGENTWRAP, "mcp", "--name", "other", "--", sys.executable, "srv.py"]
    assert sessions(run_client(work, client(*words), "--policy", str(policy))) == [("mine", "config", str(file))]


@pytest.mark.parametrize("words", [["mcp"], ["mcp", "--no-such-option"], ["mcp", "--", "no-such-server"]])
def test_what_keeps_a_server_from_beginning_is_said_on_standard_error_alone(work: Path, words: list[str]) -> None:
    argv = [*AGENTWRAP, *words]
    done = subprocess.run(argv, capture_output=True, cwd=work, env=environment(work.parent), timeout=300)
    assert done.returncode == (127 if "--" in words else 125)
    assert done.stdout == b""
    assert done.stderr.startswith(b"error: ")
    inside = wrap(work.parent, *AGENTWRAP, *words)
    assert (inside.status, inside.stdout) == (done.returncode, b"")


def test_the_last_word_of_a_script_without_interpreter_is_run_by_a_shell(work: Path) -> None:
    script = work / "plain"
    script.write_text("exit 9\n")
    script.chmod(0o755)
    assert os.access(script, os.X_OK)
    assert wrap(work.parent, *AGENTWRAP, "mcp", "--", "./plain").status == 9


def test_a_policy_names_servers_by_their_command_lines(work: Path) -> None:
    policy = work.parent / "policy.toml"
    policy.write_text('version = 1\nname = "p"\nmode = "observe"\n[record]\nmcp_stdio = ["*python* srv.py"]\n')
    run = run_client(work, client(sys.executable, "srv.py"), "--policy", str(policy))
    ((name, how, config),) = sessions(run)
    assert name
    assert (how, config) == ("pattern", "record.mcp_stdio")
