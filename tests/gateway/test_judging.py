"""What the policies say to what the gateway sees."""

from ipaddress import ip_address

import pytest
from policy_texts import network, policy

from agentwrap.gateway.judging import Judge, Verdict
from agentwrap.gateway.placeholders import BLOCK, Placeholders
from agentwrap.policy.layers import Layer
from agentwrap.policy.rules import Policy

PUBLIC, OTHER, PRIVATE = ip_address("203.0.113.1"), ip_address("203.0.113.2"), ip_address("10.1.2.3")


def judge(of: Policy, **more: object) -> Judge:
    return Judge([Layer("flags", of)], **more)  # type: ignore[arg-type]


def decided(verdict: Verdict) -> tuple[str, str]:
    return verdict.decision, verdict.host


def test_a_connection_is_judged_by_the_names_that_led_there_the_newest_that_is_allowed_first() -> None:
    judging = judge(network("a.example:443", "b.example:443"))
    assert decided(judging.destination(PUBLIC, 443, ["a.example"])) == ("allow", "a.example")
    assert decided(judging.destination(PUBLIC, 443, ["x.example", "b.example", "a.example"])) == ("allow", "b.example")
    assert decided(judging.destination(PUBLIC, 443, ["x.example"])) == ("deny", "x.example")
    assert decided(judging.destination(PUBLIC, 80, ["a.example"])) == ("deny", "a.example")
    assert decided(judging.destination(PUBLIC, 443, [])) == ("deny", "203.0.113.1")


def test_a_rule_for_the_address_holds_whatever_its_name_but_not_against_a_denied_name() -> None:
    judging = judge(network("203.0.113.0/24:80", "a.example:443", deny=("bad.example",)))
    assert decided(judging.destination(PUBLIC, 80, ["a.example"])) == ("allow", "203.0.113.1")
    assert decided(judging.destination(PUBLIC, 80, ["bad.example"])) == ("deny", "bad.example")
    assert decided(judging.destination(PUBLIC, 80, [])) == ("allow", "203.0.113.1")


def test_an_open_default_does_not_reach_a_denied_name_by_its_address() -> None:
    judging = judge(network(default="allow", deny=("bad.example:22",)))
    assert decided(judging.destination(PUBLIC, 22, ["bad.example"])) == ("deny", "bad.example")
    assert decided(judging.destination(PUBLIC, 443, ["bad.example"])) == ("allow", "bad.example")
    assert not judging.destination(PUBLIC, 443, ["bad.example"]).bound


def test_an_allowed_name_that_leads_to_a_private_address_is_refused() -> None:
    verdict = judge(network("a.example")).destination(PRIVATE, 443, ["a.example"])
    assert (verdict.decision, verdict.answer.rule.where) == ("deny", "built-in.private")
    both = judge(network("a.example", "10.0.0.0/8"))
    assert both.destination(PRIVATE, 443, ["a.example"]).decision == "allow"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1"])
def test_loopback_is_the_machines_own_and_needs_its_port(address: str) -> None:
    where = ip_address(address)
    judging = judge(network("host.loopback:8080"), host_ports=frozenset({8080}))
    assert judging.destination(where, 8080, []).decision == "allow"
    assert judging.destination(where, 8081, []).decision == "deny"
    assert judging.destination(where, 8080, ["evil.example"]).decision == "allow"
    # the filter leads no such port here, whatever a policy says
    assert judge(network("host.loopback:8080"), host_ports=frozenset()).destination(where, 8080, []).decision == "deny"


def test_the_runs_own_addresses_lead_nowhere() -> None:
    own = ip_address("10.200.0.2")
    judging = judge(network("10.0.0.0/8"), own=[own])
    assert judging.destination(own, 80, []).answer.rule.where == "built-in.own-address"
    assert judging.destination(ip_address("::ffff:10.200.0.2"), 80, []).decision == "deny"
    assert judging.destination(ip_address("10.200.0.3"), 80, []).decision == "allow"
    assert judging.address_of("a.example", own, 80).decision == "deny"


def test_a_closed_run_allows_nothing_not_even_in_mode_observe() -> None:
    judging = judge(network("a.example", mode="observe"), closed=True)
    assert judging.destination(PUBLIC, 443, ["a.example"]).decision == "deny"
    assert judging.lookup("a.example").decision == "deny"
    assert judging.authority("a.example", 443).decision == "deny"


class TestServerName:
    judging = judge(network("a.example", "b.example", "203.0.113.2", deny=("bad.example",)))
    by_name = judging.destination(PUBLIC, 443, ["a.example"])
    by_address = judging.destination(OTHER, 443, [])

    def asked(self, name: str | None, *names: str) -> Verdict:
        return self.judging.server_name(self.by_name, name, PUBLIC, ["a.example", *names])

    def test_it_is_the_name_that_was_allowed(self) -> None:
        assert self.asked("a.example") is self.by_name
        assert self.asked("A.Example.") is self.by_name

    def test_another_allowed_name_must_have_led_there(self) -> None:
        assert decided(self.asked("b.example", "b.example")) == ("allow", "b.example")
        refused = self.asked("b.example")
        assert (refused.decision, refused.answer.rule.where) == ("deny", "built-in.sni")

    @pytest.mark.parametrize(
        "name", ["evil.example", "bad.example", None, "", "a.example\x00", "a..example", "203.0.113.1"]
    )
    def test_anything_else_is_refused(self, name: str | None) -> None:
        assert self.asked(name).decision == "deny"

    def test_an_allowed_address_may_have_any_name_but_a_denied_one(self) -> None:
        for name in (None, "whatever.example", "b.example"):
            assert self.judging.server_name(self.by_address, name, OTHER, []) is self.by_address
        assert self.judging.server_name(self.by_address, "bad.example", OTHER, []).decision == "deny"


