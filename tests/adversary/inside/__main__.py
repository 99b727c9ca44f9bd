"""`python -B inside 2,3,17`: run these rows one after the other and print their reports as one JSON document.

Each row is a program of its own (`python -B inside --row 17`), so that the recording shows whose act was whose.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent))

import calls
import files
import names
import proxies
import resolvers
import sockets
from probing import Row

ROWS = {
    int(name.removeprefix("row_")): getattr(module, name)
    for module in (names, resolvers, proxies, sockets, calls, files)
    for name in dir(module)
    if name.startswith("row_")
}

ROW_S = 1800  # more than any attempt that nobody answers takes


def one(number: int) -> None:
    row = Row(number)
    ROWS[number](row)
    json.dump({"row": number, "pid": os.getpid(), "attempts": row.attempts}, sys.stdout)


def several(numbers: list[int]) -> None:
    reports = []
    for number in numbers:
        command = [sys.executable, "-B", sys.argv[0], "--row", str(number)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=ROW_S)
            reports.append(json.loads(done.stdout))
        except (ValueError, subprocess.TimeoutExpired) as error:
            reports.append({"row": number, "pid": 0, "attempts": [], "fault": f"{error} {getattr(done, 'stderr', '')}"})
    json.dump(reports, sys.stdout)


if sys.argv[1] == "--row":
    one(int(sys.argv[2]))
else:
    several([int(word) for word in sys.argv[1].split(",")])
