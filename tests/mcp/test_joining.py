"""MCP calls found to carry out tool calls of a model."""

import json

import pytest
from mcp_told import Told

from agentwrap.events import Gap, McpCall, McpJoined, ToolCall
from agentwrap.mcp import joining
from agentwrap.mcp.joining import plain

ID = b"toolu_2de431b53c5c4f2e"


def joins(told: Told) -> dict[str, tuple[str, str]]:
    """Call -> (tool call, how), whenever it was found."""
    found = {one.call: (one.tool_call, one.joined) for one in told.of(McpCall)}
    found.update({one.call: (one.tool_call, one.joined) for one in told.of(McpJoined)})
    return found


@pytest.mark.parametrize("key", ["claudecode/toolUseId", "callId", "something/else"])
@pytest.mark.parametrize("model_first", [True, False])
def test_the_client_says_which(key: str, model_first: bool) -> None:
    told = Told().open()
    if model_first:
        told.model_calls("x0", b"mcp__tickets__search", b'{"q":"a"}', b"toolu_another_one")
        told.model_calls("x1", b"whatever it calls it", b'{"q":"other"}', ID)
    told.call(1, "search", {"q": "a"}, {key: ID.decode(), "progressToken": 2})
    told.text(1, "found")
    if not model_first:
        told.model_calls("x1", b"whatever it calls it", b'{"q":"other"}', ID)
    assert joins(told) == {"k1": ("x1", "id")}
    assert len(told.of(McpJoined)) == (0 if model_first else 1)


@pytest.mark.parametrize(
    "name",
    [
        *(b"mcp__My_Tickets__search-all", b"My_Tickets__search-all", b"my.tickets.search_all", b"search-all"),
        *(b"mcp_my-tickets_search-all", b"mcp__My Tickets!__search-all"),
    ],
)
def test_names_as_agents_mangle_them(name: bytes) -> None:
    told = Told().open(server=b"My Tickets!")
    told.model_calls("x1", name, b'{ "b":[1,2.0], "a" : "\\u00e9"}')
    told.call(1, "search-all", {"a": "é", "b": [1, 2.0]})
    assert joins(told) == {"k1": ("x1", "content")}


def test_equal_calls_are_joined_one_to_one() -> None:
    told = Told().open()
    for tool in ("x1", "x2"):
        told.model_calls(tool, b"mcp__tickets__search", b'{"q":"a"}')
    told.call(1, "search", {"q": "a"})
    told.call(2, "search", {"q": "a"})
    told.call(3, "search", {"q": "a"})
    assert joins(told) == {"k1": ("x1", "content"), "k2": ("x2", "content"), "k3": ("", "")}


def test_other_arguments_are_joined_by_time_if_nothing_else_can_be_meant() -> None:
    told = Told().open()
    told.model_calls("x1", b"mcp__tickets__search", b'{"q":"a"}')
    told.call(1, "search", {"q": "a", "limit": 10})
    assert joins(told) == {"k1": ("", "")}
    told.text(1, "found")
    assert joins(told) == {"k1": ("x1", "time")}


def test_two_that_could_be_meant_are_not_guessed() -> None:
    told = Told().open()
    told.model_calls("x1", b"mcp__tickets__search", b'{"q":"a"}')
    told.model_calls("x2", b"mcp__tickets__search", b'{"q":"b"}')
    told.call(1, "search", {"q": "c"})
    told.text(1, "found")
    assert joins(told) == {"k1": ("", "")}


def test_the_answer_of_the_model_is_read_later_than_the_call_is_over() -> None:
    told = Told().open()
    told.call(1, "search", {"q": "a"})
    told.text(1, "found")
    told.call(2, "search", {"q": "z"})
    told.text(2, "found")
    told.model_calls("x1", b"mcp__tickets__search", b'{"q":"a"}')
    assert joins(told) == {"k1": ("x1", "content"), "k2": ("", "")}
    told.model_calls("x2", b"mcp__tickets__search", b'{"q":"y"}')
    assert joins(told)["k2"] == ("x2", "time")


