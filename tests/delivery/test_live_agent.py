"""A run of an agent that is sent while it goes on says of models and tools what the recording says afterwards.

A span is sent when it is over, with what is recorded by then: so a tool's command here goes on once its call is, and
once what the one before it did has arrived.
"""

import json
import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from export_received import Trace
from otlp_receiver import Receiver, receiver
from patient_sender import PATIENT
from wrapping import events, wrap

from agentwrap.cli.main import run

AGENT = """
import json, subprocess, sys, urllib.request
messages = [{"role": "user", "content": "Make it."}]
while True:
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": messages}).encode()
    asked = urllib.request.Request(sys.argv[1], body, {"content-type": "application/json"})
    with urllib.request.urlopen(asked) as response: told = json.load(response)
    messages.append({"role": "assistant", "content": told["content"]})
    calls = [block for block in told["content"] if block["type"] == "tool_use"]
    if not calls: break
    for call in calls:
        done = subprocess.run(["bash", "-c", call["input"]["command"]])
        messages.append({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": call["id"], "content": str(done.returncode)}]})
"""


class Model(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        turn = len(request["messages"]) // 2
        command = f"read -r _ < {self.server.folder}/told{turn}; echo made > made{turn}"  # type: ignore[attr-defined]
        use = {"type": "tool_use", "id": f"tu{turn}", "name": "Bash", "input": {"command": command}}
        told = {"id": f"msg_{turn}", "type": "message", "role": "assistant", "model": "m",
                "content": [use] if turn < 3 else [{"type": "text", "text": "Made."}],
                "stop_reason": "end_turn", "usage": {"input_tokens": 10, "output_tokens": 5}}  # fmt: skip
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


def let_go(folder: Path, there: Receiver) -> None:
    """Each command, in its turn. It waits for us, so the recording is there by then."""
    for turn in range(3):
        with (folder / f"told{turn}").open("w"):
            while len(events(folder / "run.agentlog", "tool.call")) <= turn:
                os.sched_yield()
            assert there.wait_for(lambda done=turn: there.trace().names.count("process bash") == done)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    server.folder = tmp_path  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def shape(trace: Trace) -> dict[bytes, tuple[str, bytes, dict[str, Any]]]:
    return {span.span_id: (span.name, span.parent_span_id, trace.told(span)) for span in trace.spans}


def test_what_is_sent_during_the_run_is_what_is_exported_after_it(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wrapping.AGENTWRAP", PATIENT)
    for turn in range(3):
        os.mkfifo(tmp_path / f"told{turn}")
    url = f"http://127.0.0.1:{port}/v1/messages"
    with receiver() as there:
        letting_go = threading.Thread(target=let_go, args=(tmp_path, there), daemon=True)
        letting_go.start()
        options = ("--intercept", f"127.0.0.1:{port}", "--otlp", there.url)
        ran = wrap(tmp_path, sys.executable, "-c", AGENT, url, options=options)
    assert ran.status == 0, ran.stderr
    letting_go.join()
    assert b"not every span" not in ran.stderr
    live = there.trace()
    target = tmp_path / "later.pb"
    assert run(["export", str(ran.recording), "--otlp", "-o", str(target)]) == 0
    later = Trace(target.read_bytes())
    assert len(live.by_id) == len(live.spans)
    assert len([name for name in live.names if name == "execute_tool Bash"]) == 3
    shells = [span for span in live.spans if span.name == "process bash"]
    assert [live.above(span)[0] for span in shells] == ["execute_tool Bash"] * 3
    chats = [span for span in live.spans if span.name == "chat m"]
    assert [live.above(span)[0] for span in chats] == ["turn t1", "turn t2", "turn t3", "turn t4"]
    assert shape(live) == shape(later)
