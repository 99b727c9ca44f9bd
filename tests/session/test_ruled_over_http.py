"""Which rules about MCP servers need a gateway that nothing gets past: those that may be about a server over HTTP."""

import os
from pathlib import Path

import pytest

from agentwrap.launching.mcp_servers import Servers, rules_reach_http
from agentwrap.policy.document import load
from agentwrap.policy.layers import Layer
from agentwrap.policy.paths import Places
from agentwrap.session.reading import Reading
from agentwrap.session.surroundings import Surroundings

DECLARED = '{"mcpServers": {"far": {"type": "http", "url": "https://mcp.example/mcp"}, "near": {"command": "near"}}}'


def layers(rules: str, mode: str = "enforce") -> tuple[Layer, ...]:
    text = f'version = 1\nname = "p"\nmode = "{mode}"\n[network]\ndefault = "allow"\n{rules}'
    return (Layer("flags", load(text.encode(), "p.toml", Places("/w", "/home/u"), {})),)


@pytest.fixture
def servers(tmp_path: Path) -> Servers:
    (tmp_path / ".mcp.json").write_text(DECLARED)
    return Servers({b"HOME": os.fsencode(tmp_path / "home")}, os.fsencode(tmp_path))


@pytest.mark.parametrize(
    ("server", "decision", "mode", "reach"),
    [
        ("*", "deny", "enforce", True),
        ("f?r", "approve", "enforce", True),
        ("far", "deny", "enforce", True),
        ("127.0.0.1:8080", "deny", "enforce", True),
        ("near", "deny", "enforce", False),
        ("nobody", "deny", "enforce", False),
        ("*", "deny", "observe", False),
    ],
)
def test_rules_that_may_be_about_http(servers: Servers, server: str, decision: str, mode: str, reach: bool) -> None:
    rule = f'[[mcp]]\nserver = "{server}"\ntools = ["write_*"]\ndecision = "{decision}"\n'
    assert rules_reach_http(layers(rule, mode), servers) is reach


def test_pinned_tools_of_a_server_with_a_url(servers: Servers) -> None:
    digest = "5f" * 32
    for name, reach in (("far", True), ("near", False)):
        pin = f'[[mcp_pin]]\nserver = "{name}"\ntools = {{ t = "{digest}" }}\n'
        assert rules_reach_http(layers(pin), servers) is reach


def test_no_rules_need_nothing(servers: Servers) -> None:
    assert rules_reach_http((), servers) is False
    assert rules_reach_http(layers(""), servers) is False


def test_declared_urls_that_are_not_read_are_a_gap(servers: Servers) -> None:
    """As in a container whose profile lets no socket be taken."""
    told = Surroundings(reading=Reading("base-url", "base-url"), servers=servers).losses("ptrace+notify")
    assert [(one.what, one.cause, one.detail) for one in told] == [("mcp-http", "not-observed", b"far")]
    assert Surroundings(reading=Reading("capture", "capture"), servers=servers).losses("ptrace+notify") == []
    stdio = [one.what for one in Surroundings(reading=Reading("base-url", "base-url"), servers=servers).losses("none")]
    assert stdio == ["mcp-stdio", "mcp-http"]
