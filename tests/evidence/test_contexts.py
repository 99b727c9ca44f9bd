import json
from typing import Any

import model_run
import msgspec
from fake_recording import FakeRecording
from sample_run import program, start

from agentwrap.evidence import contexts
from agentwrap.evidence.contexts import Comparison, compare
from agentwrap.evidence.turns import turns_of


def said(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def run(*requests: list[dict[str, Any]], **fields: Any) -> list[Any]:
    items: list[Any] = [start(1, "p1", 4100, "run", b"agent"), program(2, "p1", 4100, b"agent")]
    for number, messages in enumerate(requests, 1):
        items += model_run.asked(number * 100, f"m{number}", f"t{number}", messages, **fields)
    return items


def of(items: list[Any], call: str, find: str = "") -> Comparison:
    recording = FakeRecording(items)
    turns = turns_of(recording)
    wanted = turns.call_of(call)
    assert wanted is not None
    return compare(recording, turns, wanted, find)


def told(messages: list[contexts.Said]) -> list[tuple[str, str, str]]:
    return [(one.preview, one.first, one.last) for one in messages]


A, B, C, D = (said(letter) for letter in "ABCD")


def test_a_call_adds_and_repeats() -> None:
    found = of(run([A], [A, B, C]), "m2")
    assert (found.before, told(found.added)) == ("m1", [("B", "m2", "m2"), ("C", "m2", "m2")])
    assert told(found.repeated) == [("A", "m1", "m2")]
    assert found.dropped == found.earlier == []


def test_what_was_dropped_has_the_turn_in_which_it_was_last_told() -> None:
    found = of(run([A], [A, B], [B, C], [C, D]), "t4", find="a")
    assert told(found.dropped) == [("B", "m2", "m3")]
    assert told(found.earlier) == [("A", "m1", "m2")]
    assert [one.found for one in found.earlier] == [True]


def test_what_comes_back_was_told_before() -> None:
    found = of(run([A], [B], [A, B]), "m3")
    assert told(found.added) == [("A", "m1", "m3")]
    assert told(found.repeated) == [("B", "m2", "m3")]


def test_equal_messages_are_counted() -> None:
    found = of(run([A, A, B], [A, B]), "m2")
    assert told(found.dropped) == [("A", "m1", "m1")]
    assert len(found.repeated) == 2


def test_a_mark_for_a_cache_changes_nothing() -> None:
    marked = {"role": "user", "content": [{"type": "text", "text": "A", "cache_control": {"type": "ephemeral"}}]}
    assert len(of(run([A], [marked, B]), "m2").repeated) == 1


def test_other_parts_that_changed_are_named() -> None:
    items = run([A], [A])
    changed, contents = model_run.body(model_run.request_body([A], {"type": "text", "text": "Other."}))
    items[-2:] = [*contents, msgspec.structs.replace(items[-1], request=changed)]
    found = of(items, "m2")
    assert [name for name, _, _ in found.members] == ["system"]


def test_the_first_try_is_not_compared_with_its_second() -> None:
    found = of(model_run.items(), "m2")
    assert (found.before, len(found.added)) == ("", 1)
    assert of(model_run.items(), "t2").before == "m2"


def test_agents_are_kept_apart() -> None:
    found = of(model_run.items(), "m4")
    assert found.before == ""
    assert [one.preview for one in found.added] == ["Look."]


def test_what_was_not_kept_is_said() -> None:
    items = run([A], [A, B])
    without = [item for item in items if not (hasattr(item, "data") and b'"B"' in item.data)]
    assert of(without, "m2").problem == contexts.NOT_KEPT
    assert of(without, "m1").problem == ""


def test_a_body_that_cannot_be_read_is_said() -> None:
    items = run([A])
    broken, contents = model_run.body(json.dumps([1]).encode())
    items[-2:] = [*contents, msgspec.structs.replace(items[-1], request=broken)]
    assert of(items, "m1").problem.startswith(contexts.UNREADABLE)
