"""What is said in agentwrap's own name, read as a client would."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.mcp import answers
from agentwrap.policy.questions import Answer
from agentwrap.policy.rule import Rule

DENIED = Answer("deny", Rule("mcp.deny", "github delete", "p.toml", 3), "No.", "put a rule before line 3")


def test_a_denial_says_what_by_what_rule_and_who_may_change_it() -> None:
    told = answers.denial_text(DENIED, "call delete of github").split("\n")
    assert told[0] == "agentwrap denied: call delete of github"
    assert told[1].endswith("nothing was sent there.")
    assert told[2:4] == ["Rule: mcp.deny `github delete` (p.toml:3)", "Why: No."]
    assert told[-1] == "A person may allow it: put a rule before line 3"
    assert "its answer was kept back" in answers.denial_text(DENIED, "x", received=True)
    assert "ask the person who runs this" in answers.denial_text(Answer("deny", DENIED.rule), "x")


def test_codes_are_nobody_elses() -> None:
    error = json.loads(answers.error(b"1", "no", "mcp.deny"))["error"]
    assert not -32768 <= error["code"] <= -32000
    assert error["data"] == {"by": "agentwrap", "rule": "mcp.deny"}
    assert json.loads(answers.error(b"", "no", "x"))["id"] is None


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("merge_pr", ""),
        ("m\u0435rge", "U+0435 CYRILLIC SMALL LETTER IE"),
        ("\u0441\u0430\u0442", ""),  # all of one alphabet: what it looks like is what it is
        ("merge\u200b", "cannot be seen: merge\\u200b"),
        ("a\u202eb", "cannot be seen"),
        ("a\x1b[2J", "cannot be seen"),
        ("r\u00e9sum\u00e9", "U+00E9"),
    ],
)
def test_names_that_are_not_what_they_look_like(name: str, told: str) -> None:
    found = answers.oddness(name)
    assert told in found
    assert bool(found) is bool(told)


@given(st.text(), st.text(), st.booleans(), st.sampled_from(["tools/call", "resources/read"]))
def test_whatever_is_told_is_json_without_anything_that_lies(text: str, rule: str, modern: bool, method: str) -> None:
    told = answers.refusal(b'"i"', method, text, rule, modern=modern)
    message = json.loads(told)
    assert message["id"] == "i"
    shown = message["result"]["content"][0]["text"] if method == "tools/call" else message["error"]["message"]
    assert all(one == "\n" or one.isprintable() for one in shown)
    assert b"\n" not in told


@given(st.integers(0, 1 << 40), st.binary(max_size=40))
def test_progress_is_one_line_of_json(count: int, text: bytes) -> None:
    told = answers.progress(b"7", count, text)
    assert b"\n" not in told
    assert json.loads(told)["params"]["progressToken"] == 7
