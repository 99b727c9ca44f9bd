import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import mcp_run
import pytest
import sample_run

from agentwrap.cli.main import run
from agentwrap.events import HttpExchange, McpMessage, RunStart

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample_run.record(tmp_path_factory.mktemp("mcp") / "mcp.agentlog", mcp_run.items())


def shown(capsys: Capture, *words: object, status: int = 0) -> list[str]:
    assert run(["show", *map(str, words)]) == status
    captured = capsys.readouterr()
    assert (captured.err == "") is (status == 0)
    return captured.out.splitlines()


@pytest.mark.parametrize("number", [10**400, -(10**400), "9" * 4000, 1 << 63])
def test_numbers_that_no_run_has_are_shown_somehow(
    recording: Path, tmp_path: Path, capsys: Capture, number: int | str
) -> None:
    """A file made by hand: every number of every row is this one."""
    changed = tmp_path / "changed.agentlog"
    shutil.copy(recording, changed)
    with closing(sqlite3.connect(changed, isolation_level=None)) as database:
        for seq, data in database.execute("SELECT seq, data FROM event").fetchall():
            row = re.sub(r"(?<=:)-?[0-9]+(?=[,}])", str(number), data)
            database.execute("UPDATE event SET data = ? WHERE seq = ?", (row, seq))
    for words in ((), ("--all",), ("--mcp",), ("--tree",), ("k1",), ("s1",), ("--json",)):
        assert run(["show", str(changed), *words]) == 0
    assert capsys.readouterr().err == ""


def test_the_stream_has_a_line_for_each_call(recording: Path, capsys: Capture) -> None:
    lines = shown(capsys, recording)
    for wanted in (
        "  0.012 -- mcp    server  tickets  stdio  node /opt/tickets/server.js  15 messages  6.0s",
        '  0.910 t1 mcp    tickets  search  q="billing flaky" limit=3   ok 410ms 109B',
        '  1.330 t1 mcp    tickets  export  path="tickets.md" format="md"  ok 70ms 50B',
        "  4.001 t2 mcp    approved  tickets  merge  r1  Merges need a human.",
        '  5.010 t3 mcp    tickets  export  path="/etc/passwd"          denied',
        "  5.010 t3 mcp    deny  tickets  export  rule mcp[1] export  only below the project",
        "4 model calls, 900 tokens in, 40 out; 4 tool calls; 4 MCP calls (1 denied), 3 MCP findings",
    ):
        assert wanted in lines
    assert sum("finding  tickets  tool changed" in line for line in lines) == 3
    assert any("MCP messages (15), MCP housekeeping (11)" in line for line in lines)
    everything = shown(capsys, recording, "--all")
    assert sum(" → s1  " in line or " ← s1  " in line for line in everything) == 15


def test_sessions_and_how_each_call_was_joined(recording: Path, capsys: Capture) -> None:
    lines = shown(capsys, recording, "--mcp")
    start = lines.index("s1 tickets  stdio  node /opt/tickets/server.js")
    assert lines[start : start + 16] == [
        "s1 tickets  stdio  node /opt/tickets/server.js",
        "  named       declared in /srv/project/.mcp.json",
        "  speak       agent 2.1 with ticket-server 0.2, protocol 2025-11-25",
        "  process     node(4200)",
        "  tools       3: search, export, merge",
        *(
            f"  finding     tool changed  {tool}  listed before with another description or schema"
            for tool in ("search", "export", "merge")
        ),
        "  ended       client-closed after 6.0s, 15 messages, ↑907B ↓1.4KB",
        '  0.910 t1 k3   search  q="billing flaky" limit=3  ok 410ms 109B  x1 (id)',
        '  1.330 t1 k4   export  path="tickets.md" format="md"  ok 70ms 50B  x2 (content)',
        '  2.010 t2 k5   merge  branch="main"  ok 2.1s 49B  approved mcp[0] merge_* approve  x3 (content)',
        '  5.010 t3 k6   export  path="/etc/passwd"  denied  deny mcp[1] export  x4 (id)',
        "        3 requests for tools and the like (`--all`)",
        "",
        lines[start + 15],
    ]
    assert shown(capsys, recording, "--mcp", "server:tick*")[start] == lines[start]
    assert "no session with an MCP server was recorded" in shown(capsys, recording, "--mcp", "server:other")
    assert sum(" k" in line for line in shown(capsys, recording, "--mcp", "--all")) == 7
    assert sum(" k" in line for line in shown(capsys, recording, "--mcp", "-n", 1)) == 1


def test_one_call_is_one_story(recording: Path, capsys: Capture) -> None:
    lines = shown(capsys, recording, "k4")
    start = lines.index("k4 export  tickets, s1")
    assert lines[start : start + 15] == [
        "k4 export  tickets, s1",
        "  result      ok 70ms 50B",
        "  carries out x2 mcp__tickets__export, t1, agent a1",
        "  joined      inferred: same tool, same arguments",
        "  method      tools/call  id 3",
        lines[start + 5],
        "  path: /srv/project/tickets.md",
        "  format: md",
        "result  50B",
        "  written",
        "the server meanwhile",
        "  1.341 t1 exec   git status                                   exit 0  9ms  node(4200) → git(4210)",
        "  1.360 t1 file   A tickets.md  +1                             node(4200)",
        "  1.370 t1 net    tcp  192.0.2.7:443                           node(4200)",
        "",
    ]
    assert lines[start + 5].startswith("arguments  sha256 ")


