"""Every way to make a process or become another program, against the spans the recording tells.

The scenarios are in `births.c`, which also checks that waiting, stopping and signals look to them as they always do.
"""

import functools
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rows import MODES, TRACED, Rows, mode_name, raw
from wrapping import program, wrap

# What begins below the scenario's own process: how each new process came, in order, as ptrace tells it.
BIRTHS: dict[str, list[str]] = {
    "by_fork": ["fork"],
    "by_vfork": ["vfork"],
    "failed_exec": ["vfork"],
    "raw_clone": ["fork"],
    "shared_memory": ["fork"],
    "silent_clone": ["clone"],
    "sibling": ["fork"],
    "clone3_is_refused": [],
    "untraced": [],
    "spawned": ["vfork"],
    "threads": [],
    "threads_in_disguise": [],
    "exec_by_a_thread": [],
    "leader_ends_first": [],
    "exec_at_folder": [],
    "exec_of_a_descriptor": [],
    "exec_of_memory": [],
    "exec_chain": [],
    "path_search": [],
    "no_arguments": ["vfork"],
    "daemon_twice_forked": ["fork", "fork"],
    "killed_in_a_call": ["fork"],
    "closes_everything": ["fork"],
    "signal_with_a_value": ["fork"],
    "stops_and_goes_on": ["fork", "fork"],
    "timer_with_restart": [],
    "timer_without_restart": [],
    "exits_by_a_thread": ["fork"],
    "dies_with_threads": ["fork"],
    "parent_dies_child_is_told": ["fork", "fork"],
    "same_ids": [],
}
LABELS = {"threads": {f"t{i}" for i in range(5)}, "threads_in_disguise": {"t0", "t1"}, "timer_with_restart": {"d"}}
LABELS["timer_without_restart"] = {"d"}
NO_LABEL = {"failed_exec", "clone3_is_refused", "untraced", "path_search", "no_arguments", "killed_in_a_call"}
NO_LABEL |= {"signal_with_a_value", "exits_by_a_thread", "dies_with_threads", "parent_dies_child_is_told", "same_ids"}


class Scenario:
    """What is recorded of one scenario's process and of those below it."""

    def __init__(self, rows: Rows, name: str) -> None:
        spans = rows.spans()
        (self.own,) = [span for span in spans.values() if (b"births", b":", name.encode()) in span["argv"]]
        self.below: list[dict[str, Any]] = []
        inside = {self.own["span"]}
        for span in spans.values():
            if span["parent"] in inside:
                inside.add(span["span"])
                self.below.append(span)
        self.spans = inside
        prefix = f"{name}/"
        self.made = {
            rows.word(event).removeprefix("mkdir " + prefix): event.span
            for event in rows.of("file.directory")
            if event.data["change"] == "create" and rows.word(event).startswith("mkdir " + prefix)
        }
        self.denied = [event.data["what"] for event in rows.of("process.denied") if event.span in inside]

    def exits(self) -> list[tuple[int | None, int]]:
        return [(span["exit"].get("status"), span["exit"].get("signal", 0)) for span in self.below]

    def execs(self) -> list[tuple[bytes, ...]]:
        return [argv for span in (self.own, *self.below) for argv in span["argv"]]


