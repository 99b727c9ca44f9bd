"""Lines of MCP: of any shape of row, live and afterwards."""

import dataclasses
import unicodedata
from typing import Any

import mcp_run
import pytest
from fake_recording import FakeRecording, FakeRow
from hypothesis import given
from hypothesis import strategies as st

from agentwrap import text
from agentwrap.evidence.linking import Linker, of_recording
from agentwrap.views import mcp, noise
from agentwrap.views.context import Context
from agentwrap.views.lines import stream_line

RUN = FakeRecording(mcp_run.items(), meta=mcp_run.meta())
KINDS = [
    *("mcp.session", "mcp.message", "mcp.hello", "mcp.call", "mcp.joined", "mcp.result", "mcp.decision", "mcp.tool"),
    *("mcp.finding", "mcp.ended"),
]
FIELDS = (
    "session server transport how config command url number up sort method id call ours passed exchange piece body "
    "protocol client_name client_version server_name server_version tool modern arguments omitted_bytes digest "
    "tool_call joined retry_of agent on_behalf_of ending error size text claimed_ns decision by rule why ask name "
    "change before pinned shadows description what detail messages up_bytes down_bytes"
).split()
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=12)
    | st.sampled_from(["k1", "s1", "x1", "tools/call", "complete", "denied", "changed", '{"a":"b"}', "file:///x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner), max_leaves=6,
)  # fmt: skip
rows = st.builds(
    FakeRow, seq=st.integers(1, 9), at_ns=st.integers(0, 2**62), kind=st.sampled_from(KINDS),
    span=st.sampled_from(["p1", "gone", None]), pid=st.just(1), subject=st.text(max_size=20),
    verdict=st.sampled_from(["", "allow", "deny"]), data=st.dictionaries(st.sampled_from(FIELDS), values, max_size=9),
)  # fmt: skip


def plain(pieces: Any) -> str:
    return "".join(content for content, _ in pieces)


@given(st.lists(rows, max_size=6), st.booleans(), st.integers(20, 200))
def test_rows_of_any_shape_are_harmless_lines_that_fit(told: list[FakeRow], live: bool, columns: int) -> None:
    story = Linker()
    for row in told:
        story.feed(dataclasses.replace(row))
    source = FakeRecording()
    context = Context(source, columns=columns, live=live, story=story)
    lines = [plain(stream_line(row, context)) for row in told]
    for row in told:
        noise.hidden(row, live=live)
    for talk in story.mcp.sessions.values():
        lines += map(plain, mcp.session_lines([talk], story, context, everything=True))
    for use in story.mcp.calls.values():
        lines += map(plain, mcp.use_lines(use, story, context))
        lines += map(plain, mcp.act_lines(use, story, context))
    for line in lines:
        assert not any(unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp") for sign in line)
    assert all(text.width(plain(stream_line(row, context))) <= columns for row in told)


def line_of(kind: str, number: int = 0, *, live: bool = False, **found: Any) -> str:
    story = of_recording(RUN, RUN.meta)
    told = RUN.rows(kinds=(kind,))
    fitting = [row for row in told if all(row.data.get(key) == value for key, value in found.items())]
    return plain(stream_line(fitting[number], Context(RUN, live=live, story=story)))


@pytest.mark.parametrize(
    ("kind", "found", "told"),
    [
        ("mcp.hello", {}, "mcp    hello  tickets  agent 2.1 speaks with ticket-server 0.2  2025-11-25"),
        ("mcp.tool", {"change": "changed", "name": "merge"}, "changed  tickets  merge  merge: does it, and mails it"),
        ("mcp.ended", {}, "ended  tickets  client closed"),
        ("mcp.message", {"ours": True}, "← s1  response  5  said by agentwrap"),
        ("mcp.message", {"passed": False}, "→ s1  request  tools/call 4  did not pass"),
    ],
)
def test_what_lines_say(kind: str, found: dict[str, Any], told: str) -> None:
    assert told in line_of(kind, **found)


def test_while_a_file_grows_a_result_has_a_line_of_its_own() -> None:
    assert line_of("mcp.call", call="k3", live=True).endswith("ok 410ms 109B") is True
    assert "result  ok 410ms 109B" in line_of("mcp.result", call="k3", live=True)
    story = Linker()
    asked = next(row for row in RUN.rows(kinds=("mcp.call",)) if row.data["call"] == "k3")
    story.feed(asked)
    assert plain(stream_line(asked, Context(RUN, live=True, story=story))).endswith("limit=3")
    assert "no end seen" in plain(stream_line(asked, Context(RUN, story=story)))


def test_requests_of_a_server_and_second_tries() -> None:
    data = {"call": "k1", "session": "s1", "server": "tickets", "method": "sampling/createMessage", "up": False}
    row = FakeRow(1, 10, "mcp.call", "p2", 7, "sampling/createMessage", "", {**data, "retry_of": "k0"})
    assert "tickets  asks for sampling/createMessage    again after k0" in plain(stream_line(row, Context(RUN)))
