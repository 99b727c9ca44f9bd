"""What of a call that waits for a human is hidden in the recording, though whoever is asked has seen it."""

import contextlib
import json
import sqlite3
from hashlib import sha256
from pathlib import Path
from typing import Any

from recordings import make

from agentwrap.events import AskWaiting, McpCall
from agentwrap.recording import again
from agentwrap.recording.redact import Redactor
from agentwrap.recording.writer import Recorder

TOKEN = "ghp_" + "a1B2c3D4e5" * 3 + "F6g7h8"
PLAIN_WORD = "nobody-knows-this-word"


def rows(path: Path, arguments: bytes, **options: Any) -> dict[str, dict[str, Any]]:
    """A question about a call, and the call, as they are stored; by kind."""
    recorder = Recorder.create(
        path, run_id="r1", meta=make.META, redactor=Redactor(make.RUN_KEY), signer=None, now=lambda: 0, **options
    )
    digest = sha256(arguments).hexdigest()
    recorder.add(
        AskWaiting(at_ns=1, ask="r1", question=b"call merge of github", until_ns=9, server=b"github", tool=b"merge",
                   digest=digest, arguments=arguments[:4096])
    )  # fmt: skip
    recorder.add(
        McpCall(at_ns=1, call="k1", session="s1", server=b"github", method=b"tools/call", tool=b"merge", digest=digest)
    )
    recorder.close()
    return stored(path)


def stored(path: Path) -> dict[str, dict[str, Any]]:
    with contextlib.closing(sqlite3.connect(path)) as file:
        return {kind: json.loads(data) for kind, data in file.execute("SELECT kind, data FROM event")}


def test_secrets_in_arguments_are_hidden_also_where_they_were_cut(tmp_path: Path) -> None:
    asked = rows(tmp_path / "a", json.dumps({"token": TOKEN, "branch": PLAIN_WORD}).encode())["ask.waiting"]
    assert PLAIN_WORD in asked["arguments"]
    assert "\u00abredacted:" in asked["arguments"]
    rows(tmp_path / "b", b'{"x":"' + b"x " * 2035 + TOKEN.encode() + b'"}')
    assert TOKEN[:16].encode() not in (tmp_path / "b").read_bytes()


def test_of_shapes_alone_the_question_and_its_call_still_have_one_digest(tmp_path: Path) -> None:
    arguments = json.dumps({"branch": PLAIN_WORD}).encode()
    found = rows(tmp_path / "a", arguments, shape_only=True)
    asked, call = found["ask.waiting"], found["mcp.call"]
    assert asked["digest"] == call["digest"] != sha256(arguments).hexdigest()
    assert (asked["server"], asked["tool"]) == ("github", "merge")
    assert PLAIN_WORD.encode() not in (tmp_path / "a").read_bytes()


def test_a_copy_without_bodies_has_no_arguments(tmp_path: Path) -> None:
    rows(tmp_path / "a", json.dumps({"branch": PLAIN_WORD}).encode())
    again.write_again(
        tmp_path / "a", tmp_path / "b", redactor=Redactor(make.RUN_KEY), signer=None, facts={}, drop_bodies=True
    )  # fmt: skip
    assert not stored(tmp_path / "b")["ask.waiting"].get("arguments")
    assert PLAIN_WORD.encode() not in (tmp_path / "b").read_bytes()
