"""One run behind a wall in events: what was judged, what passed, what did not. For readers."""

from agentwrap.events import (
    ActDenied,
    AskAnswered,
    AskWaiting,
    Coverage,
    DnsQuery,
    Event,
    NetClosed,
    NetConnect,
    NetDecision,
    NetRefused,
    PolicyLoaded,
    ProcessExec,
    ProcessExit,
    ProcessStart,
    RunEnd,
    RunStart,
)

MS = 1_000_000
ALLOW = b"network.allow `api.example.com:443` (ci.toml:7)"
DEFAULT = b"network.default `deny` (ci.toml:6)"
NO_RULE = b"no rule allows it"
ALLOWED = {"decision": "allow", "by": "wall", "rule": ALLOW}
REFUSED = {"decision": "deny", "by": "wall", "rule": DEFAULT, "why": NO_RULE}
WHO = {"span": "p1", "pid": 41}


def program(at_ms: int, span: str, pid: int, parent: str, name: bytes) -> list[Event]:
    path = b"/usr/bin/" + name
    return [
        ProcessStart(at_ns=at_ms * MS, span=span, pid=pid, parent=parent, how="fork", comm=name),
        ProcessExec(at_ns=at_ms * MS, span=span, pid=pid, path=path, exe=path, argv=(name,), cwd=b"/srv", uid=0, gid=0,
                    euid=0),
    ]  # fmt: skip


def events() -> list[Event]:
    """The whole run, in the order of arrival."""
    change = b"add `telemetry.example:443` to network.allow of ci.toml"
    return [
        RunStart(at_ns=0, command=(b"agent",), cwd=b"/srv", uid=0, gid=0, mode="ptrace+notify"),
        PolicyLoaded(at_ns=0, name=b"ci", mode="enforce", sha256="ab" * 32, layers=((b"flags", b"ci.toml"),)),
        *(Coverage(at_ns=0, what=what, tier="wall", mechanism="gateway") for what in ("connect", "dns", "udp")),  # type: ignore[arg-type]
        *(Coverage(at_ns=0, what=what, tier="witness", mechanism="ptrace") for what in ("process", "exec", "unix")),  # type: ignore[arg-type]
        Coverage(at_ns=0, what="file-write", tier="witness", mechanism="seccomp notify"),
        *program(1, "p1", 41, "run", b"agent"),
        DnsQuery(at_ns=2 * MS, name=b"api.example.com", qtype="A", rcode="NOERROR", answers=(b"203.0.113.5",),
                 server=b"9.9.9.9", **ALLOWED, **WHO),
        NetConnect(at_ns=3 * MS, family="inet", transport="tcp", host=b"203.0.113.5", port=443, **WHO),
        NetDecision(at_ns=3 * MS, connection="c1", host=b"api.example.com", port=443, address=b"203.0.113.5",
                    asked=b"203.0.113.5", protocol="tls", sni=b"api.example.com", **ALLOWED, **WHO),
        *program(4, "p2", 42, "p1", b"node"),
        DnsQuery(at_ns=5 * MS, name=b"telemetry.example", qtype="A", rcode="NXDOMAIN", change=change, **REFUSED,
                 span="p2", pid=42),
        DnsQuery(at_ns=6 * MS, name=b"telemetry.example", qtype="A", rcode="NXDOMAIN", change=change, count=3,
                 **REFUSED, span="p2", pid=42),
        NetDecision(at_ns=7 * MS, connection="c2", host=b"203.0.113.9", port=443, **REFUSED, span="p2", pid=42),
        NetClosed(at_ns=7 * MS, connection="c2", host=b"203.0.113.9", port=443, ending="denied", opened_ns=7 * MS,
                  span="p2", pid=42),
        NetRefused(at_ns=8 * MS, host=b"203.0.113.5", port=443, decision="deny", by="wall", rule=b"built-in.udp",
                   span="p2", pid=42),
        ActDenied(at_ns=9 * MS, act="write", target=b"/srv/.git/hooks/pre-commit", decision="deny", by="guard",
                  rule=b"built-in.git-hooks", why=b"git runs hooks", call="openat", mechanism="stop", errno="EACCES",
                  span="p2", pid=42),
        ActDenied(at_ns=9 * MS, act="unix", target=b"/run/docker.sock", decision="would-deny", by="witness",
                  rule=b"built-in.sockets", span="p2", pid=42),
        AskWaiting(at_ns=10 * MS, ask="a1", question=b"connect ask.example:443", until_ns=310_000 * MS, **WHO),
        AskAnswered(at_ns=11 * MS, ask="a1", answer="once", approver=b"alice", uid=1000, approver_pid=77, **WHO),
        ProcessExit(at_ns=12 * MS, span="p2", pid=42, status=1),
        NetClosed(at_ns=13 * MS, connection="c1", host=b"api.example.com", port=443, ending="closed", opened_ns=3 * MS,
                  up_bytes=1200, down_bytes=30_000, protocol="tls", sni=b"api.example.com", alpn=(b"h2",), **WHO),
        ProcessExit(at_ns=14 * MS, status=0, **WHO),
        RunEnd(at_ns=15 * MS, status=0),
    ]  # fmt: skip
