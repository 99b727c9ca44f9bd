"""The gateway in a world of its own: `world` has servers outside of a wall and programs behind it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from walls import World


@pytest.fixture
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="agentwrap-world-") as folder:
        made = World(Path(folder))
        yield made
        made.close()
