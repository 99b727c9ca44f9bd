"""What was asked of a run, and how it ended: the values that go into a session and come out of it. Pure."""

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from agentwrap.policy.layers import Layer

Network = Literal["auto", "gateway", "none", "host"]


class RunOptions(msgspec.Struct, frozen=True):
    """What the user asked of a run. `environment` is the agent's, complete; `cwd` None: ours.

    `layers`: the policies, from flags to system. `publish`: (port of this machine, port of the agent's network).
    `ask_waits`: somebody answers questions from elsewhere, also where the run has no terminal. `intercept`: hosts (or
    HOST:PORT) whose traffic is read besides the known model hosts; `no_intercept`: none is. `server`: the
    command itself is an MCP server of this name; `mcp_arguments`: what is kept of arguments that such servers get;
    `ruled_over_http`: rules may be about servers that speak HTTP, so that no connection may go past the gateway.
    """

    command: tuple[bytes, ...]
    environment: Mapping[bytes, bytes]
    output: Path
    run_id: str
    undo: Path | None
    cwd: bytes | None = None
    inherit: tuple[int, ...] = ()
    timeout_s: float | None = None
    reads: bool = False
    debuggable: bool = False
    follow: Literal["auto", "notify", "trace", "calls"] = "auto"
    best_effort: bool = False
    require: str = ""
    shape_only: bool = False
    signing_key: Path | None = None
    max_content_bytes: int = 8 << 20
    max_hash_bytes: int = 256 << 20
    redact_names: tuple[str, ...] = ()
    redact_patterns: tuple[str, ...] = ()
    redact_keys: tuple[str, ...] = ()
    linger_s: float = 0.5
    layers: tuple[Layer, ...] = ()
    network: Network = "auto"
    tier: Literal["auto", "wall", "guard"] = "auto"
    publish: tuple[tuple[int, int], ...] = ()
    ask_timeout_s: float = 300.0
    ask_waits: bool = False
    fail_on_deny: bool = False
    intercept: tuple[str, ...] = ()
    no_intercept: bool = False
    server: bytes = b""
    mcp_arguments: Literal["digest", "redacted", "full"] = "redacted"
    ruled_over_http: bool = False
    host_facts: Mapping[str, str] = msgspec.field(default_factory=dict)


class Outcome(msgspec.Struct):
    """How a run ended. `status`: wait status of the main command, None if it never ran."""

    status: int | None = None
    timed_out: bool = False
    ended_daemons: int = 0
    sealed: bool = False
    failure: str = ""
    trace: str = ""
    mode: str = ""
    elapsed_ns: int = 0
    denied: int = 0
    tier: str = ""


def errno_name(number: int) -> str:
    """`EPERM` and the like; empty for 0."""
    return errno.errorcode.get(number, str(number)) if number else ""


def option_words(options: RunOptions, no_new_privs: bool) -> tuple[tuple[str, str], ...]:
    """The options as the recording keeps them."""
    words = {
        "reads": options.reads,
        "debuggable": options.debuggable,
        "best_effort": options.best_effort,
        "shape_only": options.shape_only,
        "max_content_bytes": options.max_content_bytes,
        "max_hash_bytes": options.max_hash_bytes,
        "timeout_s": options.timeout_s or 0,
        "require": options.require,
        "no_new_privs": no_new_privs,
        "network": options.network,
        "intercept": ",".join(options.intercept),
        "no_intercept": options.no_intercept,
        "mcp_arguments": options.mcp_arguments,
    }
    return tuple((name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in words.items())
