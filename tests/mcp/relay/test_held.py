"""Messages that the policy stops or holds, on a real relay: what reaches the other side, what the sender is told."""

import json
import os
import select
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from relay_gate import ByName, UpOnly, answer, call
from relayed import Pair, Relayed, read_line, read_to_end

from agentwrap.events import AskAnswered, AskWaiting, McpBytes, McpJudged, McpSaid
from agentwrap.mcp.relay import asks, judged, serve

LAYERS: Any = (object(),)  # there is a policy; what it says is the gate's to know
Gated = Callable[..., "tuple[Relayed, Pair]"]


@pytest.fixture
def gated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gated]:
    """A relay whose gate decides by the tool's name, and one session of it."""
    open_ones: list[tuple[Relayed, Pair]] = []

    def make(gate: type[ByName] = ByName, **settings: Any) -> tuple[Relayed, Pair]:
        monkeypatch.setattr(serve, "Gate", gate)
        relayed = Relayed(layers=LAYERS, **{"unattended": False, "ask_timeout_s": 3600.0, **settings})
        pair = relayed.session()
        open_ones.append((relayed, pair))
        return relayed, pair

    yield make
    for relayed, pair in open_ones:
        pair.close()
        relayed.__exit__(None, None, None)


def waiting(relayed: Relayed, count: int = 1) -> list[AskWaiting]:
    def found() -> list[AskWaiting] | None:
        asked = [one for one in relayed.heard.items if isinstance(one, AskWaiting)]
        return asked if len(asked) >= count else None

    asked: list[AskWaiting] = relayed.heard.wait(found)
    return asked


def verdicts(relayed: Relayed) -> list[tuple[int, str, str]]:
    return [(one.line, one.verdict, one.ask) for one in relayed.judged()]


def test_a_denied_call_never_reaches_the_server_and_is_answered_in_order(gated: Gated) -> None:
    relayed, pair = gated()
    os.write(pair.write, call(1, "read") + call(2, "deny") + b"\n" + call(3, "watch"))
    assert read_line(pair.stdin) == call(1, "read")
    assert read_line(pair.stdin) == b"\n"
    assert read_line(pair.stdin) == call(3, "watch")
    assert read_line(pair.read) == answer(b"2", "denied") + b"\n"
    pair.close("write")
    assert read_to_end(pair.stdin) == b""
    pair.close()
    relayed.closed()
    assert verdicts(relayed) == [(2, "deny", ""), (4, "would-deny", "")]
    assert relayed.told(up=True) == call(1, "read") + call(2, "deny") + b"\n" + call(3, "watch")
    assert [(one.up, one.data) for one in relayed.said()] == [(False, answer(b"2", "denied"))]


def test_our_answer_is_not_put_into_a_line_that_the_server_is_writing(gated: Gated) -> None:
    _relayed, pair = gated(UpOnly)
    os.write(pair.stdout, b'{"half":')
    assert os.read(pair.read, 99) == b'{"half":'
    os.write(pair.write, call(1, "deny") + call(2, "read"))
    assert read_line(pair.stdin) == call(2, "read")
    os.write(pair.stdout, b'"whole"}\n{"next":')
    assert read_line(pair.read) == b'"whole"}\n'
    assert read_line(pair.read) == answer(b"1", "denied") + b"\n"
    assert os.read(pair.read, 99) == b'{"next":'


def test_what_servers_ask_of_clients_is_judged_too(gated: Gated) -> None:
    relayed, pair = gated()
    os.write(pair.stdout, call("s", "deny") + call(2, "read"))
    assert read_line(pair.stdin) == answer(b'"s"', "denied") + b"\n"
    assert read_line(pair.read) == call(2, "read")
    pair.close()
    relayed.closed()
    assert [(one.up, one.verdict) for one in relayed.judged()] == [(False, "deny")]
    assert [(one.up, one.data) for one in relayed.said()] == [(True, answer(b'"s"', "denied"))]


def test_what_a_receiver_waits_for_is_replaced_where_it_is_kept_back(gated: Gated) -> None:
    relayed, pair = gated()
    os.write(pair.stdout, call(1, "read") + call(2, "instead") + call(3, "read"))
    got = [read_line(pair.read) for _ in range(3)]
    assert got == [call(1, "read"), answer(b"2", "kept back") + b"\n", call(3, "read")]
    pair.close()
    relayed.closed()
    assert [(one.up, one.data) for one in relayed.said()] == [(False, answer(b"2", "kept back"))]


@pytest.mark.parametrize("word", ["once", "run", "always"])
def test_a_held_call_goes_on_once_and_others_are_not_held_up(gated: Gated, word: str) -> None:
    relayed, pair = gated()
    held = call(1, "hold", arguments="a", spaced="\u2028")
    os.write(pair.write, held + call(2, "read"))
    assert read_line(pair.stdin) == call(2, "read")
    asked = waiting(relayed)[0]
    assert (asked.ask, asked.question, asked.until_ns - asked.at_ns > 3599e9) == ("r1", b"may it? hold", True)
    relayed.relay.tell(b"Yr1 " + word.encode())
    assert read_line(pair.stdin) == held
    relayed.relay.tell(b"Yr1 once")
    relayed.relay.tell(b"Yr9 once")
    relayed.relay.tell(b"Yr1 nonsense")
    # The same again is another question: an answer is for one call.
    os.write(pair.write, held + call(3, "read"))
    assert read_line(pair.stdin) == call(3, "read")
    assert waiting(relayed, 2)[-1].ask == "r2"
    pair.close()
    relayed.closed()
    assert verdicts(relayed)[:3] == [(1, "hold", "r1"), (1, "approved", "r1"), (3, "hold", "r2")]