class Births:
    """One run of all scenarios for each way of following, made when first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._program = program(folder, "births", (Path(__file__).parent / "births.c").read_text())
        self.run = functools.cache(self._run)

    def _run(self, options: tuple[str, ...]) -> tuple[dict[str, str], Rows]:
        folder = self._folder / mode_name(options)
        work = folder / "work"
        for name in BIRTHS:
            (work / name).mkdir(parents=True)
        run = wrap(folder, self._program, *BIRTHS, options=options)
        assert run.status == 0, run.stderr
        words = [line.rsplit(" ", 2) for line in run.stdout.decode().splitlines()]
        return {line[-2]: " ".join(line) for line in words}, Rows(run.recording, work)

    def scenario(self, options: tuple[str, ...], name: str) -> Scenario:
        results, rows = self.run(options)
        assert results[name] == f"{name} ok"
        return Scenario(rows, name)


@pytest.fixture(scope="module")
def births(tmp_path_factory: pytest.TempPathFactory) -> Births:
    return Births(tmp_path_factory.mktemp("births"))


def skip_what_is_interrupted(name: str, options: tuple[str, ...]) -> None:
    """On a slow machine a scenario ends there, before it has done what it is known by."""
    if name == "timer_without_restart" and options == ("--debuggable",):
        pytest.skip("without ptrace nobody can restart a call that a signal ends before the listener takes it")


@pytest.mark.parametrize("options", MODES, ids=mode_name)
@pytest.mark.parametrize("name", BIRTHS)
def test_programs_notice_nothing(births: Births, options: tuple[str, ...], name: str) -> None:
    skip_what_is_interrupted(name, options)
    results, _rows = births.run(options)
    assert results[name] == f"{name} ok"


@pytest.mark.parametrize("options", TRACED, ids=mode_name)
@pytest.mark.parametrize("name", BIRTHS)
def test_every_process_is_told_once_with_how_it_came_and_ended(
    births: Births, options: tuple[str, ...], name: str
) -> None:
    scenario = births.scenario(options, name)
    parents_pids = {scenario.own["span"]: scenario.own["pid"], **{s["span"]: s["pid"] for s in scenario.below}}
    assert [span["how"] for span in scenario.below] == BIRTHS[name]
    assert all(span["exit"] is not None for span in (scenario.own, *scenario.below))
    assert all(parents_pids[span["parent"]] == span["ppid"] for span in scenario.below)


@pytest.mark.parametrize("options", MODES, ids=mode_name)
@pytest.mark.parametrize("name", BIRTHS)
def test_what_each_did_is_its_own(births: Births, options: tuple[str, ...], name: str) -> None:
    skip_what_is_interrupted(name, options)
    _results, rows = births.run(options)
    scenario = Scenario(rows, name)
    labels = LABELS.get(name, set() if name in NO_LABEL else {"child"})
    assert set(scenario.made) == labels
    if BIRTHS[name] and labels:
        # By a process of its own, also where it was found by what it did only.
        assert scenario.made["child"] != scenario.own["span"]
        if options != ("--debuggable",):
            assert scenario.made["child"] in scenario.spans
    elif labels:
        assert set(scenario.made.values()) == {scenario.own["span"]}


@pytest.mark.parametrize("options", TRACED, ids=mode_name)
def test_threads_are_counted_and_are_no_processes(births: Births, options: tuple[str, ...]) -> None:
    assert births.scenario(options, "threads").own["exit"]["threads"] == 6
    assert births.scenario(options, "threads_in_disguise").own["exit"]["threads"] == 3
    assert births.scenario(options, "exec_by_a_thread").own["exit"]["threads"] == 5
    assert births.scenario(options, "dies_with_threads").below[0]["exit"]["threads"] == 5


@pytest.mark.parametrize("options", TRACED, ids=mode_name)
def test_ends_are_told_as_they_were(births: Births, options: tuple[str, ...]) -> None:
    def exits(name: str) -> list[tuple[int | None, int]]:
        return births.scenario(options, name).exits()

    assert exits("by_fork") == [(7, 0)]
    assert exits("failed_exec") == [(7, 0)]
    assert exits("silent_clone") == [(7, 0)]
    assert exits("daemon_twice_forked") == [(7, 0), (7, 0)]
    assert exits("killed_in_a_call") == [(None, signal.SIGKILL)]
    assert exits("dies_with_threads") == [(None, signal.SIGSEGV)]
    assert exits("exits_by_a_thread") == [(7, 0)]
    assert exits("stops_and_goes_on") == [(7, 0), (None, signal.SIGKILL)]


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_only_execs_that_happened_are_told(births: Births, options: tuple[str, ...]) -> None:
    def execs(name: str) -> list[tuple[bytes, ...]]:
        return births.scenario(options, name).execs()[1:]

    mark = (b"births", b"mark", b"child")
    assert execs("failed_exec") == []
    assert execs("path_search") == [(b"true",)]
    for name in ("by_vfork", "spawned", "exec_by_a_thread", "exec_at_folder", "exec_of_a_descriptor", "exec_of_memory"):
        assert execs(name) == [mark], name
    assert execs("exec_chain") == [(b"births", b"again"), mark]


@pytest.mark.parametrize("options", TRACED, ids=mode_name)
def test_a_program_that_lies_in_memory_only_is_told_as_such(births: Births, options: tuple[str, ...]) -> None:
    told = births.scenario(options, "exec_of_memory").own["exec"]
    assert told["memfd"] is True
    assert told["exe"].startswith("/memfd:hidden")
    assert "memfd" not in births.scenario(options, "exec_of_a_descriptor").own["exec"]


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_a_child_that_could_not_be_followed_is_refused_and_told(births: Births, options: tuple[str, ...]) -> None:
    assert births.scenario(options, "untraced").denied == ["namespace"]


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_nothing_of_all_this_is_a_gap(births: Births, options: tuple[str, ...]) -> None:
    _results, rows = births.run(options)
    gaps = [(gap.data["cause"], gap.data.get("detail")) for gap in rows.of("gap") if gap.data["cause"] != "no-ptrace"]
    assert gaps == []


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_scripts_and_links_are_told_as_asked_for_and_as_run(tmp_path: Path, options: tuple[str, ...]) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "tool.py").write_text(f"#!{sys.executable} -I\nimport os; os.mkdir('made')\n")
    (work / "tool.py").chmod(0o755)
    (work / "link").symlink_to("tool.py")
    run = wrap(tmp_path, "./link", "word", options=options)
    assert run.status == 0, run.stderr
    (told,) = Rows(run.recording, work).of("process.exec")
    assert raw(told.data["path"]) == bytes(work) + b"/./link"
    assert raw(told.data["exe"]) == os.fsencode(os.path.realpath(sys.executable))
    assert [raw(word) for word in told.data["argv"]] == [os.fsencode(sys.executable), b"-I", b"./link", b"word"]
    assert raw(told.data["cwd"]) == bytes(work)


@pytest.mark.parametrize("options", TRACED, ids=mode_name)
def test_long_argument_lists_are_cut_and_the_cut_is_told(tmp_path: Path, options: tuple[str, ...]) -> None:
    """A megabyte: the program gets it whole, the recording keeps its beginning and says how much is missing."""
    script = "import sys; print(len(sys.argv), sum(map(len, sys.argv[1:])))"
    words = ["x" * 100_000] * 10
    run = wrap(tmp_path, sys.executable, "-c", script, *words, options=options)
    assert run.stdout == b"11 1000000\n"
    rows = Rows(run.recording)
    (told,) = rows.of("process.exec")
    kept = sum(len(raw(word)) + 1 for word in told.data["argv"])
    whole = sum(len(word) + 1 for word in (sys.executable, "-c", script, *words))
    assert kept >= 128 << 10
    # The word that was cut lacks its end.
    assert kept + told.data["argv_omitted_bytes"] == whole + 1
    assert [gap.data["cause"] for gap in rows.of("gap")] == ["over-cap"]


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_a_pipeline_is_a_parent_and_its_children(tmp_path: Path, options: tuple[str, ...]) -> None:
    run = wrap(tmp_path, "bash", "-c", "echo one | cat | tr o 0", options=options)
    assert run.stdout == b"0ne\n"
    rows = Rows(run.recording)
    root = rows.named(b"bash")[0]
    for word in (b"cat", b"tr"):
        (span,) = rows.named(word)
        assert span["parent"] == root["span"]


def test_shells_quote_what_we_recorded(tmp_path: Path) -> None:
    """Arguments as they were: run again from the recording they give the same."""
    words = ["a b", "", "c'd\"e", "f\ng", "$HOME", "\\", "*"]
    run = wrap(tmp_path, sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))", *words)
    (told,) = Rows(run.recording).of("process.exec")
    again = subprocess.run(shlex.join(told.data["argv"]), shell=True, capture_output=True, check=True)
    assert again.stdout == run.stdout
