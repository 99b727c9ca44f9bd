import json
from itertools import pairwise
from typing import Any

import model_run
import sample_wall
from fake_recording import FakeRecording, FakeRow
from foreign_rows import OnlyRows, row_lists
from hypothesis import given, settings
from hypothesis import strategies as st

from agentwrap.export import exporter, perfetto

RUN = FakeRecording(model_run.items(), meta=model_run.meta())


def trace(source: Any, rows: Any = None) -> list[dict[str, Any]]:
    data = b"".join(exporter("perfetto")(source, source.rows() if rows is None else rows, 10**18))
    assert data.isascii()
    events = json.loads(data)["traceEvents"]
    check(events)
    return events  # type: ignore[no-any-return]


def check(events: list[dict[str, Any]]) -> None:
    """What importers of the format ask for."""
    for event in events:
        assert event["ph"] in "XiMsf"
        assert isinstance(event["pid"], int)
        assert event["pid"] > 0
        assert isinstance(event["tid"], int)
        assert event["ph"] == "M" or event["ts"] >= 0
        assert event["ph"] != "X" or event["dur"] >= 0
    starts = [event["id"] for event in events if event["ph"] == "s"]
    assert sorted(starts) == sorted(event["id"] for event in events if event["ph"] == "f")


def slices(events: list[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X" and event["cat"] == category]


TRACE = trace(RUN)


def test_every_span_is_a_slice_of_a_named_track() -> None:
    assert [one["name"] for one in slices(TRACE, "process")] == ["pytest", "bash", "agent"]
    assert [one["name"] for one in slices(TRACE, "tool")] == ["Bash", "Edit", "Task"]
    assert {one["name"] for one in slices(TRACE, "turn")} == {"t1", "t2", "t3", "t4", "t5"}
    assert "create /srv/project/report.xml" in {one["name"] for one in slices(TRACE, "moment")}
    named = {(one["pid"], one["tid"]) for one in TRACE if one["ph"] == "M" and one["name"] == "thread_name"}
    assert {(one["pid"], one["tid"]) for one in TRACE if one["ph"] == "X"} == named
    processes = {one["args"]["name"] for one in TRACE if one["name"] == "process_name"}
    assert {"agent (4100)", "pytest (4122)", "agent a1 claude-sonnet-4-5", "agentwrap"} <= processes


def test_slices_of_a_track_do_not_overlap() -> None:
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for one in TRACE:
        if one["ph"] == "X":
            tracks.setdefault((one["pid"], one["tid"]), []).append((one["ts"], one["ts"] + one["dur"]))
    for told in tracks.values():
        told.sort()
        for (_, end), (start, _) in pairwise(told):
            assert start >= end - 0.001
    assert len({one["tid"] for one in slices(TRACE, "tool")}) == 2  # Edit and Task were asked for at once


def test_an_arrow_leads_from_the_tool_to_its_process() -> None:
    (start,) = [one for one in TRACE if one["ph"] == "s"]
    (finish,) = [one for one in TRACE if one["ph"] == "f"]
    bash = next(one for one in slices(TRACE, "tool") if one["name"] == "Bash")
    shell = next(one for one in slices(TRACE, "process") if one["name"] == "bash")
    assert (start["pid"], start["tid"], start["ts"]) == (bash["pid"], bash["tid"], bash["ts"])
    assert (finish["pid"], finish["tid"], finish["ts"]) == (shell["pid"], shell["tid"], shell["ts"])


def test_times_are_microseconds_of_the_run() -> None:
    (call,) = [one for one in slices(TRACE, "model") if one["args"]["id"] == "m2"]
    assert (call["ts"], call["dur"]) == (1_300_000.0, 1_900_000.0)
    assert call["args"]["input_tokens"] == 18204


def test_decisions_are_marks() -> None:
    marks = [one for one in trace(FakeRecording(sample_wall.events())) if one["ph"] == "i"]
    assert any(one["name"].startswith("deny ") for one in marks)


@settings(max_examples=40, deadline=None)
@given(row_lists, st.booleans())
def test_any_rows_give_a_trace(given_rows: list[FakeRow], known: bool) -> None:
    data = b"".join(perfetto.export(RUN if known else OnlyRows(given_rows), given_rows, 0))
    check(json.loads(data)["traceEvents"])
