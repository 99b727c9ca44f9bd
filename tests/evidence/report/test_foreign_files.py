"""A review of files that somebody made by hand: an answer whatever is in them, and never a fault."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from foreign_rows import json_values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp_story import KEY, POLICY, Story
from recordings import make

from agentwrap.evidence.report import written_policy
from agentwrap.evidence.report.controls import CONTROLS, OUTCOMES
from agentwrap.evidence.report.review import review
from agentwrap.export.reports import FORMATS, renderer
from agentwrap.policy.document import load
from agentwrap.policy.layers import Layer
from agentwrap.policy.loaded import loaded_event
from agentwrap.policy.paths import Places

PLACES = Places("/srv", "/home/a", "/tmp")
OBJECTS = ("mcp.call", "mcp.message", "mcp.decision", "mcp.result", "mcp.tool", "ask.waiting", "ask.answered", "policy",
           "run.start", "net.decision", "net.closed", "process.start", "gap", "coverage", "mcp.finding")  # fmt: skip
NAMES = (
    *("call", "session", "server", "tool", "method", "digest", "ask", "answer", "approver", "uid", "approver_pid"),
    *("layers", "text", "sha256", "mode", "connection", "host", "port", "count", "body", "definition", "sort"),
    *("environment", "command", "what", "cause", "until_ns", "agent", "on_behalf_of", "name", "change", "up", "piece"),
    "passed",
)


def everything(folder: Path) -> Path:
    story = Story()
    story.fine()
    story.denied()
    story.approved()
    story.tool()
    story.tool(change="same")
    story.connect("c1", "deny")
    story.connect("c2", "allow", b"a.example")
    story.closed("c2", host=b"a.example")
    return story.write(folder / "r.agentlog")


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(OBJECTS), st.dictionaries(st.sampled_from(NAMES), json_values, max_size=6),
                          st.booleans()), min_size=1, max_size=3))  # fmt: skip
def test_whatever_rows_hold_there_is_a_review(tmp_path: Path, changes: list[tuple[str, dict[str, Any], bool]]) -> None:
    path = tmp_path / "r.agentlog"
    path.unlink(missing_ok=True)
    everything(tmp_path)
    with sqlite3.connect(path, isolation_level=None) as database:
        for kind, data, whole in changes:
            told = json.dumps(data, allow_nan=False) if _sound(data) else "{"
            how = "?" if whole else "json_patch(data, ?)"
            try:
                database.execute(f"UPDATE event SET data = {how} WHERE kind = ?", (told, kind))
            except sqlite3.OperationalError:  # no JSON: as it is
                database.execute("UPDATE event SET data = ? WHERE kind = ?", (told, kind))
    database.close()
    made = review(path, public_key=KEY)
    assert [control.id for control in made.controls] == list(CONTROLS)
    assert {control.outcome for control in made.controls} <= set(OUTCOMES)
    assert made.count("pass") == 0 or made.recorded.verdict == "intact"
    for name in FORMATS:
        assert b"".join(renderer(name)(made))


def _sound(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def test_a_file_that_cannot_be_read_to_its_end_says_nothing_and_that_is_told(tmp_path: Path) -> None:
    path = make.edit(everything(tmp_path), "UPDATE event SET data = '{' WHERE kind = 'mcp.call'")
    made = review(path, public_key=KEY)
    assert [control.outcome for control in made.controls] == ["fail", *["cannot-tell"] * 8]


def layers_told(*layers: Layer) -> Story:
    story = Story(None)
    story.items.insert(1, loaded_event(layers))
    return story


def test_several_policies_are_taken_apart_again(tmp_path: Path) -> None:
    user = Layer("user", load(POLICY.encode(), "/home/a/policy.toml", PLACES, {}))
    theirs = load(b'version = 1\nname = "p"\nmode = "enforce"\n', "agentwrap.toml", PLACES, {})
    project = Layer("project", theirs, trusted=False)
    story = layers_told(user, project)
    story.denied()
    made = story.review(tmp_path)
    assert {control.id: control.outcome for control in made.controls}["decided"] == "pass"


@pytest.mark.parametrize("trust", ["", ", not trusted: it only narrows"])
def test_a_policy_that_looks_like_two_is_taken_for_neither(tmp_path: Path, trust: str) -> None:
    line = f"# user: /home/a/policy.toml{trust}"
    mine = f'version = 1\nname = "p"\nmode = "enforce"\n\n{line}\nagent = "x"\n'
    project = Layer("project", load(mine.encode(), "agentwrap.toml", PLACES, {}), False)
    user = Layer("user", load(POLICY.encode(), "/home/a/policy.toml", PLACES, {}))
    story = layers_told(project, user)
    story.denied()
    control = story.control(tmp_path, "decided")
    assert (control.outcome, control.exceptions[0].why) == (
        "cannot-tell", "the policy's text can be taken apart in more than one way",
    )  # fmt: skip


def test_a_text_with_too_many_ways_is_not_tried_for_ever() -> None:
    layers = [("user", "f")] * 15 + [("system", "g")]
    text = "# user: f\n" + "x\n\n# user: f\n" * 2_000
    steps = written_policy.Steps()
    assert list(written_policy.apart(text, layers, steps)) == []
    assert steps.left <= 0
