"""`agentwrap run`: wrap a command. Options in, one session, the command's own exit status out."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentwrap.cli.faults import keep_trace
from agentwrap.cli.model_options import model_options
from agentwrap.cli.output import Output, pass_output
from agentwrap.cli.policy_options import layers_of, policy_options, requirements_of, words_for
from agentwrap.errors import EXIT_DENIED, EXIT_FAILED, AgentwrapError

if TYPE_CHECKING:
    import subprocess

    from agentwrap.launching.options import RunOptions

_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Size(click.ParamType[int]):
    """A number of bytes with an optional k, m or g (powers of 1024)."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes."""
        text = str(value).strip().lower().removesuffix("b").removesuffix("i")
        digits, unit = (text[:-1], text[-1]) if text[-1:] in "kmg" and text else (text, "")
        if not digits.isdecimal():
            self.fail(f"`{value}` is no size (examples: 64k, 8m, 1g)", param, ctx)
        return int(digits) * _SIZES[unit]


class Pattern(click.ParamType[str]):
    """A regular expression of Python's, as text."""

    name = "regex"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text, known to be one."""
        import re

        try:
            re.compile(os.fsencode(str(value)))
        except re.error as error:
            self.fail(f"`{value}` is no regular expression: {error}", param, ctx)
        return str(value)


def environment_with(additions: tuple[str, ...]) -> Mapping[bytes, bytes]:
    """Ours plus `-e NAME=VALUE` (or `-e NAME` to take our value explicitly)."""
    environment = dict(os.environb)
    for entry in additions:
        name, equals, value = os.fsencode(entry).partition(b"=")
        if not name:
            raise AgentwrapError(
                "usage", f"`-e {entry}` names no variable", hint="agentwrap run -e NAME=VALUE -- COMMAND"
            )
        if equals:
            environment[name] = value
        elif name not in environment:
            shown = os.fsdecode(name)
            raise AgentwrapError("usage", f"`-e {shown}`: no such variable here", hint=f"-e {shown}=VALUE")
    return environment


def host_facts() -> dict[str, str]:
    """What a recording says of the machine."""
    system = os.uname()
    return {"kernel": f"{system.sysname} {system.release}", "arch": system.machine, "python": sys.version.split()[0]}


def signing_key() -> Path | None:
    """The key of this user, if there is one."""
    from agentwrap.recording import places

    key = places.key_paths(os.environ)[0]
    try:
        return key if key.exists() else None
    except OSError:
        return None  # a HOME that is not ours to look into holds no key of ours


def output_path(given: str | None, command: str, run_id: str) -> Path:
    """Where the recording goes. Raises AgentwrapError where the default folder cannot be made."""
    from agentwrap.recording import places

    if given is not None:
        return Path(given)
    folder = places.recordings_dir(os.environ)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise AgentwrapError(
            "output",
            "the folder for recordings cannot be made",
            evidence=f"{folder}: {error.strerror}",
            hint="agentwrap run -o FILE.agentlog -- COMMAND",
            exit_status=EXIT_FAILED,
        ) from error
    return folder / places.recording_name(command, time.strftime("%Y%m%d-%H%M%S"), run_id)


@click.command(
    context_settings={"allow_interspersed_args": False},
    epilog="Exit status: the command's own; 123 something was denied (--fail-on-deny), 124 time-out, "
    "125 agentwrap failed, 126 cannot execute, 127 not found.",
)
@click.option("-o", "--output", "output_file", metavar="FILE", help="Where the recording goes (default: state folder).")
@click.option("-e", "--env", "additions", multiple=True, metavar="NAME=VALUE", help="Set a variable for the command.")
@click.option("-C", "--directory", metavar="DIR", help="Run the command in DIR.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="End the run after this."
)
@policy_options
@model_options
@click.option("--reads", is_flag=True, help="Record reads too: one row per process and path.")
@click.option(
    "--require", default="", metavar="KINDS", help="Refuse to start unless these are covered: exec,file-write."
)
@click.option("--best-effort", is_flag=True, help="Run even where little can be seen; the loss is recorded.")
@click.option(
    "--debuggable", is_flag=True, help="Leave ptrace to the command (gdb, strace); processes are seen weaker."
)
@click.option(
    "--follow",
    type=click.Choice(["auto", "notify", "trace", "calls"]),
    default="auto",
    hidden=True,
    help="Follow calls this way alone, to try what an older or stricter machine would do.",
)
@click.option("--shape-only", is_flag=True, help="Record names, times, sizes and counts, no content.")
@click.option(
    "--keep-fd", "inherit", multiple=True, type=click.IntRange(min=3), metavar="N", help="Pass descriptor N on."
)
@click.option(
    "--max-content", type=Size(), default="8m", show_default=True, help="Keep contents of files up to this size."
)
@click.option("--max-hash", type=Size(), default="256m", show_default=True, help="Hash files up to this size.")
@click.option("--redact-name", multiple=True, metavar="NAME", help="Hide the value of this variable, too.")
@click.option("--redact-pattern", multiple=True, type=Pattern(), metavar="REGEX", help="Hide what matches.")
@click.option("--redact-key", multiple=True, metavar="KEY", help="Hide the values of this JSON key.")
@click.option("--no-undo", is_flag=True, help="Keep no contents for `agentwrap undo`.")
@click.option("--unsigned", is_flag=True, help="Do not sign, even if there is a key.")
@click.option("--stream/--no-stream", default=False, help="Print events on stderr while they happen.")
@click.option("--otlp", "otlp_url", metavar="URL", help="Send spans there while the run goes on (OTLP over HTTP).")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing on stderr.")
@click.option(
    "-v", "verbose", count=True, expose_value=False, help="With -vv, show the traceback of an internal fault."
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND [ARGS]...")
@pass_output
def command(output: Output, /, command: tuple[str, ...], stream: bool, quiet: bool, **given: Any) -> int:
    """Wrap COMMAND: follow it and every child, and keep one file of what happened and what could not be seen.

    The command's input, output, terminal, signals and exit status stay its own.

    Without a policy everything passes. `--policy`, `agentwrap.toml` of the project, `~/.config/agentwrap/policy.toml`
    and `/etc/agentwrap/policy.toml` say what may be reached, changed, read and run. `--allow`, `--deny`, `--ro` and
    `--rw` add to that; alone, they close what they are about: `--allow` the rest of the network, `--rw` the rest of
    the files.
    """
    if not command:
        raise AgentwrapError("usage", "no command to wrap", hint="agentwrap -- COMMAND", exit_status=EXIT_FAILED)
    from agentwrap.recording import places
    from agentwrap.session import Session

    options = _run_options(command, given)
    if given["otlp_url"]:
        from agentwrap.cli import otlp

        otlp.check(given["otlp_url"], output.env)
    session = Session(options, _say(output, stream=stream, quiet=quiet))
    mode = session.prepare()
    try:
        places.note_latest(os.environ, options.output)
    except OSError:
        pass  # readers then look for the newest file in the default folder
    if not quiet:
        told = words_for(options.layers, options.network, session.outcome.tier, attended=session.attended)
        output.note([("agentwrap ", "dim"), (f"recording to {options.output}{told}", ""), (_mode_words(mode), "dim")])
    follower = _follow(options.output) if stream and not quiet else None
    exporter = otlp.beside(options.output, given["otlp_url"], quiet=quiet) if given["otlp_url"] else None
    outcome = session.run()
    if follower is not None:
        follower.wait()
    if exporter is not None:
        otlp.wait_for(exporter, output)
    denied = 0
    if not quiet or options.fail_on_deny:
        denied = _afterwards(output, options, quiet=quiet)
    if outcome.failure:
        hint = keep_trace(outcome.trace) if outcome.trace else "agentwrap show --gaps"
        output.error(AgentwrapError("internal", "the recording is not complete", evidence=outcome.failure, hint=hint))
    output.flush()
    if denied and options.fail_on_deny and not outcome.failure and not outcome.timed_out:
        return EXIT_DENIED
    return session.leave()


def _run_options(command: tuple[str, ...], given: dict[str, Any]) -> "RunOptions":
    """The run as the session knows it, from the command line's values by their names."""
    from agentwrap.launching.options import RunOptions
    from agentwrap.recording import places

    run_id = os.urandom(8).hex()
    directory = given["directory"]
    environment = environment_with(given["additions"])
    cwd = os.fsencode(os.path.abspath(directory)) if directory is not None else None
    output = output_path(given["output_file"], command[0], run_id)
    layers = layers_of(given, environment, cwd, output)
    return RunOptions(
        command=tuple(os.fsencode(word) for word in command),
        environment=environment,
        output=output,
        run_id=run_id,
        undo=None if given["no_undo"] else places.undo_dir(os.environ, run_id),
        cwd=cwd,
        inherit=_open_descriptors(given["inherit"]),
        timeout_s=given["timeout"],
        reads=given["reads"],
        debuggable=given["debuggable"],
        follow=given["follow"],
        best_effort=given["best_effort"],
        require=requirements_of(given["require"], layers),
        shape_only=given["shape_only"],
        signing_key=None if given["unsigned"] else signing_key(),
        max_content_bytes=given["max_content"],
        max_hash_bytes=given["max_hash"],
        redact_names=given["redact_name"],
        redact_patterns=given["redact_pattern"],
        redact_keys=given["redact_key"],
        layers=layers,
        network=given["network"],
        tier=given["tier"],
        publish=given["publish"],
        ask_timeout_s=given["ask_timeout"] or 300.0,
        ask_waits=given["ask_timeout"] is not None,
        fail_on_deny=given["fail_on_deny"],
        intercept=given["intercept"],
        no_intercept=given["no_intercept"],
        mcp_arguments=given["mcp_arguments"],
        server=given.get("server", b""),
        host_facts=host_facts(),
    )