@pytest.mark.parametrize(("word", "why"), [("deny", "a human denied it"), ("expired", "nobody answered in time")])
def test_a_held_call_that_is_denied_is_answered(gated: Gated, word: str, why: str) -> None:
    relayed, pair = gated()
    os.write(pair.write, call("x", "hold"))
    waiting(relayed)
    relayed.relay.tell(b"Yr1 " + word.encode())
    assert read_line(pair.read) == answer(b'"x"', why) + b"\n"
    pair.close("write")
    assert read_to_end(pair.stdin) == b""
    pair.close()
    relayed.closed()
    assert verdicts(relayed) == [(1, "hold", "r1"), (1, "refused" if word == "deny" else "expired", "r1")]


def test_why_a_human_denied_it_is_told(gated: Gated) -> None:
    relayed, pair = gated()
    os.write(pair.write, call("x", "hold"))
    waiting(relayed)
    relayed.relay.tell("Wr1 not n\u00f6w".encode())
    relayed.relay.tell(b"Wr9 of nothing")
    relayed.relay.tell(b"Yr1 deny")
    assert read_line(pair.read) == answer(b'"x"', "a human denied it: not n\u00f6w") + b"\n"
    pair.close()
    relayed.closed()


def test_who_has_no_human_is_denied_at_once(gated: Gated) -> None:
    relayed, pair = gated(unattended=True)
    os.write(pair.write, call(1, "hold"))
    assert read_line(pair.read) == answer(b"1", "nobody can be asked in this run") + b"\n"
    pair.close()
    relayed.closed()
    assert verdicts(relayed) == [(1, "deny", "")]
    assert not relayed.heard.items


def test_a_silent_supervisor_is_no_approval(gated: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asks, "_SILENT_S", 0.0)
    relayed, pair = gated(ask_timeout_s=0.05)
    os.write(pair.write, call(1, "hold"))
    assert read_line(pair.read) == answer(b"1", "nobody answered in time") + b"\n"
    pair.close()
    relayed.closed()
    assert verdicts(relayed)[-1] == (1, "expired", "r1")
    assert [one.answer for one in relayed.heard.items if isinstance(one, AskAnswered)] == ["expired"]


def test_senders_that_gave_a_token_are_told_that_it_waits(gated: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asks, "_PROGRESS_S", 0.02)
    relayed, pair = gated()
    os.write(pair.write, call(1, "hold", token=7))
    for count in (1, 2, 3):
        assert json.loads(read_line(pair.read)) == {"progress": count, "token": 7}
    relayed.relay.tell(b"Yr1 once")
    assert read_line(pair.stdin) == call(1, "hold", token=7)
    pair.close()
    relayed.closed()
    assert len(relayed.said()) >= 3


@pytest.mark.parametrize("together", [True, False])
def test_a_cancelled_call_is_withdrawn_and_nothing_reaches_the_server(gated: Gated, together: bool) -> None:
    relayed, pair = gated()
    cancel = b'{"method":"cancel","of":1}\n'
    if together:
        os.write(pair.write, call(1, "hold") + cancel + call(2, "read"))
    else:
        os.write(pair.write, call(1, "hold"))
        waiting(relayed)
        os.write(pair.write, cancel + call(2, "read"))
    relayed.relay.tell(b"Yr1 once")
    assert read_line(pair.stdin) == call(2, "read")
    relayed.relay.tell(b"Yr1 once")
    os.write(pair.write, b'{"method":"cancel","of":"1"}\n')  # another id: nothing of it waits
    assert read_line(pair.stdin) == b'{"method":"cancel","of":"1"}\n'
    pair.close()
    relayed.closed()
    assert verdicts(relayed) == [(1, "hold", "r1"), (1, "cancelled", "r1"), (2, "cancelled", "")]
    assert not relayed.said()
    answered = [one for one in relayed.heard.items if isinstance(one, AskAnswered)]
    assert [(one.ask, one.answer) for one in answered] == ([] if together else [("r1", "withdrawn")])


@pytest.mark.parametrize("who", ["client closes", "client dies", "server dies"])
def test_a_held_call_ends_with_either_side(gated: Gated, who: str) -> None:
    relayed, pair = gated()
    os.write(pair.write, call(1, "hold"))
    waiting(relayed)
    if who == "server dies":
        pair.close("stdin", "stdout")
        assert read_to_end(pair.read) == answer(b"1", "the server has left") + b"\n"
    else:
        pair.close("write", *(["read"] if who == "client dies" else []))
        assert read_to_end(pair.stdin) == b""
        if who == "client closes":
            assert read_line(pair.read) == answer(b"1", "the client has left") + b"\n"
    relayed.relay.tell(b"Yr1 once")
    pair.close()
    relayed.closed()
    assert verdicts(relayed) == [(1, "hold", "r1"), (1, "cancelled", "r1")]
    assert [one.answer for one in relayed.heard.items if isinstance(one, AskAnswered)] == ["withdrawn"]


