"""What a review does not look at, it says: there is a bound for everything, and none of them makes a pass."""

import os
from pathlib import Path

import pytest
from mcp_story import POLICY, Story, dumps

from agentwrap.errors import AgentwrapError
from agentwrap.evidence.report import connections, story, tools
from agentwrap.evidence.report.controls import MOST_KEPT, Test
from agentwrap.evidence.report.facts import Facts, Told
from agentwrap.evidence.report.review import review
from agentwrap.mcp.normal_form import tool_digest
from agentwrap.policy.document import load
from agentwrap.policy.layers import Layer
from agentwrap.policy.paths import Places
from agentwrap.recording.reader import Row

MORE_ROWS = "it has more rows than were looked at"


def row(seq: int, kind: str, **data: str) -> Row:
    return Row(seq, 0, kind, "run", 0, "", "", dict(data))


def test_what_is_no_recording_is_not_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.agentlog"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(AgentwrapError, match="not a recording"):
            review(path)


@pytest.mark.parametrize("name", ["attributed", "approved", "decided", "outcome"])
def test_a_call_with_more_rows_than_are_kept_does_not_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(story, "_MOST_ROWS", 2)
    told = Story()
    call = told.fine()
    told.answer(call, result=False)
    assert told.control(tmp_path, name).outcome != "cannot-tell"
    told.answer(call, result=False)
    control = told.control(tmp_path, name)
    assert (control.outcome, [one.why for one in control.exceptions]) == ("cannot-tell", [MORE_ROWS])


@pytest.mark.parametrize("bound", [{"_MOST_BATCHED": 1}, {"_MOST_BATCHED_BYTES": 100}])
def test_batches_that_are_not_kept_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: dict[str, int]
) -> None:
    told = Story()
    told.fine()
    for number in range(2):
        one = {"jsonrpc": "2.0", "id": f"b{number}", "result": {"content": [{"type": "text", "text": "x" * 40}]}}
        told.message(dumps([one]), up=False, sort="batch")
    assert told.control(tmp_path, "attributed").outcome == "pass"
    for name, value in bound.items():
        monkeypatch.setattr(story, name, value)
    for name in ("attributed", "approved", "decided", "outcome"):
        control = told.control(tmp_path, name)
        assert control.outcome == "cannot-tell"
        assert MORE_ROWS in [one.why for one in control.exceptions]


def test_refused_places_that_are_not_kept_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Story()
    told.connect("c1", "deny", b"one.example")
    told.connect("c2", "deny", b"two.example")
    told.connect("c3", "deny", b"one.example")
    assert told.control(tmp_path, "connections").outcome == "pass"
    monkeypatch.setattr(connections, "_MOST", 1)
    control = told.control(tmp_path, "connections")
    assert control.outcome == "cannot-tell"
    assert [one.why for one in control.exceptions] == ["connections to more places were refused than were looked at"]
    assert len(control.exceptions[0].rows) == 1


def test_notes_are_bounded() -> None:
    test = Test("tools", "by hand")
    for number in range(MOST_KEPT + 3):
        test.note(f"note {number}")
    told = test.result().notes
    assert (len(told), told[-1]) == (MOST_KEPT + 1, "and 3 notes more")


def test_findings_of_more_kinds_than_there_are_words_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentwrap.evidence.report import review as shell

    monkeypatch.setattr(shell, "MOST_KEPT", 2)

    class Rows:
        def rows(self, **_: object) -> list[Row]:
            return [row(seq, "mcp.finding", what=f"w{seq % 3}") for seq in range(9)]

    found = shell._findings(Rows())  # type: ignore[arg-type]
    assert [(one.what, one.count, one.rows) for one in found] == [("w0", 3, (0, 3)), ("w1", 3, (1, 4))]


def definition(said: str) -> bytes:
    return dumps({"name": "search", "description": said, "inputSchema": {"type": "object"}})


def test_of_a_pinned_tool_each_definition_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pin = f'\n[[mcp_pin]]\nserver = "github"\ntools = {{ search = "{tool_digest(definition("a"))}" }}\n'
    policy = load((POLICY + pin).encode(), "ci.toml", Places("/srv", "/home/a", "/tmp"), {})
    facts = Facts("intact", policies=(Told(1, "ci", "enforce", "", (Layer("flags", policy),)),))
    said = ["a", "a", "b", "a", "b", "c"]
    control = tools.Tools(facts, lambda row: definition(said[row.seq - 10]))
    for seq, one in enumerate(said, 10):
        told = {"server": "github", "name": "search", "digest": tool_digest(definition(one))}
        control.take(row(seq, "mcp.tool", **told))
    assert control.listings == {b"github": [(10, definition("a")), (12, definition("b")), (15, definition("c"))]}
    monkeypatch.setattr(tools, "_MOST_LISTED", 1)
    control = tools.Tools(facts, lambda row: definition(said[row.seq - 10]))
    for seq in (10, 12):
        control.take(row(seq, "mcp.tool", server="github", name="search"))
    why = "more definitions of pinned tools were listed than were looked at"
    assert why in [one.why for one in control.result().exceptions]
    assert len(control.listings[b"github"]) == 1
