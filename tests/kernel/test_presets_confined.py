"""What a preset claims to let work, works under it: programs as they come, in each tier."""

import sys
from pathlib import Path

import pytest

from tests.kernel.test_file_policy import TIERS, namespaces
from tests.wrapping import wrap

CLOSING = ("claude-code", "codex", "python-packages", "node-packages", "locked-down")
PARALLEL = """\
import multiprocessing, tempfile
from multiprocessing import shared_memory
def double(number): return 2 * number
if __name__ == "__main__":
    block = shared_memory.SharedMemory(create=True, size=64)
    block.buf[0] = 1
    with multiprocessing.Pool(2) as pool, tempfile.TemporaryFile() as file:
        print(pool.map(double, range(3)))
    block.close(); block.unlink()
"""


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("preset", CLOSING)
def test_programs_that_share_memory_work(tmp_path: Path, preset: str, tier: str) -> None:
    if tier == "wall" and not namespaces():
        pytest.skip("no user namespaces here")
    (tmp_path / "parallel.py").write_text(PARALLEL)
    script = f"{sys.executable} ../parallel.py && git init -q new && git -C new config user.email a@example.com"
    run = wrap(tmp_path, "sh", "-c", script, options=("--policy", preset, "--tier", tier))
    assert run.stdout == b"[0, 2, 4]\n", run.stderr
    assert run.status == 0
    assert [(event.subject, event.data["rule"]) for event in run.events("act.denied")] == []