def test_a_batch_goes_on_whole_or_not_at_all(gated: Gated) -> None:
    relayed, pair = gated()
    bad = json.dumps([{"id": 1, "method": "call"}, {"id": 2, "tool": "deny", "method": "call"}, {"method": "note"}])
    held = json.dumps([{"id": 3, "tool": "hold", "method": "call"}, {"id": 4, "result": 1}])
    good = json.dumps([{"id": 5, "tool": "read"}, {"id": 6, "tool": "watch"}])
    os.write(pair.write, f"{bad}\n{held}\n{good}\n".encode())
    assert read_line(pair.stdin) == good.encode() + b"\n"
    assert json.loads(read_line(pair.read)) == [{"id": 1, "refused": "batch"}, {"id": 2, "refused": "batch"}]
    assert json.loads(read_line(pair.read)) == [{"id": 3, "refused": "batch"}]
    pair.close()
    relayed.closed()
    told = [(one.line, one.part, one.verdict) for one in relayed.judged()]
    assert told == [*((1, part, "deny") for part in range(3)), (2, 0, "deny"), (2, 1, "deny"), (3, 1, "would-deny")]


def test_more_than_can_wait_is_refused(gated: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asks, "MAX_WAITING", 2)
    relayed, pair = gated()
    os.write(pair.write, b"".join(call(number, "hold") for number in range(3)))
    assert read_line(pair.read) == answer(b"2", "too much waits for a human already") + b"\n"
    assert len(waiting(relayed, 2)) == 2


def test_a_line_that_is_too_long_to_be_judged_ends_the_session(gated: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged, "LINE_MAX_BYTES", 1000)
    relayed, pair = gated()
    os.write(pair.write, call(1, "read") + b"x" * 1000 + b"\n" + b"y" * 1001)
    assert read_to_end(pair.stdin) == call(1, "read") + b"x" * 1000 + b"\n"
    assert read_to_end(pair.read) == b""
    pair.close()
    closed = relayed.closed()
    assert closed.detail == judged.TOO_LONG
    assert verdicts(relayed) == [(3, "deny", "")]


def test_a_client_that_takes_no_answers_is_not_read_for_ever_and_may_leave(gated: Gated) -> None:
    _relayed, pair = gated()
    os.set_blocking(pair.write, False)
    denied, sent = call(1, "deny") * 100, 0
    ready = select.poll()
    ready.register(pair.write, select.POLLOUT)
    while sent < 32 << 20 and ready.poll(500):
        sent += os.write(pair.write, denied[sent % len(denied) :])
    assert sent < 16 << 20
    pair.close("write", "read")
    rest = read_to_end(pair.stdin)  # what of a call was written last
    assert call(1, "deny").startswith(rest)


def test_a_fault_of_ours_ends_its_session_alone_and_lets_nothing_pass(gated: Gated) -> None:
    relayed, pair = gated()
    other = relayed.session()
    os.write(pair.write, call(1, "read") + call(2, "fault"))
    assert read_to_end(pair.stdin) == b""
    assert read_to_end(pair.read) == b""
    closed = relayed.closed()
    assert (closed.ending, b"a fault of ours" in closed.detail) == ("lost", True)
    assert relayed.told(up=True) == call(1, "read") + call(2, "fault")
    os.write(other.write, call(1, "read"))
    assert read_line(other.stdin) == call(1, "read")
    other.close()


def test_why_a_human_denied_it_is_told_to_the_sender(gated: Gated) -> None:
    relayed, pair = gated()
    os.write(pair.write, call(1, "hold"))
    waiting(relayed)
    reason = b"not " + b"very " * 3000 + b"today"
    relayed.relay.tell(b"Wr1 " + reason + b"\nYr1 deny")
    assert read_line(pair.read) == answer(b"1", "a human denied it: " + reason.decode()) + b"\n"


def test_judgements_are_told_before_the_bytes_they_are_about(gated: Gated) -> None:
    relayed, pair = gated()
    os.write(pair.write, call(1, "deny"))
    read_line(pair.read)
    pair.close()
    relayed.closed()
    assert [type(one) for one in relayed.heard.news[1:4]] == [McpJudged, McpBytes, McpSaid]


def test_judged_bytes_of_both_sides_pass_in_bulk(gated: Gated) -> None:
    relayed, pair = gated()
    relayed.heard.keep = False
    big = call(1, "read", arguments="x" * 20_000_000)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(read_to_end(pair.stdin)))
    reader.start()
    view = memoryview(big)
    while view:
        view = view[os.write(pair.write, view) :]
    pair.close("write")
    reader.join()
    assert got == [big]
