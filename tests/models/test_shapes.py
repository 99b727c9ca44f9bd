"""Which request lines are calls of a model."""

import pytest

from agentwrap.models.shapes import SHAPES, by_api, recognise

CALLS = {
    "anthropic.messages": [
        "POST /v1/messages",
        "POST /v1/messages?beta=true",
        "POST /anthropic/v1/messages?beta=true",
        "POST //v1/messages",
        "POST /v1/projects/p/locations/l/publishers/anthropic/models/claude-x@1:streamRawPredict",
    ],
    "openai.chat": [
        "POST /v1/chat/completions",
        "POST /chat/completions",
        "POST /api/v1/chat/completions",
        "POST /openai/deployments/x/chat/completions?api-version=2025-04-01",
    ],
    "openai.responses": [
        "POST /v1/responses",
        "GET /v1/responses",
        "POST /responses",
        "POST /backend-api/codex/responses",
        "POST /openai/responses?api-version=1",
        "POST /api/v1/responses",
    ],
    "gemini.generate": [
        "POST /v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse",
        "POST /v1beta/models/gemini-3-pro:generateContent",
        "POST /v1/projects/p/locations/l/publishers/google/models/gemini-3-pro:streamGenerateContent",
        "POST /v1internal:streamGenerateContent?alt=sse",
    ],
}
OTHERS = [
    "HEAD /",
    "GET /",
    "POST /",
    "HEAD /v1/messages",
    "GET /v1/messages",
    "POST /v1/messages/count_tokens",
    "POST /v1/messages/batches",
    "POST /v1/xmessages",
    "POST /v3/mail.example/messages",
    "POST /api/event_logging/batch",
    "OPTIONS /v1/chat/completions",
    "GET /v1/models",
    "GET /v1/chat/completions",
    "GET /v1/chat/completions/chatcmpl-1",
    "GET /v1/responses/resp_1",
    "POST /v1/responses/resp_1/cancel",
    "POST /v1/responses/input_tokens",
    "POST /v1/completions",
    "POST /surveys/7/responses",
    "POST /v1beta/models/gemini-3-pro:countTokens",
    "GET /v1beta/models/gemini-3-pro:generateContent",
    "POST /v1internal:loadCodeAssist",
    "POST /v1/embeddings",
    "POST /" + "v1/messages/" * 2000,
]


@pytest.mark.parametrize(("api", "line"), [(api, line) for api, lines in CALLS.items() for line in lines])
def test_calls_are_recognised(api: str, line: str) -> None:
    method, _, path = line.encode().partition(b" ")
    for host in (b"api.example", b"127.0.0.1:8099", b""):
        found = recognise(method, host, path)
        assert found is not None
        assert found.api == api
        assert by_api(found.api) is found


@pytest.mark.parametrize("line", OTHERS)
def test_other_requests_are_not(line: str) -> None:
    method, _, path = line.encode().partition(b" ")
    assert recognise(method, b"api.example", path) is None


def test_every_reader_has_a_name_of_its_own() -> None:
    assert len({shape.api for shape in SHAPES}) == len(SHAPES)
    with pytest.raises(KeyError):
        by_api("no.such")  # type: ignore[arg-type]
