"""Bodies in the file: every piece once, what is alike in two requests once, and always the very same bytes again."""

import contextlib
import hashlib
import shutil
import sqlite3
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
import sample_run
from hypothesis import given, settings
from hypothesis import strategies as st
from recording.test_format import PAGE, independent
from recordings import conversation, make

from agentwrap.events import Body, Content, HttpExchange, Item, ModelRequest
from agentwrap.evidence.verify import verify
from agentwrap.recording import contents, lists
from agentwrap.recording.reader import Reader
from agentwrap.recording.snapshot import snapshot


def recorded(path: Path, items: Iterable[Item]) -> Path:
    recorder = make.begin(path)
    sample_run.put(recorder, items)
    recorder.close()
    return path


def request(pieces: list[bytes]) -> list[Item]:
    digests = tuple(hashlib.sha256(piece).digest() for piece in pieces)
    whole = Body(sum(map(len, pieces)), digests)
    event = HttpExchange(at_ns=1, exchange="h1", host=b"h", method=b"POST", path=b"/", request=whole)
    return [*(Content(digest, piece, "body") for digest, piece in zip(digests, pieces, strict=True)), event]


def body(reader: Reader, seq: int, field: str = "request") -> bytes:
    return b"".join(piece for piece in reader.body(seq, field) if piece is not None)