def _say(output: Output, *, stream: bool, quiet: bool) -> Callable[[str], None]:
    """How a question is announced; not at all where a line would fall into what the agent draws."""

    def say(line: str) -> None:
        from agentwrap.approvals.desk import may_speak

        if not quiet and (stream or may_speak()):
            output.note(line)

    return say


def _open_descriptors(wanted: tuple[int, ...]) -> tuple[int, ...]:
    for descriptor in wanted:
        try:
            os.fstat(descriptor)
        except OSError as error:
            raise AgentwrapError(
                "usage",
                f"descriptor {descriptor} is not open",
                evidence=str(error.strerror),
                hint=f"open it in the shell: agentwrap run --keep-fd {descriptor} -- COMMAND {descriptor}< FILE",
                exit_status=EXIT_FAILED,
            ) from error
    return wanted


def _mode_words(mode: str) -> str:
    return "" if mode == "ptrace+notify" else f"  (mode {mode}: see agentwrap show --gaps)"


def _follow(path: Path) -> "subprocess.Popen[bytes]":
    """`agentwrap tail` in a process of its own, writing to our stderr: the file is the only bridge to readers.

    It inherits our blocked signals: Ctrl-C is the agent's business, and the stream goes on until the run is over.
    """
    import subprocess

    return subprocess.Popen(
        [sys.executable, "-m", "agentwrap", "tail", str(path)],
        stdin=subprocess.DEVNULL,
        stdout=2,
    )


def _afterwards(output: Output, options: "RunOptions", *, quiet: bool) -> int:
    """The lines after the run, from the file like everything that is shown. Returns how much the policy denied."""
    from agentwrap.cli.policy_unused import after_run
    from agentwrap.recording.reader import Reader
    from agentwrap.views.summary import summarize, tally_of

    with Reader.open(options.output) as reader:
        tally = tally_of(reader)
        if not quiet:
            output.note(summarize(reader, tally))
            idle = after_run(reader, options.layers) if options.layers else ""
            if idle:
                output.note([("agentwrap ", "dim"), (idle, "dim")])
    return tally.by_policy
