"""Losses are counted by what they weaken, and told once."""

from agentwrap.events import Content, FileRead, Gap, NetConnect, NetSend, ProcessDenied, ProcessExit, RunEnd, Secrets
from agentwrap.recording.loss import Losses, may_drop, weakens


def test_what_is_never_dropped() -> None:
    gap = Gap(at_ns=0, what="exec", cause="x", could_hide="y", from_ns=0)
    kept = (RunEnd(at_ns=1), gap, ProcessDenied(at_ns=1, what="setuid", why="x"), Secrets(values=()))
    assert [may_drop(item) for item in kept] == [False] * 4
    dropped = (ProcessExit(at_ns=1), FileRead(at_ns=1, path=b"x"), Content(sha=b"", data=b"", role="after"))
    assert [may_drop(item) for item in dropped] == [True] * 3


def test_what_suffers() -> None:
    kinds = (
        "process.exec",
        "process.exit",
        "file.read",
        "file.edit",
        "net.connect",
        "net.send",
        "net.bind",
        "dns.server",
        "model.request",
        "tool.result",
        "content.body",
        "content.before",
    )
    told = ["exec", "process", "file-read", "file-write", "connect", "udp", "bind", "dns"]
    told += ["model", "model", "model", "file-write"]
    assert [weakens(kind) for kind in kinds] == told


def test_gaps_count_exactly_and_once() -> None:
    losses = Losses()
    assert not losses
    for at_ns in (5, 3, 9):
        losses.add(NetConnect(at_ns=at_ns, family="inet"), "disk-full", 100)
    losses.add(NetSend(at_ns=7, family="inet"), "disk-full", 100)
    losses.add(Content(sha=b"", data=b"x", role="after"), "internal", 100)
    assert losses
    gaps = {gap.what: gap for gap in losses.gaps(200, b"why")}
    assert (gaps["connect"].from_ns, gaps["connect"].to_ns, gaps["connect"].detail) == (3, 9, b"why")
    assert gaps["connect"].could_hide.startswith("3 events and 0 contents")
    assert gaps["file-write"].could_hide.startswith("0 events and 1 contents")
    assert losses.total == 5
    assert list(losses.gaps(200, b"")) == []


def test_a_piece_of_a_message_weakens_what_is_known_of_models() -> None:
    losses = Losses()
    losses.add(Content(sha=b"", data=b"x", role="body"), "recorder-stalled", 100)
    (gap,) = losses.gaps(200, b"")
    assert (gap.what, gap.could_hide) == ("model", "0 events and 1 contents were not kept")
