"""The line to the supervisor: nothing is lost, acks cover what was said before, a dead supervisor is noticed."""

import socket
import threading

import pytest
import trio

from agentwrap.events.egress import NetDecision
from agentwrap.gateway.link import Link
from agentwrap.tracing.wire import AckWanted, FrameReader


def event(number: int) -> NetDecision:
    return NetDecision(at_ns=number, decision="deny", by="wall", host=b"x" * 100, port=443)


class Supervisor:
    """The other end: a thread that reads frames and answers acks."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.items: list[object] = []
        self.acks = 0
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        reader = FrameReader()
        while data := self.ours.recv(65536):
            for items in reader.feed(data):
                for item in items:
                    if isinstance(item, AckWanted):
                        self.acks += 1
                        self.ours.sendall(b"A%d\n" % item.number)
                    else:
                        self.items.append(item)

    def ended(self) -> list[object]:
        self.theirs.close()
        self._thread.join(300)
        self.ours.close()
        return self.items


@pytest.fixture
def supervisor() -> Supervisor:
    return Supervisor()


def test_everything_arrives_in_order_and_acks_come_after_it(supervisor: Supervisor) -> None:
    seen: list[int] = []

    async def main() -> None:
        link = Link(supervisor.theirs)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.run)
            for number in range(5000):
                link.put(event(number))
            with trio.fail_after(300):
                await link.on_disk()
            seen.append(len(supervisor.items))
            for number in range(5000, 6000):
                link.put(event(number))
            nursery.cancel_scope.cancel()
        await link.leave()

    trio.run(main)
    items = supervisor.ended()
    assert seen == [5000]
    assert [one.at_ns for one in items] == list(range(6000))  # type: ignore[attr-defined]


def test_many_who_wait_share_few_acks(supervisor: Supervisor) -> None:
    async def main() -> None:
        link = Link(supervisor.theirs)

        async def denied(number: int) -> None:
            link.put(event(number))
            with trio.fail_after(300):
                await link.on_disk()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.run)
            async with trio.open_nursery() as many:
                for number in range(1000):
                    many.start_soon(denied, number)
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert len(supervisor.ended()) == 1000
    assert 0 < supervisor.acks < 100


def test_who_makes_events_waits_while_the_supervisor_is_behind() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)

    async def main() -> None:
        link = Link(theirs)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.run)
            for number in range(30_000):
                link.put(event(number))
            with trio.move_on_after(0.2) as scope:
                await link.room()
            assert scope.cancelled_caught
            read = trio.Event()

            async def reading() -> None:
                while not read.is_set():
                    await trio.lowlevel.wait_readable(ours)
                    ours.recv(1 << 20)

            nursery.start_soon(reading)
            with trio.fail_after(300):
                await link.room()
            nursery.cancel_scope.cancel()

    trio.run(main)
    ours.close()
    theirs.close()


@pytest.mark.parametrize("how", ["end", "Q"])
def test_the_end_is_noticed(how: str) -> None:
    ours, theirs = socket.socketpair()

    async def main() -> bool:
        link = Link(theirs)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.run)
            if how == "end":
                ours.close()
            else:
                ours.sendall(b"A1\nY")
                await trio.lowlevel.checkpoint()
                ours.sendall(b"a1 once\nQ\n")
            with trio.fail_after(300):
                await link.over.wait()
            nursery.cancel_scope.cancel()
        return link.leaving

    assert trio.run(main) == (how == "Q")
    ours.close()
    theirs.close()


def test_answers_of_humans_are_passed_on(supervisor: Supervisor) -> None:
    heard: list[tuple[str, str]] = []

    async def main() -> None:
        link = Link(supervisor.theirs)
        done = trio.Event()

        def answered(ask: str, answer: str) -> None:
            heard.append((ask, answer))
            done.set()

        link.answered, link.because = answered, lambda ask, reason: heard.append((ask, reason.decode()))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.run)
            supervisor.ours.sendall("Wa7 n\u00f6\nYa7 always\n".encode())
            with trio.fail_after(300):
                await done.wait()
            nursery.cancel_scope.cancel()

    trio.run(main)
    supervisor.ended()
    assert heard == [("a7", "n\u00f6"), ("a7", "always")]
