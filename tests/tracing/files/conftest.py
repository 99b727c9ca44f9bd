"""A tracker with a tracee, in a folder of its own."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tracees import Bench

from agentwrap.events import FileClass
from agentwrap.tracing.files import FileSettings


def always_work(path: bytes) -> FileClass:
    return "work"


@pytest.fixture
def bench_with(tmp_path: Path) -> Callable[..., Bench]:
    def make(classify: Callable[[bytes], FileClass] = always_work, **caps: int) -> Bench:
        return Bench(tmp_path, FileSettings(**caps), classify)

    return make


@pytest.fixture
def bench(bench_with: Callable[..., Bench]) -> Bench:
    return bench_with()


@pytest.fixture
def aged(tmp_path: Path) -> Callable[[str, bytes], Path]:
    """A file from before the run."""

    def make(name: str, data: bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        before = time.time() - 3600
        os.utime(path, (before, before))
        return path

    return make