def test_a_tool_whose_result_was_told_is_not_open() -> None:
    told = Told().open()
    told.model_calls("x1", b"mcp__tickets__search", b'{"q":"a"}')
    told.model_told("x1")
    told.call(1, "search", {"q": "a"})
    told.text(1, "found")
    assert joins(told) == {"k1": ("", "")}


def test_a_program_that_the_model_wrote_calls_many() -> None:
    told = Told().open()
    code = b'const r = await tools.mcp__tickets__search({q: "flaky \\"x\\""}); tools.mcp__tickets__close({id: r[0]})'
    told.model_calls("x1", b"exec", json.dumps({"code": code.decode()}).encode())
    told.model_calls("x2", b"exec", code)
    told.call(1, "search", {"q": 'flaky "x"'})
    told.call(2, "close", {"id": 77})
    assert joins(told) == {"k1": ("x2", "content"), "k2": ("x2", "time")}


def test_clipped_arguments_are_compared_as_far_as_they_go() -> None:
    told = Told().open()
    arguments = {"path": "a", "text": "long " * 3000}
    raw = json.dumps(arguments, separators=(",", ":")).encode()
    for tool, text in (("x1", raw.replace(b'"a"', b'"b"')), ("x2", raw)):
        clipped = ToolCall(
            at_ns=told.now(), tool=tool, call="m1", agent="a1", turn="t1", id=tool.encode(),
            name=b"mcp__tickets__write", arguments=text[:4096], omitted_bytes=len(text) - 4096,
        )  # fmt: skip
        told.decoder.see([clipped])
    told.call(1, "write", arguments)
    assert joins(told) == {"k1": ("x2", "content")}


def test_only_calls_of_tools_by_the_client_are_joined() -> None:
    told = Told().open()
    told.model_calls("x1", b"mcp__tickets__search", b'{"q":"a"}')
    told.ask(1, "prompts/get", {"name": "search", "arguments": {"q": "a"}})
    told.ask(1, "tools/call", {"name": "search", "arguments": {"q": "a"}}, up=False)
    assert joins(told) == {"k1": ("", ""), "k2": ("", "")}


def test_no_arguments_are_an_empty_object() -> None:
    told = Told().open()
    told.model_calls("x1", b"mcp__tickets__list", b"")
    told.ask(1, "tools/call", {"name": "list"})
    assert joins(told) == {"k1": ("x1", "content")}


def test_servers_that_were_not_relayed_leave_a_gap() -> None:
    told = Told().open()
    told.model_calls("x1", b"mcp__tickets__search")
    told.model_calls("x2", b"mcp__hidden__do")
    told.model_calls("x3", b"mcp__hidden__do_more")
    told.model_calls("x4", b"Bash")
    told.model_calls("x5", b"mcp__tickets.search")
    told.model_calls("x6", b"mcp__other.do")
    told.decoder.finish(told.now())
    gap, other = told.of(Gap)
    assert other.detail == b"other"
    assert (gap.what, gap.cause, gap.detail, gap.from_ns) == ("mcp-stdio", "unrelayed-mcp", b"hidden", 3000)


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "WAITING_MAX", 5)
    monkeypatch.setattr(joining, "TOOLS_MAX", 5)
    told = Told().open()
    for number in range(20):
        told.call(number, "search", {"q": number})
    for number in range(20):
        told.model_calls(f"x{number}", b"mcp__tickets__search", b'{"q":%d}' % number)
    assert [one.call for one in told.of(McpJoined)] == ["k16", "k17", "k18", "k19", "k20"]


def test_plain_names() -> None:
    assert plain(b"My Tickets!") == plain(b"my__tickets") == b"my_tickets"
    assert plain("é".encode()) == b""
