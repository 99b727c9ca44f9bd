"""MCP calls put together from rows, and what servers did for them."""

from typing import Any

import mcp_run
from fake_recording import FakeRecording, FakeRow

from agentwrap.events import FileState
from agentwrap.evidence.linking import SERVED, Linker, of_recording
from agentwrap.evidence.mcp_calls import McpCalls, calls_of, elapsed_ns, size_of

RUN = FakeRecording(mcp_run.items(), meta=mcp_run.meta())
MS = 1_000_000


def test_sessions_and_calls_of_a_run() -> None:
    found = calls_of(RUN)
    (talk,) = found.sessions.values()
    assert (list(talk.tools), len(talk.findings), talk.calls) == (
        ["search", "export", "merge"], 3, [f"k{number}" for number in range(1, 8)],
    )  # fmt: skip
    use = found.calls["k4"]
    assert (use.method, use.up, use.ending, use.of_a_tool, use.tool_call, use.joined) == (
        "tools/call", True, "complete", True, "x2", "content",
    )  # fmt: skip
    assert (elapsed_ns(use), size_of(use)) == (70 * MS, 50)
    assert [one.id for one in found.of_tool("x2")] == ["k4"]
    assert (found.calls["k6"].ending, found.calls["k5"].decision is not None) == ("denied", True)
    assert [one.id for one in found.open_at("s1", 1350 * MS, 1350 * MS)] == ["k4"]
    assert found.open_at("s1", 1000 * MS, 1010 * MS)[0].id == "k3"
    assert found.open_at("s9", 0, 10**12) == []


def test_of_rows_that_name_nothing_nothing_is_made() -> None:
    found = McpCalls()
    for kind in ("mcp.hello", "mcp.ended", "mcp.result", "mcp.decision", "mcp.joined", "mcp.tool", "mcp.finding"):
        found.follow(FakeRow(1, 1, kind, "p1", 1, "", "", {}))
    assert not found
    found.follow(FakeRow(1, 1, "mcp.call", "p1", 1, "", "", {"call": "k1"}))
    assert found
    assert (found.calls["k1"].end_ns, elapsed_ns(found.calls["k1"]), size_of(found.calls["k1"])) == (None, None, 0)


def test_what_a_server_did_during_a_call_is_of_the_tool_call() -> None:
    story = of_recording(RUN, RUN.meta)
    served = [link for link in story.links if link.evidence == SERVED]
    assert {(link.tool, link.call, bool(link.span), link.ambiguous) for link in served} == {
        ("x2", "k4", True, False),
        ("x2", "k4", False, False),
    }
    assert [link.span for link in served if link.span] == ["p3"]
    rows = [row for row in RUN.rows() if row.seq in {link.seq for link in served}]
    assert [row.kind for row in rows] == ["file.edit", "net.connect"]
    assert {story.turn_of(row) for row in rows} == {"t1"}
    asked = next(row for row in RUN.rows(kinds=("mcp.call",)) if row.data["call"] == "k5")
    assert story.turn_of(asked) == "t2"


def row(at_ms: int, kind: str, span: str, **data: Any) -> FakeRow:
    row.count += 1  # type: ignore[attr-defined]
    return FakeRow(row.count, at_ms * MS, kind, span, 7, "", "", data)  # type: ignore[attr-defined]


row.count = 0  # type: ignore[attr-defined]


def side_by_side(*acts: FakeRow, paths: tuple[str, str] = ("/a", "/b"), end_ms: int = 100) -> Linker:
    """A server that carries out two calls at once."""
    linker = Linker("/srv", 10**18)
    story = [
        row(0, "process.start", "p2", parent="p1"),
        row(1, "mcp.session", "p2", session="s1", server="files"),
        *(
            row(10 + at, "mcp.call", "p2", call=f"k{at}", session="s1", method="tools/call", tool="write",
                tool_call=f"x{at}", arguments=f'{{"path":"{path}"}}')
            for at, path in enumerate(paths, 1)
        ),
        *acts,
        *(row(end_ms, "mcp.result", "p2", call=f"k{at}", session="s1", ending="complete") for at in (1, 2)),
    ]  # fmt: skip
    for one in story:
        linker.feed(one)
    return linker


def test_of_two_calls_the_one_that_names_the_path() -> None:
    named, other = row(50, "file.edit", "p2", path="/b"), row(51, "file.edit", "p2", path="/c")
    links = {link.seq: link for link in side_by_side(named, other).links}
    assert (links[named.seq].call, links[named.seq].ambiguous) == ("k2", False)
    assert (links[other.seq].call, links[other.seq].ambiguous) == ("k1", True)


def test_own_files_and_what_is_after_a_call_are_no_tools_work() -> None:
    own = row(50, "file.edit", "p2", path="/b", klass="agent-state")
    assert side_by_side(own).links == []
    linker = side_by_side()
    late = row(200, "file.edit", "p2", path="/b")
    linker.feed(late)
    assert linker.links == []


def test_a_file_that_is_told_late_was_changed_when_its_time_says() -> None:
    linker = side_by_side(end_ms=60)
    mtime = 10**18 + 55 * MS
    state = {"size": 1, "mtime_ns": mtime}
    assert FileState(mtime_ns=mtime).mtime_ns == mtime
    late = row(90, "file.edit", "p2", path="/b", after=state)
    linker.feed(late)
    assert [(link.call, link.evidence) for link in linker.links] == [("k2", SERVED)]


def test_a_client_of_a_server_elsewhere_is_no_server() -> None:
    linker = Linker()
    for one in (
        row(1, "mcp.session", "p1", session="s1", server="remote", transport="http"),
        row(2, "mcp.call", "p1", call="k1", session="s1", method="tools/call", tool_call="x1"),
        row(3, "file.edit", "p1", path="/b"),
    ):
        linker.feed(one)
    assert linker.links == []


def test_findings_of_others_stand_with_the_last_session_of_the_server() -> None:
    found = McpCalls()
    for number in (1, 2):
        found.follow(row(1, "mcp.session", "p1", session=f"s{number}", server="tickets"))
    found.follow(row(2, "mcp.finding", "p1", what="self-approval", session="", server="tickets"))
    assert [len(talk.findings) for talk in found.sessions.values()] == [0, 1]
