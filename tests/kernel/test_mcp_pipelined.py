"""A whole run with rules about a server that is called faster than anything is written down: nothing is mixed up."""

import json
import sys
from pathlib import Path

from wrapping import wrap

CALLS, LONG = 1500, 777
SERVER = """
import json, sys
for line in sys.stdin.buffer:
    told = json.loads(line)
    sys.stderr.write(f"{told['id']} {told['params']['name']}\\n")
    answer = {"jsonrpc": "2.0", "id": told["id"], "result": {"content": [{"type": "text", "text": str(len(line))}]}}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\\n")
    sys.stdout.buffer.flush()
"""
CLIENT = f"""
import json, subprocess, sys, threading
server = subprocess.Popen([sys.executable, sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=open(sys.argv[2], "wb"))
def ask():
    for number in range({CALLS}):
        arguments = {{"path": "/x", "content": "y" * (5_000_000 if number == {LONG} else 1)}}
        call = {{"name": "write_it" if number % 3 == 0 else "read_it", "arguments": arguments}}
        line = {{"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}}
        server.stdin.write(json.dumps(line).encode() + b"\\n")
    server.stdin.close()
thread = threading.Thread(target=ask)
thread.start()
for line in server.stdout:
    told = json.loads(line)
    print(told["id"], told["result"].get("isError", False))
thread.join()
sys.exit(server.wait())
"""
POLICY = """version = 1
name = "pipelined"
mode = "enforce"
[files.write]
allow = ["$CWD/**"]
[[mcp]]
server = "files"
tools = ["write_*"]
decision = "deny"
[[mcp]]
server = "files"
tools = ["read_*"]
decision = "allow"
[[mcp]]
server = "*"
decision = "deny"
"""


def test_each_call_has_its_own_decision_answer_and_row(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    server, log = work / "server.py", work / "log"
    server.write_text(SERVER)
    (work / "client.py").write_text(CLIENT)
    (work / ".mcp.json").write_text(
        json.dumps({"mcpServers": {"files": {"command": sys.executable, "args": [str(server)]}}})
    )
    (tmp_path / "policy.toml").write_text(POLICY)
    command = [sys.executable, str(work / "client.py"), str(server), str(log)]
    run = wrap(tmp_path, *command, options=["--policy", str(tmp_path / "policy.toml")])
    assert run.status == 0, run.stderr

    denied = set(range(0, CALLS, 3))
    assert [line.split() for line in log.read_text().splitlines()] == [
        [str(number), "read_it"] for number in range(CALLS) if number not in denied
    ]
    answers = [line.split() for line in run.stdout.decode().splitlines()]
    assert {int(number) for number, is_error in answers if is_error == "True"} == denied
    assert [int(number) for number, is_error in answers if is_error == "False"] == sorted({*range(CALLS)} - denied)

    calls = {event.data["call"]: int(event.data["id"]) for event in run.events("mcp.call")}
    assert sorted(calls.values()) == list(range(CALLS))
    decisions = {calls[event.data["call"]]: event.verdict for event in run.events("mcp.decision")}
    assert decisions == {number: "deny" if number in denied else "allow" for number in range(CALLS)}
    endings = {calls[event.data["call"]]: event.data["ending"] for event in run.events("mcp.result")}
    assert endings == {number: "denied" if number in denied else "complete" for number in range(CALLS)}
    asked = [event for event in run.events("mcp.message") if event.data.get("up")]
    stopped = {calls[event.data["call"]] for event in asked if not event.data.get("passed", True)}
    assert stopped == denied
    (ended,) = run.events("mcp.ended")
    assert ended.data["ending"] == "client-closed"
    assert [gap.data["what"] for gap in run.events("gap") if gap.data["what"].startswith("mcp")] == []
