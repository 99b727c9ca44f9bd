"""Who is intercepted, who is passed through, and why: one run's memory of what its clients and servers put up with.

A program that refused our certificate for a host is passed through from then on (the next process of it, too), unless
that process has spoken to the host through us before. What is passed through is told: once at once, and at the end
with how often.
"""

import os
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from agentwrap.events import Gap
from agentwrap.gateway.client_hello import Hello
from agentwrap.gateway.interception.authority import Authority
from agentwrap.gateway.interception.upstream import Upstream, Why
from agentwrap.policy.hosts import Address, special
from agentwrap.policy.hosts import Host as AnyHost
from agentwrap.policy.model_hosts import ModelHosts

_REMEMBERED = 10_000
_TLS_1_2 = 0x0303
_HTTPS_PORT = 443
_NEAR = ("loopback", "link-local", "private", "metadata")

Reason = Why | Literal["client-refused", "client-protocol", "client-old-tls", "server-first", "no-name"]
Host = tuple[str, int]


class Passed(msgspec.Struct, frozen=True):
    """A connection that is not read. `detail`: a library's word or the client's, foreign."""

    reason: Reason
    detail: str = ""


class Client(msgspec.Struct, frozen=True):
    """Whose connection it is. `program`: its file, or its span where that cannot be read."""

    span: str
    program: str


class Interceptor:
    """One run's. `authority` is made at once, everything else when it is first needed."""

    def __init__(
        self,
        hosts: ModelHosts,
        run_id: str,
        put: Callable[[Gap], None],
        now: Callable[[], int],
        environment: Mapping[str, str] = os.environ,
        authority: Authority | None = None,
    ) -> None:
        """`authority`: one that was made before."""
        self._hosts = hosts
        self._put, self._now = put, now
        self.authority = authority or Authority(run_id)
        self.upstream = Upstream(environment)
        self._refusals: dict[tuple[str, Host], Passed] = {}
        self._content: set[tuple[str, Host]] = set()
        self._passed: dict[tuple[Host, Reason], tuple[Passed, int, int]] = {}

    def wants(self, host: str, port: int) -> bool:
        """Whether it is one of the hosts to be read."""
        return self._hosts.wants(host, port)

    def unnamed(self, hello: Hello, address: Address | None, port: int) -> None:
        """TLS without a name to an address of the internet: it could be any host's, one that is to be read as well."""
        if hello.sni is not None or port != _HTTPS_PORT or address is None:
            return
        if special(AnyHost(address=address)) not in _NEAR:
            self.tell((str(address), port), Passed("no-name"))

    def objection(self, client: Client, host: Host, hello: Hello) -> Passed | None:
        """Why this connection is passed through before anything was tried, if it is."""
        if hello.alpn and b"http/1.1" not in hello.alpn:
            return Passed("client-protocol", b",".join(hello.alpn).decode("utf-8", "backslashreplace"))
        if max(hello.versions, default=0) < _TLS_1_2:
            return Passed("client-old-tls")
        if (client.span, host) in self._content:
            return None
        return self._refusals.get((client.program, host))

    def accepted(self, client: Client, host: Host) -> None:
        """The client has said something inside."""
        if len(self._content) < _REMEMBERED:
            self._content.add((client.span, host))

    def refused(self, client: Client, host: Host, detail: str) -> None:
        """The client did not go on with our certificate. One that did before may end a connection as it likes."""
        if (client.span, host) in self._content:
            return
        passed = Passed("client-refused", detail)
        if len(self._refusals) < _REMEMBERED:
            self._refusals[client.program, host] = passed
        self.tell(host, passed)

    def tell(self, host: Host, passed: Passed) -> None:
        """One more connection that was not read."""
        key = (host, passed.reason)
        first = key not in self._passed
        if first and len(self._passed) >= _REMEMBERED:
            return
        _, count, since = self._passed.get(key, (passed, 0, self._now()))
        self._passed[key] = (passed, count + 1, since)
        if first:
            self._put(self._gap(host, passed, 1, since))

    def finish(self) -> None:
        """Tell how many there were, where there was more than the one that was told."""
        for (host, _), (passed, count, since) in self._passed.items():
            if count > 1:
                self._put(self._gap(host, passed, count, since))

    def _gap(self, host: Host, passed: Passed, count: int, since: int) -> Gap:
        connections = "1 connection" if count == 1 else f"{count} connections"
        name = f"[{host[0]}]" if ":" in host[0] else host[0]
        detail = f"{name}:{host[1]} not intercepted ({passed.reason}), {connections}"
        detail += f": {passed.detail}" if passed.detail else ""
        return Gap(
            at_ns=self._now(),
            what="model",
            cause="not-intercepted",
            could_hide="what was asked of this host and what it answered: it went through unread",
            from_ns=since,
            detail=detail.encode("utf-8", "backslashreplace")[:600],
        )


def program_of(span: str, pid: int) -> str:
    """The file that a process runs, or its span: it may be gone, or not for us to look at."""
    try:
        return os.readlink(f"/proc/{pid}/exe") if pid else span
    except OSError:
        return span
