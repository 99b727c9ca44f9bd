import errno
import os
import signal
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentwrap.events.egress import ActDenied
from agentwrap.launching.enforcement import EnforcementPlan, plan
from agentwrap.policy.layers import Layer
from agentwrap.policy.questions import Answer
from agentwrap.policy.rules import Rule
from agentwrap.tracing.files.settings import Place
from agentwrap.tracing.judged_calls import JudgedCalls
from agentwrap.tracing.judged_files import FileQuestions
from agentwrap.tracing.judged_sockets import SocketQuestions
from agentwrap.tracing.judging import StopJudge, descends
from agentwrap.tracing.processes import Process
from agentwrap.tracing.tracee import Memory
from tests.launching.disks import TableDisk
from tests.policy_texts import PLACES, policy

CLOSED = '[files.write]\ndefault = "deny"\nallow = ["$CWD/**"]\n'
OPEN = '[files.write]\ndefault = "allow"\n'
OWN, OTHER = 4242, 77
FAMILIES = {
    "unix": socket.AF_UNIX, "netlink": socket.AF_NETLINK, "vsock": socket.AF_VSOCK, "packet": socket.AF_PACKET,
    "alg": socket.AF_ALG,
}  # fmt: skip


class Court:
    """A judge, what it told, and in which order it waited for the disk."""

    def __init__(
        self, body: str, *, mode: str = "enforce", of: EnforcementPlan | None = None, disk: tuple[str, ...] = ()
    ):
        self.told: list[ActDenied] = []
        self.held: list[int] = []
        self.clock_ns = 0
        layers = (Layer("flags", policy(body, mode=mode)),)
        made = of or plan(layers, TableDisk(("/w/x", *disk)), uid=1000, tier="none")
        self.judge = StopJudge(
            layers,
            made,
            self._hear,
            lambda: self.clock_ns,
            lambda pid: pid == OWN,
            lambda: self.held.append(len(self.told)),
        )
        self.process = Process(OWN, "p1", None)
        self.files = FileQuestions(self.judge)

    def _hear(self, item: object) -> None:
        assert isinstance(item, ActDenied)
        self.told.append(item)

    def write(self, path: str, *, tree: bool = False, folder: bool = False, call: str = "openat") -> int:
        answer = self.judge.refusal_to_write(path.encode(), tree=tree, folder=folder)
        return 0 if answer is None else self.judge.refuse_file(self.process, "write", path.encode(), call, answer)


def test_a_denial_tells_what_which_rule_and_how_it_could_be_allowed() -> None:
    court = Court(CLOSED)
    assert court.write("/w/a") == 0
    assert court.write("/etc/passwd") == errno.EACCES
    (event,) = court.told
    assert (event.decision, event.by, event.mechanism, event.errno) == ("deny", "witness", "stop", "EACCES")
    assert (event.act, event.target, event.call, event.span, event.pid) == (
        "write",
        b"/etc/passwd",
        "openat",
        "p1",
        OWN,
    )
    assert event.rule.startswith(b"files.write.default")
    assert b"/etc/passwd" in event.change


def test_it_is_on_disk_before_the_program_hears_of_it() -> None:
    court = Court(CLOSED)
    court.write("/etc/passwd")
    court.write("/etc/passwd")
    court.write("/etc/group")
    assert court.held == [1, 2]


def test_what_the_kernel_holds_is_told_as_the_wall() -> None:
    layers = (Layer("flags", policy(CLOSED)),)
    disk = TableDisk(("/w/.git/hooks/x", "/etc/passwd"))
    court = Court(CLOSED, of=plan(layers, disk, uid=1000, tier="wall"))
    for path, call in (("/etc/passwd", "openat"), ("/w/.git/hooks/new", "openat"), ("/w/.git", "renameat")):
        assert court.write(path, tree=call == "renameat", call=call)
    assert [(event.by, event.mechanism) for event in court.told] == [("wall", "mount")] * 3
    court.write("/w/.envrc")
    assert (court.told[-1].by, court.told[-1].mechanism) == ("witness", "stop")


def test_landlock_holds_no_attributes() -> None:
    layers = (Layer("flags", policy(CLOSED)),)
    court = Court(CLOSED, of=plan(layers, TableDisk(("/w/x", "/etc/passwd")), uid=1000, tier="guard", landlock_abi=7))
    court.write("/etc/passwd")
    court.write("/etc/group", call="fchmodat")
    assert [(event.by, event.mechanism) for event in court.told] == [("wall", "landlock"), ("witness", "stop")]


