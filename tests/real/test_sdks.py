"""The model providers' own clients, wrapped: they get what they get without us, and the recording has what was said.

In every way that a run reads model traffic, against a server of ours in an internet of the test's own.
"""

import json
import os
import shutil
import ssl
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import far_side
import pytest
from internet import Internet
from kernel.test_proxy import Proxy
from model_server import OUTPUT_TOKENS, Call, ModelServer
from real.programs import installed
from wrapping import PATIENCE, Event, command, environment, events

from agentwrap.recording.reader import Reader

HERE = Path(__file__).resolve().parent
HOSTS = {"api.anthropic.com": "203.0.113.10", "api.openai.com": "203.0.113.11"}
PORT = 8123
OWN = "models.example.com"  # speaks all of it without TLS
APIS = ("anthropic", "chat", "responses")
KEY = b"sk-planted-0123456789abcdef0123456789abcdef"
# What a call of this model ends as. Others are complete.
ENDINGS = {
    "error-400": "error", "error-401": "error", "late-error": "error", "cut": "incomplete", "reset": "incomplete",
    "hang": "cancelled", "slow": "cancelled",
}
ALLOWED = ("--allow", "api.anthropic.com", "--allow", "api.openai.com", "--allow", f"{OWN}:{PORT}")
# Over TLS or not, options, and which APIs: all of them in the way that people use most, for the time it takes.
WAYS: dict[str, tuple[bool, tuple[str, ...], tuple[str, ...]]] = {
    "capture": (False, (), ("anthropic",)),
    "capture, TLS": (True, (), APIS),
    "wall": (False, ("--tier", "wall", *ALLOWED), ("chat",)),
    "wall, TLS": (True, ("--tier", "wall", *ALLOWED), ("responses",)),
    "guard": (False, ("--tier", "guard", *ALLOWED), ("responses",)),
    "guard, TLS": (True, ("--tier", "guard", *ALLOWED), ("anthropic",)),
    "network host": (False, ("--network", "host"), ("chat",)),
}


@cache
def node_folder() -> Path:
    """Where the Node clients are installed, once for all runs. Skips where they cannot be."""
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    given = os.environ.get("AGENTWRAP_NODE_SDKS")
    folder = Path(given or f"{tempfile.gettempdir()}/agentwrap-node-sdks-{os.getuid()}")
    npm = ["npm", "install", "--no-audit", "--no-fund", "--prefix"]
    return installed(folder, lambda made: [*npm, str(made), "@anthropic-ai/sdk", "openai", "ws"], "the Node clients")


def program(language: str, *apis: str) -> list[str]:
    if language == "node":
        return ["node", str(HERE / "sdk_scenarios.mjs"), str(node_folder()), *apis]
    for name in ("anthropic", "openai"):
        if find_spec(name) is None:
            pytest.skip("the providers' Python clients are not installed (the extra `sdks`)")
    return [sys.executable, str(HERE / "sdk_scenarios.py"), *apis]


