"""`agentwrap demo`: a scripted run with a denial, two approvals, a changed tool, a forged copy, and what shows."""

import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentwrap.cli.output import Output, common_options, pass_output
from agentwrap.errors import EXIT_FINDING, AgentwrapError

if TYPE_CHECKING:
    from agentwrap.cli.demo_world import World

_MOST = 22
_FAILING, _WHERE_LITTLE_IS_SEEN = {"4", "6"}, {"9"}
_OUTCOMES = ("pass ", "fail ", "not-applicable ", "cannot-tell ", "broken ")


@click.command(epilog="Exit status: 0 everything came out as it should, 1 something did not, 2 usage or cannot run.")
@click.option("--keep", metavar="DIR", help="Make everything in DIR, which must not exist, and leave it there.")
@common_options()
@pass_output
def command(output: Output, keep: str | None) -> int:
    """Run a scripted agent with a scripted MCP server under a policy, and show what is kept of it.

    One call is denied, one is held and approved by another person, one by the person the agent acts for; then the
    server changes what a tool says of itself. The recording is verified and reviewed, and so is a copy of it in which
    the denial was made a permission. It needs no network and leaves nothing behind, unless --keep says where.
    """
    from agentwrap.cli.demo_world import World, short_folder

    with _folder(keep) as folder, tempfile.TemporaryDirectory(prefix="aw-", dir=short_folder()) as runtime:
        world = World(folder, Path(runtime))
        world.prepare()
        faults = [*_run(output, world), *_recording(output, world), *_copy(output, world)]
        output.line()
        where = f"all of it is in {folder}" if keep else "to have the files and repeat this: agentwrap demo --keep DIR"
        output.line([(where, "dim")])
    for fault in faults:
        output.note([("not as it should be:", "deny"), (f" {fault}", "")])
    return EXIT_FINDING if faults else 0


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    if keep is not None:
        path = Path(keep)
        try:
            path.mkdir(mode=0o755)
        except FileExistsError:
            raise AgentwrapError("exists", "the folder is already there", evidence=keep, hint="name another") from None
        except OSError as failure:
            raise AgentwrapError("output", "cannot make it", evidence=f"{keep}: {failure.strerror}") from failure
        yield path.resolve()
        return
    made = tempfile.mkdtemp(prefix="agentwrap-demo-")
    try:
        yield Path(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _title(output: Output, text: str) -> None:
    output.line()
    output.line([(text, "title")])


def _step(output: Output, world: "World", *words: str, any_status: bool = False, most: int = _MOST) -> str:
    """Show one of our commands and what it says, of a report what it came to."""
    output.line([(f"  $ agentwrap {shlex.join(words)}", "name")])
    out = world.ours(*words, any_status=any_status)
    lines = [line for line in out.splitlines() if line.strip()]
    if words[0] == "report":
        lines = [line for line in lines if line.lstrip().startswith(_OUTCOMES)]
    output.lines(f"    {line}" for line in lines[:most])
    if len(lines) > most:
        left = len(lines) - most
        output.line([(f"    and {left} more {'line' if left == 1 else 'lines'}", "dim")])
    return out


def _run(output: Output, world: "World") -> Iterator[str]:
    from agentwrap.cli.demo_world import APPROVERS, run_words

    output.line([("a scripted agent calls the tools of an MCP server, for alex, under policy.toml", "title")])
    output.line([(f"  $ agentwrap {shlex.join(run_words())}", "name")])
    answers = world.run()
    approvers = [name for _, name in world.answered]
    for one in answers:
        if one.failed:
            rule = next((line for line in one.text.splitlines() if line.startswith("Rule: ")), "Rule: ?")
            output.line([(f"    {one.tool:<12} ", ""), ("denied", "deny"), (f"  {rule.removeprefix('Rule: ')}", "")])
        elif one.tool == "merge" and approvers:
            said = f"held, then allowed by {approvers.pop(0)} (agentwrap approve ID --approver NAME)"
            output.line(f"    {one.tool:<12} {said}")
        else:
            output.line(f"    {one.tool:<12} {one.text.rpartition(': ')[2]}")
    if not world.confined:
        output.line("    this machine can confine no network here: the run went on with --best-effort")
    if [(one.tool, one.failed) for one in answers] != [
        ("list_issues", False), ("push", True), ("merge", False), ("merge", False),
    ]:  # fmt: skip
        yield "the denied calls are not `push` alone"
    if tuple(name for _, name in world.answered) != APPROVERS:
        yield "not every merge was asked about"


def _recording(output: Output, world: "World") -> Iterator[str]:
    from agentwrap.cli.demo_world import KEY, RECORDING

    _title(output, "the recording tells it, and that the server has changed a tool")
    _step(output, world, "show", RECORDING)
    _title(output, "the recording is whole and unchanged")
    if not _step(output, world, "verify", "--key", KEY, RECORDING, most=2).startswith("intact"):
        yield "the recording is not intact"
    _title(output, "a review finds that alex approved their own agent, and that nobody reviewed the changed tool")
    report = _step(output, world, "report", "--key", KEY, RECORDING, any_status=True)
    failed = {line.split()[1].rstrip(".") for line in report.splitlines() if line.startswith("fail ")}
    if not _FAILING <= failed <= _FAILING | _WHERE_LITTLE_IS_SEEN:
        yield f"other controls failed than 4 and 6: {', '.join(sorted(failed))}"


def _copy(output: Output, world: "World") -> Iterator[str]:
    from agentwrap.cli.demo_world import KEY, TAMPERED

    world.forge()
    _title(output, "in a copy, somebody made the denied push an allowed one")
    if not _step(output, world, "verify", "--key", KEY, TAMPERED, any_status=True, most=2).startswith("tampered"):
        yield "the forged copy was not told"
    report = _step(output, world, "report", "--key", KEY, TAMPERED, any_status=True, most=8)
    if "pass " in report:
        yield "something of the forged copy passed"