def test_what_is_closed_with_its_neighbours_is_told_by_the_neighbours_rule() -> None:
    layers = (Layer("flags", policy(OPEN)),)
    court = Court(OPEN, of=plan(layers, TableDisk(("/w/.git/hooks/a.sample",)), uid=1000, tier="wall"))
    assert court.write("/w/.git/hooks/a.sample") == errno.EACCES
    assert court.told[0].rule == b"built-in.git-hooks"


def test_mode_observe_tells_and_lets_pass_without_waiting() -> None:
    court = Court(CLOSED, mode="observe")
    assert court.write("/etc/passwd") == 0
    assert (court.told[0].decision, court.told[0].errno, court.held) == ("would-deny", "", [])


@pytest.mark.parametrize("name", ["uid_map", "oom_score_adj", "mem", "task/4242/comm"])
def test_a_process_writes_its_own_files_in_proc_and_no_others(name: str) -> None:
    court = Court(CLOSED)
    assert court.write(f"/proc/{OWN}/{name}") == 0
    assert court.write(f"/proc/{OTHER}/{name}") == errno.EACCES
    assert court.told[0].act == "reach"


def test_the_switches_of_the_kernel_are_files_like_others() -> None:
    assert Court(CLOSED).write("/proc/sys/kernel/core_pattern") == errno.EACCES


def test_what_holds_something_unreadable_does_not_move() -> None:
    court = Court(OPEN + '[files.read]\ndefault = "allow"\ndeny = ["~/.ssh/id*", "/w/k/**"]\n')
    assert court.judge.refusal_to_move(b"/home/u/.ssh") is not None
    assert court.judge.refusal_to_move(b"/w/k") is not None
    assert court.judge.refusal_to_move(b"/w/other") is None
    assert Court(OPEN, disk=()).judge.refusal_to_move(b"/w") is None


def test_folders_are_listed_where_reading_is_closed_by_default() -> None:
    court = Court(OPEN + '[files.read]\ndefault = "deny"\nallow = ["$CWD/**"]\ndeny = ["/secret/**"]\n')
    assert court.judge.refusal_to_read(b"/usr", folder=True) is None
    assert court.judge.refusal_to_read(b"/usr/x") is not None
    assert court.judge.refusal_to_read(b"/secret", folder=True) is not None
    assert court.judge.refusal_to_read(b"/dev/urandom") is None
    assert court.judge.refusal_to_read(b"/proc/%d/maps" % OWN) is None
    assert court.judge.refusal_to_read(b"/proc/%d/maps" % OTHER) is not None
    assert court.judge.refusal_to_read(b"/dev/sda") is not None


def test_sockets_programs_and_families() -> None:
    court = Court(OPEN + '[exec]\ndefault = "allow"\ndeny = ["/usr/bin/nl"]\n[network]\nunix = ["@mine"]\n')
    judge, process = court.judge, court.process
    assert judge.unix(process, b"/run/docker.sock", "connect", inner=False) == errno.EACCES
    assert judge.unix(process, b"/run/docker.sock", "connect", inner=True) == 0
    assert judge.unix(process, b"@theirs", "connect", inner=False) == errno.ECONNREFUSED
    assert judge.unix(process, b"@mine", "connect", inner=False) == 0
    assert judge.run(process, b"/usr/bin/nl", "execve") == errno.EACCES
    assert judge.run(process, b"/usr/bin/ls", "execve") == 0
    assert judge.family(process, "vsock", "socket") == errno.EAFNOSUPPORT
    assert judge.family(process, "inet", "socket") == 0
    assert judge.fast_open(process, b"host:1", "sendto") == errno.EOPNOTSUPP
    assert [event.act for event in court.told] == ["unix", "unix", "exec", "family", "call"]


def test_families_are_asked_by_their_names() -> None:
    """On Linux AF_ROUTE is another word for AF_NETLINK, which every lookup of a name uses."""
    court = Court(OPEN)
    sockets = SocketQuestions(court.judge, court.files)
    made = {name: sockets.making(court.process, number, socket.SOCK_RAW, "socket") for name, number in FAMILIES.items()}
    refused = {"vsock", "packet", "alg"}
    assert {name for name, number in made.items() if number == errno.EAFNOSUPPORT} == refused
    assert made["netlink"] == made["unix"] == 0
    assert [event.target for event in court.told] == [b"vsock", b"packet", b"other"]



