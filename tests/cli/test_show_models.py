import json
from pathlib import Path

import model_run
import pytest
import sample_run

from agentwrap.cli.main import run

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample_run.record(tmp_path_factory.mktemp("models") / "models.agentlog", model_run.items())


def shown(capsys: Capture, *words: object, status: int = 0) -> list[str]:
    assert run(["show", *map(str, words)]) == status
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out.splitlines()


def test_the_stream_tells_turns_and_ends_with_totals(recording: Path, capsys: Capture) -> None:
    lines = shown(capsys, recording)
    assert "  3.200 t1 tool   a1 Bash  pytest -x tests/billing             exit 1  3.2s" in lines
    assert (
        "6 model calls, 37k tokens in (36k cached), 322 out, est $0.02 without 2 of them; 3 tool calls" in lines
    )
    assert sum(" model  " in line for line in lines) == 6
    everything = shown(capsys, recording, "--all")
    assert sum(" model  " in line for line in everything) == 11


def test_tools_say_what_they_caused_and_how_it_is_known(recording: Path, capsys: Capture) -> None:
    lines = shown(capsys, recording, "--tools")
    assert lines[2:7] == [
        "  3.200 t1 x1  a1 Bash  pytest -x tests/billing  exit 1  3.2s",
        "               2 processes, 1 file, 1 connection  (inferred: its command is part of this command line)",
        "  7.000 t2 x2  a1 Edit  billing/retry.py  ok  1.0s",
        "               1 file  (inferred: its arguments name this path)",
        "  7.000 t2 x3  a1 Task  look it over  error  1.0s",
    ]
    assert [line for line in shown(capsys, recording, "--tools", "tool:edit") if " x" in line] == [lines[4]]


def test_tokens_are_summed_by_model_and_nothing_is_made_up(recording: Path, capsys: Capture) -> None:
    lines = shown(capsys, recording, "--tokens")
    cells = [line.split() for line in lines]
    assert ["m2", "t1", "a1", "claude-sonnet-4-5", "18,204", "17,900", "not", "told", "212", "not", "told"] in cells
    assert ["all", "5", "answers", "37,104+", "36,104+", "not", "told", "322+", "30+"] in cells
    assert "2 answers told no number of input or output tokens" in lines


def test_costs_name_their_table_and_what_has_no_price(recording: Path, capsys: Capture) -> None:
    lines = shown(capsys, recording, "--cost")
    assert "estimated by genai-prices 2026-11-01, 1 call; no bill" in lines
    assert "without a price: claude-sonnet-4-5 (1), unknown-model (1)" in lines
    assert ["all", "5", "answers", "$0.02"] in [line.split() for line in lines]


def test_errors_join_attempts(recording: Path, capsys: Capture) -> None:
    lines = shown(capsys, recording, "--errors")
    assert "        t1 model  m1 to m2: 2 attempts, 529, ok" in lines
    assert any("Task  look it over" in line and "error" in line for line in lines)
    assert any("broken off" in line for line in lines)
    assert any("no answer seen" in line for line in lines)


def test_the_context_of_a_turn(recording: Path, capsys: Capture) -> None:
    lines = shown(capsys, recording, "--context", "t4")
    assert "dropped: 3 messages, 354B" in lines
    assert "  #1   user         75B  t1 to t2  Fix the billing tests. Never touch prod.ini." in lines
    assert any(line.startswith("  #1   user         57B  Summary") for line in lines)
    assert shown(capsys, recording, "--context", "5")[2:5] == lines[2:5]


def test_why_it_forgot(recording: Path, capsys: Capture) -> None:
    lines = shown(capsys, recording, "--context", "m6", "--find", "PROD.ini")
    assert "no longer told: first in t1, last told in t2 (m3)" in lines
    assert "so in m6 the model was not told it any more" in lines
    there = shown(capsys, recording, "--context", "m3", "--find", "prod.ini")
    assert "told in m3, with `prod.ini`: 1 message, 75B" in there
    nowhere = shown(capsys, recording, "--context", "m3", "--find", "zz")
    assert "no message up to m3 has `zz` in it" in nowhere