def asked(path: Path, statement: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as file:
        return file.execute(statement).fetchall()


@given(st.lists(st.binary(min_size=32, max_size=32), max_size=300), st.integers(0, 300), st.binary(max_size=3))
@settings(deadline=None)
def test_a_list_unfolds_to_what_was_folded(hashes: list[bytes], times: int, low: bytes) -> None:
    hashes = (hashes * (times // 50 + 1))[:2000] + [bytes([c]) * 32 for c in low]
    folded = lists.fold(hashes)
    level = list(folded.top)
    for _ in range(folded.depth):
        level = [one for digest in level for one in lists.hashes_in(folded.lists[digest])]
    assert level == hashes
    assert folded.depth == 0 or len(hashes) > lists.FLAT
    assert all(hashlib.sha256(data).digest() == digest for digest, data in folded.lists.items())


def test_lists_of_a_list_that_grew_or_changed_in_its_middle_are_mostly_the_same() -> None:
    hashes = [hashlib.sha256(b"%d" % n).digest() for n in range(2000)]
    before = lists.fold(hashes).lists.keys()
    grown = lists.fold([*hashes, bytes(32)]).lists.keys()
    changed = lists.fold([*hashes[:900], bytes(32), *hashes[901:]]).lists.keys()
    assert len(grown - before) <= 2
    assert len(changed - before) <= 4


@pytest.mark.parametrize("data", [b"", bytes(31), bytes(33), bytes(65 * 32)])
def test_other_bytes_are_no_list(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a list"):
        lists.hashes_in(data)


@pytest.mark.parametrize("role", ["request/", "request/0", "request/3", "request/1/1"])
def test_other_roles_are_none(role: str) -> None:
    with pytest.raises(ValueError, match="no role"):
        lists.name_and_depth(role)


@pytest.mark.parametrize("count", [1, 8, 9, 100, 3000])
def test_a_body_comes_back_byte_by_byte(tmp_path: Path, count: int) -> None:
    pieces = [b"%d,\0\xff" % (n % 500) for n in range(count)]
    path = recorded(tmp_path / "r.agentlog", request(pieces))
    with Reader.open(path) as reader:
        (row,) = reader.rows()
        assert body(reader, 1) == b"".join(pieces)
        assert row.data["request"] == {"size": sum(map(len, pieces))}
        assert list(reader.body(1, "response")) == []
    assert verify(path, public_key=make.public_key()).word == "intact"
    found = asked(path, "SELECT data FROM body_piece WHERE seq = 1 AND role = 'request' ORDER BY ordinal")
    assert [data for (data,) in found] == pieces


def test_a_content_with_the_bytes_of_a_list_is_none(tmp_path: Path) -> None:
    """The role says what is a list, so nobody can pass one off as a content, or the reverse."""
    pieces = [b"%d" % n for n in range(9)]
    digests = [hashlib.sha256(piece).digest() for piece in pieces]
    (listed, *_) = lists.fold(digests).lists.values()
    first = request([listed])
    path = recorded(tmp_path / "r.agentlog", [*first, *request(pieces), *first])
    with Reader.open(path) as reader:
        assert [body(reader, seq) for seq in (1, 2, 3)] == [listed, b"".join(pieces), listed]
    assert verify(path, public_key=make.public_key()).word == "intact"


def test_a_request_of_5_mb_in_10000_pieces(tmp_path: Path) -> None:
    pieces = [b"%09d" % n + b"x" * 500 for n in range(10_000)]
    path = recorded(tmp_path / "r.agentlog", request(pieces))
    with Reader.open(path) as reader:
        assert body(reader, 1) == b"".join(pieces)
    assert len(asked(path, "SELECT 1 FROM part")) < 100


def test_a_body_that_did_not_come_whole_names_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "_WAITING_BYTES", 1000)
    pieces = [b"%03d" % n * 30 for n in range(20)]
    path = recorded(tmp_path / "r.agentlog", [*request(pieces), *request(pieces[1:])[1:]])
    with Reader.open(path) as reader:
        assert [row.data["request"]["omitted"] for row in reader.rows()] == ["not-kept", "not-kept"]
    assert asked(path, "SELECT 1 FROM part") == []
    assert verify(path, public_key=make.public_key()).word == "intact"


def test_a_further_turn_costs_what_is_new(tmp_path: Path) -> None:
    items = list(conversation.items(100))
    path = recorded(tmp_path / "r.agentlog", items)
    sizes = {item.sha: len(item.data) for item in items if isinstance(item, Content)}
    sent = [item for item in items if isinstance(item, ModelRequest)]
    with Reader.open(path) as reader:
        rows = list(reader.rows(kinds=["model.request"]))
        for row, event in zip(rows, sent, strict=True):
            whole = body(reader, row.seq)
            assert (len(whole), row.data["messages"]) == (event.request.size, event.messages)
    (around,) = asked(
        path,
        "SELECT (SELECT count(*) * 52 FROM part) + (SELECT sum(size + 85) FROM blob WHERE sha256 NOT IN"
        " (SELECT sha256 FROM body_piece WHERE sha256 IS NOT NULL))",
    )
    # A row for each piece of each request would be 5 KB a turn.
    assert int(str(around[0])) < 100 * 1200
    assert path.stat().st_size < 2 * sum(sizes.values())


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("talk") / "talk.agentlog", conversation.items(20))


def bodies_sent() -> dict[str, bytes]:
    data = {item.sha: item.data for item in conversation.items(20) if isinstance(item, Content)}
    return {
        item.call: b"".join(data[piece] for piece in item.request.pieces)
        for item in conversation.items(20)
        if isinstance(item, ModelRequest)
    }


def test_a_copy_has_the_same_bodies(talk: Path, tmp_path: Path) -> None:
    snapshot(talk, tmp_path / "copy.agentlog")
    with Reader.open(tmp_path / "copy.agentlog") as copy, Reader.open(talk) as reader:
        for row in reader.rows(kinds=["model.request"]):
            assert body(copy, row.seq) == body(reader, row.seq) == bodies_sent()[row.data["call"]]


def test_the_other_program_puts_the_same_bodies_together(talk: Path) -> None:
    found = independent(talk, str(make.FOLDER / "samples.pub"))
    assert (found["lists"], found["closed"]) == (True, True)
    told = found["bodies"]
    assert isinstance(told, dict)
    with Reader.open(talk) as reader:
        for row in reader.rows(kinds=["model.request"]):
            expected = hashlib.sha256(bodies_sent()[row.data["call"]]).hexdigest()
            assert told[f"{row.seq} request"] == expected


def test_the_line_on_the_page_writes_a_request(talk: Path, tmp_path: Path) -> None:
    if shutil.which("sqlite3") is None:
        pytest.skip("`sqlite3` is not installed")
    blocks = [block for block in PAGE.split("```") if "writefile" in block]
    (lines,) = blocks
    command = lines[: lines.index('"\n') + 1].strip()
    for call, number in (("m3", "m3"), ("m20", "m20")):
        line = command.replace("m3", number).replace("run.agentlog", str(talk))
        subprocess.run(["sh", "-c", line], cwd=tmp_path, check=True, timeout=300, capture_output=True)
        assert (tmp_path / f"{call}.json").read_bytes() == bodies_sent()[call]


PIECE = "SELECT sha256 FROM body_piece WHERE sha256 NOT IN (SELECT sha256 FROM part) LIMIT 1"
LIST = "SELECT sha256 FROM part WHERE role LIKE '%/_' LIMIT 1"


@pytest.mark.parametrize(
    "statement",
    [
        f"DELETE FROM blob WHERE sha256 = ({LIST})",
        f"UPDATE blob SET data = NULL WHERE sha256 = ({LIST})",
        f"UPDATE blob SET data = zeroblob(64) WHERE sha256 = ({LIST})",
        f"DELETE FROM blob WHERE sha256 = ({PIECE})",
        "UPDATE part SET role = 'request' WHERE role = 'request/1'",
        "UPDATE part SET role = 'request/7' WHERE role = 'request/1'",
        "INSERT INTO blob VALUES (zeroblob(32), 0, NULL, x'')",
    ],
)
def test_a_list_that_was_changed_is_told(talk: Path, tmp_path: Path, statement: str) -> None:
    path = tmp_path / "bad.agentlog"
    shutil.copyfile(talk, path)
    make.edit(path, statement)
    verdict = verify(path, public_key=make.public_key())
    assert verdict.word == "tampered"
    wrong = {check.name for check in verdict.checks if check.ok is False}
    assert wrong & {"contents", "events"}, verdict
