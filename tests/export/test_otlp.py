import json
from collections.abc import Iterator
from typing import Any

import model_run
import pytest
import sample_wall
from export_received import Trace, attributes, decoded
from fake_recording import FakeRecording, FakeRow
from foreign_rows import OnlyRows, row_lists
from hypothesis import given, settings
from hypothesis import strategies as st

from agentwrap import export
from agentwrap.events import Gap, ProcessExec, ProcessExit, ProcessStart
from agentwrap.evidence.linking import NAMED, RUNS
from agentwrap.export import otlp

STARTED = 10**18
RUN = FakeRecording(model_run.items(), meta={**model_run.meta(), "run_id": "r1"})


def sent(source: Any = RUN, rows: Any = None, **options: Any) -> bytes:
    return b"".join(otlp.requests(source, source.rows() if rows is None else rows, STARTED, **options))


TRACE = Trace(sent())


def messages(span: Any, name: str) -> Any:
    return json.loads(TRACE.told(span)[f"gen_ai.{name}"])


def test_a_run_is_one_tree_of_unique_spans() -> None:
    assert len(TRACE.by_id) == len(TRACE.spans)
    assert len({span.trace_id for span in TRACE.spans}) == 1
    assert {len(span.trace_id) for span in TRACE.spans} == {16}
    assert {len(span.span_id) for span in TRACE.spans} == {8}
    assert [span.name for span in TRACE.spans if not span.parent_span_id] == ["run agent"]
    for span in TRACE.spans:
        assert not span.parent_span_id or span.parent_span_id in TRACE.by_id
        assert STARTED <= span.start_time_unix_nano <= span.end_time_unix_nano <= STARTED + 9_901_000_000


def test_a_call_of_a_model_has_the_names_of_the_conventions() -> None:
    span = TRACE.one("chat claude-sonnet-4-5", agentwrap__model__call="m2")
    told = TRACE.told(span)
    assert span.kind == 3
    assert {name: told[name] for name in told if not name.endswith(("messages", "instructions"))} == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-sonnet-4-5", "gen_ai.response.model": "claude-sonnet-4-5",
        "gen_ai.response.id": "msg_1", "gen_ai.agent.id": "a1", "gen_ai.response.finish_reasons": ["tool_use"],
        "gen_ai.response.time_to_first_chunk": 0.3, "gen_ai.usage.input_tokens": 18204,
        "gen_ai.usage.output_tokens": 212, "gen_ai.usage.cache_read.input_tokens": 17900,
        "server.address": "api.example.com", "server.port": 443, "http.response.status_code": 200,
        "agentwrap.model.call": "m2", "agentwrap.model.api": "anthropic.messages",
        "agentwrap.model.ending": "complete", "agentwrap.model.attempt": 2, "agentwrap.model.retry_of": "m1",
        "agentwrap.model.request_id": "req_1", "agentwrap.turn": "t1", "agentwrap.cost.usd": 0.0214,
        "agentwrap.cost.prices": "genai-prices 2026-11-01",
    }  # fmt: skip
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (STARTED + 1_300_000_000, STARTED + 3_200_000_000)
    assert TRACE.above(span) == ["turn t1", "invoke_agent agent", "run agent"]


def test_what_was_said_is_json_text() -> None:
    span = TRACE.one("chat claude-sonnet-4-5", agentwrap__model__call="m3")
    assert messages(span, "system_instructions") == [{"type": "text", "content": "You fix things."}]
    asked, says, ran = messages(span, "input.messages")
    assert asked == {"role": "user", "parts": [{"type": "text", "content": model_run.ASK["content"]}]}
    assert says["parts"][1] == {
        "type": "tool_call", "id": "tu1", "name": "Bash", "arguments": {"command": "pytest -x tests/billing"}
    }  # fmt: skip
    assert ran["role"] == "tool"
    assert ran["parts"] == [{"type": "tool_call_response", "id": "tu1", "response": "1 failed\nE 3"}]
    (answer,) = messages(TRACE.one("chat claude-sonnet-4-5", agentwrap__model__call="m2"), "output.messages")
    assert [part["type"] for part in answer["parts"]] == ["reasoning", "text", "tool_call"]
    assert answer["parts"][2]["arguments"] == {"command": "pytest -x tests/billing"}
    whole = TRACE.one("run agent")
    assert messages(whole, "input.messages") == [asked]


def test_content_can_be_left_out() -> None:
    data = sent(content=False)
    for word in (b"Fix the billing tests", b"I run them", b"You fix things", b"1 failed"):
        assert word not in data
        assert word in sent()
    told = Trace(data).told(Trace(data).one("chat claude-sonnet-4-5", agentwrap__model__call="m2"))
    assert told["gen_ai.usage.input_tokens"] == 18204


def test_what_a_tool_caused_stands_under_it() -> None:
    shell = TRACE.one("process bash")
    assert TRACE.above(shell)[:2] == ["execute_tool Bash", "turn t1"]
    assert TRACE.told(shell)["agentwrap.link.how"] == "inferred"
    assert TRACE.told(shell)["agentwrap.link.evidence"] in (RUNS, "its command is part of this command line")
    assert TRACE.above(TRACE.one("process pytest"))[:2] == ["process bash", "execute_tool Bash"]
    change = TRACE.one("file.edit modify retry.py")
    assert TRACE.above(change)[0] == "execute_tool Edit"
    assert TRACE.told(change)["agentwrap.link.evidence"] == NAMED
    assert TRACE.told(change)["file.path"] == "/srv/project/billing/retry.py"
    assert TRACE.above(TRACE.one("chat unknown-model"))[:3] == ["turn t3", "invoke_agent agent", "execute_tool Task"]


