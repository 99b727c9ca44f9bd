"""A file that moves while it is open: what is written before and after the move are edits of the name it had then."""

from pathlib import Path

import pytest
from wrapping import wrap

WRITER = """
import os
f = open("old", "r+")
f.write("XX"); f.flush()
os.rename("old", "new")
f.write("YY"); f.close()
"""


@pytest.mark.parametrize("options", [(), ("--debuggable",), ("--follow", "trace"), ("--follow", "calls")])
def test_both_halves_are_told(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "old").write_text("abcdefgh\n")
    run = wrap(tmp_path, "/usr/bin/python3", "-c", WRITER, options=options)
    rows = [(e.kind, Path(e.data["path"]).name) for e in run.events("file.edit", "file.rename")]
    assert rows == [("file.edit", "old"), ("file.rename", "old"), ("file.edit", "new")]
    assert run.gaps() == ([] if options != ("--debuggable",) else ["no-ptrace"])