def test_who_allowed_a_call_and_for_whom(recording: Path, capsys: Capture) -> None:
    lines = shown(capsys, recording, "k5")
    assert "  acts        release-bot for ann" in lines
    assert "  decision    approved  mcp[0] merge_* approve (p.toml:4): Merges need a human." in lines
    assert "  asked       r1, once by bob (uid 1001)" in lines
    denied = shown(capsys, recording, "k6")
    assert "  decision    deny  mcp[1] export (p.toml:9): only below the project" in denied
    assert "  the call never reached it" in denied


def test_a_tool_call_tells_what_it_did_over_mcp(recording: Path, capsys: Capture) -> None:
    lines = shown(capsys, recording, "x2")
    assert "  over MCP    k4 tickets export  (inferred: same tool, same arguments)" in lines
    assert "  caused      1 process, 1 file, 1 connection  (inferred: done by the MCP server during its call)" in lines
    assert any(line.startswith("  1.330 t1 mcp    tickets  export") for line in lines)
    used = shown(capsys, recording, "--tools")
    assert "               1 process, 1 file, 1 connection  (inferred: done by the MCP server during its call)" in used


def test_denials_and_failures_name_mcp(recording: Path, capsys: Capture) -> None:
    denied = shown(capsys, recording, "--denied")
    assert "  5.010 deny  mcp tickets export  (guard)" in denied
    assert "        rule    mcp[1] export (p.toml:9): only below the project" in denied
    assert "        change  [[mcp]] decision = allow" in denied
    failed = shown(capsys, recording, "--errors")
    assert sum(" mcp  " in line for line in failed) == 5


def test_filters_know_servers_tools_turns_and_calls(recording: Path, capsys: Capture) -> None:
    def kinds(*words: str) -> list[str]:
        lines = shown(capsys, recording, "--all", *words)
        return [line[11:17].strip() for line in lines if line[:8].strip().replace(".", "").isdigit()]

    assert set(kinds("%mcp")) == {"mcp"}
    assert len(kinds("server:tickets")) == len(kinds("%mcp"))
    assert kinds("call:k4", "kind:mcp.call,mcp.result") == ["mcp", "mcp"]
    assert kinds("tool:x4", "kind:mcp.decision") == ["mcp"]
    assert kinds("tool:merge", "kind:mcp.call") == ["mcp"]
    assert kinds("turn:t2", "kind:mcp.call") == ["mcp"]
    assert kinds("agent:release-bot") == []


def test_what_there_is_not(recording: Path, capsys: Capture) -> None:
    for name in ("k99", "s99"):
        assert run(["show", str(recording), name]) == 2
        assert f"`{name}`" in capsys.readouterr().err


def test_the_json_document(recording: Path, capsys: Capture) -> None:
    assert run(["show", "--json", "--mcp", str(recording)]) == 0
    document = json.loads(capsys.readouterr().out)
    (session,) = document["mcp"]["sessions"]
    assert (session["server"], session["tools"], session["ended"]["ending"]) == (
        "tickets", ["search", "export", "merge"], "client-closed",
    )  # fmt: skip
    calls = {call["call"]: call for call in document["mcp"]["calls"]}
    assert (calls["k4"]["tool_call"], calls["k4"]["joined"], len(calls["k4"]["links"])) == ("x2", "content", 3)
    assert (calls["k6"]["verdict"], calls["k6"]["result"]["ending"]) == ("deny", "denied")
    assert {event["type"].partition(".")[0] for event in document["events"]} == {"mcp"}


@pytest.mark.parametrize("words", [(), ("--mcp",), ("k3",), ("--tools",)])
def test_lines_fit_a_narrow_terminal(
    recording: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert run(["show", str(recording), *words]) == 0
    assert capsys.readouterr().out


def test_a_run_that_ends_counts_mcp_calls(recording: Path) -> None:
    from agentwrap.recording.reader import Reader
    from agentwrap.views import summary

    with Reader.open(recording) as source:
        told = "".join(piece[0] for piece in summary.summarize(source))
    assert "4 MCP calls (1 denied), 3 MCP findings" in told


def test_exchanges_whose_messages_are_told_need_no_line(tmp_path: Path, capsys: Capture) -> None:
    items: list[Any] = [RunStart(at_ns=0, command=(b"agent",), cwd=b"/srv", uid=0, gid=0, mode="x")]
    for number, status in (("h1", 200), ("h2", 404), ("h3", 200)):
        at_ns = int(number[1]) * 1000
        if number != "h3":
            items.append(McpMessage(at_ns=at_ns, session="s1", number=1, up=True, sort="request", exchange=number))
        items.append(
            HttpExchange(at_ns=at_ns, exchange=number, host=b"mcp.example.com", method=b"POST",
                         path=b"/" + number.encode(), status=status)
        )  # fmt: skip
    lines = shown(capsys, sample_run.record(tmp_path / "http.agentlog", items))
    assert [line.split("/")[-1].split()[0] for line in lines if " http  " in line] == ["h2", "h3"]


def test_a_server_can_be_named_in_plain_words(recording: Path, capsys: Capture) -> None:
    assert "s1 tickets  stdio  node /opt/tickets/server.js" in shown(capsys, recording, "--mcp", "tickets")
    assert "no session with an MCP server was recorded" in shown(capsys, recording, "--mcp", "nothing-like-it")
