"""What the policies say to what the gateway sees: a destination, a name asked for, a TLS name, a request. Pure.

Turns what is known of a connection into questions for `policy.layers.decide_layers`, once for each name it may mean,
and gives one verdict. A connection allowed by its name stays bound to that name; one allowed by its address does not.
Knows nothing of sockets. Remembers what a human allowed for the run.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from agentwrap.policy.hosts import HOST_LOOPBACK, Address, Host, HostError, parse_host, special, unwrap
from agentwrap.policy.layers import Layer, decide_layers, mode_of
from agentwrap.policy.questions import Answer, Connect, Lookup
from agentwrap.policy.rules import Rule

Decision = Literal["allow", "deny", "would-deny", "ask"]
Grant = tuple[str, int, str]

_CACHED = 4096
_NOBODY_ASKED = "nobody can be asked"
# Denials that a human may lift for this run: nobody wrote them down for this host.
_ASKABLE = frozenset({"built-in.private", "built-in.loopback", "built-in.link-local", "built-in.reserved"})


class Verdict(msgspec.Struct, frozen=True):
    """One judgement. `host`: the name or address that was judged, in decision `ask` refused unless a human allows it.

    `bound`: allowed for its name, so that TLS and HTTP must agree with it.
    """

    decision: Decision
    answer: Answer
    host: str
    port: int
    bound: bool = False

    @property
    def passes(self) -> bool:
        """Whether it goes on."""
        return self.decision in ("allow", "would-deny")


class Judge:
    """The policies of one run.

    `own`: addresses of the run itself; `host_ports`: those of the machine's loopback that lead here, None for all;
    `unattended`: no human is there to be asked.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        *,
        closed: bool = False,
        own: Sequence[Address] = (),
        host_ports: frozenset[int] | None = None,
        unattended: bool = False,
    ) -> None:
        self._layers = tuple(layers)
        self._mode = mode_of(self._layers) if self._layers else "enforce"
        self._closed = closed
        self._own = frozenset(own)
        self._host_ports = host_ports
        self._unattended = unattended
        self._answers: dict[tuple[str, int, str], Answer] = {}
        self._lookups: dict[str, Answer] = {}
        self._granted: set[Grant] = set()

    @property
    def observes(self) -> bool:
        """Whether nothing is refused."""
        return self._mode == "observe" and not self._closed

    @property
    def asks(self) -> bool:
        """Whether there is a human to ask about what no rule allows."""
        return self._mode == "ask" and not self._unattended and not self._closed

    def destination(self, address: Address, port: int, names: Sequence[str]) -> Verdict:
        """A connection to `address`, which the program got by asking for `names` (newest first), if by any."""
        text = text_of(address)
        if self._closed:
            return self._verdict(_closed(), names[0] if names else text, port)
        inner = loopback_of(address)
        if inner is not None:
            return self._loopback(inner, port)
        if self._own and unwrap(address) in self._own:
            return self._verdict(_own_address(), str(unwrap(address)), port)
        refused: Verdict | None = None
        for name in names:
            answer = self._connect(name, port, text)
            if answer.verdict == "allow":
                return self._verdict(answer, name, port)
            if refused is None or _written(answer):
                refused = self._verdict(answer, name, port, address=text)
        bare = self._connect(text, port)
        if refused is None:
            return self._verdict(bare, text, port, address=text)
        # A rule for the address allows it whatever its name, unless somebody wrote the name down as denied.
        if bare.verdict == "allow" and not _by_default(bare) and not _written(refused.answer):
            return self._verdict(bare, text, port)
        return refused

    def _loopback(self, inner: Address, port: int) -> Verdict:
        """Nothing inside listens there; whatever name led there, it is the machine's own service that is meant."""
        answer = self._connect(str(inner), port)
        if answer.verdict == "allow" and self._host_ports is not None and port not in self._host_ports:
            why = "no rule names this port of the machine's own loopback"
            answer = Answer("deny", Rule("built-in.loopback"), why, f"add `{HOST_LOOPBACK}:{port}` to network.allow")
        return self._verdict(answer, str(inner), port)

    def address_of(self, name: str, address: Address, port: int) -> Verdict:
        """Whether `name`, which is allowed, may be dialled at `address`, where it leads, too."""
        inner = unwrap(address)
        if inner in self._own:
            return self._verdict(_own_address(), name, port)
        return self._verdict(self._connect(name, port, str(address)), name, port, address=str(address))

    def approved_address(self, name: str, address: Address, port: int) -> Verdict:
        """The same for a name that a human allowed: an ordinary address needs no further question."""
        verdict = self.address_of(name, address, port)
        if verdict.decision == "ask" and _by_default(verdict.answer):
            return Verdict("allow", _approved(), name, port, bound=True)
        return verdict

    def server_name(self, of: Verdict, name: str | None, address: Address | None, names: Sequence[str]) -> Verdict:
        """A TLS client of connection `of` asks for server `name`.

        The connection leads to `address` (None: a proxy's business), which is known by `names`.
        """
        if of.decision == "would-deny":
            return of
        if name is None:
            if not of.bound:
                return of
            why = f"the connection is allowed for the name {of.host} alone, and the TLS client names no server (SNI)"
            change = "use a client that sends SNI, or add a rule for the address"
            return self._verdict(_refused("sni", why, change), of.host, of.port)
        return self._inner_name(of, name, address, names, "TLS server name (SNI)", "sni")

    def http_host(self, of: Verdict, host: str, address: Address | None, names: Sequence[str]) -> Verdict:
        """A request of connection `of` for the site `host` of the server behind `address`."""
        if of.decision == "would-deny":
            return of
        if not host:
            if not of.bound:
                return of
            why = f"the connection is allowed for the name {of.host} alone, and the request has no Host"
            return self._verdict(_refused("http-host", why, "use a client that sends Host"), of.host, of.port)
        return self._inner_name(of, host, address, names, "Host of the request", "http-host")

    def _inner_name(
        self, of: Verdict, name: str, address: Address | None, names: Sequence[str], what: str, rule: str
    ) -> Verdict:
        try:
            host = str(parse_host(name))
        except HostError as error:
            answer = _refused(rule, f"the {what} is no host name: {error}", "ask for a host by its name")
            return self._verdict(answer, of.host, of.port)
        if host == of.host:
            return of
        answer = self._connect(host, of.port, str(address or ""))
        if not of.bound:
            # Allowed for the address, whatever is asked for there; but a name that is denied stays denied.
            return self._verdict(answer, host, of.port) if answer.verdict == "deny" and _written(answer) else of
        if answer.verdict != "allow":
            return self._verdict(answer, host, of.port)
        if host not in names and host != str(address):
            where = address or "that tunnel"
            why = f"the connection leads to {of.host}, the {what} is {host}, which never led to {where}"
            change = f"ask the resolver for {host} and connect there"
            return self._verdict(_refused(rule, why, change), host, of.port)
        return self._verdict(answer, host, of.port)

    def malformed(self, of: Verdict, why: str) -> Verdict:
        """What a client of connection `of` sends cannot be judged."""
        if of.decision == "would-deny":
            return of
        return self._verdict(_refused("malformed", why, "nothing: it has to be readable"), of.host, of.port)

    def authority(self, host: str, port: int) -> Verdict:
        """A proxy, wherever it is, is asked to connect to `host`: as if the program did."""
        if self._closed:
            return self._verdict(_closed(), host, port)
        return self._verdict(self._connect(host, port), host, port)

    def lookup(self, name: str) -> Verdict:
        """A name server is asked for `name`."""
        if self._closed:
            return self._verdict(_closed(), name, 0)
        answer = self._lookups.get(name)
        if answer is None:
            answer = decide_layers(self._layers, Lookup(name))
            if len(self._lookups) >= _CACHED:
                self._lookups.clear()
            self._lookups[name] = answer
        return self._verdict(answer, name, 0)

    def answered(self, of: Verdict, address: str, answer: str) -> Verdict:
        """What becomes of a verdict `ask`; `run` and `always` hold for the rest of the run."""
        if answer in ("run", "always"):
            self._granted.add(_grant(of.host, of.port, address))
        if answer in ("once", "run", "always"):
            return Verdict("allow", _approved(), of.host, of.port, bound=_is_name(of.host))
        why = "a human denied it" if answer == "deny" else "nobody answered in time"
        return Verdict("deny", msgspec.structs.replace(of.answer, why=f"{of.answer.why}; {why}"), of.host, of.port)

    def _connect(self, host: str, port: int, address: str = "") -> Answer:
        key = (host, port, address)
        answer = self._answers.get(key)
        if answer is None:
            answer = decide_layers(self._layers, Connect(host, port, address=address))
            if len(self._answers) >= _CACHED:
                self._answers.clear()
            self._answers[key] = answer
        return answer

    def _verdict(self, answer: Answer, host: str, port: int, *, address: str = "") -> Verdict:
        if answer.verdict == "allow":
            return Verdict("allow", answer, host, port, bound=not _by_default(answer) and _is_name(host))
        if self._mode == "observe" and not self._closed:
            return Verdict("would-deny", answer, host, port)
        if self._mode == "ask" and _askable(answer):
            if _grant(host, port, address) in self._granted:
                return Verdict("allow", _approved(), host, port, bound=_is_name(host))
            if self.asks:
                return Verdict("ask", answer, host, port)
            answer = msgspec.structs.replace(answer, why=f"{answer.why}; {_NOBODY_ASKED}")
        return Verdict("deny", answer, host, port)


