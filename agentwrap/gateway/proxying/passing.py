"""The judge of a gateway that judges nothing: everything passes, whatever it is and wherever it leads. Pure."""

from collections.abc import Sequence

from agentwrap.gateway.judging import Judge, Verdict, text_of
from agentwrap.policy.hosts import Address
from agentwrap.policy.questions import Answer
from agentwrap.policy.rules import Rule

_PASSES = Answer("allow", Rule("built-in.unjudged"), "this run has no rules for the network")


class PassingJudge(Judge):
    """As `Judge`, for runs that are only watched. Its verdicts are told to nobody."""

    def __init__(self) -> None:
        super().__init__(())

    @property
    def observes(self) -> bool:
        """Nothing is refused."""
        return True

    @property
    def asks(self) -> bool:
        """Nobody is asked."""
        return False

    def destination(self, address: Address, port: int, names: Sequence[str]) -> Verdict:  # noqa: ARG002
        """The address as it is: by which name it was found, nobody saw."""
        return Verdict("allow", _PASSES, text_of(address), port)

    def address_of(self, name: str, address: Address, port: int) -> Verdict:  # noqa: ARG002
        """Wherever the name leads."""
        return self.authority(name, port)

    def approved_address(self, name: str, address: Address, port: int) -> Verdict:  # noqa: ARG002
        """Wherever the name leads."""
        return self.authority(name, port)

    def server_name(self, of: Verdict, name: str | None, address: Address | None, names: Sequence[str]) -> Verdict:  # noqa: ARG002
        """Whatever a TLS client asks for: by that name the connection is known from here on."""
        return self.authority(name.lower().removesuffix("."), of.port) if name else of

    def http_host(self, of: Verdict, host: str, address: Address | None, names: Sequence[str]) -> Verdict:  # noqa: ARG002
        """Whatever site a request is for; its name is in the request."""
        return of

    def malformed(self, of: Verdict, why: str) -> Verdict:  # noqa: ARG002
        """What nobody can read passes unread."""
        return of

    def authority(self, host: str, port: int) -> Verdict:
        """Whoever a proxy is asked for."""
        return Verdict("allow", _PASSES, host, port)

    def lookup(self, name: str) -> Verdict:
        """Any name."""
        return self.authority(name, 0)
