import json

import model_run
import msgspec
import pytest
from fake_recording import FakeRecording
from hypothesis import given
from hypothesis import strategies as st
from sample_run import MS, edit, program, start

from agentwrap.events import Event, FileDirectory, FileEdit, NetConnect, ProcessExit
from agentwrap.evidence import linking
from agentwrap.evidence.linking import ALONE, CONTAINS, ELSEWHERE, NAMED, RUNS, TEXT, Linker, bared, holds, of_recording

CWD = "/srv/project"
META = {"cwd": CWD}
Links = dict[str, tuple[str, str]]


def told(*items: object, live: bool = False) -> Links:
    """Who is linked (`p2`, or the subject of a row) -> tool, evidence."""
    recording = FakeRecording(items)
    if live:
        linker = Linker(CWD)
        for row in recording.rows():
            linker.feed(row)
    else:
        linker = of_recording(recording, META)
    subjects = {row.seq: row.subject for row in recording.rows()}
    return {link.span or subjects[link.seq]: (link.tool, link.evidence) for link in linker.links}


def agent(span: str = "p1") -> list[Event]:
    return [start(1, span, 4100, "run", b"agent"), program(2, span, 4100, b"agent")]


def call(at: int = 100, call: str = "m1", turn: str = "t1", **fields: object) -> list[object]:
    return model_run.asked(at, call, turn, [], **fields)


def wanted(at: int, name: str, arguments: object, tool: str = "x1", **fields: str) -> Event:
    return model_run.tool(at, tool, fields.pop("call", "m1"), "t1", name.encode(), arguments, **fields)


def told_result(at: int, tool: str = "x1") -> Event:
    return model_run.result(at, tool, "m2", "t2", b"", b"")


@pytest.mark.parametrize("live", [False, True])
def test_a_run_with_shell_files_and_a_sub_agent(live: bool) -> None:
    assert told(*model_run.items(), live=live) == {
        "p2": ("x1", CONTAINS),
        "/srv/project/billing/retry.py": ("x2", NAMED),
    }


@pytest.mark.parametrize(
    "argv",
    [
        (b"bash", b"-lc", b"ls -l 'a b' | grep x"),
        (b"bash", b"-c", b"source /x 2>/dev/null && eval 'ls -l '\\''a b'\\'' | grep x' < /dev/null"),
        (b"bash", b"-c", b'source /x && eval "ls -l \'a b\' | grep x" \\< /dev/null'),
        (b"sandbox", b"--policy", b"{}", b"--", b"bash", b"-c", b"exec bash -c 'ls -l '\"'\"'a b'\"'\"' | grep x'"),
    ],
)
def test_a_command_is_known_however_it_is_wrapped(argv: tuple[bytes, ...]) -> None:
    items = [*agent(), *call(), wanted(200, "Bash", {"command": "ls -l 'a b' | grep x"}),
             start(300, "p2", 5, "p1", b"agent"), program(301, "p2", 5, *argv)]  # fmt: skip
    assert told(*items)["p2"][0] == "x1"


def test_the_sandbox_around_a_command_is_the_tools_too_and_the_command_tells_its_status() -> None:
    items = [
        *agent(), *call(), wanted(200, "shell", {"cmd": ["bash", "-lc", "make test"]}),
        start(300, "p2", 5, "p1", b"agent"), program(301, "p2", 5, b"helper", b"--", b"bash", b"-lc", b"make test"),
        start(310, "p3", 6, "p2", b"helper"), program(311, "p3", 6, b"bash", b"-lc", b"make test"),
        ProcessExit(at_ns=400 * MS, span="p3", pid=6, status=2),
        ProcessExit(at_ns=401 * MS, span="p2", pid=5, signal=9),
    ]  # fmt: skip
    linker = of_recording(FakeRecording(items), META)
    assert [(link.span, link.evidence) for link in linker.links] == [("p2", CONTAINS)]
    assert linker.status_of("x1") == "exit 2"


