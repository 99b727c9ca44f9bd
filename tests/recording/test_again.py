"""A recording written again: the same but for what is hidden, whatever it holds, and whole like any other."""

import hashlib
import json
from pathlib import Path

import pytest
import sample_run
import sample_wall
from recording.test_secrets import pieces
from recording.test_traffic_secrets import FOUND, traffic
from recordings import conversation, make

from agentwrap.errors import AgentwrapError
from agentwrap.events import Body, Content, HttpExchange, Item, ProcessExec, ToolCall
from agentwrap.evidence.verify import verify
from agentwrap.recording import keys
from agentwrap.recording.again import Written, write_again
from agentwrap.recording.reader import Reader
from agentwrap.recording.redact import RedactOptions, Redactor

SECRET = "pässword \"of\" the 'customer'"


def recorded(path: Path, items: list[Item], *, shape_only: bool = False) -> Path:
    recorder = make.begin(path, shape_only=shape_only)
    sample_run.put(recorder, items)
    recorder.close()
    return path


def again(source: Path, *hidden: str, drop_bodies: bool = False, **options: tuple[str, ...]) -> tuple[Path, Written]:
    redactor = Redactor(bytes(range(32)), RedactOptions(**options))
    for value in hidden:
        redactor.hide(value.encode())
    target = source.with_name("again.agentlog")
    signer = keys.Signer(make.SEED)
    return target, write_again(
        source, target, redactor=redactor, signer=signer, facts={"redacted_rules": "{}"}, drop_bodies=drop_bodies
    )


def everything() -> list[Item]:
    return [*sample_run.items(), *sample_wall.events(), *conversation.items(20), *traffic(FOUND)]


def rows(path: Path) -> tuple[list[object], dict[str, object], dict[str, bytes]]:
    with Reader.open(path) as reader:
        found = list(reader.rows())
        bodies = {
            f"{row.seq} {field}": b"".join(part or b"" for part in reader.body(row.seq, field))
            for row in found
            for field in ("request", "response", "before", "after", "message", "timing", "content")
        }
        return list(found), dict(reader.spans()), bodies


@pytest.mark.parametrize("shape_only", [False, True])
def test_where_nothing_more_is_hidden_all_stays(tmp_path: Path, shape_only: bool) -> None:
    source = recorded(tmp_path / "r.agentlog", everything(), shape_only=shape_only)
    target, written = again(source)
    assert rows(target) == rows(source)
    assert (written.changed_events, written.changed_contents) == (0, 0)
    verdict = verify(target, public_key=make.public_key())
    assert (verdict.word, verdict.events) == ("intact", written.events)
    with Reader.open(source) as old, Reader.open(target) as new:
        assert new.meta["redacted_from_run_id"] == old.meta["run_id"] != new.meta["run_id"]
        assert new.meta["redacted_from_root"] in {row[0].hex() for row in old.connection.execute(
            "SELECT root FROM checkpoint ORDER BY count DESC LIMIT 1")}  # fmt: skip
        assert {key: new.meta[key] for key in old.meta if key != "run_id"} == {
            key: value for key, value in old.meta.items() if key != "run_id"
        }


def planted() -> list[Item]:
    raw = SECRET.encode()
    argv = (b"sh", b"-c", b"echo " + raw)
    items: list[Item] = [
        ProcessExec(at_ns=1, span="p1", pid=4, path=b"/" + raw, exe=b"/x", argv=argv, cwd=b"/", uid=0, gid=0, euid=0),
        *sample_run.edit(2, "p1", 4, b"/srv/f", b"a " + raw + b" before\n", b"an " + raw + b" after\n"),
        *traffic(SECRET),
    ]
    return [item for item in items if type(item).__name__ != "Secrets"]


def test_a_secret_that_was_found_later_is_in_no_byte(tmp_path: Path) -> None:
    source = recorded(tmp_path / "r.agentlog", planted())
    before = source.read_bytes()
    assert any(piece in before for piece in pieces(SECRET))
    target, written = again(source, SECRET)
    data = target.read_bytes()
    texts = [json.dumps(body.decode(errors="replace")).encode() for body in rows(target)[2].values()]
    for piece in pieces(SECRET):
        assert piece not in data, piece
        assert not any(piece in text for text in texts)
    assert written.changed_contents > 5
    assert verify(target, public_key=make.public_key()).word == "intact"
    assert source.read_bytes() == before
    with Reader.open(target) as reader:
        edit = next(reader.rows(kinds=["file.edit"])).data
        assert edit["before"]["redacted"] is True
        stored = reader.blob(edit["before"]["sha256"])
        assert stored is not None
        assert stored.startswith(b"a \xc2\xabredacted:user:")


