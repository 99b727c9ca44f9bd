"""HAR: what crossed the wire, in the words of the format; read back by programs that are not ours."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fake_recording import FakeRecording, FakeRow
from hypothesis import given
from hypothesis import strategies as st

from agentwrap import export
from agentwrap.events import Body, Content, HttpExchange, ModelRequest, ModelResponse
from agentwrap.models.bodies import whole
from agentwrap.recording.reader import Reader

SAMPLE = Path(__file__).resolve().parent.parent / "recordings" / "model.agentlog"


def har(source: Any, rows: Any = None) -> Any:
    return json.loads(b"".join(export.exporter("har")(source, source.rows() if rows is None else rows, 10**18)))


def recording(*events: Any, contents: list[Content]) -> FakeRecording:
    return FakeRecording([*contents, *events])


def body(data: bytes, contents: list[Content]) -> Body:
    return whole(data, contents.append)


def test_a_call_is_an_entry() -> None:
    contents: list[Content] = []
    asked = ModelRequest(
        at_ns=1_000_000_000, call="m1", agent="a1", turn="t1", api="anthropic.messages", host=b"api.example", port=443,
        path=b"/v1/messages?beta=true", connection="c3", headers=((b"Content-Type", b"application/json"),),
        request=body(b'{"model":"x"}', contents),
    )  # fmt: skip
    answer = ModelResponse(
        at_ns=3_000_000_000, call="m1", agent="a1", turn="t1", ending="complete", status=200,
        requested_ns=1_000_000_000, headers_ns=1_500_000_000, input_tokens=7, output_tokens=2,
        headers=((b"content-type", b"text/event-stream"),), response=body(b"data: {}\n\n", contents),
        timing=body(b"[[10,900]]", contents),
    )  # fmt: skip
    log = har(recording(asked, answer, contents=contents))["log"]
    assert (log["version"], log["creator"]["name"]) == ("1.2", "agentwrap")
    (entry,) = log["entries"]
    assert entry["startedDateTime"] == "2001-09-09T01:46:41.000000000Z"
    assert entry["time"] == pytest.approx(2000)
    assert entry["timings"] == {"send": 0, "wait": pytest.approx(500), "receive": pytest.approx(1500)}
    assert entry["request"]["url"] == "https://api.example/v1/messages?beta=true"
    assert entry["request"]["queryString"] == [{"name": "beta", "value": "true"}]
    assert entry["request"]["postData"] == {"mimeType": "application/json", "text": '{"model":"x"}'}
    assert entry["response"]["content"] == {"size": 10, "mimeType": "text/event-stream", "text": "data: {}\n\n"}
    assert (entry["_usage"], entry["_chunks"]) == ({"input_tokens": 7, "output_tokens": 2}, [[10, 900]])
    assert entry["connection"] == "c3"


def test_a_call_without_an_answer_and_one_that_is_binary() -> None:
    contents: list[Content] = []
    asked = ModelRequest(at_ns=5, call="m1", agent="a1", turn="t1", api="openai.chat", host=b"::1", port=8080,
                         scheme="http")  # fmt: skip
    plain = HttpExchange(
        at_ns=9, exchange="h1", host=b"files.example", method=b"GET", path=b"/x", status=200, requested_ns=6,
        response=body(b"\xff\x00", contents), scheme="http", port=80,
    )  # fmt: skip
    first, second = har(recording(asked, plain, contents=contents))["log"]["entries"]
    assert first["request"]["url"] == "http://files.example/x"
    assert first["response"]["content"]["encoding"] == "base64"
    assert (second["_ending"], second["response"]["status"]) == ("unfinished", 0)
    assert second["request"]["url"] == "http://[::1]:8080/"


def test_what_was_not_kept_says_so() -> None:
    plain = HttpExchange(
        at_ns=9, exchange="h1", host=b"h", method=b"POST", path=b"/", request=Body(5, (), "over-cap"),
        response=Body(6, (), "over-cap"),
    )  # fmt: skip
    (entry,) = har(recording(plain, contents=[]))["log"]["entries"]
    assert entry["request"]["postData"]["comment"] == "not kept"
    assert entry["response"]["content"]["comment"] == "not kept"


KINDS = st.sampled_from(["model.request", "model.response", "http.exchange", "gap"])
HEADERS = st.lists(st.lists(st.text(max_size=3), max_size=3), max_size=2)
VALUES = st.none() | st.integers() | st.text(max_size=9) | HEADERS
NAMES = st.sampled_from(
    ["call", "host", "port", "path", "headers", "status", "requested_ns", "headers_ns", "scheme", "request", "method"]
)


@given(st.lists(st.tuples(KINDS, st.dictionaries(NAMES, VALUES)), max_size=8))
def test_no_row_breaks_it(rows: list[tuple[str, dict[str, Any]]]) -> None:
    made = [FakeRow(seq, seq, kind, "run", None, "", "", data) for seq, (kind, data) in enumerate(rows, 1)]
    assert isinstance(har(FakeRecording(), made)["log"]["entries"], list)


def test_a_recording_of_ours_whole() -> None:
    with Reader.open(SAMPLE) as source:
        entries = har(source)["log"]["entries"]
    assert entries
    assert all(entry["request"]["postData"]["text"] for entry in entries if entry["request"]["bodySize"] > 0)


def test_another_reader_of_the_format_reads_it() -> None:
    haralyzer = pytest.importorskip("haralyzer", reason="haralyzer is not installed")
    with Reader.open(SAMPLE) as source:
        document = har(source)
    entries = [haralyzer.HarEntry(one) for one in haralyzer.HarParser(document).har_data["entries"]]
    assert len(entries) == len(document["log"]["entries"])
    assert {entry.request.method for entry in entries} == {"POST"}
    assert all(entry.startTime.year > 2000 and entry.time >= 0 for entry in entries)
    assert [entry.response.status for entry in entries if entry.response.status] != []


def test_mitmproxy_reads_it(tmp_path: Path) -> None:
    mitmdump = shutil.which("mitmdump")
    if mitmdump is None:
        pytest.skip("mitmproxy is not installed")
    with Reader.open(SAMPLE) as source:
        document = b"".join(export.exporter("har")(source, source.rows(), 10**18))
    path = tmp_path / "run.har"
    path.write_bytes(document)
    done = subprocess.run([mitmdump, "-n", "-r", path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("<<") == len(json.loads(document)["log"]["entries"])
