"""In a guest: runs tests by pytest and says of each, on a line of JSON of its own, how it ended and how long it took.

`inside.py USER LINE ARGUMENTS...`: USER is told with each, LINE is the file that is written to. What was told stands
even where the guest does not come to an end.
"""

import json
import sys
from typing import Any

import pytest


class Telling:
    """Hears of every phase of every test; one that fails while it is set up or cleaned up has failed."""

    def __init__(self, user: str, line: str) -> None:
        self._user = user
        self._line = open(line, "w", buffering=1)  # noqa: SIM115 -- open to the end
        self._failed: set[str] = set()

    def _say(self, test: str, outcome: str, why: str, took_s: float) -> None:
        told = {"user": self._user, "test": test, "outcome": outcome, "why": why, "took_s": round(took_s, 1)}
        self._line.write(json.dumps(told) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self._failed:
            self._failed.add(report.nodeid)
            self._say(report.nodeid, "failed", f"{report.when}: {report.longreprtext[-3000:]}", report.duration)
        elif report.skipped:
            self._say(report.nodeid, "skipped", _reason(report.longrepr), report.duration)
        elif report.when == "call" and report.passed:
            self._say(report.nodeid, "passed", "", report.duration)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._say(report.nodeid, "failed", f"collecting: {report.longreprtext[-3000:]}", 0)
        elif report.skipped:
            self._say(report.nodeid, "skipped", _reason(report.longrepr), 0)


def _reason(told: Any) -> str:
    return str(told[2]).removeprefix("Skipped: ") if isinstance(told, tuple) else str(told)


if __name__ == "__main__":
    words = ["-q", "-p", "no:cacheprovider", "--timeout", "600", *sys.argv[3:]]
    sys.exit(pytest.main(words, plugins=[Telling(*sys.argv[1:3])]))
