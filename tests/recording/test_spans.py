"""Spans are what the events say, no more: an end that nobody saw stays open."""

from agentwrap.recording.spans import SpanTable


def folded(*rows: tuple) -> SpanTable:  # type: ignore[type-arg]
    table = SpanTable()
    for at_ns, kind, span, subject, data in rows:
        table.apply(at_ns, kind, span, 9, subject, data)
    return table


START = (1, "process.start", "p1", "sh", {"parent": "run", "how": "fork", "comm": "sh"})
EXEC = {"path": "/bin/ls", "exe": "/usr/bin/ls", "argv": ["ls", {"b64": "/w=="}], "cwd": "/", "uid": 0}


def test_a_process_from_start_to_end() -> None:
    table = folded(
        START, (2, "process.exec", "p1", "", EXEC), (3, "process.exit", "p1", "", {"signal": 9, "core": True})
    )
    (span,) = table.spans.values()
    assert (span.name, span.start_ns, span.end_ns, span.status) == ("ls", 1, 3, "signal 9")
    assert (span.data["execs"], span.data["core"], span.data["argv"]) == (1, True, ["ls", {"b64": "/w=="}])


def test_an_exec_that_the_kernel_did_not_confirm_changes_nothing() -> None:
    table = folded(START, (2, "process.exec", "p1", "", {**EXEC, "confirmed": False}))
    assert (table.spans["p1"].name, table.spans["p1"].data["execs"]) == ("sh", 0)


def test_events_of_unknown_spans_make_none() -> None:
    table = folded(
        (2, "process.exec", "p7", "", EXEC), (3, "process.exit", "p7", "", {}), (4, "run.end", "run", "", {})
    )
    assert table.spans == {}
    assert folded((2, "file.edit", "p1", "", {}), (1, "process.start", None, "", {})).spans == {}


def test_the_run_and_what_stays_open() -> None:
    table = folded((0, "run.start", "run", "make all", {}), START)
    assert [span.end_ns for span in table.spans.values()] == [None, None]
    table.apply(9, "run.end", "run", None, "lost", {"reason": "lost"})
    run = table.spans["run"]
    assert (run.name, run.status, run.end_ns, run.data) == ("make all", "lost", 9, {"reason": "lost"})


def test_only_what_changed_is_handed_out() -> None:
    table = folded(START)
    assert [span.id for span in table.changed()] == ["p1"]
    assert table.changed() == []
    table.apply(3, "process.exit", "p1", 9, "", {"status": 0})
    assert [span.status for span in table.changed()] == ["exit 0"]


DECISION = {"connection": "c1", "host": "a.example", "port": 443, "decision": "allow", "by": "wall"}
CLOSED = {"connection": "c1", "host": "a.example", "port": 443, "ending": "closed", "opened_ns": 2, "up_bytes": 5}


def test_a_connection_from_its_judgement_to_its_end() -> None:
    late = (5, "net.decision", "p1", "late", {**DECISION, "rule": "x"})
    table = folded(
        START, (2, "net.decision", "p1", "a.example:443", DECISION), (4, "net.closed", "p1", "", CLOSED), late
    )
    span = table.spans["c1"]
    assert (span.parent, span.kind, span.name, span.start_ns, span.end_ns) == (
        "p1",
        "connection",
        "a.example:443",
        2,
        4,
    )
    assert span.status == "closed"
    assert span.data == {"verdict": "allow", "pid": 9, "host": "a.example", "port": 443, "by": "wall", "up_bytes": 5}


def test_a_connection_that_is_over_is_kept_no_longer_than_until_it_is_written() -> None:
    table = folded(START, (2, "net.decision", "p1", "", DECISION))
    assert [span.id for span in table.changed()] == ["p1", "c1"]
    table.apply(4, "net.closed", "p1", 9, "", CLOSED)
    assert [span.id for span in table.changed()] == ["c1"]
    table.apply(5, "net.decision", "p1", 9, "", DECISION)
    assert table.changed() == []
    assert list(table.spans) == ["p1"]


def test_an_end_without_a_judgement_has_the_start_it_tells() -> None:
    (span,) = folded((4, "net.closed", "p1", "a.example:443", CLOSED)).spans.values()
    assert (span.start_ns, span.end_ns, span.parent) == (2, 4, "p1")


def test_repeats_that_are_counted_are_no_connection_and_a_process_is_none() -> None:
    assert folded((2, "net.decision", "p1", "", {**DECISION, "connection": ""})).spans == {}
    table = folded(START, (2, "net.closed", "p1", "", {**CLOSED, "connection": "p1"}))
    assert (table.spans["p1"].kind, table.spans["p1"].end_ns) == ("process", None)


def test_a_second_start_of_a_span_is_ignored() -> None:
    table = folded(START, (5, "process.start", "p1", "x", {"parent": "p3", "how": "fork"}))
    assert (table.spans["p1"].parent, table.spans["p1"].start_ns) == ("run", 1)
