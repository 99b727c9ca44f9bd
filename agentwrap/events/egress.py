"""Events about the wall: what was judged, by whom, and what became of it.

`by` says how strong the statement is: `wall` (no program gets past it without a kernel bug), `guard` (we acted on our
own copy of the arguments), `witness` (the arguments could have changed after we read them).
"""

from typing import Literal

from agentwrap.events.base import Event
from agentwrap.events.network import Transport, endpoint

By = Literal["wall", "guard", "witness"]
Decision = Literal["allow", "deny", "would-deny"]
Protocol = Literal["", "tls", "http", "h2c", "dns", "other"]
Ending = Literal["closed", "reset", "refused", "unreachable", "timeout", "denied", "ended"]
Act = Literal["write", "read", "exec", "unix", "family", "signal", "reach", "mount", "bind", "listen", "call"]


class PolicyLoaded(Event, frozen=True, kw_only=True, tag="policy"):
    """The policy of the run as it was understood: all layers together, one text and its SHA-256.

    `layers`: name of the layer (`flags`, `project`, `user`, `system`) and its file. `text`: the layers' files one after
    the other, each under a comment line with its name.
    """

    name: bytes
    mode: str
    sha256: str
    layers: tuple[tuple[bytes, bytes], ...] = ()
    text: bytes = b""

    @property
    def subject(self) -> bytes:
        return self.name


class Judged(Event, frozen=True, kw_only=True):
    """What every judgement has. `would-deny`: mode `observe` told it and let it pass.

    `rule`: the rule's place and text, `why` in words, `change`: what a human would write to get the other verdict.
    `count`: how often, where repeats are told in one row.
    """

    decision: Decision
    by: By
    rule: bytes = b""
    why: bytes = b""
    change: bytes = b""
    count: int = 1

    @property
    def verdict(self) -> str:
        return self.decision


class NetDecision(Judged, frozen=True, kw_only=True, tag="net.decision"):
    """The gateway judged a connection.

    `connection`: its id (`c1`), the same in `net.closed`. `host`: the name or address that was judged, `address`: where
    it leads, `asked`: the address that the program connected to. `protocol`, `sni`: as far as known by then.
    """

    connection: str = ""
    transport: Transport = "tcp"
    host: bytes
    port: int
    address: bytes = b""
    asked: bytes = b""
    protocol: Protocol = ""
    sni: bytes = b""

    @property
    def subject(self) -> bytes:
        return endpoint(self.host, self.port)


class NetClosed(Event, frozen=True, kw_only=True, tag="net.closed"):
    """A connection through the gateway is over. `up_bytes`: sent by the program; `detail`: an error, as text."""

    connection: str
    host: bytes
    port: int
    ending: Ending
    opened_ns: int
    up_bytes: int = 0
    down_bytes: int = 0
    protocol: Protocol = ""
    sni: bytes = b""
    alpn: tuple[bytes, ...] = ()
    detail: bytes = b""

    @property
    def subject(self) -> bytes:
        return endpoint(self.host, self.port)


class DnsQuery(Judged, frozen=True, kw_only=True, tag="dns.query"):
    """A name was asked for. `server`: the resolver that the program meant, `answers`: addresses that it was told."""

    name: bytes
    qtype: str
    server: bytes = b""
    transport: Transport = "udp"
    rcode: str = ""
    answers: tuple[bytes, ...] = ()

    @property
    def subject(self) -> bytes:
        return self.name


class NetRefused(Judged, frozen=True, kw_only=True, tag="net.refused"):
    """Packets that go nowhere, refused at once: datagrams other than DNS, ICMP, raw ones. `protocol_number`: of IP."""

    transport: Transport = "udp"
    protocol_number: int = 17
    host: bytes
    port: int = 0
    uid: int = -1

    @property
    def subject(self) -> bytes:
        return endpoint(self.host, self.port) if self.port else self.host


class ActDenied(Judged, frozen=True, kw_only=True, tag="act.denied"):
    """Something else than a connection was refused, or would have been: a write, a socket, a signal.

    `target`: the path, address or process, `call`: the system call, `mechanism`: what refused it (`mount`, `landlock`,
    `stop`, `seccomp`), `errno`: what the program was told.
    """

    act: Act
    target: bytes
    call: str = ""
    mechanism: str = ""
    errno: str = ""

    @property
    def subject(self) -> bytes:
        return self.target


class AskWaiting(Event, frozen=True, kw_only=True, tag="ask.waiting"):
    """Something waits for a human. `ask`: its id, `question` in words, `until_ns`: then it is denied.

    For a call of an MCP server: `server`, `tool`, `digest` (SHA-256 of its arguments, hex), to which the answer is
    bound; `arguments`: as written, clipped after 4 KB. `agent`, `on_behalf_of`: who acts for whom, by the policy.
    """

    ask: str
    question: bytes
    until_ns: int
    server: bytes = b""
    tool: bytes = b""
    digest: str = ""
    arguments: bytes = b""
    agent: bytes = b""
    on_behalf_of: bytes = b""

    @property
    def subject(self) -> bytes:
        return self.question


class AskAnswered(Event, frozen=True, kw_only=True, tag="ask.answered"):
    """The answer. `approver`: who, as they said; `uid` and `approver_pid`: as the kernel says.

    `withdrawn`: whoever asked for it does not want it any more.
    """

    ask: str
    answer: Literal["once", "run", "always", "deny", "expired", "unattended", "withdrawn"]
    approver: bytes = b""
    uid: int = -1
    approver_pid: int = 0
    reason: bytes = b""

    @property
    def subject(self) -> bytes:
        return self.ask.encode()