def test_signals_and_reaching_stay_inside_of_the_run() -> None:
    court = Court(OPEN)
    judge, process = court.judge, court.process
    assert [judge.signal(process, target, "kill") for target in (OWN, 0)] == [0, 0]
    assert [judge.signal(process, target, "kill") for target in (OTHER, 1, -1)] == [errno.EPERM] * 3
    assert judge.signal(process, -os.getpgid(0), "kill") == errno.EPERM
    assert judge.reach(process, OWN, "ptrace seize") == 0
    assert judge.reach(process, OTHER, "ptrace seize") == errno.EPERM
    assert {(event.by, event.errno) for event in court.told} == {("guard", "EPERM")}


def test_names_that_cannot_be_read_are_refused_where_nothing_stands_underneath() -> None:
    assert Court(OPEN).judge.unreadable(Process(OWN, "p1", None), "unlink") == errno.EACCES
    layers = (Layer("flags", policy(CLOSED)),)
    held = plan(layers, TableDisk(("/w/x",)), uid=1000, tier="wall")
    assert Court(CLOSED, of=held).judge.unreadable(Process(OWN, "p1", None), "unlink") == 0


@pytest.mark.parametrize("error", [OSError(errno.ENAMETOOLONG, "longer than readlink gives"), RuntimeError("a fault")])
def test_a_fault_of_ours_opens_nothing(error: Exception) -> None:
    court = Court(OPEN)
    noted: list[str] = []

    def faulty(*_: object) -> int:
        raise error

    calls = SimpleNamespace(place=faulty)
    judged = JudgedCalls(calls, court.files, Memory(), execs=False)  # type: ignore[arg-type]
    handlers = judged.over({"unlink": lambda *_: noted.append("unlink") or 0, "listen": lambda *_: 0})  # type: ignore[func-returns-value]
    assert handlers["unlink"](court.process, 1, (0,) * 6) == errno.EACCES
    assert handlers["listen"](court.process, 1, (0,) * 6) == 0
    assert noted == []
    assert court.told[0].rule == b"built-in.unclear-path"


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EFAULT, errno.ESRCH, errno.EPERM])
def test_what_fails_by_itself_is_left_to_whoever_asked(number: int) -> None:
    court = Court(OPEN)

    def failing(*_: object) -> int:
        raise OSError(number, "by itself")

    calls = SimpleNamespace(place=failing)
    judged = JudgedCalls(calls, court.files, Memory(), execs=False)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="by itself"):
        judged.over({})["unlink"](court.process, 1, (0,) * 6)
    assert court.told == []


def test_counts_are_told_in_time_and_at_the_end() -> None:
    court = Court(CLOSED)
    for _ in range(5):
        court.write("/etc/passwd")
    assert court.judge.waiting
    court.judge.settle()
    assert [event.count for event in court.told] == [1]
    court.clock_ns = 250_000_000
    court.judge.settle()
    court.write("/etc/passwd")
    court.judge.finish()
    assert [event.count for event in court.told] == [1, 4, 1]
    assert court.judge.denied == 6
    assert not court.judge.waiting


def place(path: Path) -> Place:
    return Place(os.fsencode(path), os.fsencode(path))