def test_what_a_later_event_tells_is_hidden_in_earlier_ones(tmp_path: Path) -> None:
    password = "correct9horse-battery"
    first = ToolCall(at_ns=1, tool="x1", id=b"i", name=b"n", arguments=b"use " + password.encode(), call="m1",
                     agent="a1", turn="t1")  # fmt: skip
    data = json.dumps({"note": password}).encode()
    digest = hashlib.sha256(data).digest()
    asked = HttpExchange(at_ns=2, exchange="h1", host=b"h", method=b"P", path=b"/", request=Body(len(data), (digest,)))
    source = recorded(tmp_path / "r.agentlog", [first, Content(digest, data, "body"), asked])
    assert password.encode() in source.read_bytes()
    target, _ = again(source, json_keys=("note",))
    assert password.encode() not in target.read_bytes()


def test_bodies_can_go(tmp_path: Path) -> None:
    source = recorded(tmp_path / "r.agentlog", [*sample_run.items(), *conversation.items(20)])
    target, _ = again(source, drop_bodies=True)
    with Reader.open(target) as reader:
        roles = {role for (role,) in reader.connection.execute("SELECT DISTINCT role FROM part")}
        assert roles == {"before", "after"}
        request = next(reader.rows(kinds=["model.request"])).data["request"]
        assert (request["omitted"], request["size"] > 100) == ("not-kept", True)
        call = next(reader.rows(kinds=["tool.call"])).data
        assert ("arguments" in call, call["omitted_bytes"]) == (False, 16)
        assert "text" not in next(reader.rows(kinds=["tool.result"])).data
        assert "message_start" not in target.read_bytes().decode("latin-1")
    assert verify(target, public_key=make.public_key()).word == "intact"


def test_what_this_version_does_not_know_is_kept_and_cleaned(tmp_path: Path) -> None:
    recorder = make.begin(tmp_path / "r.agentlog")
    body = f"of {SECRET}".encode()
    digest = hashlib.sha256(body).digest()
    recorder.content(Content(digest, body, "after"))
    fields = {"word": "w", "deep": [{"text": f"x {SECRET}"}, 5, None], "odd": {"b64": "/w=="}, "sha256": digest.hex()}
    parts = [("picture", 0, digest)]
    recorder.append((7, "novel.kind", "p9", 3, f"s {SECRET}", None, json.dumps(fields).encode(), parts, fields, {}))
    known = {"exe": "/x", "novel_field": SECRET}
    recorder.append((8, "process.exec", "p9", None, None, "deny", json.dumps(known).encode(), [], known, {}))
    broken = {"path": 5}
    recorder.append((9, "file.read", "p9", None, None, None, json.dumps(broken).encode(), [], broken, {}))
    recorder.close()
    target, _ = again(recorder.path, SECRET)
    with Reader.open(target) as reader:
        first, second, third = reader.rows()
        (picture,) = reader.body(1, "picture")
    assert (first.kind, first.span, first.pid, first.data["odd"]) == ("novel.kind", "p9", 3, {"b64": "/w=="})
    assert first.data["deep"][0]["text"].startswith("x «redacted:user:")
    assert first.subject.startswith("s «redacted:user:")
    assert picture is not None
    assert hashlib.sha256(picture).hexdigest() == first.data["sha256"] != digest.hex()
    assert (second.data["exe"], second.verdict) == ("/x", "deny")
    assert second.data["novel_field"].startswith("«redacted:user:")
    assert third.data == broken
    assert verify(target, public_key=make.public_key()).word == "intact"


def test_a_content_that_was_given_up_stays_so(tmp_path: Path) -> None:
    source = recorded(tmp_path / "r.agentlog", [*sample_run.items(), *conversation.items(2)])
    make.edit(source, "UPDATE blob SET data = NULL")
    target, _ = again(source)
    with Reader.open(target) as reader:
        assert next(reader.rows(kinds=["file.edit"])).data["before"]["omitted"] == "not-kept"
        assert next(reader.rows(kinds=["model.request"])).data["request"]["omitted"] == "not-kept"
    assert verify(target, public_key=make.public_key()).word == "intact"


def test_a_copy_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agentwrap.recording.writer import Recorder

    source = recorded(tmp_path / "r.agentlog", sample_run.items())

    def full(recorder: Recorder) -> None:
        recorder.abandon()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Recorder, "close", full)
    with pytest.raises(AgentwrapError) as caught:
        again(source)
    assert (caught.value.kind, "No space" in caught.value.evidence) == ("output", True)
    assert not (tmp_path / "again.agentlog").exists()
    (tmp_path / "again.agentlog").write_bytes(b"mine")
    with pytest.raises(AgentwrapError) as caught:
        again(source)
    assert caught.value.kind == "exists"
    assert (tmp_path / "again.agentlog").read_bytes() == b"mine"
