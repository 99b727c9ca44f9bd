"""Tool calls joined to what they did, on the real kernel: two agents at once, each with several calls at a time."""

import json
import sys
import textwrap
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from wrapping import wrap

from agentwrap.evidence.linking import CONTAINS, NAMED, of_recording
from agentwrap.recording.reader import Reader
from agentwrap.views.tools import caused


def bash(ident: str, command: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": "Bash", "input": {"command": command}}


def answer(name: str, turn: int) -> list[dict[str, Any]]:
    """What the model says to agent `name` in a turn."""
    if turn == 0:
        written = {"file_path": f"{name}.md", "content": "hello"}
        return [
            bash(f"{name}-one", f"sleep 0.2; echo '{name}' > {name}-one.txt"),
            bash(f"{name}-both", 'sleep 0.1; date > "both-$AGENT"'),
            {"type": "tool_use", "id": f"{name}-write", "name": "Write", "input": written},
        ]
    if turn == 1:
        return [bash(f"{name}-twin{number}", "sleep 0.1; mktemp twin-XXXXXX") for number in (1, 2)]
    return [{"type": "text", "text": "done"}]


class Model(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        name = request["messages"][0]["content"]
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        told = {"id": f"msg_{name}{turn}", "type": "message", "role": "assistant", "model": "m",
                "content": answer(name, turn), "stop_reason": "tool_use" if turn < 2 else "end_turn",
                "usage": {"input_tokens": 10, "output_tokens": 5}}  # fmt: skip
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


AGENT = textwrap.dedent("""
    import json, os, subprocess, sys, urllib.request
    from concurrent.futures import ThreadPoolExecutor
    url, name = sys.argv[1:]
    os.environ["AGENT"] = name
    messages = [{"role": "user", "content": name}]
    def use(block):
        if block["name"] == "Write":
            with open(block["input"]["file_path"], "w") as file: file.write(block["input"]["content"])
        else:
            wrapped = "shopt -u extglob; eval " + chr(39) + block["input"]["command"].replace("'", "'\\\\''") + chr(39)
            subprocess.run(["bash", "-c", wrapped + " < /dev/null"], check=True, stdout=subprocess.DEVNULL)
        return {"type": "tool_result", "tool_use_id": block["id"], "content": "ok"}
    while True:
        body = json.dumps({"model": "m", "max_tokens": 9, "messages": messages}).encode()
        asked = urllib.request.Request(url, body, {"content-type": "application/json"})
        with urllib.request.urlopen(asked) as response: told = json.load(response)
        messages.append({"role": "assistant", "content": told["content"]})
        calls = [block for block in told["content"] if block["type"] == "tool_use"]
        if not calls: break
        with ThreadPoolExecutor(4) as pool: messages.append({"role": "user", "content": list(pool.map(use, calls))})
""")
BOTH = textwrap.dedent("""
    import subprocess, sys
    agents = [subprocess.Popen([sys.executable, sys.argv[1], sys.argv[2], name]) for name in ("alpha", "beta")]
    sys.exit(any(agent.wait() for agent in agents))
""")


def test_parallel_calls_of_two_agents_have_their_own_processes_and_files(tmp_path: Path, port: int) -> None:
    script = tmp_path / "agent.py"
    script.write_text(AGENT)
    url = f"http://127.0.0.1:{port}/v1/messages"
    ran = wrap(tmp_path, sys.executable, "-c", BOTH, str(script), url, options=("--intercept", f"127.0.0.1:{port}"))
    assert ran.status == 0, ran.stderr
    with Reader.open(ran.recording) as source:
        story = of_recording(source, source.meta)
        found = caused(source, story)
        work = source.meta["cwd"] + "/"
    tools = {use.asked.data["id"]: use for use in story.turns.tools.values()}
    assert len(tools) == 10
    files = {ident: [path.removeprefix(work) for path in found[use.id].files] for ident, use in tools.items()}
    for name in ("alpha", "beta"):
        assert files[f"{name}-one"] == [f"{name}-one.txt"]
        assert files[f"{name}-both"] == [f"both-{name}"]
        assert files[f"{name}-write"] == [f"{name}.md"]
        twins = [found[tools[f"{name}-twin{number}"].id] for number in (1, 2)]
        assert [len(twin.files) for twin in twins] == [1, 1]
        assert all(link.ambiguous for twin in twins for link in twin.links)
        of = found[tools[f"{name}-one"].id]
        assert [(link.evidence, link.ambiguous) for link in of.links] == [(CONTAINS, False)]
        assert len(of.processes) == 2
        assert [link.evidence for link in found[tools[f"{name}-write"].id].links] == [NAMED]
        assert len({tools[f"{name}-{call}"].turn for call in ("one", "both", "write")}) == 1
        assert story.status_of(tools[f"{name}-one"].id) == "exit 0"
    assert len({use.agent for use in tools.values()}) == 2
