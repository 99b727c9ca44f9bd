"""`agentwrap verify`: whether a recording is whole and unchanged, in one word and an exit status for it."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentwrap.cli import reading
from agentwrap.cli.output import Output, common_options, pass_output
from agentwrap.errors import AgentwrapError

if TYPE_CHECKING:
    from agentwrap.evidence.verify import Verdict
    from agentwrap.views.styled import Role

_ANCHOR_CHARACTERS = 1 << 16  # a note has a dozen lines; what is longer is none
_ROLES: "dict[str, Role]" = {
    "intact": "good",
    "unsigned": "gap",
    "torn": "gap",
    "truncated": "deny",
    "tampered": "deny",
}


@click.command(
    short_help="Say whether a recording is whole and unchanged.",
    epilog="Exit status: 0 intact, 1 tampered, 2 usage or unreadable, 4 torn, 5 truncated, 6 unsigned.",
)
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--key", metavar="FILE", help="Public key to check signatures with (default: your own).")
@click.option("--anchor", metavar="FILE|TEXT", help="A checkpoint of this run that was kept elsewhere.")
@click.option("--head", is_flag=True, help="Print the last checkpoint, to keep it elsewhere as an anchor.")
@common_options(json_output=True)
@pass_output
def command(output: Output, file: str | None, key: str | None, anchor: str | None, head: bool) -> int:
    """Recompute all hashes of a recording and compare them with what was signed.

    intact: closed, signed by the key, nothing changed. unsigned: nothing is wrong, but whoever changed it could have
    computed all hashes anew. torn: the recorder was ended before it could close the file. truncated: events at the end
    are missing. tampered: something is not what was recorded.
    """
    from agentwrap.evidence.verify import verify

    path = Path(file) if file is not None else reading.latest()
    verdict = verify(path, public_key=public_key(output, key), anchor=anchor_text(anchor))
    if head:
        if not verdict.head:
            raise AgentwrapError("not-found", "there is no checkpoint yet", evidence=str(path))
        output.line(verdict.head.rstrip("\n"))
        return verdict.exit_status
    if output.json:
        output.document(_document(path, verdict))
    else:
        _show(output, path, verdict)
    return verdict.exit_status


def public_key(output: Output, key: str | None) -> bytes | None:
    """The key to check signatures with: that of a file, else one's own, else none."""
    from agentwrap.recording.keys import load_public
    from agentwrap.recording.places import key_paths

    if key is not None:
        return load_public(Path(key))
    own = key_paths(output.env)[1]
    return load_public(own) if own.exists() else None


def anchor_text(anchor: str | None) -> str | None:
    """A checkpoint note as it was given: itself, or the file that holds it."""
    if anchor is None or "\n" in anchor:
        return anchor
    try:
        with Path(anchor).open(encoding="utf-8", errors="replace") as file:
            return file.read(_ANCHOR_CHARACTERS)
    except OSError as error:
        raise AgentwrapError(
            "not-found", "the anchor cannot be read", evidence=f"{anchor}: {error.strerror}"
        ) from error


def _document(path: Path, verdict: "Verdict") -> dict[str, object]:
    return {
        "schema": "agentwrap.verify/1",
        "file": str(path),
        "verdict": verdict.word,
        "seq": verdict.seq,
        "detail": verdict.detail,
        "events": verdict.events,
        "checks": [{"name": check.name, "ok": check.ok, "detail": check.detail} for check in verdict.checks],
        "head": verdict.head,
    }


def _show(output: Output, path: Path, verdict: "Verdict") -> None:
    place = f" at event {verdict.seq}" if verdict.seq is not None else ""
    output.line([(verdict.word, _ROLES[verdict.word]), (place, ""), (f"  {path}", "")])
    output.line(f"  {verdict.detail}")
    output.line()
    for check in verdict.checks:
        sign = {True: "ok", False: "no", None: "--"}[check.ok]
        output.line([(f"  {sign}  ", "good" if check.ok else "deny" if check.ok is False else "dim"),
                     (f"{check.name:<13}", ""), (check.detail, "dim")])  # fmt: skip