def test_failures_are_told_as_such() -> None:
    limited = TRACE.one("chat claude-sonnet-4-5", agentwrap__model__call="m1")
    assert (limited.status.code, limited.status.message) == (2, "overloaded_error: busy")
    assert TRACE.told(limited)["error.type"] == "529"
    task = TRACE.one("execute_tool Task")
    assert (task.status.code, TRACE.told(task)["error.type"]) == (2, "tool_error")
    assert TRACE.one("execute_tool Edit").status.code == 0
    failed = TRACE.one("process pytest")
    assert (failed.status.message, TRACE.told(failed)["process.exit.code"]) == ("exit 1", 1)
    unanswered = TRACE.one("chat claude-sonnet-4-5", agentwrap__model__call="m6")
    assert TRACE.told(unanswered)["agentwrap.end_not_seen"] is True


def test_decisions_are_events_of_what_they_are_about() -> None:
    trace = Trace(sent(FakeRecording(sample_wall.events())))
    decided = [(span, event) for span in trace.spans for event in span.events if "policy" in event.name]
    denied = [(span, attributes(event.attributes)) for span, event in decided if event.name == "agentwrap.policy.deny"]
    assert denied
    assert not any("agentwrap" in span.name or "network" in span.name for span, _ in denied)
    for span, told in denied:
        assert told["agentwrap.policy.verdict"] == "deny"
        assert told["agentwrap.policy.kind"]
        if span.name.startswith("net.decision"):
            assert span.status.code == 2
            assert told["agentwrap.policy.rule"]


def test_gaps_and_late_news_are_events() -> None:
    gap = Gap(at_ns=5, what="exec", cause="not-dumpable", could_hide="arguments", from_ns=1, detail=b"/bin/x\xff")
    late = Gap(at_ns=9, span="p7", what="exec", cause="lost", could_hide="arguments", from_ns=1)
    trace = Trace(sent(FakeRecording([gap, late])))
    run = next(span for span in trace.spans if not span.parent_span_id)
    assert attributes(run.events[0].attributes)["agentwrap.gap.detail"] == "/bin/x\\xff"
    assert {event.name for span in trace.spans for event in span.events} == {"agentwrap.gap"}


def test_some_rows_bring_their_ancestors_with_them() -> None:
    rows = [row for row in RUN.rows() if row.kind == "tool.result" and row.data["tool"] == "x3"]
    trace = Trace(sent(RUN, rows))
    assert TRACE.above(trace.one("execute_tool Task")) == ["turn t2", "invoke_agent agent", "run agent"]
    assert sorted(trace.names) == ["execute_tool Task", "invoke_agent agent", "run agent", "turn t2"]


def test_requests_are_bounded_and_add_up() -> None:
    many = [ProcessStart(at_ns=n, span=f"p{n}", pid=n, parent="run", how="fork", comm=b"x") for n in range(1, 1200)]
    requests = list(otlp.requests(source := FakeRecording(many), source.rows(), STARTED))
    assert [len(decoded(one).resource_spans[0].scope_spans[0].spans) for one in requests] == [500, 500, 200]
    assert len(Trace(b"".join(requests)).by_id) == 1200
    argv = tuple(b"w" * 16000 for _ in range(20))
    wide = [
        ProcessExec(at_ns=n, span=f"p{n}", pid=n, path=b"/x", exe=b"/x", argv=argv, cwd=b"/", uid=0, gid=0, euid=0)
        for n in range(1, 40)
    ]
    requests = list(otlp.requests(source := FakeRecording(wide), source.rows(), STARTED))
    assert len(requests) > 3
    assert max(map(len, requests)) < otlp.BATCH_BYTES + (1 << 20)


@pytest.mark.parametrize("name", ["otlp", "perfetto", "jsonl"])
def test_what_is_written_does_not_wait_for_the_last_row(name: str) -> None:
    many = [ProcessStart(at_ns=n, span=f"p{n}", pid=n, parent="run", how="fork", comm=b"x") for n in range(1, 1500)]
    source = FakeRecording([one for event in many for one in (event, ProcessExit(at_ns=event.at_ns, span=event.span))])
    taken = []

    def rows() -> Iterator[FakeRow]:
        for row in source.rows():
            taken.append(row)
            yield row

    chunks = export.exporter(name)(source, rows(), STARTED)
    next(chunks)
    next(chunks)
    assert len(taken) < source.count()


def test_the_same_recording_gives_the_same_bytes() -> None:
    assert sent() == sent()


def test_foreign_text_is_made_fit() -> None:
    row = FakeRow(1, 5, "file.edit", "run", 1, "/a/\udcff\0b\ud800", "", {"path": {"b64": "//8="}, "change": "create"})
    (span,) = [span for span in Trace(sent(FakeRecording(), [row])).spans if span.parent_span_id]
    assert "\0" not in span.name
    assert "\\udcff\\x00b\\ud800" in span.name
    assert attributes(span.attributes)["file.path"] == "\\xff\\xff"


@settings(max_examples=40, deadline=None)
@given(row_lists, st.integers(-(1 << 70), 1 << 70), st.booleans())
def test_any_rows_give_requests_that_can_be_read(given_rows: list[FakeRow], started_ns: int, known: bool) -> None:
    source: Any = RUN if known else OnlyRows(given_rows)
    trace = Trace(b"".join(otlp.requests(source, given_rows, started_ns)))
    assert len(trace.by_id) == len(trace.spans)


def test_without_the_package_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from agentwrap.errors import AgentwrapError

    monkeypatch.setitem(sys.modules, "opentelemetry.proto.trace.v1", None)
    with pytest.raises(AgentwrapError) as caught:
        list(export.exporter("otlp")(RUN, RUN.rows(), STARTED))
    assert caught.value.kind == "unsupported"
    assert "pip install" in caught.value.hint
