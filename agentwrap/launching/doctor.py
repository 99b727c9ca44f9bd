"""Which checks there are, in which order they are told, which way of following and which tier they add up to.

Does no probing itself (`probes`, `doctor_machine`, `doctor_storage`) and shows nothing (`cli.doctor`). The names of
ways are those of `agentwrap run`, which probes again for itself: this is advice, not a switch.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentwrap.launching import doctor_machine, doctor_storage, probes
from agentwrap.launching.probes import Probe

FOLLOWING: tuple[Callable[[], Probe], ...] = (
    probes.seccomp_filter,
    probes.notification,
    probes.ptrace_seize,
    probes.seccomp_trace,
    probes.yama,
    probes.proc_mem,
    probes.process_vm_readv,
    probes.pidfd_open,
    probes.pidfd_getfd,
    probes.subreaper,
)
MACHINE: tuple[Callable[[], Probe], ...] = (
    doctor_machine.kernel,
    doctor_machine.container,
    doctor_machine.own_seccomp,
    doctor_machine.no_new_privs,
    doctor_machine.io_uring,
    doctor_machine.syscalls_32bit,
)
PREVENTION: tuple[Callable[[], Probe], ...] = (
    doctor_machine.landlock,
    doctor_machine.user_namespace,
    doctor_machine.network_namespace,
    doctor_machine.descriptor_injection,
)


@dataclass(frozen=True)
class Way:
    """How a run would follow its tree. `name`: a mode of `plan`; `whole`: nothing it records by default is missing."""

    name: str
    words: str
    whole: bool


PTRACE_AND_NOTIFY = Way("ptrace+notify", "ptrace + notification", True)
PTRACE_AND_TRACE = Way("ptrace+trace", "ptrace alone, with a filter (slower: every reported call is a stop)", True)
PTRACE_AND_CALLS = Way("ptrace+calls", "ptrace alone, without a filter (much slower: every call is a stop)", True)
NOTIFY = Way("notify", "notification alone (processes come from /proc: short lives may be missed)", False)
NOTHING = Way("none", "nothing: a run refuses to start here, unless it is told `--best-effort`", False)


def way(found: Mapping[str, Probe]) -> Way:
    """The way that a run chooses where these probes hold (`launching.child` finds it out by trying, in this order)."""

    def ok(*names: str) -> bool:
        return all(name in found and found[name].ok for name in names)

    # Without the caller's memory it is known that something was opened, not what: that is no witness.
    if not ok("proc-mem"):
        return NOTHING
    if not ok("ptrace"):
        return NOTIFY if ok("seccomp-filter", "user-notification") else NOTHING
    if ok("seccomp-filter", "user-notification"):
        return PTRACE_AND_NOTIFY
    # A listener above us would outrank our filter's stops: then, as without seccomp, every call is stopped at.
    old_kernel = probes.NOT_KILLABLE in found["user-notification"].detail
    return PTRACE_AND_TRACE if old_kernel and ok("seccomp-filter", "seccomp-trace") else PTRACE_AND_CALLS


@dataclass(frozen=True)
class Tier:
    """How a run would be confined, where its policy restricts the network."""

    name: Literal["wall", "guard", "none"]
    words: str


WALL = Tier("wall", "a network namespace of the run's own, with one way out")
GUARD = Tier("guard", "no namespaces: connections are made on the run's behalf, and judged")
UNCONFINED = Tier("none", "a policy that restricts the network stops the run before it starts")


def tier(found: Mapping[str, Probe]) -> Tier:
    """The strongest tier that these probes give; `wall` is `session.confinement`'s probe of a whole wall."""

    def ok(*names: str) -> bool:
        return all(name in found and found[name].ok for name in names)

    if ok("wall"):
        return WALL
    # The guard reads addresses from the caller's memory, and answers with a socket of its own or takes the caller's.
    guarded = ok("seccomp-filter", "user-notification", "descriptor-injection", "proc-mem")
    at_stops = way(found) in (PTRACE_AND_TRACE, PTRACE_AND_CALLS) and ok("pidfd-getfd")
    return GUARD if guarded or at_stops else UNCONFINED


def examine(
    state_folder: Path, signing_key: Path, prevention: Iterable[Callable[[], Probe]] = ()
) -> list[tuple[str, list[Probe]]]:
    """Run every probe: a list of headed groups. Takes well under a second; each probe ends within seconds.

    `prevention`: probes besides that this layer cannot make.
    """
    storage = doctor_storage.probes(state_folder, signing_key)
    preventing = (*PREVENTION, *prevention)
    groups = (("machine", MACHINE), ("following", FOLLOWING), ("recording", storage), ("prevention", preventing))
    return [(head, [probe() for probe in members]) for head, members in groups]


def matters(chosen: Way, probe: Probe) -> bool:
    """Whether a run here is less than whole for want of this. One of two roads to a whole way may be closed."""
    roads = {"seccomp-filter", "user-notification", "seccomp-trace", "ptrace"}
    return not probe.ok and probe.weight == "needed" and not (chosen.whole and probe.name in roads)


def healthy(chosen: Way, all_probes: Iterable[Probe]) -> bool:
    """Whether a run here would be whole."""
    return chosen.whole and not any(matters(chosen, probe) for probe in all_probes)