def test_calls_at_the_same_time_are_told_apart_by_their_commands() -> None:
    items = [
        *agent(), *call(), wanted(200, "Bash", {"command": "make a"}), wanted(200, "Bash", {"command": "make b"}, "x2"),
        start(300, "p2", 5, "p1", b"agent"), program(301, "p2", 5, b"sh", b"-c", b"make b"),
        start(302, "p3", 6, "p1", b"agent"), program(303, "p3", 6, b"sh", b"-c", b"make a"),
        start(304, "p4", 7, "p1", b"agent"), program(305, "p4", 7, b"git", b"status"),
        *edit(306, "p1", 4100, b"/srv/project/z", None, b"z"),
    ]  # fmt: skip
    assert told(*items) == {"p2": ("x2", RUNS), "p3": ("x1", RUNS)}


def test_equal_calls_take_turns_and_say_so() -> None:
    items = [
        *agent(), *call(), wanted(200, "Bash", {"command": "make a"}), wanted(200, "Bash", {"command": "make a"}, "x2"),
        start(300, "p2", 5, "p1", b"agent"), program(301, "p2", 5, b"sh", b"-c", b"make a"),
        start(302, "p3", 6, "p1", b"agent"), program(303, "p3", 6, b"sh", b"-c", b"make a"),
    ]  # fmt: skip
    links = of_recording(FakeRecording(items), META).links
    assert [(link.span, link.tool, link.ambiguous) for link in links] == [("p2", "x1", True), ("p3", "x2", True)]


def test_two_agents_in_one_run_have_their_own_processes() -> None:
    items = [
        *agent(), *agent("p9"), *call(), *call(100, "m2", "t2", agent="a2", span="p9"),
        wanted(200, "Bash", {"command": "make a"}),
        wanted(200, "Bash", {"command": "make a"}, "x2", call="m2", agent="a2"),
        start(300, "p2", 5, "p9", b"agent"), program(301, "p2", 5, b"sh", b"-c", b"make a"),
        start(302, "p3", 6, "p1", b"agent"), program(303, "p3", 6, b"sh", b"-c", b"make a"),
    ]  # fmt: skip
    links = of_recording(FakeRecording(items), META).links
    assert [(link.span, link.tool, link.ambiguous) for link in links] == [("p2", "x2", False), ("p3", "x1", False)]


def test_a_server_that_outlives_its_call_stays_with_it() -> None:
    items = [
        *agent(), *call(), wanted(200, "Bash", {"command": "npm start &"}),
        start(300, "p2", 5, "p1", b"agent"), program(301, "p2", 5, b"sh", b"-c", b"npm start &"),
        start(302, "p3", 6, "p2", b"sh"), program(303, "p3", 6, b"npm", b"start"), told_result(400),
        *call(400, "m2", "t2"), *edit(900, "p3", 6, b"/srv/project/log", None, b"z"),
    ]  # fmt: skip
    recording = FakeRecording(items)
    linker = of_recording(recording, META)
    late = list(recording.rows(kinds=("file.edit",)))[-1]
    assert linker.turn_of(late) == "t1"


def test_what_only_one_open_call_can_explain_is_linked_so() -> None:
    items = [
        *agent(), *call(), *edit(150, "p1", 4100, b"/srv/project/early", None, b"z"),
        wanted(200, "WebFetch", {"url": "https://docs.example/"}),
        NetConnect(at_ns=210 * MS, span="p1", pid=4100, family="inet", transport="tcp", host=b"192.0.2.9", port=443),
        NetConnect(at_ns=220 * MS, span="p1", pid=4100, family="inet", transport="tcp", host=model_run.HOST, port=443),
        NetConnect(at_ns=230 * MS, span="p1", pid=4100, family="unix", transport="stream", path=b"/run/x"),
        start(300, "p2", 5, "p1", b"agent"), program(301, "p2", 5, b"pdftotext", b"x.pdf"), told_result(400),
        start(500, "p3", 6, "p1", b"agent"), program(501, "p3", 6, b"git", b"status"),
    ]  # fmt: skip
    assert told(*items) == {"192.0.2.9:443": ("x1", ALONE), "p2": ("x1", ALONE)}


