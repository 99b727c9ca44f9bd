"""Shows what ran inside the guests: how many tests of which kernel as whom, and why some were skipped there."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Whatever tests recorded as `inner`, also of those that passed."""
    reports = [report for word in ("passed", "failed") for report in terminalreporter.stats.get(word, [])]
    lines = [str(value) for report in reports for name, value in report.user_properties if name == "inner"]
    if lines:
        terminalreporter.section("inside the guests")
        for line in lines:
            terminalreporter.write_line(line)
