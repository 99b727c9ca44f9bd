import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from agentwrap.cli import main
from agentwrap.cli.main import run
from agentwrap.cli.output import Output, pass_output
from agentwrap.errors import AgentwrapError

Capture = pytest.CaptureFixture[str]


def install(monkeypatch: pytest.MonkeyPatch, name: str, action: object) -> None:
    """Put a command that does `action` in the place of `name`."""

    @click.command()
    @click.argument("words", nargs=-1)
    @pass_output
    def command(output: Output, words: tuple[str, ...]) -> object:
        return action(output)  # type: ignore[operator]

    real = main.Commands.get_command
    monkeypatch.setattr(
        main.Commands, "get_command", lambda self, ctx, asked: command if asked == name else real(self, ctx, asked)
    )


def test_a_bare_call_shows_three_examples_and_every_command(capsys: Capture) -> None:
    assert run([]) == 0
    shown = capsys.readouterr().out
    assert shown.count("agentwrap -- claude") == 1
    assert shown.split("\n\n")[0].count("\n") == 2
    for name in main.COMMANDS:
        assert f"\n  {name} " in shown


def test_help_and_version(capsys: Capture) -> None:
    assert run(["--help"]) == 0
    assert "COMMAND" in capsys.readouterr().out
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("agentwrap ")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["--", "ls", "-l"], ["run", "--", "ls", "-l"]),
        (["--reads", "--", "ls"], ["run", "--reads", "--", "ls"]),
        (["-q", "--", "show"], ["run", "-q", "--", "show"]),
        (["show", "--tree"], ["show", "--tree"]),
        (["-h"], ["-h"]),
        (["--version"], ["--version"]),
        ([], []),
    ],
)
def test_a_call_that_begins_with_an_option_means_run(given: list[str], meant: list[str]) -> None:
    assert main.complete(given) == meant


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        (["shwo"], "error: no such command `shwo`", "hint: did you mean `agentwrap show`?"),
        (["claude", "-p", "x"], "error: no such command `claude`", "hint: to wrap a command, put `--` before it"),
        (["show", "--fils"], "error: no such option `--fils`", "hint: did you mean `--files`?"),
        (["show", "-n", "many"], "error: invalid value for '-n' / '--limit'", "hint: `agentwrap show --help`"),
        (["show", "--limit"], "error: option '--limit' requires an argument", "hint: `agentwrap show --help`"),
        (["show", "--color", "pink"], "error: invalid value for '--color'", "hint:"),
    ],
)
def test_wrong_usage_is_one_error_with_a_hint(given: list[str], message: str, hint: str, capsys: Capture) -> None:
    assert run(given) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(message)
    assert f"\n\n{hint}" in shown.err
    assert "Traceback" not in shown.err


def test_with_json_an_error_is_an_object_on_standard_output(capsys: Capture) -> None:
    assert run(["show", "--json", "nowhere.agentlog"]) == 2
    shown = capsys.readouterr()
    assert shown.err == ""
    error = json.loads(shown.out)["error"]
    assert error["kind"] == "not-found"
    assert set(error) == {"kind", "message", "evidence", "hint"}
    assert run(["show", "--json", "--nope"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "usage"


def test_an_error_shows_no_control_character_of_what_was_given(capsys: Capture) -> None:
    assert run(["show", "no\x1b[2J\n.agentlog"]) == 2
    assert run(["no\x1b[2J\n"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_a_command_may_return_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "show", lambda _output: 3)
    assert run(["show"]) == 3


def fail(fault: BaseException) -> object:
    def action(output: Output) -> None:
        raise fault

    return action


def test_an_error_of_ours_is_saved_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, own_places: Path
) -> None:
    install(monkeypatch, "show", fail(ZeroDivisionError("by nought\x1b")))
    assert run(["show"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: internal fault\n\n  ZeroDivisionError: by nought\\x1b\n\nhint: ")
    (saved,) = (own_places / "state" / "agentwrap" / "faults").iterdir()
    assert str(saved) in shown
    assert "Traceback" in saved.read_text()
    assert saved.stat().st_mode & 0o777 == 0o600


def test_an_error_of_ours_in_run_is_125(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    install(monkeypatch, "run", fail(ZeroDivisionError()))
    assert run(["--", "true"]) == 125
    assert "internal fault" in capsys.readouterr().err


def test_vv_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    @click.command()
    @click.option("-v", count=True)
    def command(v: int) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(main.Commands, "get_command", lambda *_: command)
    assert run(["show", "-vv"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_state_folder_that_cannot_be_written_does_not_hide_the_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    install(monkeypatch, "show", fail(ZeroDivisionError("x")))
    assert run(["show"]) == 2
    assert "the traceback could not be saved" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (AgentwrapError("busy", "somebody has it", exit_status=7), 7),
        (click.exceptions.Exit(5), 5),
    ],
)
def test_ways_out_have_their_status(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, fault: BaseException, status: int
) -> None:
    install(monkeypatch, "show", fail(fault))
    assert run(["show"]) == status
    assert "Traceback" not in capsys.readouterr().err


def test_help_on_topics_and_commands(capsys: Capture) -> None:
    for words in (["help"], ["help", "filters"], ["help", "exit-codes"], ["help", "environment"], ["help", "show"]):
        assert run(words) == 0
        assert capsys.readouterr().out.count("\n") > 2
    assert run(["help", "nothing"]) == 2


def test_a_shell_can_complete_commands_and_options() -> None:
    def completed(words: str, at: int) -> list[str]:
        asked = {**os.environ, "_AGENTWRAP_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        command = [sys.executable, "-m", "agentwrap"]
        done = subprocess.run(command, env=asked, capture_output=True, text=True, timeout=300)
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert completed("agentwrap sh", 1) == ["show"]
    assert "--diff" in completed("agentwrap show --", 2)
