"""Planted secrets in model traffic (heads, bodies, streams, tools, WebSocket messages): none of them is in the file."""

import hashlib
import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest
from recording.redact.fakes import fakes
from recording.redact.test_scattered import stream
from recording.test_secrets import FOUND, IN_ENVIRONMENT, LATER, begin, forms, pieces

from agentwrap.events import (
    Body,
    Claim,
    Content,
    HttpExchange,
    Item,
    ModelRequest,
    ModelResponse,
    Secrets,
    SessionFile,
    ToolCall,
    ToolResult,
)
from agentwrap.evidence.verify import verify
from agentwrap.recording.reader import Reader
from agentwrap.recording.writer import Recorder

# Known by nothing but the place they stand in.
IN_HEADER = "plain7words-and-more-0815"
IN_COOKIE = "c00kie-0123456789-abcdef"
IN_QUERY = "zz91-in-a-query-0815"
HEADERS = (
    (b"Host", b"api.example.com"),
    (b"Authorization", b"Bearer " + IN_HEADER.encode()),
    (b"X-Api-Key", IN_HEADER.encode()),
    (b"Cookie", b"a=b; sid=" + IN_COOKIE.encode()),
    (b"X-Note", FOUND.encode()),
)
ALL = (IN_ENVIRONMENT, LATER, FOUND, IN_HEADER, IN_COOKIE, IN_QUERY)
PLACE = {"call": "m1", "agent": "a1", "turn": "t1"}


def held(data: bytes, *scattered: tuple[int, ...]) -> tuple[Content, Body]:
    digest = hashlib.sha256(data).digest()
    return Content(digest, data, "body", scattered), Body(len(data), (digest,))


def traffic(secret: str) -> Iterator[Item]:
    """One call in which every place holds the secret; the answer splits it differently each time."""
    path = b"/v1/x?beta=true&key=" + IN_QUERY.encode() + b"&q=" + urllib.parse.quote(secret, safe="").encode()
    asked = json.dumps({"messages": [{"role": "user", "content": f"use {secret} please"}]}).encode()
    content, body = held(asked)
    yield content
    yield ModelRequest(at_ns=1, api="openai.chat", host=b"h.example", path=path, model=b"m", headers=HEADERS,
                       session=secret.encode(), request=body, problem=secret.encode(), **PLACE)  # fmt: skip
    inner = json.dumps({"command": f"login --with '{secret}' now", "env": {"A": secret}})
    clipped = (b"x" * 4080 + b" " + secret.encode())[:4096]
    yield ToolCall(at_ns=2, tool="x1", id=b"i", name=b"Bash", arguments=inner.encode(), **PLACE)
    yield ToolCall(at_ns=2, tool="x2", id=b"i", name=b"Bash", arguments=clipped, omitted_bytes=9, **PLACE)
    yield ToolResult(at_ns=2, tool="x1", id=b"i", size=len(secret), text=secret.encode(), **PLACE)
    yield ToolResult(at_ns=2, tool="x1", id=b"i", size=9000, text=clipped, **PLACE)
    for text in (f"so it is {secret}, then", inner):
        for at in range(1, len(text), 3):
            data, places = stream(text[:at], text[at : at + 5], text[at + 5 :])
            response, answer = held(data, places)
            message, told = held(json.dumps({"role": "assistant", "blocks": [{"kind": "text", "text": text}]}).encode())
            yield from (response, message)
            yield ModelResponse(at_ns=3, ending="complete", status=200, headers=HEADERS, error=secret.encode(),
                                response_id=secret.encode(), unknown=(secret.encode(),), response=answer,
                                message=told, **PLACE)  # fmt: skip
    lines = b"".join(json.dumps({"type": "delta", "delta": secret + str(n)}).encode() + b"\n" for n in range(3))
    content, body = held(lines)
    yield content
    yield HttpExchange(at_ns=4, exchange="h1", host=b"h", method=b"GET", path=path, request_headers=HEADERS,
                       response_headers=((b"Set-Cookie", b"sid=" + IN_COOKIE.encode() + b"; Path=/"),),
                       request=body, response=body, detail=secret.encode())  # fmt: skip
    yield Claim(at_ns=5, said="log", name=secret.encode(), id=secret.encode(), data=inner.encode())
    yield Claim(at_ns=5, said="log", data=clipped, omitted_bytes=5)
    yield content
    yield SessionFile(at_ns=6, agent="codex", path=b"/h/" + secret.encode(), joined=((secret.encode(), b"m1"),),
                      session=secret.encode(), content=body)  # fmt: skip


def plant(recorder: Recorder, secrets: tuple[str, ...]) -> None:
    recorder.secrets(Secrets(values=((b"DB_PASSWORD", IN_ENVIRONMENT.encode()), (b"LATER_TOKEN", LATER.encode()))))
    for secret in secrets:
        for item in traffic(secret):
            if isinstance(item, Content):
                recorder.content(item)
            else:
                assert not isinstance(item, Secrets)
                recorder.add(item)


