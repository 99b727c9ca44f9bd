"""Trajectories, checked with a model of the format of our own (closed objects, as its makers' validator has them).

The validator of its makers (`harbor`, Python 3.12) is asked where AGENTWRAP_HARBOR names an interpreter that has it.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import model_run
import msgspec
import pytest
from fake_recording import FakeRecording, FakeRow
from foreign_rows import OnlyRows, row_lists
from hypothesis import given, settings
from hypothesis import strategies as st
from recordings import conversation

from agentwrap.export import atif, exporter

STARTED = 1_700_000_000 * 10**9
RUN = FakeRecording(model_run.items(), meta={**model_run.meta(), "run_id": "r1"})


class Closed(msgspec.Struct, forbid_unknown_fields=True):
    pass


class Reference(Closed):
    trajectory_id: str


class Result(Closed):
    content: str
    source_call_id: str | None = None
    subagent_trajectory_ref: list[Reference] | None = None


class Observation(Closed):
    results: list[Result]


class Tool(Closed):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: dict[str, Any] | None = None


class Step(Closed):
    step_id: int
    source: str
    message: str
    timestamp: str | None = None
    model_name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Tool] | None = None
    observation: Observation | None = None
    metrics: dict[str, int | float] | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = None
    extra: dict[str, Any] | None = None


class Trajectory(Closed):
    schema_version: str
    session_id: str
    trajectory_id: str
    agent: dict[str, Any]
    steps: list[Step]
    final_metrics: dict[str, int | float]
    extra: dict[str, Any]
    subagent_trajectories: list["Trajectory"] | None = None


def told(source: Any = RUN, rows: Any = None) -> list[Trajectory]:
    lines = b"".join(exporter("atif")(source, source.rows() if rows is None else rows, STARTED)).splitlines()
    found = [msgspec.json.decode(line, type=Trajectory) for line in lines]
    for one in found:
        check(one)
    return found


def check(one: Trajectory) -> None:
    """The rules that are no types."""
    assert one.schema_version == "ATIF-v1.7"
    assert [step.step_id for step in one.steps] == list(range(1, len(one.steps) + 1))
    assert {"name", "version"} <= one.agent.keys() <= {"name", "version", "model_name", "tool_definitions"}
    for step in one.steps:
        assert step.source in ("system", "user", "agent")
        if step.source != "agent":
            only = (step.model_name, step.reasoning_content, step.tool_calls, step.metrics)
            assert only == (None, None, None, None)
        calls = {call.tool_call_id for call in step.tool_calls or ()}
        assert {result.source_call_id for result in (step.observation.results if step.observation else ())} <= calls
    below = one.subagent_trajectories or []
    assert len({inner.trajectory_id for inner in below}) == len(below)
    for inner in below:
        check(inner)


def test_a_conversation_is_told_step_by_step() -> None:
    (whole,) = told()
    assert whole.session_id == "r1"
    assert whole.agent["name"] == "agent"
    steps = whole.steps
    assert [(step.source, step.message[:20]) for step in steps[:3]] == [
        ("system", "You fix things."), ("user", "Fix the billing test"), ("agent", "I run them."),
    ]  # fmt: skip
    third = steps[2]
    assert third.timestamp == "2023-11-14T22:13:21.300000Z"
    assert third.reasoning_content == "Tests first."
    tokens = {"prompt_tokens": 18204, "completion_tokens": 212, "cached_tokens": 17900}
    assert third.metrics == {**tokens, "cost_usd": 0.0214}
    assert third.extra == {"call": "m2", "turn": "t1", "ending": "complete"}
    assert whole.final_metrics["total_prompt_tokens"] == 18204 + 18400
    assert whole.final_metrics["total_steps"] == len(steps)


def test_results_and_what_was_caused_stand_with_the_call() -> None:
    (whole,) = told()
    bash = next(step for step in whole.steps if step.extra and step.extra["call"] == "m2")
    assert bash.tool_calls is not None
    assert [(call.function_name, call.arguments) for call in bash.tool_calls if call.tool_call_id == "tu1"] == [
        ("Bash", {"command": "pytest -x tests/billing"})
    ]
    assert bash.observation is not None
    assert "1 failed\nE 3" in {result.content for result in bash.observation.results}
    extras = [call.extra for call in bash.tool_calls if call.extra]
    assert {"tool": "x1", "caused": ["p2"], "caused_how": "inferred"} in extras


def test_a_sub_agent_is_in_the_document_of_the_one_above() -> None:
    (whole,) = told()
    assert whole.subagent_trajectories is not None
    (inner,) = whole.subagent_trajectories
    assert [step.message for step in inner.steps][-2:] == ["Look.", "Looks fine."]
    refs = [
        ref.trajectory_id
        for step in whole.steps if step.observation
        for result in step.observation.results
        for ref in result.subagent_trajectory_ref or ()
    ]  # fmt: skip
    assert refs == [inner.trajectory_id] == ["a2"]


def test_a_filter_chooses_agents() -> None:
    assert told(rows=[row for row in RUN.rows() if row.kind == "process.start"]) == []
    assert len(told(rows=[row for row in RUN.rows() if row.data.get("agent") == "a2"])) == 1
    assert told(FakeRecording()) == []


def test_without_bodies_the_skeleton_is_told() -> None:
    bare = FakeRecording(model_run.events())
    (whole,) = told(bare)
    assert {step.source for step in whole.steps} == {"agent"}
    assert [call.function_name for step in whole.steps for call in step.tool_calls or ()] == ["Bash", "Edit", "Task"]


def test_a_long_conversation_tells_every_message_once() -> None:
    (whole,) = told(FakeRecording(conversation.items(60)))
    users = [step for step in whole.steps if step.source == "user"]
    assert len({step.message for step in users}) == len(users)
    assert sum(step.llm_call_count or 0 for step in whole.steps) == 60


@settings(max_examples=40, deadline=None)
@given(row_lists, st.integers(-(1 << 70), 1 << 70))
def test_any_rows_give_documents_or_nothing(given_rows: list[FakeRow], started_ns: int) -> None:
    for line in b"".join(atif.export(OnlyRows(given_rows), given_rows, started_ns)).splitlines():
        check(msgspec.json.decode(line, type=Trajectory))
        assert line.isascii()


HARBOR = os.environ.get("AGENTWRAP_HARBOR", "")


@pytest.mark.skipif(not HARBOR, reason="AGENTWRAP_HARBOR names no Python that has harbor")
def test_the_validator_of_its_makers_agrees(tmp_path: Path) -> None:
    source = b"".join(atif.export(RUN, RUN.rows(), STARTED))
    (tmp_path / "t.json").write_bytes(source)
    code = (
        "import sys; from harbor.models.trajectories.trajectory import Trajectory as T;"
        "print(len(T.model_validate_json(open(sys.argv[1]).read()).steps))"
    )
    done = subprocess.run([HARBOR, "-c", code, str(tmp_path / "t.json")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(json.loads(source)["steps"])
