"""Who is passed through, and what is told of it."""

from agentwrap.events import Gap
from agentwrap.gateway.client_hello import Hello
from agentwrap.gateway.interception import interceptor
from agentwrap.gateway.interception.interceptor import Client, Interceptor, Passed, program_of
from agentwrap.policy.model_hosts import ModelHosts, patterns

HOST, OTHER = ("a.example", 443), ("b.example", 443)
USUAL = Hello("a.example", (b"h2", b"http/1.1"), versions=(0x0304, 0x0303))


class Run:
    def __init__(self) -> None:
        self.told: list[Gap] = []
        self.now = 0
        self.it = Interceptor(ModelHosts(patterns(["*.models.example"])), "r", self.told.append, lambda: self.now)

    def objection(self, span: str, program: str, host: tuple[str, int] = HOST, hello: Hello = USUAL) -> str:
        found = self.it.objection(Client(span, program), host, hello)
        return found.reason if found else ""


def test_a_program_that_refused_is_passed_through_whatever_its_process() -> None:
    run = Run()
    assert run.objection("p1", "/curl") == ""
    run.it.refused(Client("p1", "/curl"), HOST, "UNKNOWN_CA")
    assert run.objection("p1", "/curl") == run.objection("p2", "/curl") == "client-refused"
    assert run.objection("p3", "/python") == ""
    assert run.objection("p1", "/curl", OTHER) == ""


def test_a_process_that_spoke_through_us_before_goes_on_to() -> None:
    """An agent and its tools may be the same program: one of them refuses, the other is still read."""
    run = Run()
    run.it.accepted(Client("p1", "/node"), HOST)
    run.it.refused(Client("p2", "/node"), HOST, "UNKNOWN_CA")
    assert run.objection("p1", "/node") == ""
    assert run.objection("p2", "/node") == run.objection("p3", "/node") == "client-refused"
    run.it.refused(Client("p1", "/node"), HOST, "it ended before its first request")
    assert run.objection("p1", "/node") == ""
    assert len(run.told) == 1


def test_what_a_client_offers_decides() -> None:
    run = Run()
    offers: dict[tuple[bytes, ...], str] = {
        (): "", (b"http/1.1",): "", (b"h2",): "client-protocol", (b"\xff",): "client-protocol",
    }  # fmt: skip
    for offered, reason in offers.items():
        assert run.objection("p", "x", hello=Hello("a.example", offered, versions=(0x0304,))) == reason
    every: dict[tuple[int, ...], str] = {
        (0x0302,): "client-old-tls", (): "client-old-tls", (0x0303,): "", (0x0301, 0x0304): "",
    }  # fmt: skip
    for versions, reason in every.items():
        assert run.objection("p", "x", hello=Hello("a.example", versions=versions)) == reason


def test_each_host_and_reason_is_told_at_once_and_counted_at_the_end() -> None:
    run = Run()
    run.now = 5
    for _ in range(3):
        run.it.tell(HOST, Passed("client-refused", "UNKNOWN_CA"))
    run.it.tell(HOST, Passed("upstream-tls"))
    run.it.tell(("2001:db8::1", 8443), Passed("server-first"))
    assert [gap.detail for gap in run.told] == [
        b"a.example:443 not intercepted (client-refused), 1 connection: UNKNOWN_CA",
        b"a.example:443 not intercepted (upstream-tls), 1 connection",
        b"[2001:db8::1]:8443 not intercepted (server-first), 1 connection",
    ]
    run.now = 9
    run.it.finish()
    [last] = run.told[3:]
    assert last.detail == b"a.example:443 not intercepted (client-refused), 3 connections: UNKNOWN_CA"
    assert (last.what, last.cause, last.from_ns, last.to_ns, last.at_ns) == ("model", "not-intercepted", 5, 0, 9)


def test_memory_is_bounded() -> None:
    run = Run()
    limit, interceptor._REMEMBERED = interceptor._REMEMBERED, 3
    try:
        for number in range(10):
            host = (f"{number}.example", 443)
            run.it.accepted(Client(f"p{number}", "x"), host)
            run.it.refused(Client(f"q{number}", "x"), host, "")
    finally:
        interceptor._REMEMBERED = limit
    assert len(run.told) == 3


def test_foreign_words_do_not_become_long_or_break() -> None:
    run = Run()
    run.it.tell(HOST, Passed("client-protocol", "\udcff" * 5000))
    assert len(run.told[0].detail) <= 600


def test_a_process_is_known_by_its_file_or_by_its_span() -> None:
    import os

    assert program_of("p1", os.getpid()) == os.readlink("/proc/self/exe")
    assert program_of("p1", 0) == program_of("p1", 2**22 + 1) == "p1"
