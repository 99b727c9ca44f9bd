"""Names to addresses: one question at a time for a name, bounded in time, kept for a moment."""

import threading
from ipaddress import ip_address

import trio
import trio.testing

from agentwrap.gateway.dns import NOERROR, NXDOMAIN, SERVFAIL
from agentwrap.gateway.lookup import KEPT_S, LOOKUP_S, Found, Resolver, ask_machine

HERE = Found(NOERROR, (ip_address("203.0.113.1"),))


def test_who_asks_at_the_same_time_shares_the_answer() -> None:
    asked: list[str] = []
    found: list[Found] = []

    def ask(name: str) -> Found:
        asked.append(name)
        return HERE

    async def main() -> None:
        resolver = Resolver(ask)

        async def one() -> None:
            found.append(await resolver.find("a.example"))

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(one)

    trio.run(main, clock=trio.testing.MockClock())
    assert asked == ["a.example"]
    assert found == [HERE] * 50


def test_an_answer_is_kept_for_a_while_and_then_asked_for_again() -> None:
    asked: list[str] = []

    def ask(name: str) -> Found:
        asked.append(name)
        return HERE

    async def main() -> None:
        resolver = Resolver(ask)
        for _ in range(3):
            await resolver.find("a.example")
        assert len(asked) == 1
        clock.jump(KEPT_S + 1)
        await resolver.find("a.example")
        assert len(asked) == 2

    clock = trio.testing.MockClock()  # stands still, however long a thread takes
    trio.run(main, clock=clock)


def test_a_resolver_that_does_not_answer_is_given_up() -> None:
    release, found = threading.Event(), []

    def ask(_name: str) -> Found:
        release.wait(300)
        return HERE

    async def main() -> None:
        async def find() -> None:
            found.append(await Resolver(ask).find("a.example"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(find)
            await trio.testing.wait_all_tasks_blocked()
            clock.jump(LOOKUP_S - 1)
            await trio.testing.wait_all_tasks_blocked()
            assert found == []
            clock.jump(1)

    clock = trio.testing.MockClock()
    trio.run(main, clock=clock)
    assert found == [Found(SERVFAIL)]
    release.set()


def test_one_slow_name_does_not_hold_up_another() -> None:
    release = threading.Event()

    def ask(name: str) -> Found:
        if name == "slow.example":
            release.wait(300)
        return HERE

    async def main() -> None:
        resolver = Resolver(ask)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(resolver.find, "slow.example")
            assert await resolver.find("fast.example") == HERE
            release.set()

    trio.run(main, clock=trio.testing.MockClock())


def test_the_machine_knows_itself_and_no_impossible_name() -> None:
    assert ip_address("127.0.0.1") in ask_machine("localhost").addresses
    assert ask_machine("127.0.0.1") == Found(NOERROR, (ip_address("127.0.0.1"),))
    assert ask_machine("x" * 64 + ".example").rcode in (NXDOMAIN, SERVFAIL)