def test_a_provider_that_runs_the_tool_itself_causes_nothing_here() -> None:
    searched = model_run.tool(200, "x1", "m1", "t1", b"web_search", {"query": "x"})
    items = [*agent(), *call(), msgspec.structs.replace(searched, provider_side=True),
             *edit(210, "p1", 4100, b"/srv/project/x", None, b"z")]  # fmt: skip
    assert told(*items) == {}


def test_paths_are_resolved_and_a_patch_names_its_files() -> None:
    patch = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x\n+y\n*** Add File: new/b.py\n+z\n*** End Patch"
    items = [
        *agent(), *call(), wanted(200, "apply_patch", patch.encode()), wanted(200, "Edit", {"path": "./c.py"}, "x2"),
        FileDirectory(at_ns=250 * MS, span="p1", pid=4100, path=b"/srv/project/new", change="create"),
        start(300, "p2", 5, "p1", b"agent"), program(301, "p2", 5, b"fs-helper"),
        *edit(302, "p2", 5, b"/srv/project/new/b.py", None, b"z"),
        *edit(303, "p2", 5, b"/srv/project/src/a.py", b"", b"y"),
        *edit(304, "p1", 4100, b"/srv/project/c.py", b"", b"y"),
        *edit(305, "p1", 4100, b"/srv/project/d.py", b"", b"y"),
    ]  # fmt: skip
    assert told(*items) == {
        "/srv/project/new": ("x1", linking.ABOVE),
        "/srv/project/new/b.py": ("x1", NAMED),
        "p2": ("x1", NAMED),
        "/srv/project/c.py": ("x2", NAMED),
    }


def test_a_helper_of_a_call_has_the_better_reason_of_the_file_it_changes() -> None:
    items = [*agent(), *call(), wanted(200, "Edit", {"path": "c.py"}), start(300, "p2", 5, "p1", b"agent"),
             program(301, "p2", 5, b"fs-helper"), *edit(302, "p2", 5, b"/srv/project/c.py", b"", b"y")]  # fmt: skip
    assert told(*items) == {"p2": ("x1", ALONE), "/srv/project/c.py": ("x1", NAMED)}


def test_code_that_calls_a_shell_holds_its_command() -> None:
    code = b'const out = await tools.exec_command({cmd: "git log --oneline"}); text(out)'
    items = [*agent(), *call(), wanted(200, "exec", code), wanted(200, "exec", b"other()", "x2"),
             start(300, "p2", 5, "p1", b"agent"),
             program(301, "p2", 5, b"bash", b"-lc", b"git log --oneline")]  # fmt: skip
    assert told(*items) == {"p2": ("x1", TEXT)}


def test_a_command_elsewhere_in_the_run_is_linked_if_it_is_long_enough() -> None:
    def run(command: str) -> Links:
        return told(*agent(), start(3, "p9", 9, "run", b"worker"), *call(), wanted(200, "Bash", {"command": command}),
                    start(300, "p2", 5, "p9", b"worker"),
                    program(301, "p2", 5, b"sh", b"-c", command.encode()))  # fmt: skip

    assert run("make all the things") == {"p2": ("x1", ELSEWHERE)}
    assert run("ls") == {}


def test_the_kernel_may_tell_before_the_wire() -> None:
    items = [*agent(), *call(), start(300, "p2", 5, "p1", b"agent"), program(301, "p2", 5, b"sh", b"-c", b"make a"),
             wanted(290, "Bash", {"command": "make a"})]  # fmt: skip
    assert told(*items, live=True) == told(*items) == {"p2": ("x1", RUNS)}


