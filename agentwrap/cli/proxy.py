"""`agentwrap proxy`: a stand-alone proxy that records model traffic, for programs that are not wrapped."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentwrap.cli.model_options import ModelHost
from agentwrap.cli.output import Output, pass_output
from agentwrap.cli.run import Pattern, host_facts, output_path, signing_key
from agentwrap.errors import EXIT_FAILED, AgentwrapError

if TYPE_CHECKING:
    from agentwrap.launching.options import RunOptions


@click.command(epilog="Exit status: 0 when ended by Ctrl-C or SIGTERM, 125 if agentwrap failed.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N",
              help="Listen on 127.0.0.1:N (a free one).")  # fmt: skip
@click.option("--intercept", multiple=True, type=ModelHost(), metavar="HOST[:PORT]",
              help="Read what goes to this host over TLS, too, not only to the known model hosts.")  # fmt: skip
@click.option("-o", "--output", "output_file", metavar="FILE", help="Where the recording goes (default: state folder).")
@click.option("--shape-only", is_flag=True, help="Record names, times, sizes and counts, no content.")
@click.option("--redact-name", multiple=True, metavar="NAME", help="Hide the value of this variable, too.")
@click.option("--redact-pattern", multiple=True, type=Pattern(), metavar="REGEX", help="Hide what matches.")
@click.option("--redact-key", multiple=True, metavar="KEY", help="Hide the values of this JSON key.")
@click.option("--unsigned", is_flag=True, help="Do not sign, even if there is a key.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing on stderr.")
@pass_output
def command(output: Output, /, quiet: bool, port: int, **given: Any) -> int:
    """Run a proxy on this machine's loopback and record the model traffic that clients send through it.

    It takes tunnels (CONNECT) and whole URLs as any HTTP proxy does, and base URLs that stand for other ones:
    http://127.0.0.1:PORT/+/https/api.anthropic.com. What clients need in their environment is printed on standard
    error. TLS is ended for known model hosts and for those of --intercept, with certificates made for this run; all
    else passes as it is. Nothing is judged. Ctrl-C ends it and closes the recording.
    """
    from agentwrap.recording import places
    from agentwrap.session.proxying import ProxySession

    options = _options(port, given)
    session = ProxySession(options, port)
    bound = session.prepare()
    try:
        places.note_latest(os.environ, options.output)
    except OSError:
        pass  # readers then look for the newest file in the default folder
    if not quiet:
        output.note([("agentwrap ", "dim"), (f"proxy on 127.0.0.1:{bound}, recording to {options.output}", "")])
        for line in session.lines():
            output.note(line)
    failure = session.run()
    if not quiet:
        _afterwards(output, options.output)
    if failure:
        raise AgentwrapError(
            "internal", "the recording is not complete", evidence=failure, hint="agentwrap show --gaps",
            exit_status=EXIT_FAILED,
        )  # fmt: skip
    return 0


def _options(port: int, given: dict[str, Any]) -> "RunOptions":
    from agentwrap.launching.options import RunOptions

    run_id = os.urandom(8).hex()
    words = ["agentwrap", "proxy", *(["--port", str(port)] if port else [])]
    words += [word for host in given["intercept"] for word in ("--intercept", host)]
    return RunOptions(
        command=tuple(os.fsencode(word) for word in words),
        environment=dict(os.environb),
        output=output_path(given["output_file"], "proxy", run_id),
        run_id=run_id,
        undo=None,
        shape_only=given["shape_only"],
        signing_key=None if given["unsigned"] else signing_key(),
        redact_names=given["redact_name"],
        redact_patterns=given["redact_pattern"],
        redact_keys=given["redact_key"],
        intercept=given["intercept"],
        network="host",
        host_facts=host_facts(),
    )


def _afterwards(output: Output, recording: Path) -> None:
    from agentwrap.recording.reader import Reader
    from agentwrap.views.summary import summarize, tally_of

    with Reader.open(recording) as reader:
        output.note(summarize(reader, tally_of(reader)))
