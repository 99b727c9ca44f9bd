"""Directories resolved for another process: in its root, with its /proc/self, as the kernel does it."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentwrap.tracing.resolve import is_own, walk
from agentwrap.tracing.tracee import AT_FDCWD, descriptor_meant, locate


def _walked(start: bytes, path: bytes) -> bytes | None:
    try:
        descriptor = walk(threading.get_native_id(), start, path)
    except OSError:
        return None
    try:
        return os.readlink(b"/proc/self/fd/%d" % descriptor)
    finally:
        os.close(descriptor)


@pytest.fixture(scope="module")
def maze(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("maze")
    for name in ("a/b/c", "d/e"):
        (top / name).mkdir(parents=True)
    links = {
        "up": "..",
        "a/l": "../d",
        "a/abs": str(top / "d"),
        "d/loop": "loop",
        "d/dots": "../a/./b/../b",
        "x": "a/l/e",
    }
    links |= {"root": "/", "gone": "nowhere", "file": "f", "self": "/proc/self/cwd", "fd": "/dev/fd"}
    for name, target in links.items():
        (top / name).symlink_to(target)
    (top / "f").touch()
    return top


parts = st.sampled_from(
    ["a", "b", "c", "d", "e", "l", "abs", "loop", "dots", "x", "up", "root", "gone", "f", "..", ".", ""]
)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(path=st.lists(parts, max_size=8).map("/".join))
def test_the_same_as_the_kernel_for_ourselves(maze: Path, path: str) -> None:
    start = bytes(maze)
    relative = path.lstrip("/")
    try:
        descriptor = os.open(start + b"/" + relative.encode(), os.O_PATH | os.O_DIRECTORY)
    except OSError:
        expected = None
    else:
        expected = os.readlink(b"/proc/self/fd/%d" % descriptor)
        os.close(descriptor)
    assert _walked(start, relative.encode()) == expected


def test_links_through_proc_are_the_other_processs(maze: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, cwd=maze / "d") as process:
        try:
            pid = process.pid
            there = b"/proc/%d/cwd" % pid
            while os.readlink(there) != bytes(maze / "d"):
                pass  # between fork and its own chdir
            for name in (b"self/f", b"self/e/f"):
                place = locate(pid, AT_FDCWD, bytes(maze) + b"/" + name, foreign=True)
                assert place.path == bytes(maze / "d") + name.removeprefix(b"self")
            assert locate(pid, AT_FDCWD, b"/proc/self/cwd/f", foreign=False).path == bytes(maze / "d/f")
            assert locate(pid, AT_FDCWD, b"/proc/thread-self/cwd/f", foreign=False).path == bytes(maze / "d/f")
            assert descriptor_meant(locate(pid, AT_FDCWD, b"/proc/self/fd/0", foreign=False)) == (pid, 0)
            assert descriptor_meant(locate(pid, AT_FDCWD, b"/dev/fd/0", foreign=False)) == (pid, 0)
            assert descriptor_meant(locate(pid, AT_FDCWD, bytes(maze) + b"/fd/0", foreign=True)) == (pid, 0)
        finally:
            process.communicate(b"\n")


def test_a_name_too_long_is_no_place(maze: Path) -> None:
    with pytest.raises(FileNotFoundError):
        walk(os.getpid(), bytes(maze), b"n" * 256)


def test_a_resolution_closes_what_it_opened(maze: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    for path in (b"a/l/e", b"d/loop", b"gone", b"f/x", b"self", b"n" * 300, b"up/" * 30):
        _walked(bytes(maze), path)
    assert set(os.listdir("/proc/self/fd")) <= before  # what an earlier test left may be collected meanwhile


def test_our_own_proc_shows_itself() -> None:
    own = b"/proc/%d" % os.getpid()
    assert [is_own(path) for path in (b"/proc", own, own + b"/fd", own + b"1", b"/procs", b"/", b"/proc/1/fd")] == [
        *(True, True, True),
        *(False, False, False, False),
    ]
