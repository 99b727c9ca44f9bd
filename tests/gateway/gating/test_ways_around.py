"""Requests that a server reads otherwise than they look, or that go elsewhere than they say: no way around rules."""

import json
import zlib

import pytest
from gateway.gating.test_gatekeeper import BOTH, OK, RULES, URL, Between, between, call, post

from agentwrap.gateway.gating.gatekeeper import Gatekeeper
from agentwrap.gateway.inspection import Meant
from agentwrap.gateway.proxying.passing import PassingJudge
from agentwrap.mcp.declared import Declared
from agentwrap.mcp.http import Recognition, as_utf8, http_servers, odd_charset, place_of

EVERY = '[[mcp]]\nserver = "*"\ntools = ["write_*"]\ndecision = "deny"\n'
JSON = b"Content-Type: application/json"
UTF7 = b"+AHsAIgBqAHMAbwBuAHIAcABjACIAOgAiADIALgAwACIAfQ-"  # {"jsonrpc":"2.0"}
SOCKET = (
    b"GET %b HTTP/1.1\r\nHost: mcp.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: %b\r\n\r\n"
)


def is_refused(said: bytes, rules: str = RULES, *, url: bytes = URL) -> Between:
    """Whatever is answered, the server gets nothing of it."""

    async def body(one: Between) -> None:
        await one.client.send(said)
        await one.message()
        try:
            assert one.nothing_arrived()
        except ConnectionResetError:
            pass  # cut, with nothing before it

    return between(body, rules, url=url)


@pytest.mark.parametrize("url", [URL, b""], ids=["declared", "nobody's"])
@pytest.mark.parametrize("charset", [b"utf-7", b'"utf\\-7"', b"UTF-16LE", b"utf-8; charset=utf-7"])
def test_other_letters_than_those_that_are_judged(charset: bytes, url: bytes) -> None:
    said = post(UTF7).replace(JSON, JSON + b"; charset=" + charset)
    assert [verdict for _, verdict, _, _ in is_refused(said, EVERY, url=url).verdicts] == ["deny"]


@pytest.mark.parametrize("coding", ["utf-16-le", "utf-16-be", "utf-16", "utf-32-le", "utf-32-be"])
def test_wide_letters_are_found_where_nothing_says_what_it_is(coding: str) -> None:
    said = post(call("write_file").decode().encode(coding))
    assert [verdict for _, verdict, _, _ in is_refused(said, EVERY, url=b"").verdicts] == ["deny"]


def test_letters_that_are_asciis_pass() -> None:
    for charset in (b"utf-8", b'"UTF-8"', b"us-ascii", b"iso-8859-1"):
        assert not odd_charset(((b"Content-Type", b"application/json; charset=" + charset),))
    assert not odd_charset(((b"Content-Type", b"text/html; charset=utf-16"),))
    assert as_utf8(b'{"a":1}') == b'{"a":1}'
    assert as_utf8('{"a":1}'.encode("utf-16-le")) == b'{"a":1}'


def test_a_body_that_is_json_with_and_without_its_coding() -> None:
    """The same bytes are codes of deflate (RFC 1951, 3.2.6), which nobody reads who knows no codings of requests."""
    both = b'{"lkUv":1}   '
    assert json.loads(both) == {"lkUv": 1}
    assert b"{" not in zlib.decompress(both, -15)
    said = post(both, BOTH + b"Content-Encoding: deflate\r\n")
    assert [verdict for _, verdict, _, _ in is_refused(said).verdicts] == ["deny"]


def test_a_target_that_names_another_host_than_the_connection_leads_to() -> None:
    said = post(call("write_file"), path=b"http://other.example/mcp").replace(b"mcp.example", b"other.example")
    assert [tool for _, _, _, tool in is_refused(said).verdicts] == [b"write_file"]


def test_a_path_that_was_seen_before_is_still_its_servers() -> None:
    async def body(one: Between) -> None:
        allowed = post(call("read_file"), path=b"/other")
        await one.client.send(allowed)
        await one.arrived(allowed)
        await one.answer(OK)
        await one.client.send(post(call("write_file"), path=b"/other"))
        assert json.loads((await one.message())[1])["result"]["isError"]
        assert one.nothing_arrived()

    rules = RULES.replace("mcp.example:80", "elsewhere:80")
    assert [tool for _, _, _, tool in between(body, rules).verdicts] == [b"write_file"]


