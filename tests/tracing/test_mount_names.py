import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.tracing.files.settings import Place
from agentwrap.tracing.mount_names import Mount, MountNames, name_on, parse

OURS = (
    Mount(20, b"8:1", b"/", b"/"),
    Mount(21, b"0:5", b"/", b"/proc"),
    Mount(22, b"8:1", b"/data/home", b"/home"),
    Mount(23, b"8:2", b"/sub", b"/mnt/disk two"),
)


@pytest.mark.parametrize(
    ("device", "inner", "name"),
    [
        (b"8:1", b"/etc/passwd", b"/etc/passwd"),
        (b"8:1", b"/data/home/u/x", b"/home/u/x"),
        (b"8:1", b"/data/homely", b"/data/homely"),
        (b"8:1", b"/data/home", b"/home"),
        (b"8:1", b"/", b"/"),
        (b"8:2", b"/sub/x", b"/mnt/disk two/x"),
        (b"8:2", b"/elsewhere", None),
        (b"0:9", b"/x", None),
    ],
)
def test_a_path_within_a_file_system_has_the_machines_name(device: bytes, inner: bytes, name: bytes | None) -> None:
    assert name_on(OURS, device, inner) == name


def test_of_several_names_the_one_that_the_policy_uses_is_told() -> None:
    assert name_on(OURS, b"8:1", b"/data/home/u/x", frozenset({20})) == b"/data/home/u/x"
    assert name_on(OURS, b"8:1", b"/data/home/u/x", frozenset({22})) == b"/home/u/x"
    assert name_on(OURS, b"8:1", b"/data/home/u/x", frozenset({23})) == b"/home/u/x"


def test_a_table_is_read_with_its_escapes() -> None:
    text = b"23 20 8:2 /sub /mnt/disk\\040two\\134 rw shared:1 - ext4 /dev/sdb rw\nnonsense\n\n"
    assert parse(text) == (Mount(23, b"8:2", b"/sub", b"/mnt/disk two\\"),)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_table(data: bytes) -> None:
    assert all(mount.number >= 0 for mount in parse(data))


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_any_path_has_a_name_or_none(device: bytes, inner: bytes) -> None:
    name = name_on((*OURS, Mount(1, device, b"/", b"/all")), device, b"/" + inner)
    assert name is None or name.startswith(b"/")


def seen(pid: int, path: bytes) -> bytes | None:
    return MountNames().outside(pid, Place(path, b"/proc/%d/root" % pid + path))


def test_a_sandbox_that_binds_a_folder_elsewhere(tmp_path: Path) -> None:
    """The sandbox moves its root away and back, as bubblewrap does, while the same object is asked."""
    (tmp_path / "here").mkdir()
    (tmp_path / "new").mkdir()
    script = (
        f"mount -t tmpfs none /mnt && mkdir /mnt/there && mount --bind {tmp_path}/here /mnt/there && echo 1 && read x "
        f"&& mount --rbind / {tmp_path}/new && cd {tmp_path}/new && pivot_root . mnt && echo 2 && read x"
    )
    command = ["unshare", "-Urm", "sh", "-c", script]
    sandbox = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with sandbox:
        assert sandbox.stdin is not None
        assert sandbox.stdout is not None
        if sandbox.stdout.readline() != b"1\n":
            pytest.skip("no user namespaces here")
        here = os.fsencode(tmp_path / "here")
        assert seen(sandbox.pid, b"/mnt/there/x") == here + b"/x"
        assert seen(sandbox.pid, b"/mnt/private") is None
        assert seen(sandbox.pid, b"/etc/passwd") == b"/etc/passwd"
        names = MountNames()
        host = b"/proc/%d/root/etc/passwd" % sandbox.pid
        assert names.outside(sandbox.pid, Place(b"/etc/passwd", host)) == b"/etc/passwd"
        sandbox.stdin.write(b"\n")
        sandbox.stdin.flush()
        if sandbox.stdout.readline() == b"2\n":
            assert names.outside(sandbox.pid, Place(b"/etc/passwd", host)) == b"/etc/passwd"
        sandbox.stdin.close()
