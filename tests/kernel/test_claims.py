"""Programs of a run say things about themselves, in Python and in JavaScript, and the recording says who said so."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
from wrapping import Wrapped, wrap

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "reference" / "claims.md"


def examples(language: str) -> list[str]:
    """The code of the page in one language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def claims(ran: Wrapped) -> list[tuple[str, str]]:
    return [(row.data["said"], row.data.get("name", "")) for row in ran.events("claim")]


def test_python_by_the_page(tmp_path: Path) -> None:
    (code,) = examples("python")
    ran = wrap(tmp_path, sys.executable, "-c", code)
    assert (ran.status, ran.stderr) == (0, b"")
    assert claims(ran) == [
        ("span.start", "plan"),
        ("decision", "edit hello.py"),
        ("span.end", "plan"),
    ]
    (process,) = ran.events("process.start")
    assert {(row.span, row.pid) for row in ran.events("claim")} == {(process.span, process.pid)}


def test_javascript_by_the_page(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    (code,) = examples("js")
    ran = wrap(tmp_path, node, "-e", code)
    assert ran.status == 0, ran.stderr
    assert claims(ran) == [
        ("span.start", "plan"),
        ("decision", "edit hello.py"),
        ("span.end", "plan"),
    ]


def test_under_a_policy_that_lets_nothing_out(tmp_path: Path) -> None:
    code = "from agentwrap.emit import emit; raise SystemExit(not emit('log', 'still heard'))"
    ran = wrap(tmp_path, sys.executable, "-c", code, options=("--network", "none"))
    assert ran.status == 0, ran.stderr
    assert claims(ran) == [("log", "still heard")]


def test_a_secret_in_a_claim_is_not_kept(tmp_path: Path) -> None:
    secret = "sk-ant-" + "api03-" + "Zx9" * 31
    code = f"from agentwrap.emit import emit; emit('message', 'said', text={secret!r})"
    ran = wrap(tmp_path, sys.executable, "-c", code, env={"PYTHONPATH": str(PAGE.parent.parent.parent)})
    (row,) = ran.events("claim")
    assert "redacted" in json.loads(row.data["data"])["text"]
    assert secret.encode() not in ran.recording.read_bytes()
