"""How model traffic is read in real containers: led to the gateway where sockets can be taken, else by a base URL."""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from containers import Container
from model_world import coverage, exchanges
from wrapping import AGENTWRAP, Wrapped, environment

pytestmark = pytest.mark.container

# A model server of the run's own, so that nothing leaves the container, and a client of its base URL.
SCRIPT = """
import http.client, http.server, json, os, threading, urllib.parse
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps({"path": self.path, "host": self.headers["host"]}).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8123), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
link = http.client.HTTPConnection(url.hostname, url.port, timeout=300)
link.request("POST", url.path + "/chat/completions", b'{"model": "m", "messages": []}')
print(link.getresponse().read().decode())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that a container shares and its user, whoever that is, may write to."""
    made = Path(tempfile.mkdtemp(prefix="agentwrap-models-", dir="/tmp"))
    made.chmod(0o777)
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize(
    ("profile", "way"), [("docker", "base-url"), ("podman", "capture"), ("no-ptrace", "base-url")]
)
def test_a_call_is_read(container: Callable[[str], Container], folder: Path, profile: str, way: str) -> None:
    made = container(profile)
    made.keep.append(folder)
    recording = folder / "run.agentlog"
    words = [*AGENTWRAP, "run", "-q", "-o", str(recording), "--", sys.executable, "-c", SCRIPT]
    env = {**environment(folder), "OPENAI_BASE_URL": "http://127.0.0.1:8123/v1"}
    done = made.run(words, cwd=folder, env=env)
    ran = Wrapped(done.returncode, done.stdout.encode(), done.stderr.encode(), recording)
    assert ran.status == 0, ran.stderr
    assert json.loads(ran.stdout) == {"path": "/v1/chat/completions", "host": "127.0.0.1:8123"}
    assert coverage(ran) == f"witness {way}"
    (asked,) = ran.events("model.request")
    assert (asked.data["api"], asked.data["path"]) == ("openai.chat", "/v1/chat/completions")
    assert (asked.span, exchanges(ran)) == ("p1", [])
