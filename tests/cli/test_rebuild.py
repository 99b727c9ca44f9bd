"""`agentwrap rebuild`: the bytes as they were, or one clear reason why not."""

import hashlib
import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import mcp_run
import pytest
import sample_run
from recordings import conversation, make

from agentwrap.cli.main import run
from agentwrap.events import Body, Content, HttpExchange, Item, ModelRequest, ModelResponse

Capture = pytest.CaptureFixture[bytes]
PLACE = {"call": "m1", "agent": "a1", "turn": "t1"}
BINARY = bytes(range(256)) * 3


def held(data: bytes) -> tuple[Content, Body]:
    digest = hashlib.sha256(data).digest()
    return Content(digest, data, "body"), Body(len(data), (digest,))


def exchange(data: bytes, **more: object) -> list[Item]:
    content, body = held(data)
    fields: dict[str, object] = {"request": body, **more}
    return [content, HttpExchange(at_ns=1, exchange="h1", host=b"h", method=b"PUT", path=b"/", **fields)]  # type: ignore[arg-type]


def recorded(path: Path, items: list[Item], *, shape_only: bool = False) -> str:
    recorder = make.begin(path, shape_only=shape_only)
    sample_run.put(recorder, items)
    recorder.close()
    return str(path)


@pytest.fixture
def talk(tmp_path: Path) -> str:
    return recorded(tmp_path / "talk.agentlog", list(conversation.items(12)))


def bodies() -> dict[str, bytes]:
    items = list(conversation.items(12))
    data = {item.sha: item.data for item in items if isinstance(item, Content)}
    found: dict[str, bytes] = {}
    for item in items:
        if isinstance(item, ModelRequest):
            found[f"{item.call} request"] = b"".join(data[piece] for piece in item.request.pieces)
        elif isinstance(item, ModelResponse):
            found[f"{item.call} response"] = b"".join(data[piece] for piece in item.response.pieces)
    return found


@pytest.mark.parametrize("call", ["m1", "m5", "m12"])
def test_the_bytes_are_those_that_were_sent_and_came(talk: str, capfdbinary: Capture, call: str) -> None:
    for field in ("request", "response"):
        assert run(["rebuild", call, talk, f"--{field}"]) == 0
        out, err = capfdbinary.readouterr()
        assert (out, err) == (bodies()[f"{call} {field}"], b"")
    assert run(["rebuild", call, talk]) == 0
    assert capfdbinary.readouterr()[0] == bodies()[f"{call} request"]


def test_any_bytes_come_through_a_pipe_and_into_a_file(tmp_path: Path, capfdbinary: Capture) -> None:
    path = recorded(tmp_path / "b.agentlog", exchange(BINARY))
    for call in ("h1", "1"):
        assert run(["rebuild", call, path]) == 0
        assert capfdbinary.readouterr()[0] == BINARY
    assert run(["rebuild", "h1", path, "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out").read_bytes() == BINARY
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600
    assert run(["rebuild", "h1", path, "-o", str(tmp_path / "out")]) == 2
    assert b"already there" in capfdbinary.readouterr()[1]


def on_terminal(path: str) -> tuple[int, bytes]:
    """What a terminal gets."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "agentwrap", "rebuild", "h1", path]
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        told = io.BytesIO()
        try:
            while piece := terminal.read(4096):
                told.write(piece)
        except OSError:  # EIO: the other side is closed (pty(7))
            pass
        return child.wait(300), told.getvalue()


def test_a_terminal_gets_safe_text_only(tmp_path: Path) -> None:
    status, told = on_terminal(recorded(tmp_path / "t.agentlog", exchange(b"one\n\x1b]0;evil\x07two")))
    assert (status, told) == (0, b"one\r\n\\x1b]0;evil\\x07two\r\n")
    status, told = on_terminal(recorded(tmp_path / "b.agentlog", exchange(BINARY)))
    assert status == 2
    assert b"no text for a terminal" in told
    assert b"hint:" in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["m99"], b"m1, m2, m3"),
        (["h1"], b"there is no h1"),
        (["x1"], b"is no call"),
        (["m0"], b"is no call"),
        (["9999"], b"there is no event 9999"),
        (["m1", "--message"], b"m1 has no message"),
        (["2"], b"has no request"),
    ],
)
def test_what_is_not_there_is_an_error(talk: str, capfdbinary: Capture, words: list[str], said: bytes) -> None:
    assert run(["rebuild", words[0], talk, *words[1:]]) == 2
    out, err = capfdbinary.readouterr()
    assert said in err, err
    assert out == b""


def test_an_answer_that_never_came(tmp_path: Path, capfdbinary: Capture) -> None:
    content, body = held(b"asked")
    asked = ModelRequest(at_ns=1, api="openai.chat", host=b"h", request=body, **PLACE)  # type: ignore[arg-type]
    path = recorded(tmp_path / "r.agentlog", [content, asked])
    assert run(["rebuild", "m1", path, "--response"]) == 2
    assert b"no answer was seen" in capfdbinary.readouterr()[1]


def test_what_was_not_kept_says_why(tmp_path: Path, capfdbinary: Capture) -> None:
    over = recorded(tmp_path / "o.agentlog", exchange(b"x", request=Body(9 << 20, (), "over-cap")))
    lost = recorded(tmp_path / "l.agentlog", exchange(b"x", request=Body(5, (bytes(32),))))
    shape = recorded(tmp_path / "s.agentlog", exchange(b"x"), shape_only=True)
    gone = recorded(tmp_path / "g.agentlog", exchange(b"x"))
    make.edit(Path(gone), "UPDATE blob SET data = NULL")
    reasons = ((over, b"more than is kept"), (lost, b"did not all"), (shape, b"--shape-only"), (gone, b"given up"))
    for path, said in reasons:
        assert run(["rebuild", "h1", path]) == 2
        out, err = capfdbinary.readouterr()
        assert said in err, err
        assert out == b""


def test_that_something_is_hidden_is_said_beside_it(tmp_path: Path, capfdbinary: Capture) -> None:
    path = recorded(tmp_path / "r.agentlog", exchange(b'{"password": "correct9horse"}'))
    assert run(["rebuild", "h1", path]) == 0
    out, err = capfdbinary.readouterr()
    assert out.startswith(b'{"password": "\xc2\xabredacted:password:')
    assert b"redacted" in err


def test_what_an_mcp_call_asked_and_was_answered(tmp_path: Path, capfdbinary: Capture) -> None:
    path = recorded(tmp_path / "mcp.agentlog", mcp_run.items())
    assert run(["rebuild", "k4", path]) == 0
    asked = capfdbinary.readouterr().out
    assert (b'"method": "tools/call"' in asked, b"/srv/project/tickets.md" in asked) == (True, True)
    assert run(["rebuild", "k4", path, "--response"]) == 0
    assert capfdbinary.readouterr().out == (
        b'{"jsonrpc": "2.0", "id": 3, "result": {"content": [{"type": "text", "text": "written"}]}}'
    )
    for words in (["k99"], ["k99", "--response"]):
        assert run(["rebuild", words[0], path, *words[1:]]) == 2
        assert b"there is no k99" in capfdbinary.readouterr().err