def unread(of: Verdict, name: str) -> Verdict:
    """Rules speak of what is said to an MCP server behind connection `of`, and it cannot be read."""
    why = "rules are about messages to an MCP server there, and what is said to it cannot be read"
    change = "use a client that speaks HTTP/1.1, and let its TLS be read (model.intercept)"
    return Verdict("deny", _refused("unread-mcp", why, change), name or of.host, of.port)


@lru_cache(maxsize=_CACHED)
def text_of(address: Address) -> str:
    """An address as text."""
    return str(address)


@lru_cache(maxsize=_CACHED)
def loopback_of(address: Address) -> Address | None:
    """The loopback address that `address` is in the end, if it is one."""
    inner = unwrap(address)
    return inner if special(Host(address=inner)) == "loopback" else None


@lru_cache(maxsize=_CACHED)
def _is_name(host: str) -> bool:
    try:
        return parse_host(host).address is None
    except HostError:
        return False


def _refused(rule: str, why: str, change: str) -> Answer:
    return Answer("deny", Rule(f"built-in.{rule}"), why, change)


def _closed() -> Answer:
    return _refused("no-network", "this run has no network", "run it without --network none")


def _own_address() -> Answer:
    return _refused("own-address", "an address of the run itself, where nothing listens", "nothing in a policy")


def _approved() -> Answer:
    return Answer("allow", Rule("built-in.approved"), "a human allowed it in this run")


def _by_default(answer: Answer) -> bool:
    return answer.rule.where.endswith(".default")


def _written(answer: Answer) -> bool:
    """Somebody wrote down that it is denied."""
    return answer.rule.where.endswith(".deny")


def _askable(answer: Answer) -> bool:
    return _by_default(answer) or answer.rule.where in _ASKABLE


def _grant(host: str, port: int, address: str) -> Grant:
    """What a human allows: a host and port, as long as it leads to the same kind of network."""
    return host, port, special(parse_host(address)) if address else ""
