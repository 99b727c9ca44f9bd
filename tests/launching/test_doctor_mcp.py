"""What `doctor` says of configurations: names, and what is wrong, each safe to show."""

import json
import os
from pathlib import Path

from agentwrap.launching.doctor_mcp import mcp_servers


def test_servers_and_problems_are_told_by_file(tmp_path: Path) -> None:
    entries = {"fs": {"command": "x"}, "a\nb\x1b": {"command": "y"}, "bad": 1}
    good = tmp_path / ".mcp.json"
    good.write_text(json.dumps({"mcpServers": entries}))
    broken = tmp_path / ".cursor" / "mcp.json"
    broken.parent.mkdir()
    broken.write_text("{")
    all_of_it, *each = mcp_servers({b"HOME": b"/nowhere"}, os.fsencode(tmp_path))
    assert all_of_it.detail == "2 servers declared (mcp.json 2) in 2 configurations"
    told = [(one.ok, one.detail.partition(": ")[0].lstrip("…"), one.weight) for one in each]
    assert [(ok, weight) for ok, _where, weight in told] == [(True, "fact"), (False, "useful"), (False, "useful")]
    # A long path is cut at its start.
    for path, (_ok, where, _weight) in zip((good, good, broken), told, strict=True):
        assert where.endswith(".json")
        assert str(path).endswith(where)
    assert each[0].detail.endswith(": fs, a\\nb\\x1b")
    assert "bad: no object" in each[1].detail


def test_nothing_declared_is_one_line(tmp_path: Path) -> None:
    (only,) = mcp_servers({}, os.fsencode(tmp_path))
    assert (only.ok, only.detail) == (True, "no server is declared")
