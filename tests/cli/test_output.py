import io
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.cli import output as printing
from agentwrap.cli.output import Output, wants_color
from agentwrap.cli.pager import command_of
from agentwrap.errors import AgentwrapError


def made(env: dict[str, str] | None = None) -> tuple[Output, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Output(out, err, env or {}), out, err


@pytest.mark.parametrize(
    ("mode", "env", "tty", "expected"),
    [
        ("auto", {"TERM": "xterm"}, True, True),
        ("auto", {"TERM": "xterm"}, False, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {}, True, False),
        ("auto", {"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ("auto", {"TERM": "xterm", "NO_COLOR": ""}, True, True),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"FORCE_COLOR": "0"}, False, False),
        ("auto", {"CLICOLOR_FORCE": "1"}, False, True),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1", "TERM": "xterm"}, True, False),
    ],
)
def test_colour_follows_the_conventions(mode: str, env: dict[str, str], tty: bool, expected: bool) -> None:
    assert wants_color(mode, env, tty=tty) is expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, "less"),
        ({"PAGER": "more"}, "more"),
        ({"PAGER": "more", "AGENTWRAP_PAGER": "most -s"}, "most -s"),
        ({"PAGER": "more", "AGENTWRAP_PAGER": ""}, ""),
        ({"PAGER": "cat"}, ""),
    ],
)
def test_the_pager_is_chosen_as_git_does(env: dict[str, str], expected: str) -> None:
    assert command_of(env) == expected


@given(st.text(), st.sampled_from(["auto", "always"]))
def test_nothing_foreign_reaches_the_screen_unescaped(foreign: str, color: str) -> None:
    output, out, err = made()
    output.color = color  # type: ignore[assignment]
    output.line(foreign)
    output.line([(foreign, "deny"), (foreign, "")])
    output.note(foreign)
    output.note([(foreign, "gap")])
    output.error(AgentwrapError("usage", foreign, evidence=foreign, hint=foreign))
    shown = out.getvalue() + err.getvalue()
    for code in printing._SGR.values():
        shown = shown.replace(f"\x1b[{code}m", "")
    shown = shown.replace("\x1b[0m", "")
    assert all(c.isprintable() or c in "\n\t\u3000" for c in shown)


def test_colours_surround_escaped_text() -> None:
    output, out, _ = made()
    output.color = "always"
    output.line([("a\x1b[0m", "deny"), ("b", "")])
    assert out.getvalue() == "\x1b[1;31ma\\x1b[0m\x1b[0mb\n"


def test_json_is_ascii() -> None:
    output, out, _ = made()
    output.document({"a": "\u202e\x9b"})
    output.record({"a": "\u202e\x9b"})
    assert out.getvalue().isascii()
    assert "\x1b" not in out.getvalue()


def test_a_document_may_hold_lists_of_any_length() -> None:
    output, out, _ = made()
    output.document({"a": [1, {"b": []}], "none": iter(()), "many": iter([{"x": 1}, "y"])})
    assert json.loads(out.getvalue()) == {"a": [1, {"b": []}], "none": [], "many": [{"x": 1}, "y"]}
    output, out, _ = made()
    output.document({})
    assert json.loads(out.getvalue()) == {}


def test_without_a_terminal_nothing_is_cut() -> None:
    assert made({"COLUMNS": "20"})[0].columns() is None


def in_terminal(code: str, **env: str) -> str:
    """What a Python program shows on a pseudo-terminal of its own."""
    import pty

    controller, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", **env}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    ) as process:
        os.close(terminal)
        shown = b""
        while True:
            try:
                chunk = os.read(controller, 65536)
            except OSError:  # EIO: nobody has the terminal open any more (pty(7))
                break
            if not chunk:
                break
            shown += chunk
        process.wait(timeout=300)
    os.close(controller)
    return shown.decode()


PAGED = """
from agentwrap.cli.output import Output
output = Output.standard()
with output.paged():
    output.line("one")
    output.lines(str(n) for n in range({lines}))
print("after")
"""


def test_on_a_terminal_the_pager_gets_the_output() -> None:
    shown = in_terminal(PAGED.format(lines=0), AGENTWRAP_PAGER="sed s/^/paged:/")
    assert shown == "paged:one\r\nafter\r\n"


def test_less_gets_its_options_unless_they_are_set() -> None:
    assert in_terminal(PAGED.format(lines=0), AGENTWRAP_PAGER="echo $LESS").startswith("FIRX")
    assert in_terminal(PAGED.format(lines=0), AGENTWRAP_PAGER="echo $LESS", LESS="S").startswith("S")


def test_a_pager_that_stops_reading_is_no_fault() -> None:
    shown = in_terminal(PAGED.format(lines=100_000), AGENTWRAP_PAGER="head -n 1")
    assert shown == "one\r\nafter\r\n"


def test_a_pager_that_is_not_there_is_told_by_the_shell_alone() -> None:
    shown = in_terminal(PAGED.format(lines=100_000), AGENTWRAP_PAGER="/nowhere/pager")
    assert shown.endswith("after\r\n")
    assert "Traceback" not in shown


def test_a_dumb_terminal_has_no_pager() -> None:
    assert in_terminal(PAGED.format(lines=0), AGENTWRAP_PAGER="sed s/^/paged:/", TERM="dumb") == "one\r\nafter\r\n"
