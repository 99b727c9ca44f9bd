"""Servers of a configuration that only a client within the run is led to, by its own environment."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from wrapping import AGENTWRAP, environment, events

SERVER = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": {}}), flush=True)
"""
CLIENT = """#!{python}
import subprocess
server = subprocess.Popen([{python!r}, "server.py", "--far"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
server.communicate(b'{{"jsonrpc": "2.0", "id": 1, "method": "ping"}}\\n')
"""
CODEX = '[mcp_servers.far]\ncommand = "{}"\nargs = ["server.py", "--far"]\n'


@pytest.mark.parametrize(
    ("client", "script", "file"),
    [
        ("codex", "CODEX_HOME=$PWD/x ./codex", "x/config.toml"),
        ("codex", "CODEX_HOME=x ./codex", "x/config.toml"),
        ("codex", "HOME=$PWD/y ./codex", "y/.codex/config.toml"),
        ("claude", "CLAUDE_CONFIG_DIR=x ./claude", "x/.claude.json"),
        ("opencode", "OPENCODE_CONFIG_CONTENT=$(cat x/content) ./opencode", "x/content"),
    ],
)
def test_a_client_that_is_led_to_another_configuration(tmp_path: Path, client: str, script: str, file: str) -> None:
    words = [sys.executable, "server.py", "--far"]
    texts = {
        "codex": CODEX.format(sys.executable),
        "claude": json.dumps({"mcpServers": {"far": {"command": words[0], "args": words[1:]}}}),
        "opencode": json.dumps({"mcp": {"far": {"type": "local", "command": words}}}),
    }
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(texts[client])
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / client).write_text(CLIENT.format(python=sys.executable))
    (tmp_path / client).chmod(0o755)
    recording = tmp_path / "run.agentlog"
    done = subprocess.run(
        [*AGENTWRAP, "run", "-q", "-o", str(recording), "--", "sh", "-c", script],
        env=environment(tmp_path), cwd=tmp_path, capture_output=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = events(recording)
    assert [row.data["server"] for row in rows if row.kind == "mcp.session"] == ["far"]
    assert [row.data for row in rows if row.kind == "gap"] == []
