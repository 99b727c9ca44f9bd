"""What a way of following covers, and what it leaves unseen. Pure: from a mode's name to statements and gaps.

The modes, strongest first (`tracing.tracer` finds out by doing which of them the machine allows):

    ptrace+notify  ptrace for processes, user notification for calls
    ptrace+trace   ptrace for both, with a filter: kernels before 5.19
    ptrace+calls   ptrace for both, stopping at every call: the notify listener is taken, or there is no seccomp. As
                   complete, but several times slower on programs that make many calls
    notify         user notification alone: `--debuggable`, or ptrace is refused
    none           nothing (`--best-effort`)
"""

from typing import NamedTuple

from agentwrap.events import Coverage, CoverageKind, Gap, Tier

ESSENTIAL: tuple[CoverageKind, ...] = ("exec", "file-write", "connect")
_CALLS: tuple[CoverageKind, ...] = ("file-write", "connect", "bind", "udp", "unix", "dns")

_NOTES: dict[CoverageKind, str] = {
    "file-write": "edits by content; not descriptors received over unix sockets from outside the tree",
    "connect": "destinations as asked for, before the kernel answers",
    "udp": "datagrams with an address; not what later follows on a connected socket",
    "dns": "servers asked; names where a query is sent with sendmsg, sendmmsg or an address",
}

_HIDDEN: dict[CoverageKind, str] = {
    "process": "processes and their ends",
    "exec": "programs that were run",
    "file-write": "files that were changed, made or removed",
    "file-read": "files that were read",
    "connect": "connections that were made",
    "bind": "ports that were opened",
    "udp": "datagrams that were sent",
    "unix": "local services that were used (docker, D-Bus, agents)",
    "dns": "name servers that were asked",
}


class Standing(NamedTuple):
    """How the child stands: the mode, and why it is no stronger one (errno names; empty: nothing was refused)."""

    mode: str
    ptrace_refused: str = ""
    notify_refused: str = ""
    filter_refused: str = ""
    memory_refused: str = ""


def coverage(standing: Standing, *, reads: bool) -> list[Coverage]:
    """One statement for each kind that the spine can cover. `at_ns` is 0: it holds from the start."""
    mode = standing.mode
    process = {"notify": "seccomp notification and /proc", "none": ""}.get(mode, "ptrace")
    calls = {
        "ptrace+notify": "seccomp notification",
        "notify": "seccomp notification",
        "ptrace+trace": "ptrace",
        "ptrace+calls": "ptrace at every call",
    }
    # Paths and addresses lie in the caller's memory: without it a notification tells that, not what, was asked.
    call = "" if standing.memory_refused else calls.get(mode, "")
    weak = "only processes that make a reported call; forks and most exit statuses unknown" if mode == "notify" else ""
    out = [
        Coverage(at_ns=0, what="process", tier=_tier(process), mechanism=process, note=weak),
        Coverage(
            at_ns=0,
            what="exec",
            tier=_tier(process),
            mechanism=process,
            note="arguments as asked for where the program ended at once" if mode == "notify" else "",
        ),
    ]
    out += [
        Coverage(at_ns=0, what=what, tier=_tier(call), mechanism=call, note=_NOTES.get(what, "") if call else "")
        for what in _CALLS
    ]
    reading = call if reads else ""
    out.append(
        Coverage(
            at_ns=0,
            what="file-read",
            tier=_tier(reading),
            mechanism=reading,
            note="" if reads else "not asked for (--reads)",
        )
    )
    return out


def _tier(mechanism: str) -> Tier:
    return "witness" if mechanism else "none"


def gaps(standing: Standing, *, reads: bool) -> list[Gap]:
    """What the chosen way leaves unseen for the whole run. Reads that nobody asked for are no gap."""
    out = []
    if standing.mode == "notify":
        out.append(
            Gap(
                at_ns=0,
                what="process",
                cause="no-ptrace",
                could_hide="processes that make no reported call; forks; exit statuses of most processes",
                from_ns=0,
                detail=standing.ptrace_refused.encode(),
            )
        )
    out += [
        Gap(
            at_ns=0,
            what=statement.what,
            cause="not-observed",
            could_hide=_HIDDEN[statement.what],
            from_ns=0,
            detail=why(standing).encode(),
        )
        for statement in coverage(standing, reads=reads)
        if statement.tier == "none" and (reads or statement.what != "file-read")
    ]
    return out


def why(standing: Standing) -> str:
    """The refusals behind a weak mode, for a person."""
    parts = (
        ("ptrace", standing.ptrace_refused),
        ("seccomp notification", standing.notify_refused),
        ("seccomp filter", standing.filter_refused),
        ("reading the command's memory", standing.memory_refused),
    )
    return ", ".join(f"{name}: {word}" for name, word in parts if word)


def missing(standing: Standing) -> list[CoverageKind]:
    """Essential kinds that are not covered at all: a run refuses to start without them unless told otherwise."""
    return [s.what for s in coverage(standing, reads=False) if s.what in ESSENTIAL and s.tier == "none"]


def fix(standing: Standing) -> str:
    """One thing to do about a mode that is too weak."""
    if standing.notify_refused == "EBUSY":
        return "another supervisor traces and filters this process already: run agentwrap outside of it"
    if standing.filter_refused == "ENOSYS" or standing.notify_refused == "ENOSYS":
        return "this sandbox has no seccomp: run with the runc runtime, or go on with --best-effort"
    if standing.memory_refused:
        return "sysctl kernel.yama.ptrace_scope=1 (from 3 only by a restart), or go on with --best-effort"
    if standing.ptrace_refused:
        return "allow ptrace (docker run --cap-add SYS_PTRACE), or go on with --best-effort"
    return "agentwrap doctor"