@pytest.fixture
def court(tmp_path: Path) -> Court:
    """Everything below the test's folder may be written but for `closed`, and read but for `secret`."""
    body = f'[files.write]\ndefault = "deny"\nallow = ["{tmp_path}/**"]\ndeny = ["{tmp_path}/closed/**"]\n'
    body += f'[files.read]\ndefault = "allow"\ndeny = ["{tmp_path}/secret"]\n'
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "file").write_text("x")
    (tmp_path / "secret").write_text("x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("closed/file")
    (tmp_path / "folder").mkdir()
    return Court(body)


W, C, EXCL, TRUNC = os.O_WRONLY, os.O_CREAT, os.O_EXCL, os.O_TRUNC


@pytest.mark.parametrize(
    ("name", "flags", "number"),
    [
        ("file", W, 0),
        ("new", W | C, 0),
        ("closed/file", W, errno.EACCES),
        ("closed/file", os.O_RDONLY, 0),
        ("closed/file", os.O_RDONLY | TRUNC, errno.EACCES),
        ("closed/file", os.O_RDONLY | C, 0),
        ("closed/file", W | C | EXCL, 0),  # EEXIST
        ("closed/new", W, 0),  # ENOENT
        ("closed/new", W | C, errno.EACCES),
        ("closed/new", os.O_RDONLY | C, errno.EACCES),
        ("closed", W, 0),  # EISDIR
        ("closed", W | os.O_TMPFILE, errno.EACCES),
        ("folder", W | os.O_TMPFILE, 0),
        ("closed/file", os.O_PATH, 0),
        ("link", W, errno.EACCES),
        ("link", W | os.O_NOFOLLOW, 0),
        ("secret", os.O_RDONLY, errno.EACCES),
        ("secret", os.O_RDWR, errno.EACCES),
        ("secret", W, 0),
        ("nothing", os.O_RDONLY, 0),
    ],
)
def test_an_open_is_refused_for_what_it_would_do(
    court: Court, tmp_path: Path, name: str, flags: int, number: int
) -> None:
    found = court.files.opening(court.process, os.getpid(), "openat", place(tmp_path / name), flags)
    assert found == number
    assert len(court.told) == (number != 0)


def test_changing_making_and_moving_ask_about_every_name(court: Court, tmp_path: Path) -> None:
    files, process, tid = court.files, court.process, os.getpid()

    def changing(name: str) -> int:
        return files.changing(process, tid, "unlink", place(tmp_path / name))

    def making(name: str) -> int:
        return files.making(process, tid, "mkdir", place(tmp_path / name), folder=True)

    def moving(old: str, new: str, *, stays: bool = False) -> int:
        return files.moving(process, tid, "rename", place(tmp_path / old), place(tmp_path / new), stays=stays)

    refused = errno.EACCES
    assert [changing("file"), changing("closed/file"), changing("closed/nothing")] == [0, refused, 0]
    assert [making("new"), making("closed/new"), making("closed/file")] == [0, refused, 0]
    assert [moving("file", "new"), moving("file", "closed/new"), moving("closed/file", "new")] == [0, refused, refused]
    assert [moving("folder", "new"), moving("closed", "new"), moving("secret", "new")] == [0, refused, refused]
    assert [moving("nothing", "closed/new"), moving("closed/file", "new", stays=True)] == [0, refused]
    assert moving("file", "closed/file", stays=True) == 0  # EEXIST
    assert files.attributes(process, tid, "chmod", place(tmp_path / "link"), follows=True) == refused
    assert files.attributes(process, tid, "lchown", place(tmp_path / "link"), follows=False) == 0


def test_a_script_is_run_by_what_its_first_line_names(tmp_path: Path) -> None:
    court = Court(OPEN + f'[exec]\ndefault = "allow"\ndeny = ["{tmp_path}/shell"]\n')
    (tmp_path / "shell").symlink_to("/bin/sh")
    for name, line in (("script", f"#!{tmp_path}/shell"), ("outer", f"#! {tmp_path}/script -x"), ("plain", "x")):
        (tmp_path / name).write_text(line + "\n")
    os.mkfifo(tmp_path / "pipe")
    court = Court(OPEN + f'[exec]\ndefault = "allow"\ndeny = ["{os.path.realpath("/bin/sh")}"]\n')

    def run(name: str) -> int:
        return court.files.running(court.process, os.getpid(), "execve", place(tmp_path / name))

    assert [run("shell"), run("script"), run("outer")] == [errno.EACCES] * 3
    assert [run("plain"), run("pipe"), run("nothing")] == [0, 0, 0]


def test_descendants_are_found_by_their_parents() -> None:
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        assert descends(child, os.getpid())
        assert not descends(os.getpid(), child)
        assert not descends(1, os.getpid())
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert not descends(child, os.getpid())


def test_an_answer_of_ours_needs_no_policy() -> None:
    court = Court(OPEN)
    answer = Answer("deny", Rule("built-in.own-files"), "why", "how")
    court.judge.refuse_file(court.process, "write", PLACES.cwd.encode(), "unlink", answer)
    assert (court.told[0].rule, court.told[0].why, court.told[0].change) == (b"built-in.own-files", b"why", b"how")