def test_a_command_that_was_cut_off_is_known_by_its_beginning() -> None:
    command = "python3 - <<'PY'\n" + "print('x')\n" * 600
    arguments = json.dumps({"command": command}).encode()[:4096]
    cut = msgspec.structs.replace(model_run.tool(200, "x1", "m1", "t1", b"Bash", arguments), omitted_bytes=3000)
    items = [*agent(), *call(), cut, wanted(200, "Bash", {"command": "ls"}, "x2"),
             start(300, "p2", 5, "p1", b"agent"), program(301, "p2", 5, b"sh", b"-c", command.encode())]  # fmt: skip
    assert told(*items) == {"p2": ("x1", CONTAINS)}


def test_a_word_inside_a_word_is_no_command() -> None:
    assert holds("bash -c eval ls < /dev/null", "ls")
    assert not holds("true || false", "ls")
    assert not holds("cat tools/ls.py", "ls")
    assert bared("eval 'echo \"a\\'' b'  \n c") == "eval echo a b c"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["tool.call", "tool.result", "model.request", "process.start", "process.exec",
                             "process.exit", "file.edit", "file.directory", "net.connect"]),
            st.sampled_from(["p1", "p2", "p3", "run", ""]),
            st.dictionaries(
                st.sampled_from(["tool", "call", "agent", "turn", "parent", "argv", "path", "cwd", "arguments", "host",
                                 "port", "klass", "agent_parent", "retry_of", "status", "omitted_bytes"]),
                st.none() | st.integers() | st.sampled_from(["x1", "m1", "a1", "p1", "p2", "ls", '{"command":"ls"}']) |
                st.lists(st.sampled_from(["ls", "sh", "-c"]), max_size=3) | st.dictionaries(st.text(), st.text()),
            ),
        ),
        max_size=30,
    )
)  # fmt: skip
def test_rows_of_any_shape_are_read(rows: list[tuple[str, str, dict[str, object]]]) -> None:
    from fake_recording import FakeRow

    linker = Linker("/w")
    for seq, (kind, span, data) in enumerate(rows, 1):
        row = FakeRow(seq, seq, kind, span, 1, "", "", data)
        linker.feed(row)
        linker.turn_of(row)
        linker.link_of(row)


def test_of_two_calls_that_name_a_file_the_one_that_writes_changed_it() -> None:
    items = [*agent(), *call(), wanted(200, "Read", {"file_path": "a.py"}),
             wanted(200, "Edit", {"file_path": "a.py", "new_string": "y"}, "x2"),
             *edit(300, "p1", 4100, b"/srv/project/a.py", b"", b"y")]  # fmt: skip
    assert told(*items) == {"/srv/project/a.py": ("x2", NAMED)}


def test_an_edit_that_is_told_late_belongs_to_when_it_was_made() -> None:
    (contents, changed) = edit(470, "p1", 4100, b"/srv/project/a.py", None, b"y")
    assert isinstance(changed, FileEdit)
    made = msgspec.structs.replace(changed, after=msgspec.structs.replace(changed.after, mtime_ns=10**18 + 280 * MS))
    items = [*agent(), *call(), wanted(200, "Save", {"name": "a"}), told_result(400), *call(400, "m2", "t2"),
             wanted(450, "Other", {"name": "b"}, "x2", call="m2"), contents, made]  # fmt: skip
    (link,) = of_recording(FakeRecording(items), {"cwd": CWD, "started_unix_ns": str(10**18)}).links
    assert (link.tool, link.evidence) == ("x1", ALONE)
    (link,) = of_recording(FakeRecording(items), META).links
    assert link.tool == "x2"


def test_a_command_is_not_run_by_the_process_that_asked() -> None:
    items = [*agent(), *call(), wanted(200, "Bash", {"command": "sleep 1"}),
             *edit(210, "p1", 4100, b"/srv/project/own.log", None, b"z"),
             NetConnect(at_ns=220 * MS, span="p1", pid=4100, family="inet", transport="tcp", host=b"192.0.2.9", port=1),
             start(300, "p2", 5, "p1", b"agent"), program(301, "p2", 5, b"env")]  # fmt: skip
    assert told(*items) == {"p2": ("x1", ALONE)}
    edits = [*agent(), *call(), wanted(200, "Edit", {"path": "a"}), *items[-3:]]
    assert told(*edits) == {"p2": ("x1", ALONE)}


