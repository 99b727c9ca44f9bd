import json

from fake_recording import FakeRecording, FakeRow
from hypothesis import given
from hypothesis import strategies as st

from agentwrap import export
from agentwrap.export.jsonl import event_object

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.text(), st.dictionaries(st.text(), json_values))
def test_any_row_is_one_line_of_ascii_that_reads_back(subject: str, data: dict[str, object]) -> None:
    row = FakeRow(7, 1_500_000_000, "file.edit", "p1", 12, subject, "deny", data)
    (line,) = export.exporter("jsonl")(FakeRecording(), [row], 10**18)
    assert line.isascii()
    assert line.count(b"\n") == 1
    read = json.loads(line)
    assert read == json.loads(json.dumps(event_object(row, 10**18)))
    assert read["data"] == data
    assert read["subject"] == subject


def test_the_fields_are_the_documented_ones() -> None:
    assert event_object(FakeRow(7, 1_500_000_000, "run.end"), 10**18) == {
        "schema": 1, "type": "run.end", "seq": 7, "ts": "2001-09-09T01:46:41.500000000Z", "mono_ns": 1_500_000_000,
        "span": "run", "pid": None, "subject": "", "verdict": None, "data": {},
    }  # fmt: skip


def test_every_format_of_the_registry_is_a_module() -> None:
    for name in export.FORMATS:
        assert callable(export.exporter(name))
