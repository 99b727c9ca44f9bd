"""Doors that lead out of our sight are gaps: services outside the tree, devices, other processes' memory, handles."""

import os
import socket
import threading
from pathlib import Path

import pytest
from wrapping import is_root, program, wrap

CONNECT = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.close()"


class Service(threading.Thread):
    """A service outside the tree, on a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(path))
        self.socket.listen()

    def run(self) -> None:
        connection, _ = self.socket.accept()
        connection.close()
        self.socket.close()


def _causes(events: list) -> list[tuple[str, str]]:  # type: ignore[type-arg]
    return [(e.data["what"], e.data["cause"]) for e in events]


def test_a_service_outside_the_tree_is_a_gap(short_path: Path) -> None:
    service = Service(short_path / "some.sock")
    service.start()
    run = wrap(short_path, "/usr/bin/python3", "-c", CONNECT, "../some.sock")
    service.join()
    assert run.status == 0, run.stderr
    assert _causes(run.events("gap")) == [("unix", "outside-service")]
    assert run.events("gap")[0].subject == str(short_path / "some.sock")
    assert run.events("net.connect")[-1].data["path"] == str(short_path / "some.sock")


def test_docker_does_anything_on_the_process_behalf(short_path: Path) -> None:
    service = Service(short_path / "docker.sock")
    service.start()
    run = wrap(short_path, "/usr/bin/python3", "-c", CONNECT, str(short_path / "docker.sock"))
    service.join()
    assert {what for what, _ in _causes(run.events("gap"))} == {"unix", "exec", "file-write", "connect"}


def test_a_service_of_the_tree_itself_is_none(short_path: Path) -> None:
    source = """
import os, socket
s = socket.socket(socket.AF_UNIX); s.bind("inner.sock"); s.listen()
if os.fork() == 0:
    c = socket.socket(socket.AF_UNIX); c.connect(os.path.abspath("inner.sock")); os._exit(0)
s.accept(); os.wait()
"""
    run = wrap(short_path, "/usr/bin/python3", "-c", source)
    assert run.status == 0, run.stderr
    assert run.gaps() == []
    assert any(e.data["path"] == str(short_path / "work" / "inner.sock") for e in run.events("net.connect"))


def test_a_socket_that_is_not_there_opens_no_gap(tmp_path: Path) -> None:
    run = wrap(tmp_path, "/usr/bin/python3", "-c", CONNECT, "/run/docker.sock.not-there")
    assert run.status == 1
    assert run.gaps() == []


def test_the_memory_of_another_process_is_told(tmp_path: Path) -> None:
    source = """
import os, signal
pid = os.fork()
if pid == 0: signal.pause()
open(f"/proc/{pid}/mem", "r+b").close()
open(f"/proc/self/mem", "r+b").close()
os.kill(pid, 9); os.wait()
"""
    run = wrap(tmp_path, "/usr/bin/python3", "-c", source)
    assert run.status == 0, run.stderr
    reached = run.events("process.reach")
    children = [e.pid for e in run.events("process.start")][1:]
    assert [(e.data["call"], e.data["target"]) for e in reached] == [("open /proc/PID/mem", children[0])]


def test_a_file_opened_by_handle_is_a_gap(tmp_path: Path) -> None:
    if not is_root():
        pytest.skip("open_by_handle_at needs CAP_DAC_READ_SEARCH")
    source = """
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) {
  struct file_handle *h = malloc(sizeof *h + 128); int m;
  h->handle_bytes = 128;
  if (name_to_handle_at(AT_FDCWD, "known", h, &m, 0)) return 2;
  int d = open(".", O_RDONLY | O_DIRECTORY), f = open_by_handle_at(d, h, O_WRONLY);
  return f >= 0 && write(f, "x", 1) == 1 ? 0 : 3;
}
"""
    work = tmp_path / "work"
    work.mkdir()
    (work / "known").write_text("abc")
    run = wrap(tmp_path, program(tmp_path, "handle", source))
    if run.status == 2:
        pytest.skip("this file system gives no handles")
    assert run.status == 0
    assert run.gaps() == ["opened-by-handle"]


def test_a_block_device_opened_for_writing_is_a_gap(tmp_path: Path) -> None:
    if not is_root():
        pytest.skip("needs a device node of the test's own")
    node = f"/dev/agentwrap-test-{os.getpid()}"
    try:
        os.mknod(node, 0o60600, os.makedev(240, 77))  # a local number that no driver has: the open fails
    except PermissionError:
        pytest.skip("device nodes cannot be made here")
    try:
        run = wrap(tmp_path, "sh", "-c", f": > {node}")
    finally:
        os.unlink(node)
    assert ("file-write", "raw-device") in _causes(run.events("gap"))
