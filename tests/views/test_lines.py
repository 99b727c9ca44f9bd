import unicodedata

import pytest
import sample_run
from fake_recording import FakeRecording, FakeRow
from hypothesis import given
from hypothesis import strategies as st

from agentwrap import text
from agentwrap.events import Event
from agentwrap.recording.spans import SpanRow
from agentwrap.views import noise
from agentwrap.views.context import Context, command_line, outcome, who
from agentwrap.views.filter_keys import KINDS
from agentwrap.views.lines import shorten, stream_line
from agentwrap.views.styled import plain

RUN = [item for item in sample_run.items() if isinstance(item, Event)]
RECORDING = FakeRecording(RUN, meta=sample_run.meta())

FIELDS = (
    "path target temporary host port names count change via before after klass family transport argv exe what cause "
    "could_hide detail status signal comm how call flags why tier mechanism note command reason before_owner xattr "
    "after_owner type size mode sha256 omitted b64 rule link decision connection protocol act target answer ask layers "
    "answers qtype rcode ending up_bytes uid approver until_ns"
).split()
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=12)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner), max_leaves=6
)
rows = st.builds(
    FakeRow,
    seq=st.just(1),
    at_ns=st.integers(0, 2**62),
    kind=st.sampled_from([*KINDS, "later.kind", "model"]),
    span=st.sampled_from(["p1", "p4", "run", "gone", ""]),
    pid=st.integers(0, 2**22),
    subject=st.text(max_size=30),
    verdict=st.sampled_from(["", "deny", "allow", "later\x1b"]),
    data=st.dictionaries(st.sampled_from(FIELDS), values, max_size=5),
)


def line(row: FakeRow, columns: int | None = None, *, live: bool = False) -> str:
    return plain(stream_line(row, Context(RECORDING, columns=columns, live=live)))


def harmless(shown: str) -> bool:
    return not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown)


@given(rows, st.booleans())
def test_a_row_of_any_shape_is_one_harmless_line(row: FakeRow, live: bool) -> None:
    shown = line(row, live=live)
    assert harmless(shown)
    assert noise.hidden(row, live=live) is not None


@given(rows, st.integers(20, 200))
def test_a_line_fits_the_terminal(row: FakeRow, columns: int) -> None:
    assert text.width(line(row, columns)) <= columns


@pytest.mark.parametrize("columns", [20, 60, 80, 120, 300])
def test_every_line_of_a_run_fits_the_terminal(columns: int) -> None:
    for row in RECORDING.rows():
        shown = line(row, columns)
        assert text.width(shown) <= columns
        assert harmless(shown)


def test_columns_are_those_of_the_picture() -> None:
    shown = [line(row) for row in RECORDING.rows(kinds=("file.edit",))]
    assert shown[0] == "  0.055 -- file   M billing/retry.py  97B                      bash(4121) → sed(4127)"
    assert shown[0].index("bash(") == 63


def test_a_turn_is_named_where_there_is_one() -> None:
    recording = FakeRecording(RUN)
    recording.spans()["t2"] = SpanRow("t2", "p1", "turn", "", 0)
    recording.spans()["p4"].parent = "t2"
    row = next(recording.rows(kinds=("net.connect",)))
    assert plain(stream_line(row, Context(recording)))[8:10] == "t2"


def test_the_end_of_a_process_is_told_once() -> None:
    row = next(row for row in RECORDING.rows(kinds=("process.exec",)) if row.span == "p4")
    ended = next(row for row in RECORDING.rows(kinds=("process.exit",)) if row.span == "p4")
    assert "exit 1  3.1s" in line(row)
    assert noise.hidden(ended)
    assert "exit 1" not in line(row, live=True)
    assert not noise.hidden(ended, live=True)
    assert "exit 1" in line(ended, live=True)


