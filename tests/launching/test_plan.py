"""From the way of following to what is said about it: nothing unseen without a gap, nothing seen called unseen."""

import pytest

from agentwrap.launching.plan import ESSENTIAL, Standing, coverage, fix, gaps, missing, why

MODES = ["ptrace+notify", "ptrace+trace", "ptrace+calls", "notify", "none"]


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_kind_is_covered_or_a_gap_and_is_told_once(mode: str, reads: bool) -> None:
    standing = Standing(mode)
    statements = coverage(standing, reads=reads)
    assert len({statement.what for statement in statements}) == len(statements)
    uncovered = {statement.what for statement in statements if statement.tier == "none"}
    hidden = {gap.what for gap in gaps(standing, reads=reads) if gap.cause == "not-observed"}
    assert hidden == (uncovered if reads else uncovered - {"file-read"})
    assert all(statement.mechanism for statement in statements if statement.tier != "none")
    assert all(gap.could_hide for gap in gaps(standing, reads=reads))


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "none"])
def test_what_a_run_needs_is_there(mode: str) -> None:
    assert missing(Standing(mode)) == []


def test_nothing_at_all() -> None:
    assert missing(Standing("none")) == list(ESSENTIAL)


def test_without_the_commands_memory_calls_tell_nothing() -> None:
    standing = Standing("notify", memory_refused="EPERM")
    assert missing(standing) == ["file-write", "connect"]
    assert "memory: EPERM" in why(standing)
    assert "yama" in fix(standing)


def test_a_mode_without_ptrace_says_what_that_loses() -> None:
    (gap, *_) = gaps(Standing("notify", "EPERM"), reads=False)
    assert (gap.what, gap.cause, gap.detail) == ("process", "no-ptrace", b"EPERM")


def test_reads_that_nobody_asked_for_are_no_gap() -> None:
    assert all(gap.what != "file-read" for gap in gaps(Standing("none"), reads=False))


@pytest.mark.parametrize(
    ("standing", "word"),
    [
        (Standing("none", notify_refused="EBUSY"), "outside"),
        (Standing("none", notify_refused="ENOSYS"), "seccomp"),
        (Standing("none", filter_refused="ENOSYS"), "seccomp"),
        (Standing("none", ptrace_refused="EPERM"), "SYS_PTRACE"),
        (Standing("none"), "doctor"),
    ],
)
def test_one_thing_to_do_about_it(standing: Standing, word: str) -> None:
    assert word in fix(standing)
