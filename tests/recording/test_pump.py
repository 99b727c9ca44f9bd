"""The thread before the file: nothing is lost while it lives, 50 ms when it is killed, and a full disk is told."""

import os
import random
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from recordings import make
from waiting_bystander import Bystander, waited_ns

from agentwrap.events import Content, NetConnect, ProcessDenied, RunEnd
from agentwrap.evidence.verify import verify
from agentwrap.recording import pump as pump_module
from agentwrap.recording.pump import RecorderPump
from agentwrap.recording.reader import Reader
from agentwrap.recording.snapshot import finalise
from agentwrap.recording.writer import Recorder

TESTS = Path(__file__).parent.parent
LOSS_NS = 50_000_000
HANDS = 2
"""Who puts and the recorder's thread: each of them may wake up as late as anybody."""
HANG_NS = 300_000_000_000


def connect(number: int) -> NetConnect:
    return NetConnect(at_ns=number, span="p1", pid=1, family="inet", host=b"192.0.2.1", port=number % 65536)


def numbers(path: Path) -> list[int]:
    with Reader.open(path) as reader:
        return [row.at_ns for row in reader.rows(kinds=["net.connect"])]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is dropped because a thread of this machine waits: whoever asks for a stall makes it shorter."""
    monkeypatch.setattr(pump_module, "STALL_NS", HANG_NS)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[RecorderPump]:
    pump = RecorderPump(make.begin(tmp_path / "run.agentlog"))
    pump.start()
    yield pump
    pump.flush_and_close()


def test_everything_put_is_there_in_order(started: RecorderPump) -> None:
    for first in range(0, 5000, 100):
        started.put([connect(n) for n in range(first, first + 100)])
    assert started.flush()
    path = started._recorder.path
    assert numbers(path) == list(range(5000))
    assert started.flush_and_close()
    assert verify(path, public_key=make.public_key()).word == "intact"


def test_a_single_item_is_soon_in_the_file(started: RecorderPump) -> None:
    with Reader.open(started._recorder.path) as reader:
        assert reader.changed()
        assert reader.count() == 0
        begun = time.monotonic()
        started.put([connect(1)])
        while reader.count() == 0:
            assert time.monotonic() - begun < 300
        assert reader.changed()


def test_flush_waits_for_what_was_put_before(started: RecorderPump) -> None:
    started.put([ProcessDenied(at_ns=1, what="setuid", why="no", detail=b"/bin/su")])
    assert started.flush()
    with Reader.open(started._recorder.path) as reader:
        assert [row.verdict for row in reader.rows()] == ["deny"]


def test_a_recorder_that_is_only_slow_is_waited_for(tmp_path: Path) -> None:
    recorder = make.begin(tmp_path / "run.agentlog")
    pump, writing, go_on, answer = RecorderPump(recorder), threading.Event(), threading.Event(), list[bool]()
    commit = recorder.commit

    def slow() -> None:
        writing.set()
        go_on.wait()
        commit()

    recorder.commit = slow  # type: ignore[method-assign]
    pump.start()
    pump.put([connect(1)])
    writing.wait()
    asking = threading.Thread(target=lambda: answer.append(pump.flush(0)))
    asking.start()
    while not (pump._lock._waiters or answer):  # type: ignore[attr-defined]
        time.sleep(0)
    go_on.set()
    asking.join()
    assert pump.flush_and_close()
    assert answer == [True]


def test_closing_without_a_start_writes_everything(tmp_path: Path) -> None:
    pump = RecorderPump(make.begin(tmp_path / "run.agentlog"))
    pump.put([connect(1), RunEnd(at_ns=2, status=0)])
    assert pump.flush_and_close()
    assert numbers(tmp_path / "run.agentlog") == [1]


def test_a_checkpoint_comes_with_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump_module, "CHECKPOINT_NS", 20_000_000)
    pump = RecorderPump(make.begin(tmp_path / "run.agentlog"))
    pump.start()
    pump.put([connect(1)])
    with Reader.open(tmp_path / "run.agentlog") as reader:
        deadline = time.monotonic() + 300
        while not reader.connection.execute("SELECT count(*) FROM checkpoint").fetchone()[0]:
            assert time.monotonic() < deadline
    assert pump.flush_and_close()


def test_a_fault_in_one_event_costs_that_event_and_is_told(tmp_path: Path) -> None:
    pump = RecorderPump(make.begin(tmp_path / "run.agentlog"))
    broken = NetConnect(at_ns=2, family="inet", host="not bytes")  # type: ignore[arg-type]
    pump.put([connect(1), broken, connect(3)])
    assert pump.flush_and_close()
    assert numbers(tmp_path / "run.agentlog") == [1, 3]
    with Reader.open(tmp_path / "run.agentlog") as reader:
        (gap,) = reader.rows(kinds=["gap"])
    assert (gap.data["cause"], gap.data["what"], gap.data["could_hide"][:8]) == ("internal", "connect", "1 events")
    assert pump.dropped == 1
    assert "internal" in pump.failure


# A disk that is full: the commit fails, as SQLite says it.


class FullDisk:
    """Makes the commits of a recorder fail while `full`."""

    def __init__(self, recorder: Recorder) -> None:
        self.full = False
        self._commit: Callable[[], None] = recorder.commit
        recorder.commit = self.commit  # type: ignore[method-assign]

    def commit(self) -> None:
        if self.full:
            raise sqlite3.OperationalError("database or disk is full")
        self._commit()


def test_events_of_a_full_disk_are_held_and_come_later(tmp_path: Path) -> None:
    recorder = make.begin(tmp_path / "run.agentlog")
    disk = FullDisk(recorder)
    pump = RecorderPump(recorder)
    pump.start()
    pump.put([connect(1)])
    assert pump.flush()
    disk.full = True
    for number in range(2, 500):
        pump.put([connect(number)])
    assert not pump.flush(0.2)
    disk.full = False
    assert pump.flush_and_close()
    assert numbers(recorder.path) == list(range(1, 500))
    assert "full" in pump.failure


def test_what_does_not_fit_is_dropped_and_counted_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump_module, "MAX_HELD_ITEMS", 50)
    recorder = make.begin(tmp_path / "run.agentlog")
    disk = FullDisk(recorder)
    pump = RecorderPump(recorder)
    pump.start()
    disk.full = True
    for number in range(1000):
        pump.put([connect(number), ProcessDenied(at_ns=number, what="setuid", why="no")])
    pump.put([Content(sha=bytes(32), data=b"x", role="after")])
    while pump._queue:
        time.sleep(0)
    disk.full = False
    assert pump.flush_and_close()
    with Reader.open(recorder.path) as reader:
        kept = len(list(reader.rows(kinds=["net.connect"])))
        denied = len(list(reader.rows(kinds=["process.denied"])))
        gaps = {row.data["what"]: row.data["could_hide"] for row in reader.rows(kinds=["gap"])}
    assert denied == 1000
    assert gaps["connect"].startswith(f"{1000 - kept} events and 0 contents")
    assert gaps["file-write"].startswith("0 events and 1 contents")
    assert pump.dropped == 1000 - kept + 1


def test_a_disk_full_to_the_end_leaves_a_torn_file_that_reads(tmp_path: Path) -> None:
    recorder = make.begin(tmp_path / "run.agentlog")
    disk = FullDisk(recorder)
    pump = RecorderPump(recorder)
    pump.start()
    pump.put([connect(1)])
    assert pump.flush()
    disk.full = True
    pump.put([connect(2)])
    assert not pump.flush_and_close()
    assert numbers(recorder.path) == [1]
    with Reader.open(recorder.path) as reader:
        assert reader.state() == "torn"


def test_a_stalled_recorder_never_blocks_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump_module, "MAX_QUEUED_ITEMS", 10)
    monkeypatch.setattr(pump_module, "MAX_AGE_NS", HANG_NS)  # by their number alone, however long the first ones wait
    monkeypatch.setattr(pump_module, "STALL_NS", 50_000_000)
    pump = RecorderPump(make.begin(tmp_path / "run.agentlog"))  # not started: nothing takes items
    pump.put([connect(n) for n in range(20)])
    pump.put([connect(21), ProcessDenied(at_ns=22, what="setuid", why="no")])
    assert pump.dropped == 1
    assert pump.flush_and_close()
    with Reader.open(tmp_path / "run.agentlog") as reader:
        assert [row.data["cause"] for row in reader.rows(kinds=["gap"])] == ["recorder-stalled"]
        assert len(list(reader.rows(kinds=["process.denied"]))) == 1


def test_who_can_wait_loses_nothing_to_a_stall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump_module, "MAX_QUEUED_ITEMS", 10)
    monkeypatch.setattr(pump_module, "STALL_NS", 1_000_000)
    pump = RecorderPump(make.begin(tmp_path / "run.agentlog"))  # not started: nothing takes items
    pump.put([connect(n) for n in range(20)])
    patient = threading.Thread(target=pump.put, args=([connect(20)],), kwargs={"patient": True})
    patient.start()
    dropped = pump.dropped  # the second half of the first ones
    pump.put([connect(21)])
    assert pump.dropped == dropped + 1
    pump.start()
    patient.join()
    assert pump.flush_and_close()
    assert 20 in numbers(tmp_path / "run.agentlog")
    assert 21 not in numbers(tmp_path / "run.agentlog")


def test_a_recorder_that_dies_of_a_fault_does_not_stop_the_run(tmp_path: Path) -> None:
    recorder = make.begin(tmp_path / "run.agentlog")
    pump = RecorderPump(recorder)
    pump.start()
    pump.put([connect(1)])
    assert pump.flush()

    def fault() -> None:
        raise RuntimeError("a fault of ours")

    recorder.commit = fault  # type: ignore[method-assign]
    for number in range(2, 2000):
        pump.put([connect(number)])
    assert not pump._stalled  # nobody has waited for it
    assert not pump.flush_and_close()
    assert "a fault of ours" in pump.failure
    assert numbers(recorder.path) == [1]


IN_A_SMALL_TMPFS = """
set -e
mount -t tmpfs -o size=4m tmpfs "$1"
exec "$2" -c "$3" "$1/run.agentlog"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small filesystem needs root")
def test_a_real_disk_that_fills_up_in_mid_run(tmp_path: Path) -> None:
    """4 MB of tmpfs in a mount namespace of its own; the run puts 40 MB of contents, then a denial, then its end."""
    probe = subprocess.run(["unshare", "-m", "true"], capture_output=True)
    if probe.returncode:
        pytest.skip("no mount namespaces here")
    (tmp_path / "small").mkdir()
    code = f"import sys, runpy; sys.path.insert(0, {str(TESTS)!r}); "
    code += f"runpy.run_path({__file__!r})['fill_a_disk'](sys.argv[1])"
    command = ["unshare", "-m", "sh", "-c", IN_A_SMALL_TMPFS, "sh", str(tmp_path / "small"), sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    report = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert "full" in report["failure"]
    assert report["causes"] == "disk-full"  # nobody has waited for a disk that is full
    assert report["denied"] == "1"
    assert int(report["gaps"]) >= 1
    # Every event is either there or counted in a gap.
    assert int(report["edits"]) + int(report["told_lost"]) == 400
    assert report["closed"] in ("True", "False")


def fill_a_disk(path: str) -> None:
    """Runs in the subprocess of the test above."""
    import hashlib
    import re

    from agentwrap.events import FileEdit, FileState

    pump_module.STALL_NS = HANG_NS
    pump = RecorderPump(make.begin(Path(path)))
    pump.start()
    for number in range(400):
        data = os.urandom(100_000)
        digest = hashlib.sha256(data).digest()
        absent, there = FileState(type="absent"), FileState(size=len(data), raw=digest)
        pump.put(
            [
                Content(sha=digest, data=data, role="after"),
                FileEdit(at_ns=number, path=b"/f%d" % number, change="create", before=absent, after=there),
            ]
        )
    pump.put([ProcessDenied(at_ns=401, what="setuid", why="no"), RunEnd(at_ns=402, status=0)])
    closed = pump.flush_and_close()
    with Reader.open(Path(path)) as reader:
        lost = sum(int(re.match(r"\d+", row.data["could_hide"])[0]) for row in reader.rows(kinds=["gap"]))  # type: ignore[index]
        report = {
            "closed": closed,
            "failure": pump.failure,
            "causes": " ".join(sorted({row.data["cause"] for row in reader.rows(kinds=["gap"])})),
            "edits": len(list(reader.rows(kinds=["file.edit"]))),
            "denied": len(list(reader.rows(kinds=["process.denied"]))),
            "gaps": len(list(reader.rows(kinds=["gap"]))),
            "told_lost": lost,
        }
    sys.stdout.write("".join(f"{key}={value}\n" for key, value in report.items()))


# Killed at any moment.


def put_until_killed(path: Path, told: int, seed: int) -> None:
    """In a forked child: put events, and say of each when `put` had returned, and what was waited for by then."""
    chance = random.Random(seed)
    pump = RecorderPump(make.begin(path))
    pump.start()
    number = 0
    while True:
        burst = chance.choice((1, 1, 1, 5, 50, 200))
        pump.put([connect(n) for n in range(number, number + burst)])
        number += burst
        waited = waited_ns(os.getpid())  # before the time: what is waited in between may not be lost
        os.write(told, b"%d %d %d\n" % (number, waited, time.monotonic_ns()))
        if chance.random() < 0.3:
            time.sleep(chance.random() * 0.004)  # the agent does something else


class Put(NamedTuple):
    """`count` events had been put at `at_ns`, when the threads had waited `waited_ns` for a processor."""

    count: int
    waited_ns: int
    at_ns: int


def kill_in_mid_run(path: Path, after_s: float, seed: int) -> int:
    """How many events were put so early that they must be there."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            put_until_killed(path, writing, seed)
        finally:
            os._exit(70)
    os.close(writing)
    pieces: list[bytes] = []
    with open(reading, "rb", buffering=0) as pipe, Bystander() as bystander:
        while not b"".join(pieces).count(b"\n"):
            pieces.append(pipe.read(65536))
        deadline = time.monotonic() + after_s
        while (left_s := deadline - time.monotonic()) > 0:
            if select.select([reading], [], [], left_s)[0]:
                pieces.append(pipe.read(65536))
        killed_at = time.monotonic_ns()
        # A thread that waits for a processor has its wait counted when it gets one: here, to stand still for good.
        os.kill(child, signal.SIGSTOP)
        os.waitpid(child, os.WUNTRACED)
        waited = waited_ns(child)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pieces.append(pipe.read())
    lines = b"".join(pieces).decode().splitlines()
    put = [Put(*map(int, line.split())) for line in lines if line.count(" ") == 2]
    late_ns = LOSS_NS + HANDS * bystander.longest_wait_ns
    return max((one.count for one in put if one.at_ns + late_ns + waited - one.waited_ns < killed_at), default=0)


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder on a disk that keeps up with whatever else this machine writes: in memory (tmpfs), where that is."""
    made = Path(tempfile.mkdtemp(prefix="agentwrap-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.serial  # it measures how late the recorder is, not how many tests run beside it
@pytest.mark.parametrize("moment", range(24))
def test_a_kill_at_any_moment_loses_50_ms_at_most(memory: Path, moment: int) -> None:
    path = memory / "run.agentlog"
    seed = int.from_bytes(os.urandom(4), "big")
    certain = kill_in_mid_run(path, random.Random(seed).random() * 0.3, seed)
    with Reader.open(path) as reader:
        assert reader.state() == "torn"
    found = numbers(path)
    assert found == list(range(len(found)))
    assert len(found) >= certain, f"seed {seed}: {certain - len(found)} events older than 50 ms are gone"
    assert verify(path, public_key=make.public_key()).word == "torn"


def test_what_a_kill_left_can_be_finalised_and_is_never_by_reading(tmp_path: Path) -> None:
    path = tmp_path / "run.agentlog"
    kill_in_mid_run(path, 0.1, 1)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if not p.name.endswith("-shm")}
    count = len(numbers(path))
    verify(path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if not p.name.endswith("-shm")} == before
    assert finalise(path)
    assert [p.name for p in tmp_path.iterdir()] == ["run.agentlog"]
    assert len(numbers(path)) == count
    assert verify(path, public_key=make.public_key()).word == "torn"
    assert not finalise(path)
