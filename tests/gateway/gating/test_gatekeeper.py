"""Requests of MCP that are judged, between a client and a server of the test's own, over real sockets."""

import gzip
import json
import re
import socket
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pytest
import trio
import trio.testing
from far_side import tcp_pair
from gateway.capture.listening import ABOUT
from policy_texts import policy

from agentwrap.events import AskAnswered, AskWaiting, McpJudged, McpSaid
from agentwrap.events.egress import Protocol
from agentwrap.events.exchange import ExchangeBegan, ExchangeEnded, ExchangeReceived, ExchangeRequested, ExchangeSent
from agentwrap.gateway.asking import Asks
from agentwrap.gateway.capture.tap import Tap
from agentwrap.gateway.gating.gatekeeper import Gatekeeper
from agentwrap.gateway.gating.gates import Gates
from agentwrap.gateway.inspection import Inspection, Meant, Refusal
from agentwrap.gateway.judging import Verdict
from agentwrap.gateway.known_names import KnownNames
from agentwrap.gateway.proxying.passing import PassingJudge
from agentwrap.gateway.relay import Passage
from agentwrap.mcp.declared import Declared
from agentwrap.mcp.http import Recognition, http_servers
from agentwrap.policy.layers import Layer

RULES = """
[[mcp]]
server = "notes"
tools = ["write_*"]
decision = "deny"
reason = "No writing."
[[mcp]]
server = "notes"
tools = ["push_*"]
decision = "approve"
[[mcp]]
server = "notes"
methods = ["sampling/createMessage"]
decision = "deny"
[[mcp]]
server = "mcp.example:80"
tools = ["write_*"]
decision = "deny"
"""
BOTH = b"Accept: application/json, text/event-stream\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def call(tool: str, ident: Any = 1, **params: Any) -> bytes:
    told = {"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": {"name": tool, "arguments": {}, **params}}
    return json.dumps(told).encode()


def post(body: bytes, more: bytes = BOTH, *, path: bytes = b"/mcp", chunked: bool = False) -> bytes:
    more += b"Transfer-Encoding: chunked\r\n" if chunked else b"Content-Length: %d\r\n" % len(body)
    head = b"POST %b HTTP/1.1\r\nHost: mcp.example\r\nContent-Type: application/json\r\n%b\r\n" % (path, more)
    if chunked:
        half = len(body) // 2
        pieces = [one for one in (body[:half], body[half:]) if one]
        return head + b"".join(b"%x;a=b\r\n%b\r\n" % (len(one), one) for one in pieces) + b"0\r\n\r\n"
    return head + body