def test_denials_are_never_noise() -> None:
    row = FakeRow(1, 0, "file.edit", verdict="deny", data={"klass": "cache"})
    assert noise.hidden(row) == ""


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ("file.edit", {"klass": "cache"}, "caches"),
        ("file.edit", {"klass": "agent-state"}, "agent state"),
        ("file.edit", {"klass": "version-control"}, "version control"),
        ("file.edit", {"change": "transient"}, "temporary files"),
        ("file.edit", {"klass": "temporary", "change": "delete"}, "temporary files"),
        ("file.edit", {"klass": "temporary", "change": "create"}, ""),
        ("file.edit", {"change": "create"}, ""),
        ("net.connect", {"family": "netlink"}, "library sockets"),
        ("net.connect", {"family": "unix", "path": "/run/nscd/socket"}, "library sockets"),
        ("net.connect", {"family": "unix", "path": "/run/docker.sock"}, ""),
        ("net.connect", {"family": "inet", "transport": "udp", "host": "192.0.2.1"}, "library sockets"),
        ("net.connect", {"family": "inet", "transport": "udp", "host": "192.0.2.1", "port": 443}, ""),
        ("process.isolation", {"call": "mount"}, "mounts"),
        ("process.isolation", {"call": "unshare"}, ""),
        ("file.edit", {"path": "/w/.git/hooks/pre-push.sample"}, "version control"),
        ("file.edit", {"path": "/w/.git/hooks/pre-push"}, ""),
        ("gap", {}, ""),
    ],
)
def test_noise_has_a_reason(kind: str, data: dict[str, object], reason: str) -> None:
    assert noise.hidden(FakeRow(1, 0, kind, data=data)) == reason


def test_chains_are_short_and_leave_out_who_only_forked() -> None:
    def process(name: str, pid: int, parent: str | None) -> SpanRow:
        return SpanRow(f"p{pid}", parent, "process", name, 0, data={"pid": pid})

    lineage = [process("sed", 5, "p4"), process("sed", 4, "p3"), process("bash", 3, "p1"), process("agent", 1, "run")]
    assert who(lineage) == "bash(3) → sed(5)"
    assert who(lineage[-1:]) == "agent(1)"
    deep = [process(f"c{n}", n, f"p{n - 1}") for n in range(9, 0, -1)]
    assert who(deep) == "… → c8(8) → c9(9)"
    assert who(deep, 1) == "c9(9)"
    assert who([]) == ""


def test_arguments_are_quoted_as_a_shell_would_take_them() -> None:
    assert command_line(["echo", "a b", "it's", "", 'a"b\'c']) == "echo 'a b' \"it's\" '' 'a\"b'\\''c'"


def test_ends_in_words() -> None:
    assert outcome("exit 3") == "exit 3"
    assert outcome("signal 9") == "killed by SIGKILL"
    assert outcome("signal 40") == "killed by signal 40"


def test_an_argument_of_a_megabyte_is_told_with_its_length() -> None:
    assert shorten("x" * 1_000_000, 4000).endswith("x…+996,000")
    assert shorten("x" * 1_000_000, 20) == "x" * 19 + "…"


def test_a_circle_of_parents_ends() -> None:
    recording = FakeRecording(RUN)
    recording.spans()["p1"].parent = "p4"
    row = next(recording.rows(kinds=("net.connect",)))
    assert "pytest(4130)" in plain(stream_line(row, Context(recording)))


def test_a_process_is_called_what_it_was_at_the_time() -> None:
    start = sample_run.start(1, "p2", 7, "p1", b"bash")
    writing, tail = (sample_run.program(ms, "p2", 7, argv) for ms, argv in ((2, b"bash"), (4, b"python")))
    edits = [sample_run.edit(ms, "p2", 7, b"/f", None, b"x")[1] for ms in (3, 5)]
    recording = FakeRecording([start, writing, edits[0], tail, edits[1]])  # type: ignore[list-item]
    context = Context(recording)
    told = []
    for row in recording.rows():
        context.follow(row)
        told.append(plain(stream_line(row, context)).rsplit(" ", 1)[1])
    assert told[2] == "bash(7)"
    assert told[4] == "python(7)"


def test_a_fork_of_the_wrapped_command_has_its_name() -> None:
    lineage = [SpanRow("p2", "p1", "process", "", 0, data={"pid": 2}), SpanRow("p1", "run", "process", "sh", 0)]
    assert who(lineage) == "sh(2)"
