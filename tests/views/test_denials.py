"""Denials: the same thing of the same process once, with its count, its rule and the way to allow it."""

import unicodedata

import sample_wall
from fake_recording import FakeRecording, FakeRow
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.views import denials
from agentwrap.views.context import Context
from agentwrap.views.styled import plain

RECORDING = FakeRecording(sample_wall.events(), meta={"cwd": "/srv"})


def lines(limit: int | None = None) -> list[str]:
    found = denials.collect(RECORDING.rows())
    return [plain(one).rstrip() for one in denials.denial_lines(found, Context(RECORDING), limit)]


def test_each_denial_is_told_once_with_what_a_human_needs() -> None:
    told = lines()
    assert told[:4] == [
        "  0.005 deny  lookup telemetry.example  4 times  (wall)",
        "        who     node(42)",
        "        rule    network.default `deny` (ci.toml:6): no rule allows it",
        "        change  add `telemetry.example:443` to network.allow of ci.toml",
    ]
    assert "  0.009 deny  write /srv/.git/hooks/pre-commit  (guard)" in told
    assert "        told    stop openat EACCES" in told
    assert "  0.009 would-deny  unix /run/docker.sock  (witness)" in told
    assert sum(" deny  " in one or " would-deny  " in one for one in told) == 5


def test_a_segment_that_was_refused_is_a_connection() -> None:
    row = FakeRow(1, 0, "net.refused", verdict="deny", data={"transport": "tcp"})
    assert (denials.verb(row), denials.verb(FakeRow(1, 0, "net.refused"))) == ("connect", "send")


def test_a_limit_is_said() -> None:
    assert lines(1)[-1] == "stopped after 1 denial (`-n`); there are more"


def test_of_more_kinds_than_are_kept_the_number_is_told() -> None:
    def row(n: int) -> FakeRow:
        return FakeRow(n, 0, "net.decision", subject=f"h{n}:443", verdict="deny", data={"count": 2})

    found = denials.collect(row(n) for n in range(denials.MOST_KINDS + 3))
    assert (len(found.kinds), found.beyond) == (denials.MOST_KINDS, 6)
    last = list(denials.denial_lines(found, Context(RECORDING)))[-1]
    assert plain(last) == "and 6 more denials, of other kinds"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["b64", "x"]), inner, max_size=2),
    max_leaves=4,
)
FIELDS = st.sampled_from("rule why change count by act what target mechanism errno call transport host".split())
ROWS = st.builds(
    FakeRow, seq=st.just(1), at_ns=st.integers(0, 2**62),
    kind=st.sampled_from(["net.decision", "dns.query", "net.refused", "act.denied", "process.denied", "later.kind"]),
    span=st.sampled_from(["p1", "run", "gone", ""]), subject=st.text(max_size=20),
    verdict=st.sampled_from(["deny", "would-deny", "allow", ""]), data=st.dictionaries(FIELDS, ANYTHING, max_size=6),
)  # fmt: skip


@given(st.lists(ROWS, max_size=5))
def test_rows_of_any_shape_are_harmless_lines(rows: list[FakeRow]) -> None:
    for one in denials.denial_lines(denials.collect(rows), Context(RECORDING)):
        assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in plain(one))
