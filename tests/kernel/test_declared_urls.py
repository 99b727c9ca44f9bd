"""Servers that a configuration declares by a URL, in an internet of the test's own: read in a run without a policy."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_world import OTHER, PORT, World, exchanges
from wrapping import Wrapped

REQUEST = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
CLIENT = """
import sys, urllib.request
headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
request = urllib.request.Request(sys.argv[1], sys.argv[2].encode(), headers)
print(urllib.request.urlopen(request).read())
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    try:
        made = World(tmp_path)
    except OSError as error:
        pytest.skip(f"no network of its own can be had here: {error}")
    yield made
    made.close()


def ask(world: World, url: str, *options: str, declared: str = "") -> Wrapped:
    entry = {"mcpServers": {"far": {"type": "http", "url": declared or url}}}
    (world.folder / ".mcp.json").write_text(json.dumps(entry))
    ran = world.run(sys.executable, "-c", CLIENT, url, REQUEST.decode(), options=options)
    assert ran.status == 0, ran.stderr
    return ran


def servers(ran: Wrapped) -> list[tuple[str, str]]:
    return [(event.data["server"], event.data.get("how", "config")) for event in ran.events("mcp.session")]


@pytest.mark.parametrize("declared", ["", "https://${WHERE:-" + OTHER + "}/mcp"])
def test_tls_of_a_declared_host_is_read(world: World, declared: str) -> None:
    ran = ask(world, f"https://{OTHER}/mcp", declared=declared)
    assert ran.stdout == b"b'secure\\n'\n"
    assert exchanges(ran) == [("https", OTHER, "/mcp")]
    assert servers(ran) == [("far", "config")]
    assert any(heard.startswith(b"POST /mcp ") for server in world.tls.values() for heard in server.heard)


def test_no_intercept_holds_for_declared_hosts_too(world: World) -> None:
    ran = ask(world, f"https://{OTHER}/mcp", "--no-intercept")
    assert exchanges(ran) == servers(ran) == []


def test_plain_http_at_any_port_is_read(world: World) -> None:
    ran = ask(world, f"http://203.0.113.20:{PORT}/mcp")
    assert [path for _scheme, _host, path in exchanges(ran)] == ["/mcp"]
    assert servers(ran) == [("far", "config")]


def test_urls_of_another_project_are_read_where_that_needs_no_certificate(world: World) -> None:
    (world.folder / "other").mkdir()
    urls = {"plain": f"http://203.0.113.20:{PORT}/mcp", "tls": f"https://{OTHER}/mcp"}
    entries = {name: {"type": "http", "url": url} for name, url in urls.items()}
    (world.folder / "other" / ".mcp.json").write_text(json.dumps({"mcpServers": entries}))
    script = 'cd other; for url; do "$0" -c "$CLIENT" "$url" "$REQUEST"; done'
    given = {"CLIENT": CLIENT, "REQUEST": REQUEST.decode()}
    ran = world.run("sh", "-c", script, sys.executable, *urls.values(), env=given)
    assert ran.status == 0, ran.stderr
    assert exchanges(ran) == [("http", "203.0.113.20", "/mcp")]
    assert servers(ran) == [(f"203.0.113.20:{PORT}", "traffic")]
    gaps = [event.data for event in ran.events("gap")]
    assert [(one["what"], one["cause"], one["detail"]) for one in gaps] == [
        ("mcp-http", "not-intercepted", f"tls {OTHER}:443")
    ]
