"""The only printer: standard output and error, colour rules, the pager, errors for people and for programs.

Knows terminals and the environment's conventions (NO_COLOR, PAGER, COLUMNS). Refuses to know what it prints: whatever
passes here is escaped once more by `text.escape`, so no view can forget it.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Literal, TextIO, TypeVar

import click

from agentwrap import text
from agentwrap.cli import pager
from agentwrap.errors import AgentwrapError
from agentwrap.views.styled import Line, Role, plain

ColorMode = Literal["auto", "always", "never"]
Function = TypeVar("Function", bound=Callable[..., Any])

# Select Graphic Rendition parameters (ECMA-48 8.3.117); only denials and removed lines are red.
_SGR: dict[Role, str] = {
    "add": "32",
    "bad": "33",
    "deny": "1;31",
    "dim": "2",
    "gap": "35",
    "good": "32",
    "hunk": "36",
    "name": "1",
    "remove": "31",
    "title": "1",
    "who": "36",
}


def _set(env: Mapping[str, str], name: str) -> bool:
    """Whether a switch of the environment is on: an empty value counts as unset."""
    return bool(env.get(name))


def wants_color(mode: ColorMode, env: Mapping[str, str], *, tty: bool) -> bool:
    """`--color` > `NO_COLOR` > `FORCE_COLOR`, `CLICOLOR_FORCE` > a terminal that is not dumb (no-color.org)."""
    if mode != "auto":
        return mode == "always"
    if _set(env, "NO_COLOR"):
        return False
    if env.get("FORCE_COLOR", "") not in ("", "0") or env.get("CLICOLOR_FORCE", "") not in ("", "0"):
        return True
    return tty and env.get("TERM", "dumb") != "dumb"


@contextmanager
def _closed(items: object) -> Iterator[None]:
    try:
        yield
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()


class Output:
    """Where a command prints. One per run of the program; commands get it with `@output.pass_output`."""

    def __init__(self, stdout: TextIO, stderr: TextIO, env: Mapping[str, str]) -> None:
        self.env = env
        self.verbose = 0
        self.color: ColorMode = "auto"
        self.json = False
        self.pager_allowed = True
        self._stdout, self._stderr = stdout, stderr
        self._sink: IO[str] = stdout
        self._colored: bool | None = None

    @classmethod
    def standard(cls) -> "Output":
        """Output on this process's own streams, which may be closed (then what is printed is lost)."""
        streams: list[TextIO] = []
        for stream in (sys.stdout, sys.stderr):
            if stream is None:
                stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PLW2901 - lives as long as the process
            elif hasattr(stream, "reconfigure"):
                # A locale that cannot write an arrow must not turn a report into a traceback.
                stream.reconfigure(errors="backslashreplace")
            streams.append(stream)
        return cls(streams[0], streams[1], os.environ)

    @property
    def is_terminal(self) -> bool:
        """Whether standard output is a terminal."""
        return self._stdout.isatty()

    def columns(self) -> int | None:
        """Width to clip lines to, or None where standard output is no terminal (then nothing is cut)."""
        if not self.is_terminal:
            return None
        asked = self.env.get("COLUMNS", "")
        if asked.isascii() and asked.isdigit() and int(asked) > 0:
            return int(asked)
        try:
            return os.get_terminal_size(self._stdout.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def line(self, content: str | Line = "") -> None:
        """Print one line on standard output (a string may hold several)."""
        if isinstance(content, str):
            for part in content.split("\n"):
                self._sink.write(text.escape(part, tabs=True) + "\n")
            return
        if self._colored is None:
            self._colored = wants_color(self.color, self.env, tty=self.is_terminal)
        if self._colored:
            self._sink.write(render(content) + "\n")
        else:
            self._sink.write(text.escape(plain(content), tabs=True) + "\n")

    def lines(self, contents: Iterable[str | Line]) -> None:
        """Print many lines, as they come. A generator is closed, so that it lets go of what it reads from."""
        with _closed(contents):
            for content in contents:
                self.line(content)

    def document(self, value: Mapping[str, object]) -> None:
        """Print one JSON document (`--json`); ASCII only, so it is safe on a terminal too.

        A member that is an iterator is printed as a list, item by item, so that it may be of any length.
        """
        separator = "{\n"
        for name, member in value.items():
            self._sink.write(f"{separator}  {json.dumps(name)}: ")
            separator = ",\n"
            if not isinstance(member, Iterator):
                self._sink.write(json.dumps(member, indent=2, ensure_ascii=True).replace("\n", "\n  "))
                continue
            before = "[\n"
            with _closed(member):
                for item in member:
                    self._sink.write(f"{before}    {json.dumps(item, ensure_ascii=True)}")
                    before = ",\n"
            self._sink.write("[]" if before == "[\n" else "\n  ]")
        self._sink.write("\n}\n" if value else "{}\n")

    def record(self, value: object) -> None:
        """Print one JSON object on one line."""
        self._sink.write(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")

    def write_bytes(self, chunks: Iterable[bytes]) -> None:
        """Write an export on standard output as it is: its format has its own escaping."""
        self.flush()
        raw = getattr(self._stdout, "buffer", None)
        with _closed(chunks):
            for chunk in chunks:
                if raw is not None:
                    raw.write(chunk)
                else:
                    self._stdout.write(chunk.decode("utf-8", "backslashreplace"))
        if raw is not None:
            raw.flush()

    def note(self, content: str | Line) -> None:
        """Say something on standard error that is not the result. Where that cannot be written, it is not said.

        Nothing may depend on it: a run goes on, with the status of its command.
        """
        pieces: Line = [(content, "")] if isinstance(content, str) else content
        try:
            if wants_color(self.color, self.env, tty=self._stderr.isatty()) and not isinstance(content, str):
                self._stderr.write(render(pieces) + "\n")
            else:
                for part in plain(pieces).split("\n"):
                    self._stderr.write(text.escape(part, tabs=True) + "\n")
            self._stderr.flush()
        except OSError:
            _send_nowhere(self._stderr)

    def flush(self) -> None:
        """Hand over what is still buffered."""
        self._sink.flush()

    def error(self, failure: AgentwrapError) -> None:
        """`error:` / evidence / `hint:` on standard error, or with `--json` an object on standard output."""
        if self.json:
            self.record(error_object(failure))
            self.flush()
            return
        self.flush()
        self.note([("error:", "deny"), (" " + one_line(failure.message), "")])
        if failure.evidence:
            indented = "\n".join("  " + part for part in failure.evidence.split("\n"))
            self.note(f"\n{indented}")
        if failure.hint:
            self.note("")
            self.note([("hint:", "name"), (" " + one_line(failure.hint), "")])

    @contextmanager
    def paged(self) -> Iterator[None]:
        """Inside, what is printed goes through the pager, where standard output is a terminal that has one."""
        command = pager.command_of(self.env)
        if not (self.pager_allowed and command and self.is_terminal and self.env.get("TERM", "dumb") != "dumb"):
            yield
            return
        self.flush()
        process = pager.start(command, self.env)
        assert process.stdin is not None
        self._sink = process.stdin
        try:
            yield
            self._sink.flush()
        except BrokenPipeError:
            pass  # the reader has seen enough
        finally:
            self._sink = self._stdout
            pager.wait_for(process)

    def abandon(self) -> None:
        """After a broken pipe: send what is left nowhere, so that the interpreter's own flush stays quiet."""
        _send_nowhere(self._stdout)


def _send_nowhere(stream: TextIO) -> None:
    """What the stream still holds, and all that follows, goes to /dev/null."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    except (OSError, ValueError):
        pass
    finally:
        os.close(nowhere)


def render(pieces: Line) -> str:
    """A line with colours; text is escaped before it is styled, so no foreign byte can end a style."""
    rendered: list[str] = []
    for content, role in pieces:
        shown = text.escape(content, tabs=True)
        parameters = _SGR.get(role)
        rendered.append(f"\x1b[{parameters}m{shown}\x1b[0m" if parameters and shown else shown)
    return "".join(rendered)


def one_line(content: str) -> str:
    """Foreign newlines made visible."""
    return text.escape(content)


def error_object(failure: AgentwrapError) -> dict[str, Any]:
    """The JSON form of an error; `kind` is a closed list (`errors.ErrorKind`)."""
    return {
        "error": {
            "kind": failure.kind,
            "message": failure.message,
            "evidence": failure.evidence,
            "hint": failure.hint,
        }
    }


SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Of commands inside a group; `main` gives it to the others."""

pass_output = click.make_pass_decorator(Output)


def _remember(attribute: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    def callback(context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
        output = context.find_object(Output)
        if output is not None:
            setattr(output, attribute, value)
        return value

    return callback


def common_options(*, json_output: bool = False, pager: bool = False) -> Callable[[Function], Function]:
    """Options that every reading command has: `--color`, `-v`, and where they make sense `--json`, `--no-pager`.

    Their values are set on the `Output`; the command function does not get them.
    """

    def decorate(function: Function) -> Function:
        options = [
            click.option(
                "--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
                expose_value=False, callback=_remember("color"), help="When to use colour.",
            ),
            click.option(
                "-v", "verbose", count=True, expose_value=False, callback=_remember("verbose"),
                help="Say more; `-vv` shows the traceback of an internal fault.",
            ),
        ]  # fmt: skip
        if json_output:
            options.insert(0, click.option(
                "--json", is_flag=True, expose_value=False, callback=_remember("json"),
                help="Print JSON, errors too.",
            ))  # fmt: skip
        if pager:
            options.insert(0, click.option(
                "--pager/--no-pager", default=True, expose_value=False, callback=_remember("pager_allowed"),
                help="Page on a terminal ($AGENTWRAP_PAGER, $PAGER, less).", show_default=True,
            ))  # fmt: skip
        for option in options:
            function = option(function)
        return function

    return decorate