def together(data: bytes) -> bytes:
    """The texts of a stream as its reader puts them together, one behind the other."""
    lines = [line[6:] for line in data.split(b"\n") if line.startswith(b"data: ")]
    return "".join(json.loads(line)["delta"]["text"] for line in lines).encode() if lines else b""


@pytest.mark.parametrize("shape_only", [False, True])
def test_a_planted_secret_is_found_nowhere(tmp_path: Path, shape_only: bool) -> None:
    recorder = begin(tmp_path, shape_only)
    plant(recorder, (IN_ENVIRONMENT, LATER, FOUND))
    recorder.commit()
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert {"run.agentlog", "run.agentlog-wal"} <= files.keys()
    recorder.close()
    files["closed"] = recorder.path.read_bytes()
    with Reader.open(recorder.path) as reader:
        for row in reader.rows(kinds=["model.response"]):
            files[f"answer {row.seq}"] = together(b"".join(part or b"" for part in reader.body(row.seq, "response")))
    assert len(files) > 100
    for secret in ALL:
        for piece in pieces(secret):
            for name, data in files.items():
                assert piece not in data, (name, piece)
    assert verify(recorder.path, public_key=None).word == "unsigned"


@pytest.mark.parametrize("name", list(fakes()))
def test_a_credential_of_every_provider_in_a_stream(tmp_path: Path, name: str) -> None:
    secret = fakes()[name]
    recorder = begin(tmp_path, shape_only=False)
    for at in range(1, len(secret), 5):
        data, places = stream("a key: " + secret[:at], secret[at:] + " is it")
        content, body = held(data, places)
        recorder.content(content)
        recorder.add(ModelResponse(at_ns=3, ending="complete", response=body, **PLACE))
    recorder.close()
    with Reader.open(recorder.path) as reader:
        for row in reader.rows():
            text = together(b"".join(part or b"" for part in reader.body(row.seq, "response"))).decode()
            assert text.startswith("a key: «redacted:")
            assert text.endswith("» is it")
            assert secret[len(secret) // 4 : -len(secret) // 4] not in text
            assert row.data["response"]["redacted"] is True


def test_names_of_headers_stay_in_order(tmp_path: Path) -> None:
    recorder = begin(tmp_path, shape_only=False)
    plant(recorder, (FOUND,))
    recorder.close()
    with Reader.open(recorder.path) as reader:
        row = next(reader.rows(kinds=["model.request"]))
    assert [name for name, _ in row.data["headers"]] == [name.decode() for name, _ in HEADERS]
    values = dict(row.data["headers"])
    assert values["Host"] == "api.example.com"
    assert all(values[name].startswith("«redacted:") for name in ("Authorization", "X-Api-Key", "Cookie", "X-Note"))
    assert row.data["path"].startswith("/v1/x?beta=true&key=«redacted:query:")


def test_what_was_seen_before_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = begin(tmp_path, shape_only=False)
    looked: list[int] = []
    find = recorder.redactor.find
    monkeypatch.setattr(recorder.redactor, "find", lambda data: looked.append(len(data)) or find(data))
    content, _ = held(b"some words. " * 5000)
    for _ in range(50):
        recorder.content(content)
    recorder.abandon()
    assert looked == [60_000]


def test_shape_only_keeps_names_of_models_and_tools_and_all_numbers(tmp_path: Path) -> None:
    recorder = begin(tmp_path, shape_only=True)
    content, body = held(b'{"text": "private words"}')
    recorder.content(content)
    recorder.add(ModelRequest(at_ns=1, api="openai.chat", host=b"private.example", path=b"/private", model=b"large-1",
                              headers=((b"X-Team", b"private"),), messages=3, request=body, **PLACE))  # fmt: skip
    recorder.add(ToolCall(at_ns=2, tool="x1", id=b"private-id", name=b"mcp__a__b", arguments=b"private", **PLACE))
    recorder.add(ToolCall(at_ns=2, tool="x2", id=b"i", name=b"a private tool", **PLACE))
    recorder.add(ModelResponse(at_ns=3, ending="error", status=429, model=FOUND.encode(), stop=b"tool_use",
                               error=b"private", retry_after=b"7", input_tokens=9, response=body, **PLACE))  # fmt: skip
    recorder.close()
    assert b"private" not in recorder.path.read_bytes()
    assert FOUND.encode() not in recorder.path.read_bytes()
    with Reader.open(recorder.path) as reader:
        request, tool, odd, response = (row.data for row in reader.rows())
        assert [row.subject for row in reader.rows()][:2] == ["large-1", "mcp__a__b"]
        assert reader.spans()["m1"].name == "large-1"
    assert (request["model"], request["messages"], request["headers"][0][0]) == ("large-1", 3, "X-Team")
    assert request["headers"][0][1].startswith("«shape:")
    assert request["request"] == {"size": 25, "omitted": "not-kept", "keyed": response["response"]["keyed"]}
    assert (tool["name"], odd["name"][:7]) == ("mcp__a__b", "«shape:")
    assert (response["stop"], response["retry_after"], response["status"]) == ("tool_use", "7", 429)
    assert response["model"].startswith("«shape:")


def test_the_forms_are_those_of_every_secret() -> None:
    assert all(len(forms(secret)) >= 9 for secret in ALL)