@pytest.mark.parametrize("path", [b"/mcp", b"/ws"])
def test_a_websocket_to_a_server_with_rules(path: bytes) -> None:
    made = is_refused(SOCKET % (path, b"other"))
    assert made.refusal is not None
    assert str(made.refusal.verdict.answer.rule) == "built-in.unread-mcp"


def test_a_websocket_for_messages_of_mcp_wherever_it_leads() -> None:
    made = is_refused(SOCKET % (b"/", b"other, mcp"), EVERY, url=b"")
    assert made.refusal is not None


def test_another_websocket_passes() -> None:
    said = SOCKET % (b"/", b"chat")

    async def body(one: Between) -> None:
        await one.client.send(said)
        await one.arrived(said)

    assert between(body, EVERY, url=b"").refusal is None


@pytest.mark.parametrize(
    "said",
    [post(b"no gzip", BOTH + b"Content-Encoding: gzip\r\n"), post(UTF7).replace(JSON, JSON + b";charset=utf-7"),
     SOCKET % (b"/mcp", b"mcp")],
)  # fmt: skip
def test_nothing_is_refused_where_nothing_is_enforced(said: bytes) -> None:
    async def body(one: Between) -> None:
        one.gates.enforces = False
        await one.client.send(said)
        await one.arrived(said)

    assert [verdict for _, verdict, _, _ in between(body).verdicts] in (["would-deny"], [])


def test_servers_of_one_host() -> None:
    """Of several that it may be for each one counts: servers and proxies read paths and hosts in their own ways."""
    known = [(b"one", b"http://a.example/one"), (b"two", b"http://a.example/two"), (b"far", b"http://b.example/one")]
    recognition = Recognition(http_servers([Declared(name, "mcp.json", url=url) for name, url in known]))

    def found(target: bytes, host: bytes, *also: bytes, stated: bytes = b"") -> list[bytes]:
        headers = ((b"Host", stated),) if stated else ()
        return [one.server for one in recognition.every((place_of(target, host, 80),), headers, also)]

    assert found(b"/one", b"a.example") == [b"one"]
    assert found(b"/TWO", b"a.example") == [b"one", b"two"]
    assert found(b"/one", b"a.example", stated=b"b.example") == [b"one", b"far"]
    assert found(b"/one", b"192.0.2.1") == []
    assert found(b"/one", b"192.0.2.1", b"b.example") == [b"far"]
    assert found(b"/one", b"a.example", b"b.example") == [b"one"]


def test_another_name_of_a_declared_host() -> None:
    """Its address, or whatever name leads to it: told to the keeper by who has looked up where declared hosts are."""

    async def others(name: bytes, _port: int) -> tuple[bytes, ...]:
        return (b"mcp.example",) if name == b"192.0.2.1" else ()

    async def body(one: Between) -> None:
        one.meant = Meant(PassingJudge().authority("192.0.2.1", 80), None)
        one.inspection.keeper = Gatekeeper(one.gates, one.passage, b"192.0.2.1", 80, "p1", 7, None, others)
        await one.client.send(post(call("write_file")).replace(b"mcp.example", b"192.0.2.1"))
        assert json.loads((await one.message())[1])["result"]["isError"]
        assert one.nothing_arrived()

    assert [tool for _, _, _, tool in between(body).verdicts] == [b"write_file"]


def test_tls_by_a_name_that_is_not_there_is_no_way_around() -> None:
    """Who is at an address with rules is not told by a name that leads elsewhere, or none; a shared address is none."""
    shared = (b"192.0.2.1", b"shared.example")

    async def others(name: bytes, _port: int) -> tuple[bytes, ...]:
        return (b"mcp.example",) if name in shared else ()

    async def body(one: Between) -> None:
        keeper = Gatekeeper(one.gates, one.passage, b"192.0.2.1", 80, "p1", 7, None, others)
        for name, known, refuses in (
            ("elsewhere.example", False, True), ("", False, True), ("mcp.example", False, True),
            ("mcp.example", True, True), ("shared.example", False, False), ("elsewhere.example", True, False),
        ):  # fmt: skip
            assert await keeper.refuses_unread(name, known=known) is refuses, (name, known)
        away = Gatekeeper(one.gates, one.passage, b"192.0.2.9", 80, "p1", 7, None, others)
        assert not await away.refuses_unread("", known=False)

    between(body)
