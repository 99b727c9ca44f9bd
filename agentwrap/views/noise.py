"""What the default view leaves out, and why: one word for each reason, so that it can be counted and said.

Nothing is left out of the file, denials and gaps are never left out of a view, and `--all` shows everything.
"""

import re
from collections.abc import Callable

from agentwrap.rows import Row, Span, number
from agentwrap.views.source import foreign_text

# Told elsewhere: a start and an exit in the line of the exec, the run in the header and the summary.
_TOLD_ELSEWHERE = {
    "process.start": "process starts and exits",
    "process.exit": "process starts and exits",
    "coverage": "coverage statements",
    "run.start": "run start and end",
    "run.end": "run start and end",
}
_HIDDEN_CLASSES = {
    "cache": "caches",
    "agent-state": "agent state",
    "version-control": "version control",
    "device": "devices",
    "system": "system files",
    "stdio": "redirected output",
}
# `git init` puts a dozen there; git runs none of that name (githooks(5)).
_SAMPLE_HOOK = re.compile(r"/\.git/hooks/[a-z-]+\.sample$")
TEMPORARY = "temporary files"
# A sandbox or container being set up: one unshare tells it, its thirty mounts do not.
_SETTING_UP = frozenset(
    {"mount", "umount", "umount2", "move_mount", "mount_setattr", "open_tree", "fsopen", "fsmount", "fsconfig"}
)
# The C library asks these before every name look-up.
_LIBRARY_SOCKETS = ("/run/nscd/socket", "/var/run/nscd/socket")

# What both sides of MCP say to get at tools, and each message, whose calls have lines of their own.
_MCP_HOUSEKEEPING = "MCP housekeeping"
_MCP_MESSAGES = "MCP messages"
_STEPS = "look-ups by env"
_ANSWERED = "answered look-ups of names"
_TOLD_BY_GATEWAY = "system calls whose connection the gateway tells"
NOISE = frozenset(
    {*_HIDDEN_CLASSES.values(), TEMPORARY, _STEPS, _ANSWERED, _TOLD_BY_GATEWAY, "library sockets", "mounts"}
    | {_MCP_HOUSEKEEPING, _MCP_MESSAGES}
)


AGAIN = "answers and results that stand on the line of the call"


class Told:
    """Which calls have had their line, in a file that is whole: the answer is on it."""

    def __init__(self) -> None:
        self._calls: set[str] = set()
        self._tools: set[str] = set()
        self._mcp: set[str] = set()
        self._exchanges: set[str] = set()

    def met(self, row: Row) -> None:
        """A row went by, shown or not."""
        if row.kind == "mcp.message" and row.data.get("exchange"):
            self._exchanges.add(str(row.data["exchange"]))

    def shown(self, row: Row) -> None:
        """A line was printed."""
        if row.kind == "model.request":
            self._calls.add(str(row.data.get("call")))
        elif row.kind == "tool.call":
            self._tools.add(str(row.data.get("tool")))
        elif row.kind == "mcp.call":
            self._mcp.add(str(row.data.get("call")))

    def again(self, row: Row) -> str:
        """Why a row needs no line of its own, or nothing."""
        answered = row.kind == "model.response" and str(row.data.get("call")) in self._calls
        resulted = row.kind == "tool.result" and str(row.data.get("tool")) in self._tools
        ended = row.kind == "mcp.result" and str(row.data.get("call")) in self._mcp
        if row.kind == "http.exchange" and str(row.data.get("exchange")) in self._exchanges:
            return _MCP_MESSAGES if number(row.data.get("status")) < 400 else ""
        return AGAIN if answered or resulted or ended else ""


