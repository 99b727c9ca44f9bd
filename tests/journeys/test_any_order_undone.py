"""Whatever a run does to a small folder, in whatever order: undo brings the folder back, or refuses and says so."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tracees import Bench, Tracee

from agentwrap.cli.undo_disk import Workbench
from agentwrap.events import Content, Gap
from agentwrap.evidence import undo, undo_steps
from agentwrap.recording.reader import Reader
from agentwrap.recording.redact import Redactor
from agentwrap.recording.writer import Recorder
from agentwrap.tracing.files import FileSettings

NAMES = ["a", "b", "d", "d/x", "d/y", "e", "e/x", "d/f", "d/f/z"]
name = st.sampled_from(NAMES)
DEEDS = st.one_of(
    st.tuples(st.just("write"), name, st.sampled_from([b"", b"1", b"22", b"333"])),
    st.tuples(st.sampled_from(["unlink", "mkdir", "rmdir", "end", "seen"]), name),
    st.tuples(st.sampled_from(["rename", "link"]), name, name),
    st.tuples(st.just("symlink"), st.sampled_from(["a", "nowhere", "d"]), name),
    st.tuples(st.just("chmod"), name, st.sampled_from([0o700, 0o755])),  # folders stay open to their owner
)


def populate(folder: Path) -> None:
    for path, content in (("a", b"old a"), ("d/x", b"old x"), ("d/f/z", b"old z")):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def tree(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        inside = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        mode = 0 if path.is_symlink() else status.st_mode
        found[str(path.relative_to(folder))] = (mode, inside)
    return found


def act(agent: Tracee, deed: tuple[Any, ...]) -> None:
    what, first, *rest = deed
    if what == "write":
        fd = agent.open(first, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        if isinstance(fd, int):
            os.write(fd, rest[0])
            os.close(fd)
    elif what in ("end", "seen"):
        getattr(agent, what)()
    else:
        getattr(agent, what)(first, *rest)


def record(bench: Bench, log: Path) -> None:
    recorder = Recorder.create(
        log,
        run_id="r",
        meta={"cwd": os.fsdecode(bench.folder)},
        redactor=Redactor(bytes(32)),
        signer=None,
        now=lambda: 1,
    )  # fmt: skip
    for item in bench.items:
        if isinstance(item, Content):
            recorder.content(item)
        else:
            recorder.add(item)  # type: ignore[arg-type]
    recorder.close()


@example([(0, ("rmdir", "d/f")), (1, ("rename", "d", "b"))])
@example([(0, ("write", "e/x", b"")), (1, ("rename", "d", "e"))])
@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), DEEDS), max_size=14))
def test_undone_or_refused(deeds: list[tuple[int, tuple[Any, ...]]]) -> None:
    base = Path(tempfile.mkdtemp())
    try:
        folder = base / "project"
        folder.mkdir()
        populate(folder)
        before = tree(folder)
        bench = Bench(folder, FileSettings(), lambda _: "work")
        agents = [bench.process("p1"), bench.process("p2")]
        for who, deed in deeds:
            act(agents[who], deed)
        for agent in agents:
            agent.end()
        bench.tracker.finish()
        assert not [item for item in bench.items if isinstance(item, Gap)]
        record(bench, base / "run.agentlog")
        with Reader.open(base / "run.agentlog") as source:
            disk = Workbench(source)
            trails = undo.replay(source.rows(kinds=undo.KINDS))
            steps = undo_steps.plan(trails, lambda _: True, disk)
            done = disk.carry_out(steps)
        refused = [outcome for outcome in done if outcome.why]
        foreseen = [step for step in steps if step.why]
        assert len(refused) == len(foreseen), f"not foreseen: {refused}"
        if not refused:
            assert tree(folder) == before
    finally:
        shutil.rmtree(base)
