"""What a process is, from /proc: of this process and of made-up bytes."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.tracing import image


def test_this_process() -> None:
    found = image.look(os.getpid())
    assert os.fsdecode(found.exe) == os.path.realpath(sys.executable)
    assert os.fsdecode(found.cwd) == os.getcwd()
    assert (found.uid, found.gid, found.euid) == (os.getuid(), os.getgid(), os.geteuid())
    assert (found.setuid, found.memfd) == (False, False)


def test_another_process_with_secrets() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()", "word", ""],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"MY_TOKEN": "x=y", "PLAIN": "z", "EMPTY_KEY": ""},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"\n"  # it is no longer us, nor on its way from us to itself
            found = image.look(process.pid)
        finally:
            process.communicate(b"\n")
    assert found.argv[-2:] == (b"word", b"")
    assert found.secrets == ((b"MY_TOKEN", b"x=y"),)
    assert os.fsdecode(found.path) == sys.executable


def test_nobody() -> None:
    with pytest.raises(OSError, match="No such"):
        image.look(2**22 + 1)


def test_who_ends_while_being_looked_at_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        arguments = image._arguments

        def too_late(pid: int) -> tuple[tuple[bytes, ...], int]:
            process.kill()
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            return arguments(pid)

        monkeypatch.setattr(image, "_arguments", too_late)
        with pytest.raises(OSError):  # noqa: PT011  (a plain user is told EACCES of some that are ending)
            image.look(process.pid)


@given(st.lists(st.binary(max_size=40).filter(lambda word: b"\0" not in word), max_size=20))
def test_arguments_come_out_as_put_in(words: list[bytes]) -> None:
    assert image.arguments(b"".join(word + b"\0" for word in words)) == (tuple(words), 0)


@given(st.binary(max_size=300))
def test_any_command_line(data: bytes) -> None:
    """A program may write over its own: no rule holds but that nothing is lost."""
    words, omitted = image.arguments(data)
    assert omitted == 0
    assert b"\0".join(words).rstrip(b"\0") == data.rstrip(b"\0")


def test_long_command_lines_are_cut_by_an_exact_count() -> None:
    words, omitted = image.arguments(b"x" * (image.MAX_ARGUMENT_BYTES + 7))
    assert (len(words[0]), omitted) == (image.MAX_ARGUMENT_BYTES, 7)


pairs = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 2**32 - 1)), max_size=20)


@given(pairs, st.integers(1, 2**32 - 1), st.sampled_from([4, 8]))
def test_auxiliary_vectors_of_either_size(pairs: list[tuple[int, int]], address: int, word: int) -> None:
    vector = b"".join(
        kind.to_bytes(word, "little") + value.to_bytes(word, "little")
        for kind, value in [*pairs, (31, address), (0, 0)]
    )
    assert image.requested_path_address(vector) == address


@given(st.binary(max_size=400))
def test_any_auxiliary_vector(data: bytes) -> None:
    assert image.requested_path_address(data) >= 0


@pytest.mark.parametrize(
    ("mode", "set_id"),
    [(0o755, False), (0o4755, True), (0o4644, True), (0o2755, True), (0o2745, False), (0o6755, True), (0o1777, False)],
)
def test_set_id_bits(mode: int, set_id: bool) -> None:
    assert image.is_set_id(mode) is set_id