class Line:
    """What the gateway would tell its supervisor."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self._news = trio.Event()

    def put(self, item: Any) -> None:
        self.told.append(item)
        self._news.set()
        self._news = trio.Event()

    async def until(self, kind: type[Any], number: int = 1) -> None:
        """So many of a kind are told."""
        while len(self.of(kind)) < number:
            await self._news.wait()

    async def on_disk(self) -> None:
        await trio.lowlevel.checkpoint()

    async def room(self) -> None:
        await trio.lowlevel.checkpoint()

    def of(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.told if isinstance(one, kind)]


class Between:
    """A client and a server with a gatekeeper between them."""

    def __init__(self, rules: str, *, unattended: bool, url: bytes, proxy: bool) -> None:
        self.refusal: Refusal | None = None
        client, ours = tcp_pair()
        server, theirs = tcp_pair()
        for sock in (ours, theirs, client, server):
            sock.setblocking(False)
        self.client, self.server = trio.socket.from_stdlib_socket(client), trio.socket.from_stdlib_socket(server)
        self.line, self._clock, numbers = Line(), count(1), count(1)
        layers = [Layer("flags", policy(rules))]
        declared = [Declared(b"notes", "mcp.json", url=url)]
        recognition = Recognition(http_servers(declared))
        self.asks = Asks(self.line.put, self.now, 300.0)
        self.gates = Gates(layers, recognition, self.line, self.asks, self.now, unattended=unattended)  # type: ignore[arg-type]
        self.passage = Passage(ours, theirs)
        self.passage.room = self.line.room
        about = type(ABOUT)(connection="c1", span="p1", pid=7, scheme="http", host=b"mcp.example", port=80)
        self.passage.tap = Tap(about, self.line.put, self.now, lambda: next(numbers), lambda *_: False, recognition)
        self.keeper = Gatekeeper(self.gates, self.passage, b"mcp.example", 80, "p1", 7)
        self.passage.gate = self.keeper.down
        judge = PassingJudge()
        self.inspection = Inspection(judge, KnownNames(), self.passage, self._settle, keeper=self.keeper)
        self.meant = Meant(judge.authority("proxy.example" if proxy else "mcp.example", 3128 if proxy else 80), None)

    def now(self) -> int:
        return next(self._clock)

    @staticmethod
    async def _settle(verdict: Verdict, _protocol: Protocol) -> Verdict:
        return verdict

    async def carry(self) -> None:
        try:
            self.refusal = await self.inspection.carry(self.meant)
            if self.refusal is not None:
                await self.passage.refuse(self.refusal.words)
        except OSError:
            self.passage.cut(b"by the client")
        finally:
            self.passage.up_ended()

    async def arrived(self, data: bytes) -> None:
        """The server has exactly this next."""
        got = b""
        while len(got) < len(data):
            more = await self.server.recv(len(data) - len(got))
            assert more
            got += more
        assert got == data

    async def answer(self, data: bytes = OK, *, whole: bytes | None = None) -> bytes:
        """The server says it, and the client gets `whole`."""
        await self.server.send(data)
        return await self.got(data if whole is None else whole)

    async def got(self, data: bytes) -> bytes:
        """The client has exactly this next."""
        got = b""
        while len(got) < len(data):
            more = await self.client.recv(len(data) - len(got))
            assert more, got
            got += more
        assert got == data
        return got

    async def message(self) -> tuple[int, Any]:
        """The status and body of an answer that the client gets."""
        got = b""
        while b"\r\n\r\n" not in got:
            got += await self.client.recv(1)
        length = re.search(rb"Content-Length: (\d+)", got)
        body = b""
        while length is not None and len(body) < int(length[1]):
            body += await self.client.recv(int(length[1]) - len(body))
        return int(got.split()[1]), body

    def nothing_arrived(self) -> bool:
        try:
            return not self.server._sock.recv(1, socket.MSG_PEEK)  # type: ignore[attr-defined]
        except BlockingIOError:
            return True

    @property
    def verdicts(self) -> list[tuple[int, str, bool, bytes]]:
        return [(one.exchange, one.verdict, one.up, one.tool) for one in self.line.of(McpJudged)]


URL = b"http://mcp.example/mcp"


def between(
    body: Callable[[Between], Awaitable[None]], rules: str = RULES, *, unattended: bool = False, url: bytes = URL,
    proxy: bool = False,
) -> Between:
    made: list[Between] = []

    async def main() -> None:
        one = Between(rules, unattended=unattended, url=url, proxy=proxy)
        made.append(one)
        with trio.fail_after(300):
            async with trio.open_nursery() as nursery:
                one.passage.start_down(nursery, takeable=False)
                nursery.start_soon(one.carry)
                await body(one)
                one.client.close()
                one.server.close()

    trio.run(main)
    return made[0]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("step", [1, 50, 1 << 20])
def test_what_is_allowed_passes_byte_for_byte(step: int, chunked: bool) -> None:
    request = post(call("read_file"), chunked=chunked)

    async def body(one: Between) -> None:
        for _ in range(2):
            for at in range(0, len(request), step):
                await one.client.send(request[at : at + step])
            await one.arrived(request)
            await one.answer()

    made = between(body)
    assert made.verdicts == []
    assert [one.ending for one in made.line.of(ExchangeEnded)] == ["complete", "complete"]


@pytest.mark.parametrize("more", [BOTH, b"Accept: text/event-stream\r\n", b"", BOTH + b"Mcp-Method: ping\r\n"])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("ident", [1, "a", 1.5])
def test_what_is_denied_is_answered_and_never_arrives(more: bytes, chunked: bool, ident: Any) -> None:
    async def body(one: Between) -> None:
        await one.client.send(post(call("write_file", ident), more, chunked=chunked))
        status, said = await one.message()
        if more == b"Accept: text/event-stream\r\n":
            said = said.removeprefix(b"event: message\ndata: ").rstrip()
        told = json.loads(said)
        assert (status, told["id"], told["result"]["isError"]) == (200, ident, True)
        assert b"No writing." in said
        assert one.nothing_arrived()
        allowed = post(call("read_file"))
        await one.client.send(allowed)  # the connection is as good as before
        await one.arrived(allowed)
        await one.answer()

    made = between(body)
    assert made.verdicts == [(1, "deny", True, b"write_file")]
    kinds = [type(one) for one in made.line.told if getattr(one, "exchange", 0) == 1]
    order = (ExchangeBegan, McpJudged, ExchangeSent, ExchangeRequested, McpSaid, ExchangeReceived)
    places = [kinds.index(kind) for kind in order]
    assert places == sorted(places)
    assert [one.ending for one in made.line.of(ExchangeEnded)] == ["complete", "complete"]


def test_a_denied_notification_is_taken_and_goes_nowhere() -> None:
    closed = RULES + '[[mcp]]\nserver = "notes"\ndecision = "deny"\n'

    async def body(one: Between) -> None:
        await one.client.send(post(b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"write_a"}}'))
        assert await one.message() == (202, b"")
        assert one.nothing_arrived()

    assert between(body, closed).verdicts == [(1, "deny", True, b"write_a")]


@pytest.mark.parametrize("coding", [b"gzip", b"unheard-of"])
def test_compressed_bodies_are_read_or_denied(coding: bytes) -> None:
    async def body(one: Between) -> None:
        more = BOTH + b"Content-Encoding: " + coding + b"\r\n"
        if coding == b"gzip":
            allowed = post(gzip.compress(call("read_file")), more)
            await one.client.send(allowed)
            await one.arrived(allowed)
            await one.answer()
        await one.client.send(post(gzip.compress(call("write_file")), more))
        status, _ = await one.message()
        assert status == (200 if coding == b"gzip" else 400)
        assert one.nothing_arrived()

    assert [verdict for _, verdict, _, _ in between(body).verdicts] == ["deny"]


@pytest.mark.parametrize("path", [b"/mcp/", b"/%6dcp", b"//x/../mcp", b"/other"])
def test_no_other_spelling_of_a_path_gets_past(path: bytes) -> None:
    async def body(one: Between) -> None:
        await one.client.send(post(call("write_file"), b"", path=path))
        assert (await one.message())[0] == 200
        assert one.nothing_arrived()

    assert between(body).verdicts == [(1, "deny", True, b"write_file")]


def test_what_is_no_message_passes_at_once() -> None:
    async def body(one: Between) -> None:
        for said in (b"a=1&method=tools/call", b'{"model":"m"}', b"[]", b""):
            request = post(said, b"", path=b"/other")
            await one.client.send(request)
            await one.arrived(request)
            await one.answer()
        head = b"POST /other HTTP/1.1\r\nHost: mcp.example\r\nContent-Length: 9\r\n\r\n"
        await one.client.send(head + b"text")
        await one.arrived(head + b"text")  # before it is whole
        await one.client.send(b" more")
        await one.arrived(b" more")
        await one.answer()

    made = between(body)
    assert made.verdicts == []
    assert [one.mcp for one in made.line.of(ExchangeBegan)] == [None] * 5


def test_requests_in_a_row_are_answered_in_their_order() -> None:
    first, last = post(call("read_a", 1)), post(call("read_b", 3))

    async def body(one: Between) -> None:
        await one.client.send(first + post(call("write_a", 2)) + last)
        await one.arrived(first)
        await trio.testing.wait_all_tasks_blocked()
        assert one.nothing_arrived()
        await one.answer()
        assert json.loads((await one.message())[1])["id"] == 2
        await one.arrived(last)
        await one.answer()

    assert between(body).verdicts == [(2, "deny", True, b"write_a")]


def test_a_client_that_waits_for_leave_to_send_its_body() -> None:
    expects = BOTH + b"Expect: 100-continue\r\n"
    request = post(call("read_file"), expects)
    head, _, content = request.partition(b"\r\n\r\n")

    async def body(one: Between) -> None:
        await one.client.send(head + b"\r\n\r\n")
        await one.got(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert one.nothing_arrived()
        await one.client.send(content)
        await one.arrived(request)
        await one.answer()

    between(body)


def test_the_connection_ends_where_the_client_wants_it() -> None:
    async def body(one: Between) -> None:
        await one.client.send(post(call("write_file"), BOTH + b"Connection: close\r\n"))
        assert (await one.message())[0] == 200
        assert await one.server.recv(10) == b""
        one.server.close()
        assert await one.client.recv(10) == b""

    between(body)


async def asked(one: Between) -> str:
    await one.line.until(AskWaiting)
    return str(one.line.of(AskWaiting)[-1].ask)


def test_what_waits_for_a_human_goes_on_once() -> None:
    request = post(call("push_it"), b"Accept: application/json\r\n")

    async def body(one: Between) -> None:
        await one.client.send(request)
        ask = await asked(one)
        assert one.nothing_arrived()
        one.asks.answered(ask, "once")
        await one.arrived(request)
        await one.answer()
        await one.client.send(request)  # the same again is asked again
        await one.line.until(AskWaiting, 2)
        one.asks.answered(one.line.of(AskWaiting)[1].ask, "deny")
        assert json.loads((await one.message())[1])["result"]["isError"]
        assert one.nothing_arrived()

    made = between(body)
    assert [verdict for _, verdict, _, _ in made.verdicts] == ["hold", "approved", "hold", "refused"]
    assert [(one.server, one.tool) for one in made.line.of(AskWaiting)] == [(b"notes", b"push_it")] * 2


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
RESULT = b'{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'


def without_chunks(rest: bytes) -> bytes:
    content = b""
    while not rest.startswith(b"0\r\n"):
        size, _, rest = rest.partition(b"\r\n")
        content, rest = content + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return content


async def events(one: Between) -> list[Any]:
    """A stream to its end."""
    got = b""
    while not got.endswith(b"0\r\n\r\n"):
        more = await one.client.recv(65536)
        assert more, got
        got += more
    head, _, rest = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b"text/event-stream" in head
    content = without_chunks(rest)
    return [json.loads(line[6:]) for line in content.splitlines() if line.startswith(b"data: {")]


@pytest.mark.parametrize("form", ["json", "stream", "failure"])
def test_a_client_that_reads_streams_hears_that_it_waits(form: str) -> None:
    request = post(call("push_it", _meta={"progressToken": "t"}))
    plain = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    answers = {
        "json": plain % len(RESULT) + RESULT,
        "stream": STREAM + b"%x\r\ndata: %b\n\n\r\n0\r\n\r\n" % (len(RESULT) + 8, RESULT),
        "failure": b"HTTP/1.1 503 No\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nno",
    }

    async def body(one: Between) -> None:
        await one.client.send(request)
        ask = await asked(one)
        await one.line.until(McpSaid)
        one.asks.answered(ask, "run")
        await one.arrived(request)
        await one.server.send(answers[form])
        *waits, result = await events(one)  # it hears so every few seconds
        assert {one["params"]["progressToken"] for one in waits} == {"t"}
        assert result["id"] == 1
        assert ("error" in result) is (form == "failure")
        allowed = post(call("read_file"))
        await one.client.send(allowed)
        await one.arrived(allowed)
        await one.answer()

    made = between(body)
    assert [verdict for _, verdict, _, _ in made.verdicts] == ["hold", "approved"]
    assert [one.ending for one in made.line.of(ExchangeEnded)] == ["complete", "complete"]


def test_a_stream_of_ours_ends_with_the_denial() -> None:
    async def body(one: Between) -> None:
        await one.client.send(post(call("push_it")))
        ask = await asked(one)
        assert await one.client.recv(1, socket.MSG_PEEK)
        one.asks.answered(ask, "deny")
        [told] = await events(one)
        assert told["result"]["isError"]
        assert one.nothing_arrived()

    made = between(body)
    assert [one.ending for one in made.line.of(ExchangeEnded)] == ["complete"]


@pytest.mark.parametrize("how", ["leaves", "cancels"])
def test_nobody_is_asked_any_more_about_what_nobody_wants(how: str) -> None:
    async def body(one: Between) -> None:
        await one.client.send(post(call("push_it"), b"Accept: application/json\r\n"))
        await asked(one)
        if how == "leaves":
            one.client.close()
        else:
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
            case = one.gates.case(_held(post(json.dumps(cancel).encode())), b"mcp.example", 80, "p1")
            assert case is not None
            [verdict] = case.gate.judge(json.dumps(cancel).encode(), up=True)
            assert one.gates.cancel(case, verdict)
            assert (await one.message())[0] == 202
        await one.line.until(AskAnswered)
        assert one.nothing_arrived()

    made = between(body)
    assert [one.answer for one in made.line.of(AskAnswered)] == ["withdrawn"]
    assert [verdict for _, verdict, _, _ in made.verdicts] == ["hold", "cancelled"]


def _held(request: bytes) -> Any:
    from agentwrap.gateway.gating.held_request import HeldRequest

    return HeldRequest(request.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")


def test_where_nobody_can_be_asked_it_is_denied_at_once() -> None:
    async def body(one: Between) -> None:
        await one.client.send(post(call("push_it")))
        assert json.loads((await one.message())[1])["result"]["isError"]
        assert one.nothing_arrived()

    made = between(body, unattended=True)
    assert [verdict for _, verdict, _, _ in made.verdicts] == ["deny"]
    assert made.line.of(AskWaiting) == []


ASKS = b'data: {"jsonrpc":"2.0","id":9,"method":"sampling/createMessage","params":{}}\n\n'
SAYS = b": alive\r\n\r\nid: 4\ndata: " + RESULT + b"\n\n"


@pytest.mark.parametrize("step", [1, 13, 1 << 20])
@pytest.mark.parametrize("form", ["chunked", "sized", "until-close"])
def test_what_a_server_must_not_ask_is_left_out_of_its_stream(form: str, step: int) -> None:
    content = SAYS + ASKS + SAYS
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    if form == "chunked":
        stream = head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(content), content)
    else:
        length = b"Content-Length: %d\r\n\r\n" % len(content) if form == "sized" else b"Connection: close\r\n\r\n"
        stream = head + length + content
    request = post(call("read_file"))

    async def body(one: Between) -> None:
        await one.client.send(request)
        await one.arrived(request)
        for at in range(0, len(stream), step):
            await one.server.send(stream[at : at + step])
        if form == "until-close":
            one.server.close()
        got = b""
        while not got.endswith(b"0\r\n\r\n") if form == "chunked" else got.count(SAYS[-20:]) < 2:
            more = await one.client.recv(65536)
            assert more, got
            got += more
        assert b"sampling" not in got
        rest = got.partition(b"\r\n\r\n")[2]
        said = without_chunks(rest) if form == "chunked" else rest
        assert (len(said) == len(content)) if form == "sized" else (said == SAYS + SAYS)
        assert said.count(SAYS) == 2

    made = between(body)
    assert made.verdicts == [(1, "deny", False, b"")]


def test_answers_that_ask_nothing_pass_as_they_come() -> None:
    request = post(call("read_file"))

    async def body(one: Between) -> None:
        await one.client.send(request)
        await one.arrived(request)
        await one.server.send(STREAM)
        await one.got(STREAM)
        for event in (b": alive\n\n", SAYS):
            chunk = b"%x\r\n%b\r\n" % (len(event), event)
            await one.server.send(chunk)
            read = b""
            while event[-10:] + b"\r\n" not in read:
                read += await one.client.recv(65536)
        await one.server.send(b"0\r\n\r\n")
        await one.got(b"0\r\n\r\n")
        packed = gzip.compress(b"data: " + RESULT + b"\n\n")
        coded = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n"
        coded += b"Content-Length: %d\r\n\r\n"
        await one.client.send(request)
        await one.arrived(request)
        await one.answer(coded % len(packed) + packed)

    assert between(body).verdicts == []


UNREAD = [
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    b"\x00\x01\x02\x03 hello",
    b"POST /mcp HTTP/1.1\r\nA: b\nC: d\r\n\r\n",
]


@pytest.mark.parametrize("said", UNREAD)
def test_what_nobody_reads_does_not_go_to_a_server_with_rules(said: bytes) -> None:
    async def body(one: Between) -> None:
        await one.client.send(said)
        with pytest.raises(ConnectionResetError):
            await one.server.recv(10)

    made = between(body)
    assert made.refusal is not None
    assert str(made.refusal.verdict.answer.rule) == "built-in.unread-mcp"


@pytest.mark.parametrize("said", UNREAD[1:])
def test_rules_for_every_server_there_may_be_stop_nothing_else(said: bytes) -> None:
    async def body(one: Between) -> None:
        await one.client.send(said)
        await one.arrived(said)

    rules = '[[mcp]]\nserver = "*"\ntools = ["write_*"]\ndecision = "deny"\n'
    assert between(body, rules, url=b"").refusal is None


def test_a_request_that_asks_for_another_protocol_is_no_way_around() -> None:
    async def body(one: Between) -> None:
        await one.client.send(post(call("write_file"), BOTH + b"Upgrade: other\r\nConnection: upgrade\r\n"))
        assert (await one.message())[0] == 400
        assert one.nothing_arrived()

    assert [verdict for _, verdict, _, _ in between(body).verdicts] == ["deny"]


def test_a_proxy_on_the_way_makes_no_difference() -> None:
    async def body(one: Between) -> None:
        await one.client.send(post(call("write_file"), path=b"http://mcp.example/mcp"))
        assert json.loads((await one.message())[1])["result"]["isError"]
        request = b"CONNECT mcp.example:80 HTTP/1.1\r\nHost: mcp.example:80\r\n\r\n"
        await one.client.send(request)
        await one.arrived(request)
        await one.answer(b"HTTP/1.1 200 OK\r\n\r\n")
        allowed = post(call("read_file"))
        await one.client.send(allowed + post(call("write_file")))
        await one.arrived(allowed)
        await one.answer()
        assert json.loads((await one.message())[1])["result"]["isError"]
        assert one.nothing_arrived()

    assert [tool for _, _, _, tool in between(body, proxy=True).verdicts] == [b"write_file"] * 2