def test_hosts_of_requests_likewise() -> None:
    judging = judge(network("a.example", deny=("bad.example",)))
    of = judging.destination(PUBLIC, 80, ["a.example"])
    assert judging.http_host(of, "a.example", PUBLIC, ["a.example"]) is of
    for host in ("", "evil.example", "bad.example"):
        assert judging.http_host(of, host, PUBLIC, ["a.example"]).decision == "deny"


def test_a_host_may_be_the_allowed_address_that_the_connection_leads_to() -> None:
    judging = judge(network("a.example", "203.0.113.1", "203.0.113.2"))
    of = judging.destination(PUBLIC, 80, ["a.example"])
    assert judging.http_host(of, "203.0.113.1", PUBLIC, ["a.example"]).decision == "allow"
    assert judging.http_host(of, "203.0.113.2", PUBLIC, ["a.example"]).decision == "deny"


def test_observe_tells_and_lets_pass() -> None:
    judging = judge(network("a.example", mode="observe"))
    of = judging.destination(PUBLIC, 80, [])
    assert of.decision == "would-deny"
    assert of.passes
    assert judging.server_name(of, None, PUBLIC, []) is of
    allowed = judging.destination(PUBLIC, 443, ["a.example"])
    assert judging.server_name(allowed, "b.example", PUBLIC, ["a.example"]).decision == "would-deny"


class TestAsk:
    judging = judge(network("a.example", deny=("bad.example",), mode="ask"))

    def test_what_no_rule_allows_is_asked_and_what_one_denies_is_not(self) -> None:
        assert self.judging.destination(PUBLIC, 443, ["x.example"]).decision == "ask"
        assert self.judging.destination(PRIVATE, 443, []).decision == "ask"
        assert self.judging.destination(PUBLIC, 443, ["bad.example"]).decision == "deny"
        assert self.judging.destination(ip_address("169.254.169.254"), 80, []).decision == "deny"
        assert self.judging.lookup("x.example").decision == "ask"
        # An entry of which nobody knows what it stands for keeps nothing from being asked.
        waiting = judge(network("config:pip", mode="ask"))
        assert waiting.destination(PUBLIC, 443, ["x.example"]).decision == "ask"

    def test_nobody_to_ask_is_a_denial(self) -> None:
        judging = judge(network("a.example", mode="ask"), unattended=True)
        verdict = judging.destination(PUBLIC, 443, ["x.example"])
        assert verdict.decision == "deny"
        assert "nobody can be asked" in verdict.answer.why

    def test_an_answer_for_the_run_holds_for_that_host_and_port_alone(self) -> None:
        judging = judge(network("a.example", mode="ask"))
        asked = judging.destination(PUBLIC, 443, ["x.example"])
        assert judging.answered(asked, str(PUBLIC), "once").decision == "allow"
        assert judging.destination(PUBLIC, 443, ["x.example"]).decision == "ask"
        given = judging.answered(asked, str(PUBLIC), "run")
        assert (given.decision, given.bound) == ("allow", True)
        assert judging.destination(OTHER, 443, ["x.example"]).decision == "allow"
        assert judging.destination(PUBLIC, 80, ["x.example"]).decision == "ask"
        # the same name elsewhere: on somebody's own network
        assert judging.destination(PRIVATE, 443, ["x.example"]).decision == "ask"
        assert judging.answered(asked, str(PUBLIC), "deny").decision == "deny"
        assert judging.answered(asked, str(PUBLIC), "expired").decision == "deny"


def test_names_that_wait_have_an_address_of_their_own() -> None:
    stand_ins = Placeholders()
    first, second = stand_ins.for_name("a.example"), stand_ins.for_name("b.example")
    assert first != second
    assert first in BLOCK
    assert stand_ins.for_name("a.example") == first
    assert stand_ins.name_of(first) == "a.example"
    assert stand_ins.name_of(PUBLIC) is None
    for number in range(20_000):
        stand_ins.for_name(f"n{number}.example")
    again = stand_ins.for_name("a.example")
    assert stand_ins.name_of(again) == "a.example"


def test_several_layers_are_asked_together() -> None:
    user = Layer("user", network("a.example", deny=("b.example",)))
    flags = Layer("flags", network("b.example"))
    judging = Judge([user, flags])
    assert judging.destination(PUBLIC, 443, ["a.example"]).decision == "allow"
    assert judging.destination(PUBLIC, 443, ["b.example"]).decision == "deny"
    assert policy("").mode == "enforce"