def test_a_call_whose_result_never_came_is_over_when_the_agent_goes_on() -> None:
    items = [*agent(), *call(), wanted(200, "Fetch", {"url": "u"}), *call(400, "m2", "t2"),
             start(500, "p2", 5, "p1", b"agent"), program(501, "p2", 5, b"git", b"status"),
             wanted(600, "Other", {"a": "b"}, "x2", call="m2"),
             start(700, "p3", 5, "p1", b"agent"), program(701, "p3", 5, b"git", b"status")]  # fmt: skip
    assert told(*items) == {"p3": ("x2", ALONE)}


def test_a_long_run_is_linked_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking, "_MOST_PROCESSES", 20)
    items: list[object] = [*agent()]
    for number in range(300):
        at = 1000 * (number + 1)
        items += call(at, f"m{number}", f"t{number}")
        items += [wanted(at + 10, "Bash", {"command": "make all"}, f"x{number}", call=f"m{number}"),
                  start(at + 20, f"q{number}", 5, "p1", b"agent"),
                  program(at + 21, f"q{number}", 5, b"sh", b"-c", b"make all"),
                  ProcessExit(at_ns=(at + 30) * MS, span=f"q{number}", pid=5, status=0),
                  told_result(at + 40, f"x{number}")]  # fmt: skip
    linker = of_recording(FakeRecording(items), META)
    assert [(link.tool, link.span, link.ambiguous) for link in linker.links] == [
        (f"x{number}", f"q{number}", False) for number in range(300)
    ]
    assert len(linker._processes) <= 21
    assert max(len(asker._begun) for asker in linker._askers.values()) <= 128


def test_what_comes_late_from_the_wire_is_waited_for() -> None:
    late = [wanted(200, "Edit", {"path": "x"}), told_result(290), *call(290, "m2", "t2"),
            wanted(295, "Bash", {"command": "make a"}, "x2", call="m2")]  # fmt: skip
    acts = [start(300, "p2", 5, "p1", b"agent"), program(301, "p2", 5, b"sh", b"-c", b"make a"),
            ProcessExit(at_ns=350 * MS, span="p2", pid=5, status=3)]  # fmt: skip
    linker = Linker(CWD)
    for row in FakeRecording([*agent(), *call(), *acts, *late]).rows():
        linker.feed(row)
    assert [(link.tool, link.evidence) for link in linker.links] == [("x2", RUNS)]
    assert linker.status_of("x2") == "exit 3"


def test_code_names_paths_patches_and_commands_that_a_sandbox_runs() -> None:
    code = rb'await tools.apply_patch("*** Begin Patch\n*** Update File: a.py\n@@\n-x\n*** End Patch\n")'
    items = [*agent(), *call(), wanted(200, "exec", code), wanted(200, "exec", b'write({path: "out/b.txt"})', "x2"),
             *edit(300, "p1", 4100, b"/srv/project/a.py", b"", b"y"),
             *edit(300, "p1", 4100, b"/srv/project/out/b.txt", b"", b"y"),
             *edit(300, "p1", 4100, b"/srv/project/b.txt.bak", b"", b"y")]  # fmt: skip
    assert told(*items) == {"/srv/project/a.py": ("x1", NAMED), "/srv/project/out/b.txt": ("x2", NAMED)}
    items = [*agent(), *call(), wanted(200, "exec", b'exec_command({cmd: "make all"})'),
             start(300, "p2", 5, "p1", b"agent"), program(301, "p2", 5, b"helper", b"--json", b"exec make all"),
             start(310, "p3", 6, "p2", b"helper"), program(311, "p3", 6, b"bash", b"-c", b"make all"),
             ProcessExit(at_ns=400 * MS, span="p3", pid=6, status=2)]  # fmt: skip
    assert told(*items) == {"p2": ("x1", ALONE), "p3": ("x1", TEXT)}
    assert of_recording(FakeRecording(items), META).status_of("x1") == "exit 2"
