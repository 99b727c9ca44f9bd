"""`agentwrap redact`: a copy of a recording with more of it hidden, which verifies like any other."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentwrap.cli.output import Output, common_options, pass_output
from agentwrap.errors import AgentwrapError

if TYPE_CHECKING:
    from agentwrap.evidence.verify import Verdict
    from agentwrap.recording.again import Written
    from agentwrap.recording.keys import Signer

_FEWEST_BYTES = 4
_REFUSED = ("tampered", "truncated")


@click.command(short_help="Copy a recording with more of it hidden.")
@click.argument("source", metavar="IN")
@click.argument("target", metavar="OUT")
@click.option("--name", "names", multiple=True, metavar="NAME", help="Hide the value of this variable or header.")
@click.option("--pattern", "patterns", multiple=True, metavar="REGEX", help="Hide what matches.")
@click.option("--json-key", "keys", multiple=True, metavar="KEY", help="Hide the values of this JSON key.")
@click.option("--value-env", "variables", multiple=True, metavar="VAR", help="Hide what this variable of ours holds.")
@click.option("--values", "value_file", metavar="FILE", help="Hide each line of FILE (- is standard input).")
@click.option("--drop-bodies", is_flag=True, help="Leave out bodies of requests and answers, and what tools were told.")
@click.option("--unsigned", is_flag=True, help="Do not sign, even if there is a key.")
@common_options(json_output=True)
@pass_output
def command(
    output: Output,
    source: str,
    target: str,
    names: tuple[str, ...],
    patterns: tuple[str, ...],
    keys: tuple[str, ...],
    variables: tuple[str, ...],
    value_file: str | None,
    drop_bodies: bool,
    unsigned: bool,
) -> int:
    """Write the recording IN to the new file OUT with more of it hidden; IN stays as it is.

    What agentwrap knows as a secret is hidden in any case; the options add to it. A secret that is known by its value
    comes from a variable or a file, never from the command line, where others could read it. OUT has hashes and a
    signature of its own and tells which recording it was made from and by which rules.
    """
    from agentwrap.recording.again import write_again
    from agentwrap.recording.redact import RedactOptions, Redactor

    verdict = _whole(output, Path(source))
    redactor = Redactor(os.urandom(32), RedactOptions(names, patterns, keys))
    values = [*map(_variable, variables), *_lines(value_file)]
    for value in values:
        redactor.hide(value)
    rules = {"names": names, "patterns": patterns, "json_keys": keys, "values": len(values), "drop_bodies": drop_bodies}
    written = write_again(
        Path(source),
        Path(target),
        redactor=redactor,
        signer=None if unsigned else _signer(output),
        facts={"redacted_rules": json.dumps(rules), "redacted_from_verdict": verdict.word},
        drop_bodies=drop_bodies,
    )
    _tell(output, target, verdict, written)
    return 0


def _whole(output: Output, source: Path) -> "Verdict":
    """What `verify` says of it. Raises AgentwrapError `refused` where a copy would hide that it was changed."""
    from agentwrap.evidence.verify import verify
    from agentwrap.recording.keys import load_public
    from agentwrap.recording.places import key_paths

    own = key_paths(output.env)[1]
    verdict = verify(source, public_key=load_public(own) if own.exists() else None)
    if verdict.word in _REFUSED:
        raise AgentwrapError(
            "refused",
            f"the recording is {verdict.word}, and a copy with new hashes would not show it",
            evidence=f"{source}: {verdict.detail}",
            hint="agentwrap verify",
        )
    return verdict


def _variable(name: str) -> bytes:
    value = os.environb.get(os.fsencode(name))
    if value is None:
        raise AgentwrapError("usage", f"`--value-env {name}`: no such variable here")
    return _long_enough(value, f"the value of {name}")


def _lines(value_file: str | None) -> list[bytes]:
    if value_file is None:
        return []
    try:
        # By its number: /dev/stdin cannot be opened where it is a socket (open(2), ENXIO).
        with open(0 if value_file == "-" else value_file, "rb", closefd=value_file != "-") as file:
            data = file.read()
    except OSError as error:
        raise AgentwrapError(
            "not-found", "the values cannot be read", evidence=f"{value_file}: {error.strerror}"
        ) from error
    lines = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    return [_long_enough(line, f"line {number}") for number, line in enumerate(lines, 1) if line]


def _long_enough(value: bytes, what: str) -> bytes:
    if len(value) < _FEWEST_BYTES:
        raise AgentwrapError(
            "usage",
            f"{what} has fewer than {_FEWEST_BYTES} bytes",
            hint="it would be hidden everywhere; use --pattern with what stands around it",
        )
    return value


def _signer(output: Output) -> "Signer | None":
    from agentwrap.recording.keys import load_signer
    from agentwrap.recording.places import key_paths

    key = key_paths(output.env)[0]
    return load_signer(key) if key.exists() else None


def _tell(output: Output, target: str, verdict: "Verdict", written: "Written") -> None:
    if output.json:
        output.document(
            {
                "schema": "agentwrap.redact/1",
                "file": target,
                "events": written.events,
                "changed_events": written.changed_events,
                "changed_contents": written.changed_contents,
                "source_verdict": verdict.word,
            }
        )
        return
    changed = f"{written.changed_events} of them and {written.changed_contents} contents are others now"
    output.line(f"{written.events} events, {changed}  {target}")
    if verdict.word == "torn":
        output.note("the recording was torn: what its end was nobody knows, and the copy says so only in `meta`")
