"""A review streams: how much memory it takes does not depend on how long the run was."""

import subprocess
import sys
from pathlib import Path

from mcp_story import Story
from recordings import make

ROOT = Path(__file__).resolve().parents[3]
CALLS = 1_500
MOST_MB, MOST_MORE_MB = 150, 15
MEASURE = """
import sys
from pathlib import Path
from agentwrap.evidence.report.review import review
from agentwrap.recording.keys import load_public
review(Path(sys.argv[1]), public_key=load_public(Path(sys.argv[2])))
status = Path("/proc/self/status").read_text()
print(int(status.partition("VmHWM:")[2].split()[0]) // 1024)
"""  # getrusage(2) would tell of the process that we were before exec, too


def peak_mb(story: Story, path: Path) -> int:
    argv = [sys.executable, "-c", MEASURE, story.write(path), make.FOLDER / "samples.pub"]
    return int(subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT, timeout=300).stdout)


def test_a_long_run_takes_no_more_memory_than_a_short_one(tmp_path: Path) -> None:
    short, long = Story(), Story()
    for story, count in ((short, 10), (long, CALLS)):
        for number in range(count):
            story.fine()
            story.denied()
            story.approved(f"r{number}")
            story.connect(f"c{number}", "deny", b"host%d.example" % number)
    few, many = peak_mb(short, tmp_path / "short.agentlog"), peak_mb(long, tmp_path / "long.agentlog")
    assert many < MOST_MB
    assert many - few < MOST_MORE_MB
