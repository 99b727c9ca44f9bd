"""Which span a process id is, for whoever speaks before the tracer's word of him is here."""

import threading

import pytest

from agentwrap.events import ProcessStart
from agentwrap.session import process_spans
from agentwrap.session.process_spans import ProcessSpans


def started(pid: int, span: str) -> ProcessStart:
    return ProcessStart(at_ns=1, pid=pid, span=span, parent="run", how="fork")


def test_the_last_process_of_a_number_counts() -> None:
    spans = ProcessSpans()
    spans.see([started(7, "p1"), started(8, "p2"), started(7, "p3")])
    assert (spans.of(7), spans.of(8)) == ("p3", "p2")


@pytest.mark.parametrize("told", [True, False])
def test_who_speaks_first_waits_for_the_tracers_word_or_its_end(told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_spans, "_WAIT_S", 300)
    spans, found = ProcessSpans(), list[str]()
    asking = threading.Thread(target=lambda: found.append(spans.of(7)))
    asking.start()
    if told:
        spans.see([started(7, "p1")])
    else:
        spans.finish()
    asking.join()
    assert found == (["p1"] if told else [""])
