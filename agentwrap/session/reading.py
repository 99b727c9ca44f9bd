"""How a run's model traffic comes to be read: what the agent's environment gets for it, and what the record says of it.

gateway   the network is confined: everything passes the gateway
capture   the tracer leads connections to model servers to the gateway
base-url  clients are told of our reverse proxy, by the variables that they take a base URL from
"""

from typing import Literal

import msgspec

from agentwrap.events import Coverage, Tier
from agentwrap.launching import environment
from agentwrap.launching.authority_files import AuthorityFiles
from agentwrap.launching.environment import Environment

Way = Literal["", "gateway", "capture", "base-url"]
NOTIFIED = ("ptrace+notify", "notify")
_TLS = "TLS whose hello names a host to intercept, HTTP of known interfaces"
_NOTES: dict[Way, str] = {
    "gateway": _TLS,
    "capture": f"connections to port 443 and to servers that the environment names: {_TLS}; not QUIC, no local sockets",
    "base-url": "only clients that take a base URL from their environment",
}


class Reading(msgspec.Struct):
    """What is done in one run. `notified`: where calls are notified, `alone`: where they are not.

    `files`: of the authority, if TLS is ended; `reverse_port`: of the reverse proxy; `why`: why there is no `capture`.
    """

    notified: Way = ""
    alone: Way = ""
    files: AuthorityFiles | None = None
    reverse_port: int = 0
    why: str = ""

    def way(self, mode: str) -> Way:
        """The way in this mode of following."""
        return self.notified if mode in NOTIFIED else self.alone

    def environment(self, given: Environment, way: Way) -> Environment:
        """The agent's environment."""
        if way == "base-url":
            return environment.with_base_urls(given, self.reverse_port)
        if way and self.files is not None:
            return environment.with_authority(given, self.files.paths)
        return given

    def write_files(self, ca_pem: bytes) -> None:
        """The gateway's authority stands; empty: it does not."""
        if self.files is not None:
            self.files.write(ca_pem)

    def coverage(self, mode: str, network: str) -> Coverage:
        """The statement about model traffic; `network`: the tier of the run's network, empty where it is open."""
        way = self.way(mode)
        if not way:
            return Coverage(at_ns=0, what="model", tier="none", mechanism="", note="not asked for (--no-intercept)")
        tier: Tier = "witness"
        if way == "gateway":
            tier = "wall" if network == "wall" else "guard"
        note = _NOTES[way] if way == "base-url" or self.files is not None else "plain HTTP of known interfaces"
        if way == "base-url":
            note = f"{note} ({self.why if mode in NOTIFIED else f'mode {mode}'})"
        return Coverage(at_ns=0, what="model", tier=tier, mechanism=way, note=note)

    def close(self) -> None:
        """The run is over."""
        if self.files is not None:
            self.files.remove()
