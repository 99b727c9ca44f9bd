"""Which exchanges are MCP's: by what is declared, by heads, by how bodies begin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.events.exchange import Headers, OfMcp
from agentwrap.mcp.declared import Declared
from agentwrap.mcp.http import (
    BEGINNING_MAX,
    Maybe,
    Place,
    Recognition,
    answer_says,
    http_servers,
    place_of,
    place_of_url,
    request_says,
)

BOTH = (b"Accept", b"application/json, text/event-stream")
JSON = (b"Content-Type", b"application/json")
INITIALIZE = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}'
HERE = Place(b"mcp.example", 8080, b"/mcp")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        (b"http://mcp.example:8080/mcp", HERE),
        (b"HTTP://MCP.Example.:8080/mcp?x=1#y", HERE),
        (b"https://mcp.example", Place(b"mcp.example", 443, b"/")),
        (b"http://user:word@mcp.example/a/b", Place(b"mcp.example", 80, b"/a/b")),
        (b"http://[::1]:9/x", Place(b"::1", 9, b"/x")),
        (b"ws://mcp.example/", None),
        (b"http://mcp.example:0/", None),
        (b"http://mcp.example:${PORT}/", None),
        (b"mcp.example", None),
    ],
)
def test_places_of_urls(url: bytes, place: Place | None) -> None:
    assert place_of_url(url) == place


def test_targets_say_where_a_request_goes() -> None:
    assert place_of(b"/mcp?session=1", b"MCP.example", 8080) == HERE
    assert place_of(b"http://mcp.example:8080/mcp", b"proxy.example", 3128) == HERE
    assert place_of(b"*", b"mcp.example", 8080).path == b"*"


def declared(url: bytes, name: bytes = b"github") -> Recognition:
    return Recognition(http_servers([Declared(name, "claude-code", b"/x/.mcp.json", url=url)]))


@pytest.mark.parametrize("method", [b"POST", b"GET", b"DELETE"])
@pytest.mark.parametrize("place", [HERE, Place(b"mcp.example", 8080, b"/mcp/")])
def test_what_is_declared_needs_no_marks(method: bytes, place: Place) -> None:
    of = OfMcp(b"github", "config", b"/x/.mcp.json")
    assert declared(b"http://mcp.example:8080/mcp").of_head(method, place, ()) == of


def test_declared_by_a_name_reached_by_an_address() -> None:
    recognition = declared(b"http://mcp.example:8080/mcp")
    by_address = Place(b"192.0.2.1", 8080, b"/mcp")
    assert recognition.of_head(b"POST", by_address, ((b"Host", b"mcp.example:8080"),)) is not None
    assert recognition.of_head(b"POST", by_address, ((b"Host", b"192.0.2.1:8080"),)) is None
    local = declared(b"http://localhost:3000/mcp")
    for host in (b"127.0.0.1", b"::1", b"localhost"):
        assert local.of_head(b"POST", Place(host, 3000, b"/mcp"), ()) is not None
        assert local.of_head(b"POST", Place(host, 3001, b"/mcp"), ()) is None
        assert local.of_head(b"GET", Place(host, 3000, b"/.well-known/oauth-protected-resource"), ()) is None


@pytest.mark.parametrize(
    ("method", "headers", "found"),
    [
        (b"POST", (JSON, BOTH), Maybe("request")),
        (b"POST", (JSON, (b"accept", b"application/json")), None),
        (b"POST", (JSON, (b"accept", b"text/event-stream")), None),
        (b"POST", ((b"content-type", b"text/plain"), BOTH), None),
        (b"POST", (JSON, (b"Mcp-Session-Id", b"x")), OfMcp(b"mcp.example:8080")),
        (b"POST", (JSON, (b"mcp-method", b"tools/call")), OfMcp(b"mcp.example:8080")),
        (b"POST", (JSON, (b"MCP-Protocol-Version", b"2025-11-25")), OfMcp(b"mcp.example:8080")),
        (b"GET", ((b"Accept", b"text/event-stream"), (b"Mcp-Session-Id", b"x")), OfMcp(b"mcp.example:8080")),
        (b"GET", ((b"Accept", b"text/event-stream"),), Maybe("answer")),
        (b"GET", ((b"MCP-Protocol-Version", b"2025-11-25"),), None),
        (b"DELETE", ((b"mcp-session-id", b"x"),), OfMcp(b"mcp.example:8080")),
        (b"DELETE", (), None),
        (b"OPTIONS", ((b"mcp-session-id", b"x"),), None),
    ],
)
def test_heads(method: bytes, headers: Headers, found: OfMcp | Maybe | None) -> None:
    assert Recognition().of_head(method, HERE, headers) == found


def test_a_place_that_was_seen_is_known() -> None:
    recognition = Recognition()
    recognition.seen(HERE)
    assert recognition.of_head(b"POST", HERE, ()) == OfMcp(b"mcp.example:8080")


@pytest.mark.parametrize(
    ("stated", "path"),
    [
        (b"/messages?session_id=1", b"/messages"),
        (b"messages/", b"/old/messages/"),
        (b"http://mcp.example:8080/m", b"/m"),
    ],
)
def test_where_an_old_server_wants_messages(stated: bytes, path: bytes) -> None:
    recognition = Recognition()
    recognition.endpoint(Place(b"mcp.example", 8080, b"/old/sse"), stated, OfMcp(b"s", "config", b"c"))
    found = recognition.of_head(b"POST", Place(b"mcp.example", 8080, path), ())
    assert found == OfMcp(b"s", "config", b"c", endpoint=True)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (INITIALIZE, True),
        (b' [{"method" : "tools/list", "jsonrpc": "2.0", "id": 1}]', True),
        (b'{"jsonrpc":"2.0","method":"message/send"}', False),
        (b'{"jsonrpc":"2.0","id":1,"method":"textDocument/hover"}', False),
        (b'{"model":"m","messages":[]}', False),
        (b"method=tools/list", False),
        (b"", False),
    ],
)
def test_how_requests_begin(body: bytes, says: bool) -> None:
    assert request_says(body, whole=True) is says
    for cut in range(len(body)):
        assert request_says(body[:cut], whole=False) in (None, says)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"event: endpoint\ndata: /messages?session_id=1\n\n", b"/messages?session_id=1"),
        (b"\xef\xbb\xbf: hello\r\n\r\nid: 1\r\nevent:endpoint\r\ndata:/m\r\n\r\n", b"/m"),
        (b"event: message\ndata: {}\n\n", False),
        (b"data: {}\n\n", False),
        (b"event: endpoint\n\ndata: x\n", b"x"),
    ],
)
def test_how_streams_begin(body: bytes, says: bytes | bool) -> None:
    assert answer_says(body, whole=True) == says
    for cut in range(len(body)):
        assert answer_says(body[:cut], whole=False) in (None, says)


@given(st.binary(max_size=200), st.booleans())
def test_whatever_comes_is_told_apart(beginning: bytes, whole: bool) -> None:
    for says in (request_says(beginning, whole=whole), answer_says(beginning, whole=whole)):
        assert not (whole and says is None)
    assert request_says(beginning * 100 + b" " * BEGINNING_MAX, whole=False) is not None
    assert place_of_url(beginning) is None or place_of_url(b"x" + beginning) is None
    place_of(beginning, beginning, 80)
    Recognition().of_head(b"POST", HERE, ((b"host", beginning), (b"accept", beginning)))
    declared(b"http://mcp.example/").of_head(b"POST", HERE, ((b"host", beginning),))