def hidden(
    row: Row, *, live: bool = False, spans: Callable[[str], Span | None] | None = None, walled: bool = False
) -> str:
    """Why the default view does not show `row`, in the plural, or nothing if it does.

    `live`: exits that say something are shown, because the line of the exec was printed before they were known.
    `spans` finds a span, to tell the steps on the way to a program from the program. `walled`: what leaves the machine
    goes through a gateway, which tells it.
    """
    if row.verdict and row.verdict != "allow":
        return ""
    kind, data = row.kind, row.data
    if kind in _TOLD_ELSEWHERE:
        if live and kind == "process.exit" and (number(data.get("signal")) or number(data.get("status"))):
            return ""
        return _TOLD_ELSEWHERE[kind]
    if kind.startswith("file."):
        return _hidden_file(row)
    if kind.startswith("mcp."):
        return _hidden_mcp(row)
    if kind == "net.closed":
        failed = data.get("ending") not in ("closed", "denied", "ended")
        return "" if live and failed else "ends of connections"
    if kind == "net.decision":
        return ""
    if kind == "dns.query":
        return _ANSWERED if data.get("rcode") == "NOERROR" else ""
    if walled and _is_told_by_gateway(row):
        return _TOLD_BY_GATEWAY
    if kind.startswith("net."):
        return _hidden_socket(row)
    if kind == "process.exec" and spans is not None and _is_step(row, spans):
        return _STEPS
    if kind == "process.isolation" and str(data.get("call")) in _SETTING_UP:
        return "mounts"
    return ""


def _is_told_by_gateway(row: Row) -> bool:
    """Whether a call's connection comes to the gateway: what stays on the loopback does not."""
    if row.kind == "dns.server":
        return True
    data = row.data
    host = foreign_text(data.get("host"))
    inner = host.startswith(("127.", "::ffff:127.")) or host == "::1"
    return row.kind in ("net.connect", "net.send") and data.get("family") in ("inet", "inet6") and not inner


def _is_step(row: Row, spans: Callable[[str], Span | None]) -> bool:
    """Whether this is `/usr/bin/env PROGRAM`, the first line of a script, and the PROGRAM came."""
    argv = row.data.get("argv")
    if not isinstance(argv, list) or not argv or argv[0] not in ("/usr/bin/env", "/bin/env"):
        return False
    span = spans(row.span) if row.span else None
    return span is not None and number(span.data.get("execs")) > 1 and span.data.get("argv") != argv


def _hidden_file(row: Row) -> str:
    klass, change = str(row.data.get("klass", "work")), row.data.get("change")
    if klass in _HIDDEN_CLASSES:
        return _HIDDEN_CLASSES[klass]
    if _SAMPLE_HOOK.search(foreign_text(row.data.get("path"))):
        return _HIDDEN_CLASSES["version-control"]
    if change == "transient":
        return TEMPORARY
    if klass == "temporary" and not (row.kind == "file.edit" and change in ("create", "modify")):
        return TEMPORARY
    return ""


def _hidden_mcp(row: Row) -> str:
    from agentwrap.evidence.mcp_calls import HOUSEKEEPING

    kind, data = row.kind, row.data
    if kind in ("mcp.message", "mcp.joined"):
        return _MCP_MESSAGES
    if kind in ("mcp.call", "mcp.result"):
        failed = kind == "mcp.result" and data.get("ending") not in ("complete", "input-required", "cancelled")
        return _MCP_HOUSEKEEPING if foreign_text(data.get("method")) in HOUSEKEEPING and not failed else ""
    if kind == "mcp.tool":
        return "" if data.get("change") in ("changed", "removed") else _MCP_HOUSEKEEPING
    if kind == "mcp.decision":
        return "" if data.get("ask") else _MCP_HOUSEKEEPING
    if kind == "mcp.ended":
        # Clients end servers in their own ways; what was not answered then is told by its call.
        return "" if data.get("ending") == "lost" else _MCP_HOUSEKEEPING
    return _MCP_HOUSEKEEPING if kind == "mcp.hello" else ""


def _hidden_socket(row: Row) -> str:
    data = row.data
    family = data.get("family")
    if family == "netlink" or (family == "unix" and foreign_text(data.get("path")) in _LIBRARY_SOCKETS):
        return "library sockets"
    # getaddrinfo connects datagram sockets without a port to sort addresses (RFC 6724); nothing is sent.
    if row.kind == "net.connect" and data.get("transport") == "udp" and number(data.get("port")) in (0, 65535):
        return "library sockets"
    if row.kind == "net.bind" and family in ("inet", "inet6") and number(data.get("port")) == 0:
        return "library sockets"
    return ""
