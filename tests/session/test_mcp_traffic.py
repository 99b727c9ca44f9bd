"""The decoder of MCP is loaded by what says something to it, and by nothing else."""

import subprocess
import sys

import pytest

CODE = """
import sys
from agentwrap.events import Gap, ToolCall
from agentwrap.session.mcp_traffic import McpTraffic

put = []
traffic = McpTraffic(put.extend, lambda: 5)
gap = Gap(at_ns=0, what="connect", cause="x", could_hide="y", from_ns=0)
call = ToolCall(at_ns=0, tool="t1", call="m1", agent="a", turn="u", id=b"1", name=b"mcp__files__read")
traffic.see({items})
print("agentwrap.mcp.decoder" in sys.modules)
traffic.close()
"""


@pytest.mark.parametrize(("items", "loaded"), [("[]", False), ("[gap]", False), ("[gap, call]", True)])
def test_what_loads_it(items: str, loaded: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE.replace("{items}", items)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(loaded)]
