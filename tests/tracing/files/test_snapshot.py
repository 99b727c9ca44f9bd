"""A file at one moment: whether it can have changed since is told by the moment, however long the look takes."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentwrap.tracing.files import FileSettings, snapshot

read = os.read


@pytest.mark.parametrize("size", [5, snapshot.SMALL_BYTES + 1])
def test_a_file_that_changed_just_before_a_long_look_may_have_changed_during_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    (tmp_path / "a").write_bytes(bytes(size))
    clock = SimpleNamespace(ns=(tmp_path / "a").stat().st_ctime_ns + 1_000_000)

    def slow(descriptor: int, length: int) -> bytes:
        data = read(descriptor, length)
        clock.ns += snapshot.RACY_NS
        return data

    monkeypatch.setattr(snapshot, "time", SimpleNamespace(clock_gettime_ns=lambda _clock: clock.ns))
    monkeypatch.setattr(os, "read", slow)
    taken = [snapshot.take(os.fsencode(tmp_path / "a"), "content", FileSettings()) for _ in range(2)]
    assert [one.racy for one in taken] == [True, False]
