"""Rows as nobody writes them, for exports that must take any: hypothesis strategies, and a recording of such rows."""

import model_run
import sample_wall
from fake_recording import FakeRecording, FakeRow
from hypothesis import strategies as st

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text() | st.just({"b64": "/w=="}),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=3,
)
KINDS = {row.kind for events in (model_run.items(), sample_wall.events()) for row in FakeRecording(events).rows()}
kinds = st.sampled_from(sorted(KINDS | {"claim", "session.file", "new.kind"}))
spans = st.sampled_from(["run", "p1", "p2", "c1", "a1", "t1", "m1", "x1", "zz", ""])
ids = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("call", "turn", "agent", "tool", "connection", "parent"), spans | json_values)
    | dict.fromkeys(("host", "path", "argv", "arguments", "id"), st.binary(max_size=5).map(repr) | json_values)
    | dict.fromkeys(("port", "status", "requested_ns", "first_token_ns", "uid"), st.integers() | json_values),
)
rows = st.builds(
    FakeRow, st.integers(1, 99), st.integers(-(1 << 70), 1 << 70), kinds, spans, st.none() | st.integers(0, 9),
    st.text(max_size=9), st.sampled_from(["", "allow", "deny", "would-deny"]), ids,
)  # fmt: skip
row_lists = st.lists(rows, max_size=8, unique_by=lambda row: row.seq)


class OnlyRows(FakeRecording):
    """A recording made by hand: rows that no span was folded from."""

    def __init__(self, given_rows: list[FakeRow]) -> None:
        super().__init__()
        self._rows = given_rows
