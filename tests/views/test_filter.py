import typing

import pytest
from fake_recording import FakeRecording, FakeRow
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.events import (
    AnyEvent,
    DnsServer,
    FileClass,
    FileEdit,
    FileState,
    NetConnect,
    ProcessDenied,
    ProcessExec,
    ProcessExit,
    ProcessStart,
)
from agentwrap.views import filter as language
from agentwrap.views.filter import FilterError, parse
from agentwrap.views.filter_keys import FILE_CLASSES, KEYS, KINDS

SECOND = 10**9
NOTHING = FileState(type="absent")
EVENTS = [
    ProcessStart(at_ns=0, span="p1", pid=10, parent="run", how="root", comm=b"bash"),
    ProcessStart(at_ns=1 * SECOND, span="p2", pid=11, parent="p1", how="fork", comm=b"bash"),
    ProcessExec(
        at_ns=1 * SECOND, span="p2", pid=11, path=b"/usr/bin/node", exe=b"/usr/bin/node", argv=(b"node", b"a b.js"),
        cwd=b"/srv", uid=0, gid=0, euid=0,
    ),
    FileEdit(at_ns=2 * SECOND, span="p2", pid=11, path=b"/srv/src/retry.py", change="create", before=NOTHING,
             after=FileState(size=2000)),
    FileEdit(at_ns=3 * SECOND, span="p1", pid=10, path=b"/home/u/.cache/x.lock", change="create", before=NOTHING,
             after=FileState(), klass="cache"),
    NetConnect(at_ns=4 * SECOND, span="p2", pid=11, family="inet", transport="tcp", host=b"10.1.2.3", port=443),
    DnsServer(at_ns=5 * SECOND, span="p2", pid=11, host=b"127.0.0.53", names=(b"API.Example.org",)),
    ProcessDenied(at_ns=6 * SECOND, span="p1", pid=10, what="setuid", why="no_new_privs", detail=b"/usr/bin/sudo"),
    ProcessExit(at_ns=150 * SECOND, span="p2", pid=11, status=3),
]  # fmt: skip
RECORDING = FakeRecording(EVENTS)


def passing(*words: str) -> list[int]:
    wanted = parse(*words)
    return [row.seq for row in RECORDING.rows() if wanted(row, RECORDING.span)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("kind:file", [4, 5]),
        ("kind:net", [6]),
        ("kind:net.connect,dns", [6, 7]),
        ("%network", [6, 7]),
        ("%process -kind:process.start", [3, 8, 9]),
        ("verdict:deny", [8]),
        ("-verdict:none", [8]),
        ("pid:10", [1, 5, 8]),
        ("pid:>10 %file", [4]),
        ("pid:10..10", [1, 5, 8]),
        ("span:p2 %file", [4]),
        ("under:p1 %file", [4, 5]),
        ("name:nod*", [2, 3, 4, 6, 7, 9]),
        ("path:*.py", [4]),
        ("path:retry.py", [4]),
        ("path:src", [4]),
        ("path:src/*.py", [4]),
        ("path:/srv/src", [4]),
        ("path:/srv/sr", []),
        ("path:rc", []),
        ("%file -path:*.lock", [4]),
        ("class:cache", [5]),
        ("host:*.example.org", [7]),
        ("host:api.example.org.", [7]),
        ("host:10.0.0.0/8", [6]),
        ("host:10.1.2.3 port:443", [6]),
        ("host:example.org", []),
        ("since:2m", [9]),
        ("until:1s", [1, 2, 3]),
        ("at:>4s until:1m", [7, 8]),
        ("at:2..3", [4, 5]),
        ("exit:>0", [9]),
        ("size:>=2000", [4]),
        ("seq:<3", [1, 2]),
        ('"A B.js"', [3]),
        ("sudo", [8]),
        ("text:sudo", [8]),
        ("-text:sudo seq:8", []),
    ],
)
def test_words_choose_rows(words: str, expected: list[int]) -> None:
    assert passing(words) == expected


