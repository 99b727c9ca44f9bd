"""Whose TLS is ended: the list, what is added to it, what is taken away."""

import pytest
from policy_texts import policy

from agentwrap.policy.decide import decide
from agentwrap.policy.hosts import HostError
from agentwrap.policy.layers import Layer, with_shown
from agentwrap.policy.model_hosts import DEFAULT, ModelHosts, model_hosts, patterns
from agentwrap.policy.questions import Read, Write


def layer(text: str, name: str = "user", *, trusted: bool = True) -> Layer:
    return Layer(name, policy(text), trusted=trusted)  # type: ignore[arg-type]


def test_every_host_of_the_list_is_wanted_at_any_port_and_nothing_else() -> None:
    hosts = model_hosts(())
    assert all(hosts.wants(host.replace("*", "me"), port) for host in DEFAULT for port in (443, 8443))
    assert not any(hosts.wants(host, 443) for host in ("example.com", "anthropic.com", "api.anthropic.com.example", ""))
    assert not hosts.wants("192.0.2.1", 443)


def test_hosts_of_declared_servers_are_read_unless_a_policy_passes_them() -> None:
    hosts = model_hosts((), (), ["mcp.example:443", "[2001:db8::1]:8443", "no host at all", "192.0.2.1:443"])
    assert hosts.wants("mcp.example", 443)
    assert hosts.wants("192.0.2.1", 443)
    assert hosts.wants("2001:db8::1", 8443)
    assert not hosts.wants("mcp.example", 8443)
    assert not hosts.wants("sub.mcp.example", 443)
    passed = model_hosts([layer('[model]\npass = ["mcp.example"]\n')], (), ["mcp.example:443"])
    assert not passed.wants("mcp.example", 443)
    assert not model_hosts((), (), ["mcp.example:443"], none=True)


def test_names_are_compared_in_their_normal_form() -> None:
    assert model_hosts(()).wants("API.Anthropic.COM.", 443)
    assert not model_hosts(()).wants("a b", 443)


def test_the_command_line_adds_hosts_with_ports_suffixes_and_addresses() -> None:
    hosts = model_hosts((), ["a.example:8443", "*.models.example", "192.0.2.1", "[2001:db8::1]:443"])
    assert hosts.wants("a.example", 8443)
    assert not hosts.wants("a.example", 443)
    assert hosts.wants("x.models.example", 443)
    assert hosts.wants("192.0.2.1", 443)
    assert hosts.wants("2001:db8::1", 443)
    assert hosts.wants("api.openai.com", 443)
    with pytest.raises(HostError):
        model_hosts((), ["*"])


def test_none_is_none_whatever_is_asked_for() -> None:
    hosts = model_hosts((layer("[model]\nintercept = ['a.example']"),), ["b.example"], none=True)
    assert not hosts
    assert not hosts.wants("b.example", 443)


def test_policies_add_and_take_away() -> None:
    hosts = model_hosts((layer("[model]\nintercept = ['a.example']\npass = ['api.openai.com', '*.openai.azure.com']"),))
    assert hosts.wants("a.example", 443)
    assert not hosts.wants("api.openai.com", 443)
    assert not hosts.wants("me.openai.azure.com", 443)
    assert hosts.wants("api.anthropic.com", 443)


def test_everything_can_be_passed_through() -> None:
    hosts = model_hosts((layer("[model]\npass = ['*']"),))
    assert not any(hosts.wants(host, 443) for host in DEFAULT)


def test_what_the_command_line_names_is_read_whatever_a_policy_passes() -> None:
    passing = layer("[model]\npass = ['api.openai.com']")
    assert model_hosts((passing,), ["api.openai.com"]).wants("api.openai.com", 443)


def test_a_project_that_nobody_trusts_changes_nothing() -> None:
    mine = layer("[model]\nintercept = ['a.example']\npass = ['api.openai.com']", "project", trusted=False)
    hosts = model_hosts((mine,))
    assert hosts.wants("api.openai.com", 443)
    assert not hosts.wants("a.example", 443)


def test_nothing_at_all_wants_nothing() -> None:
    assert not ModelHosts()
    assert not ModelHosts((), patterns(["a.example"])).wants("a.example", 443)


def test_files_of_ours_that_the_agent_has_to_read_are_read_and_not_changed() -> None:
    closed = layer("[files]\nread = {default = 'deny'}\nwrite = {default = 'deny', allow = ['/c/**']}")
    [changed] = with_shown([closed], ["/c/ca.pem"])
    assert decide(closed.policy, Read("/c/ca.pem")).verdict == "deny"
    assert decide(changed.policy, Read("/c/ca.pem")).rule.where == "built-in.authority"
    assert decide(changed.policy, Read("/c/other")).verdict == "deny"
    assert decide(changed.policy, Write("/c/ca.pem")).rule.where == "built-in.own-files"
    assert decide(changed.policy, Write("/c/other")).verdict == "allow"
