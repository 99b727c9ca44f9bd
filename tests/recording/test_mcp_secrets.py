"""What of MCP is hidden: secrets in arguments, results and pieces; everything but shapes; more of it afterwards."""

import contextlib
import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from mcp_told import Told
from recordings import make

from agentwrap.events import Content, Item, McpOpened
from agentwrap.evidence.verify import verify
from agentwrap.mcp import lines
from agentwrap.mcp.decoder import McpDecoder
from agentwrap.recording import again
from agentwrap.recording.redact import Redactor
from agentwrap.recording.writer import Recorder

TOKEN = "ghp_" + "a1B2c3D4e5" * 3 + "F6g7h8"
PLAIN_WORD = "nobody-knows-this-word"


def session(*, arguments: Any = "redacted") -> Told:
    told = Told()
    told.decoder = McpDecoder(told.items.append, arguments=arguments)
    told.decoder.feed(
        McpOpened(session=1, at_ns=told.now(), span="p3", pid=77, server=b"tickets", how="hand",
                  command=(b"server", b"--token", TOKEN.encode()))
    )  # fmt: skip
    told.ask(0, "tools/list")
    told.answer(0, {"tools": [{"name": "search", "description": PLAIN_WORD, "inputSchema": {}}]})
    told.call(1, "search", {"q": PLAIN_WORD, "token": TOKEN})
    told.text(1, f"the token is {TOKEN}, {PLAIN_WORD}")
    told.close()
    return told


def written(path: Path, items: Iterable[Item], **options: Any) -> sqlite3.Connection:
    recorder = Recorder.create(
        path, run_id="r1", meta=make.META, redactor=Redactor(make.RUN_KEY), signer=None, now=lambda: 0, **options
    )
    for item in items:
        recorder.content(item) if isinstance(item, Content) else recorder.add(item)  # type: ignore[arg-type]
    recorder.close()
    return sqlite3.connect(path)


def test_secrets_are_nowhere_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.agentlog"
    with contextlib.closing(written(path, session().items)) as file:
        arguments, text = file.execute("SELECT arguments, text FROM mcp_call WHERE call = 'k2'").fetchone()
        assert json.loads(arguments)["q"] == PLAIN_WORD
        assert "«redacted:" in arguments
        assert "«redacted:" in text
    assert TOKEN.encode() not in path.read_bytes()
    assert PLAIN_WORD.encode() in path.read_bytes()


def test_a_secret_that_came_in_several_reads_is_hidden(tmp_path: Path) -> None:
    told = Told().open()
    line = json.dumps({"id": 1, "result": {"content": [{"type": "text", "text": "x" * 50 + f" {TOKEN} "}]}}).encode()
    at = line.index(TOKEN.encode()) + 15
    told.call(1, "search")
    told.raw(line[:at], up=False)
    told.raw(line[at:] + b"\n", up=False)
    path = tmp_path / "a.agentlog"
    written(path, told.items).close()
    assert TOKEN[:15].encode() not in path.read_bytes()
    assert TOKEN[15:].encode() not in path.read_bytes()


def test_pieces_of_a_long_line_cut_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_MAX_BYTES", 4000)
    monkeypatch.setattr(lines, "PIECE_BYTES", 1000)
    told = Told().open()
    for shift in range(0, 60, 7):
        said = json.dumps({"id": 1, "result": {"pad": "x" * shift, "texts": [f"is {TOKEN}"] * 200}}).encode()
        told.raw(said + b"\n", up=False)
    path = tmp_path / "a.agentlog"
    written(path, told.items).close()
    data = path.read_bytes()
    assert TOKEN[:20].encode() not in data
    assert TOKEN[20:].encode() not in data


def test_only_a_digest_of_arguments(tmp_path: Path) -> None:
    path = tmp_path / "a.agentlog"
    told = session(arguments="digest")
    with contextlib.closing(written(path, told.items)) as file:
        asked = file.execute("SELECT arguments, length(digest), text FROM mcp_call WHERE call = 'k2'").fetchone()
        assert asked[:2] == (None, 64)
        assert PLAIN_WORD in asked[2]  # what the server says is not the arguments
        omitted = "SELECT method, data ->> '$.body.omitted', bytes > 0 FROM mcp_message JOIN event USING (seq) WHERE up"
        assert file.execute(omitted.replace("method", "mcp_message.method")).fetchall() == [
            ("tools/list", None, 1),
            ("tools/call", "not-kept", 1),
        ]


def test_arguments_as_they_came_and_hidden_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "a.agentlog"
    with contextlib.closing(written(path, session(arguments="full").items)) as file:
        kept, said = file.execute("SELECT arguments, data FROM mcp_call JOIN event ON seq = call_seq "
                                  "WHERE call = 'k2'").fetchone()  # fmt: skip
        assert (json.loads(kept)["token"], json.loads(said)["unredacted"]) == (TOKEN, True)
        whole = "SELECT CAST(b.data AS TEXT) FROM mcp_message m JOIN body_piece b ON b.seq = m.seq WHERE number = 3"
        assert TOKEN in file.execute(whole).fetchone()[0]
    copy = tmp_path / "b.agentlog"
    again.write_again(path, copy, redactor=Redactor(make.RUN_KEY), signer=None, facts={})
    assert TOKEN.encode() not in copy.read_bytes()
    assert verify(copy).word in ("intact", "unsigned")


def test_a_copy_without_bodies_has_no_texts_of_calls(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.agentlog", tmp_path / "b.agentlog"
    written(path, session().items).close()
    again.write_again(path, copy, redactor=Redactor(make.RUN_KEY), signer=None, facts={}, drop_bodies=True)
    assert PLAIN_WORD.encode() not in copy.read_bytes()
    with contextlib.closing(sqlite3.connect(copy)) as file:
        asked = "SELECT tool, ending, size > 0, data ->> 'omitted_bytes' > 0 FROM mcp_call JOIN event ON seq = call_seq"
        assert file.execute(asked + " WHERE call = 'k2'").fetchone() == ("search", "complete", 1, 1)
    assert verify(copy).word in ("intact", "unsigned")


def test_of_shapes_only_names_and_sizes_are_left(tmp_path: Path) -> None:
    path = tmp_path / "a.agentlog"
    told = session()
    told.open(2, b"files")
    told.ask(1, "resources/read", {"uri": "file:///home/user/" + PLAIN_WORD}, session=2)
    raw_digests = {one.digest for one in told.items if getattr(one, "digest", "")}
    with contextlib.closing(written(path, told.items, shape_only=True)) as file:
        server, method, tool, size, digest = file.execute(
            "SELECT server, method, tool, size, digest FROM mcp_call WHERE call = 'k2'"
        ).fetchone()
        assert (server, method, tool, size > 0, len(digest)) == ("tickets", "tools/call", "search", True, 32)
        assert file.execute("SELECT name FROM mcp_tool").fetchone() == ("search",)
        resource = "SELECT tool LIKE '«shape:%' FROM mcp_call WHERE method = 'resources/read'"
        assert file.execute(resource).fetchone() == (1,)
    data = path.read_bytes()
    for hidden in (TOKEN, PLAIN_WORD, *raw_digests):
        assert hidden.encode() not in data