def test_words_may_come_apart_as_a_shell_gives_them() -> None:
    assert passing("kind:file", "-path:*.lock") == passing("kind:file -path:*.lock") == [4]


@pytest.mark.parametrize(
    ("words", "marked", "problem"),
    [
        ("kind:fil", "kind:fil", "no kind `fil`"),
        ("%file knd:net", "knd", "did you mean `kind`"),
        ("verdict:nope", "verdict:nope", "one of allow, deny"),
        ("%what", "%what", "no class `%what`"),
        ("pid:x", "pid:x", "not a whole number"),
        ("at:>soon", "at:>soon", "not a time"),
        ('path:"a', '"a', "not closed"),
        ('path:"a"b', '"a"b', "space is needed"),
        ("path:", "path:", "nothing to look for"),
        ("a - b", "-", "nothing to look for"),
        ("host:10.0.0.0/99", "host:10.0.0.0/99", "not a network"),
        ("http://x", "http", "quote text"),
    ],
)
def test_errors_mark_the_place(words: str, marked: str, problem: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse(words)
    assert words[caught.value.start : caught.value.end] == marked
    assert problem in caught.value.problem
    lines = caught.value.evidence.split("\n")
    assert lines[0] == words
    assert lines[1] == " " * caught.value.start + "^" * len(marked)


pieces = st.sampled_from([*KEYS, "%file", ":", "-", '"', "\\", " ", "*", "..", ">", "10", "2m", "a", "/", ","])


@given(st.one_of(st.text(max_size=60), st.lists(pieces, max_size=12).map("".join)))
def test_any_text_is_a_filter_or_a_marked_error(words: str) -> None:
    try:
        parsed = parse(words)
    except FilterError as failure:
        place = failure.start, failure.end
        parsed = None
    if parsed is None:
        assert 0 <= place[0] <= place[1] <= len(words)
        return
    chosen = [row.seq for row in RECORDING.rows() if parsed(row, RECORDING.span)]
    again = parse(str(parsed))
    assert str(again) == str(parsed)
    assert [row.seq for row in RECORDING.rows() if again(row, RECORDING.span)] == chosen


@given(st.text(min_size=1))
def test_a_quoted_value_means_itself(value: str) -> None:
    (term,) = parse("text:" + language.quote(value)).terms
    assert term.value == value


FIELDS = ["path", "host", "names", "after", "port", "klass", "status", "size", "b64"]
scalars = st.none() | st.booleans() | st.integers() | st.text()
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(FIELDS), inner), max_leaves=10
)
EVERY_KEY = "path:*.py host:10.0.0.0/8 port:>1 exit:0 size:>1 class:work text:a under:p9"


@given(json_values)
def test_data_of_any_shape_is_judged_without_a_fault(data: object) -> None:
    fields = data if isinstance(data, dict) else {"path": data, "host": data, "names": data, "after": data}
    for kind in ("file.edit", "net.connect", "process.exit"):
        row = FakeRow(1, 0, kind, data=fields)
        for words in EVERY_KEY.split():
            assert parse(words)(row, RECORDING.span) in (True, False)


def test_the_kinds_are_those_of_the_vocabulary() -> None:
    assert sorted(FILE_CLASSES) == sorted(typing.get_args(FileClass))
    assert sorted(KINDS) == sorted(event.__struct_config__.tag for event in typing.get_args(AnyEvent))


def test_a_filter_knows_which_kinds_it_can_pass() -> None:
    calls = {"net.connect", "net.bind", "net.listen", "net.send"}
    assert parse("kind:net").kinds() == calls | {"net.decision", "net.closed", "net.refused"}
    assert parse("%network kind:dns").kinds() == {"dns.server", "dns.query"}
    assert parse("%policy kind:ask,policy").kinds() == {"policy", "ask.waiting", "ask.answered"}
    assert parse("-kind:net").kinds() is None


def test_filters_are_told_from_files() -> None:
    words = ["kind:file", "-path:x", "%file", "-%file", '"a b"', "a.agentlog", "./x:y", "run"]
    assert [language.is_filter(word) for word in words] == [True] * 5 + [False] * 3
