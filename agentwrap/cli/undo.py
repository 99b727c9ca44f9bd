"""`agentwrap undo`: put files back as they were before the run. Says what it would do; does it with `--apply`."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentwrap.cli import reading
from agentwrap.cli.output import Output, common_options, pass_output
from agentwrap.errors import EXIT_FINDING, AgentwrapError
from agentwrap.views.styled import Line

if TYPE_CHECKING:
    from agentwrap.cli.undo_disk import Outcome
    from agentwrap.evidence.undo import Trail

_WORDS = {
    "remove": "remove",
    "restore": "restore",
    "recreate": "bring back",
    "move": "move back",
    "mkdir": "make folder",
    "rmdir": "remove folder",
    "mode": "set mode",
    "owner": "set owner",
    "note": "keep",
}
_DEFAULT_CLASSES = ("work", "temporary")


@click.command(
    epilog="Exit status: 0 all done (or possible), 1 something was refused, 2 usage or unreadable.",
)
@click.argument("words", metavar="[FILE] [PATH]...", nargs=-1)
@click.option("--apply", "apply", is_flag=True, help="Do it. Without this, only say what would be done.")
@click.option("--all", "everything", is_flag=True, help="Also outside the folder the run began in, caches, .git, ...")
@common_options(json_output=True, pager=False)
@pass_output
def command(output: Output, words: tuple[str, ...], apply: bool, everything: bool) -> int:
    """Put files back as they were before a run: contents, modes, deleted and moved files; remove what it made.

    Only PATHs (files, or folders with all below) if any are given; else what the run did to work files below the folder
    it was started in. A file that was changed since is refused, and so is one whose former content is not known: the
    recording keeps contents without secrets, the whole ones lie in the state folder for 30 days.
    """
    from agentwrap.cli.undo_disk import Workbench
    from agentwrap.evidence import undo, undo_steps

    path, named = _file_and_paths(words)
    if apply:
        _trust(path)
    with reading.open_recording(path) as source:
        if source.meta.get("shape_only") == "1":
            raise AgentwrapError(
                "refused",
                "a shape-only recording has neither names nor contents",
                evidence=str(path),
                hint="record without `--shape-only` to be able to undo",
            )
        if source.state() == "live":
            raise AgentwrapError("busy", "the run is not over", evidence=str(path), hint="wait for its end")
        trails = undo.replay(source.rows(kinds=undo.KINDS))
        choice = _Choice(os.fsencode(source.meta.get("cwd", "")), named, everything, trails)
        bench = Workbench(source)
        steps = undo_steps.plan(trails, choice, bench)
        outcomes = bench.carry_out(steps) if apply else bench.foresee(steps)
    _tell(output, outcomes, apply, choice)
    return EXIT_FINDING if any(outcome.why and outcome.step.action != "note" for outcome in outcomes) else 0


def _trust(path: Path) -> None:
    """Refuse to write what a recording says that was changed after it was made."""
    from agentwrap.evidence.verify import verify

    verdict = verify(path)
    if verdict.word == "tampered":
        raise AgentwrapError(
            "refused",
            "the recording was changed after it was made",
            evidence=f"{path}: {verdict.detail}",
            hint=f"agentwrap verify {path}",
        )


def _file_and_paths(words: Sequence[str]) -> tuple[Path, list[bytes]]:
    """The recording, and the paths that are meant, absolute."""
    from agentwrap.recording.places import SUFFIX

    rest = list(words)
    path = Path(rest.pop(0)) if rest and rest[0].endswith(SUFFIX) else reading.latest()
    return path, [os.path.abspath(os.fsencode(word)) for word in rest]


class _Choice:
    """Which trails are meant; counts the others.

    Caches and version control are left alone, unless the run made the whole of them: half a repository is worse than
    an old or a new one.
    """

    def __init__(self, cwd: bytes, named: list[bytes], everything: bool, trails: "Sequence[Trail]") -> None:
        self._made = {trail.now for trail in trails if trail.was is None and trail.type == "directory"}
        self._roots = named or [cwd]
        self._any_class = bool(named) or everything
        self._anywhere = everything and not named
        self.left = 0

    def __call__(self, trail: "Trail") -> bool:
        from agentwrap.evidence.undo import paths_of

        inside = self._anywhere or any(_below(path, root) for path in paths_of(trail) for root in self._roots)
        if inside and (self._any_class or trail.klass in _DEFAULT_CLASSES or self._wholly_made(trail)):
            return True
        self.left += 1
        return False

    def _wholly_made(self, trail: "Trail") -> bool:
        folder = trail.now if trail.was is None and trail.now is not None else b""
        while folder:
            if folder in self._made:
                return True
            folder = folder.rpartition(b"/")[0]
        return False


def _below(path: bytes, root: bytes) -> bool:
    root = root.rstrip(b"/")
    return path == root or path.startswith(root + b"/")


def _tell(output: Output, outcomes: "Sequence[Outcome]", applied: bool, choice: _Choice) -> None:
    told = [outcome for outcome in outcomes if not outcome.step.quiet]
    if output.json:
        output.document(
            {
                "schema": 1,
                "applied": applied,
                "steps": [outcome.document() for outcome in told],
                "left_alone": choice.left,
            }
        )
        return
    for outcome in told:
        output.line(_line(outcome))
    refused = sum(1 for outcome in told if outcome.why and outcome.step.action != "note")
    possible = sum(1 for outcome in told if not outcome.why)
    if told:
        output.line()
    if not possible and not refused:
        words = "nothing to undo"
    else:
        verb = "done" if applied else "can be done"
        words = f"{reading.count_of(possible, 'step')} {verb}" + (f", {refused} refused" if refused else "")
    output.line(words)
    if choice.left:
        output.line(f"{reading.count_of(choice.left, 'path')} elsewhere or not work: name them, or `--all`")
    if possible and not applied:
        output.line("nothing was changed: `agentwrap undo --apply` does it")


def _line(outcome: "Outcome") -> Line:
    step = outcome.step
    refused = bool(outcome.why) and step.action != "note"
    word = "refused" if refused else _WORDS[step.action]
    path = os.fsdecode(step.path)
    line: Line = [(f"{word:<14}", "deny" if refused else ""), (path, "name")]
    if step.to:
        line.append((" -> " + os.fsdecode(step.to), "name"))
    if step.action == "mode" and step.state is not None:
        line.append((f"  {step.state.mode:04o}", "dim"))
    if outcome.why:
        line.append(("  " + outcome.why, "dim"))
    return line