def test_one_call_in_full(recording: Path, capsys: Capture) -> None:
    lines = shown(capsys, recording, "m2")
    assert lines[2] == "m2 claude-sonnet-4-5  t1, agent a1"
    assert "  attempts    2 attempts, 529, ok" in lines
    assert "  times       headers after 100ms, first token after 300ms, end after 1.9s" in lines
    assert "  calls Bash" in lines
    assert "  user-agent: agent/1.0" in lines
    assert "  agent of    x3 Task, a tool call of a1 in t2" in shown(capsys, recording, "m4")


def test_a_turn_a_tool_call_an_agent_and_an_exchange_in_full(recording: Path, capsys: Capture) -> None:
    turn = shown(capsys, recording, "t1")
    assert "events" in turn
    assert any("A report.xml" in line for line in turn)
    tool = shown(capsys, recording, "x1")
    assert "  command: pytest -x tests/billing" in tool
    assert any("tcp  192.0.2.7:5432" in line for line in tool)
    assert any(line.startswith("  7.150 t3 model  ↳ a2") for line in shown(capsys, recording, "a2"))
    assert shown(capsys, recording, "h1")[2] == "h1 GET api.example.com:443/v1/models"
    text = shown(capsys, recording, '"m3"', "kind:tool.result")
    assert any(line.startswith("1 of") and "match" in line for line in text)


@pytest.mark.parametrize(
    "words", [("m99",), ("x99",), ("t99",), ("a99",), ("h99",), ("--context", "m99"), ("--find", "x")]
)
def test_what_is_not_there_is_an_error(recording: Path, capsys: Capture, words: tuple[str, ...]) -> None:
    assert run(["show", str(recording), *words]) == 2
    assert "hint:" in capsys.readouterr().err


def test_json_has_links_tools_totals_and_comparisons(recording: Path, capsys: Capture) -> None:
    def document(*words: str) -> dict[str, object]:
        return json.loads("\n".join(shown(capsys, recording, "--json", *words)))  # type: ignore[no-any-return]

    tools = document("--tools")
    assert tools["links"][0]["span"] == "p2"  # type: ignore[index]
    assert tools["tools"][0]["files"] == ["/srv/project/report.xml"]  # type: ignore[index]
    assert {event["type"] for event in tools["events"]} == {"tool.call", "tool.result"}  # type: ignore[attr-defined]
    assert document("--cost")["totals"]["cost_usd"] == "0.0214"  # type: ignore[index]
    assert document("--context", "t4")["context"]["dropped"][0]["last"] == "m3"  # type: ignore[index]


@pytest.mark.parametrize(
    ("filter_", "count"),
    [("turn:t1", 13), ("turn:t1,t2", 19), ("tool:Bash", 10), ("tool:x2", 3), ("agent:a2", 2), ("call:m1", 2),
     ("model:claude*", 8), ("model:unknown", 2), ("status:529", 1), ("status:>=200", 6), ("status:incomplete", 1),
     ("tokens:>1000", 2), ("%model", 18), ("%model -kind:model", 7), ("host:api.example.com", 8)],
)  # fmt: skip
def test_filters_of_model_traffic(recording: Path, capsys: Capture, filter_: str, count: int) -> None:
    told = shown(capsys, recording, *filter_.split(), "--json")
    assert len(json.loads("\n".join(told))["events"]) == count


def test_an_unknown_ending_is_no_filter(recording: Path) -> None:
    assert run(["show", str(recording), "status:maybe"]) == 2


def test_an_answer_alone_has_its_line(recording: Path, capsys: Capture) -> None:
    lines = shown(capsys, recording, "status:529")
    assert any("529  overloaded_error: busy" in line for line in lines)


def test_a_shape_only_recording_says_what_was_not_kept(tmp_path: Path, capsys: Capture) -> None:
    recording = sample_run.record(tmp_path / "shape.agentlog", model_run.items(), shape_only=True)
    lines = shown(capsys, recording, "--context", "m5")
    assert lines[3] == "m5 (t4), agent a1: what the model was told, against m3 (t2)"
    assert lines[4] == "the request's body was not kept"
    assert lines[5] == "  3 messages, 0 of them sent again, 3 dropped, as counted when it was sent"
    everything = "\n".join(lines + shown(capsys, recording, "m2") + shown(capsys, recording, "x1"))
    assert "pytest" not in everything
    assert "prod.ini" not in everything
    assert any("t1 x1  a1 Bash" in line for line in shown(capsys, recording, "--tools"))