class World:
    """Our server under both names, with TLS and without."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.net = Internet(folder, {OWN: ["203.0.113.12"], **{name: [one] for name, one in HOSTS.items()}})
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*far_side.certificate(folder, tuple(HOSTS)))
        self.servers = [ModelServer(self.net.listen(address, 443), context) for address in HOSTS.values()]
        self.servers.append(ModelServer(self.net.listen("203.0.113.12", PORT)))
        self.native: dict[tuple[str, bool], dict[str, Any]] = {}

    def environment(self, tls: bool) -> dict[str, str]:
        trusted = str(self.folder / "ca.pem")
        more = {"SSL_CERT_FILE": trusted, "NODE_EXTRA_CA_CERTS": trusted}
        if not tls:
            more["ANTHROPIC_BASE_URL"] = f"http://{OWN}:{PORT}"
            more["OPENAI_BASE_URL"] = f"http://{OWN}:{PORT}/v1"
        return {**environment(self.folder), **more}

    def run(self, argv: list[str], env: dict[str, str]) -> tuple[Any, list[Call]]:
        """What the clients found, and the calls that the server saw."""
        for server in self.servers:
            server.settle()
            server.log.clear()
        done = self.net.run(argv, env=env, cwd=self.folder, capture_output=True, timeout=300 * PATIENCE)
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        return json.loads(done.stdout), [call for server in self.servers for call in server.log]

    def bare(self, language: str, apis: Sequence[str], tls: bool) -> dict[str, Any]:
        """What the clients of these APIs find without us: all of them are asked once, for the time it takes."""
        if (language, tls) not in self.native:
            self.native[language, tls] = self.run(program(language, *APIS), self.environment(tls))[0]
        return {name: one for name, one in self.native[language, tls].items() if name.partition(" ")[0] in apis}

    def close(self) -> None:
        for server in self.servers:
            server.close()
        self.net.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("sdks"))
    yield made
    made.close()


def faults(recording: Path, log: list[Call]) -> Iterator[str]:
    """What does not agree with what the server saw, one sentence each."""
    rows = events(recording)
    answers = {row.data["call"]: row.data for row in rows if row.kind == "model.response"}
    # Of a connection that the server is closing just then a client may send the head alone, and ask again on another.
    asked = [
        row
        for row in rows
        if row.kind == "model.request" and ("request" in row.data or answers.get(row.data["call"], {}).get("status"))
    ]
    tools: dict[str, list[str]] = {}
    for row in rows:
        if row.kind == "tool.call":
            tools.setdefault(row.data["call"], []).append(row.data["id"])
    told = []
    with Reader.open(recording) as reader:
        for row in asked:
            body = b"".join(piece or b"" for piece in reader.body(row.seq, "request"))
            answer = answers.get(row.data["call"], {})
            # A call that did not end says how many tokens it was given only where its beginning said so.
            tokens = answer.get("input_tokens"), answer.get("output_tokens")
            ended = answer.get("ending", "none")
            facts = (tokens, tuple(tools.get(row.data["call"], []))) if ended == "complete" else ((), ())
            told.append((_short(body), row.data.get("model", ""), ended, answer.get("status", 0), *facts))
    seen = [_as_recorded(call) for call in log]
    for one, count in (Counter(seen) - Counter(told)).items():
        yield f"{count} x not in the recording: {one}"
    for one, count in (Counter(told) - Counter(seen)).items():
        if one[3]:  # else nobody answered: it was sent on a connection that the server was closing
            yield f"{count} x in the recording alone: {one}"
    yield from _attempts(asked)
    yield from (f"a gap: {row.data}" for row in rows if row.kind == "gap" and row.data["what"] == "model")
    yield from (f"{row.data['call']}: {row.data['problem']}" for row in asked if row.data.get("problem"))
    yield from (f"{key}: unknown {answer['unknown']}" for key, answer in answers.items() if answer.get("unknown"))
    if KEY in recording.read_bytes():
        yield "the key is in the file"


def _short(body: bytes) -> str:
    return f"{len(body)} {sha256(body).hexdigest()[:16]}"


def _as_recorded(call: Call) -> tuple[Any, ...]:
    what = call.model.partition("@")[0]
    ending = ENDINGS.get(what, "complete") if call.status < 400 else "error"
    if what in ("late-error", "cut", "reset") and b'"stream":true' not in call.body.replace(b" ", b""):
        ending = "complete" if "sec-websocket-key" not in call.headers or what == "late-error" else ending
    if ending != "complete":
        return (_short(call.body), call.model, ending, call.status, (), ())
    return (_short(call.body), call.model, ending, call.status, (call.input_tokens, OUTPUT_TOKENS), tuple(call.tools))


def _attempts(asked: list[Event]) -> Iterator[str]:
    """Each that was sent again is joined with the one before."""
    tries = [row.data for row in asked if row.data.get("model") == "retry"]
    numbers = Counter(one.get("attempt", 1) for one in tries)
    if len(set(numbers.values())) > 1 or (tries and sorted(numbers) != [1, 2, 3]):
        yield f"attempts {numbers}"
    yield from (f"not joined: {one['call']}" for one in tries if one.get("attempt", 1) > 1 and not one.get("retry_of"))


@pytest.mark.parametrize("language", ["python", "node"])
@pytest.mark.parametrize("way", WAYS)
def test_clients_and_their_recording(world: World, tmp_path: Path, way: str, language: str) -> None:
    tls, options, apis = WAYS[way]
    recording = tmp_path / "run.agentlog"
    found, log = world.run(command(recording, *program(language, *apis), options=options), world.environment(tls))
    assert found == world.bare(language, apis, tls)
    assert list(faults(recording, log)) == []


@pytest.mark.parametrize("language", ["python", "node"])
def test_clients_of_the_proxy(world: World, language: str) -> None:
    api = "anthropic" if language == "node" else "responses"
    (world.folder / "proxy.agentlog").unlink(missing_ok=True)
    proxy = Proxy(world)
    # Node's own proxy variables are younger than some Nodes: there by its base URLs.
    kept = {name: value for name, value in proxy.variables.items() if ("BASE" in name) == (language == "node")}
    found, log = world.run(program(language, api), {**world.environment(tls=True), **kept})
    ran = proxy.end()
    assert ran.status == 0, ran.stderr
    assert found == world.bare(language, (api,), tls=True)
    assert list(faults(proxy.recording, log)) == []
