"""From a policy to what the kernel is asked to hold of it: mounts, a Landlock domain, and what is left to the stop.

Pure: knows rules, paths and what `Disk` says is there; makes no mount itself (`launching.mounts` and
`launching.landlock` do).
"""

import posixpath
from collections.abc import Sequence
from typing import Literal

import msgspec

from agentwrap.launching.survey import NOBODYS, Closed, Disk, Opened, Survey
from agentwrap.policy import defaults
from agentwrap.policy.layers import Layer, mode_of
from agentwrap.policy.questions import Answer, Write
from agentwrap.policy.rules import Mode, Rule

# linux/landlock.h, LANDLOCK_ACCESS_FS_*
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
CHANGES_OF_FOLDERS = 0b1_1111_1111 << 4  # remove and make, of every kind
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
CONNECT_TCP = 1 << 1
SCOPE_ABSTRACT, SCOPE_SIGNAL = 1, 2


class Private(msgspec.Struct, frozen=True):
    """What the machine mounts later does not arrive: it would be writable."""

    def __str__(self) -> str:
        return "make all mounts private"


class Hold(msgspec.Struct, frozen=True):
    """Keep the tree of mounts at a path as it is now, for `Put`."""

    path: str

    def __str__(self) -> str:
        return f"hold {self.path}"


class ReadOnly(msgspec.Struct, frozen=True):
    """The mount at a path, which is a mount point, and all below it become read-only."""

    path: str

    def __str__(self) -> str:
        return f"read-only {self.path}"


class Put(msgspec.Struct, frozen=True):
    """What was held comes back on top."""

    path: str

    def __str__(self) -> str:
        return f"put back {self.path}"


class Bind(msgspec.Struct, frozen=True):
    """A path is mounted on itself, which by itself keeps it from being renamed, replaced or removed."""

    path: str
    read_only: bool = False
    no_exec: bool = False

    def __str__(self) -> str:
        words = ["bind", *(["read-only"] if self.read_only else []), *(["not to be run"] if self.no_exec else [])]
        return f"{' '.join(words)} {self.path}"


class Mask(msgspec.Struct, frozen=True):
    """An empty file or folder, which nobody can change, lies over a path."""

    path: str

    def __str__(self) -> str:
        return f"mask {self.path}"


class Devices(msgspec.Struct, frozen=True):
    """/dev has these and no others."""

    paths: tuple[str, ...]

    def __str__(self) -> str:
        return "devices"


Step = Private | Hold | ReadOnly | Put | Bind | Mask | Devices


class MountPlan(msgspec.Struct, frozen=True):
    """Steps in the order in which they are made."""

    steps: tuple[Step, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.steps)


class LandlockPlan(msgspec.Struct, frozen=True):
    """A Landlock domain: bits of linux/landlock.h that are handled, and (path, rights) that are granted."""

    handled_files: int = 0
    handled_ports: int = 0
    scoped: int = 0
    granted: tuple[tuple[str, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.handled_files or self.handled_ports or self.scoped)


State = Literal["open", "closed", "hidden", "not-run"]


class Holding(msgspec.Struct, frozen=True):
    """How the kernel holds a path and what lies below it, until a `Holding` further down says otherwise.

    `open`: it may be changed. `closed`: it may not. `hidden`: there is nothing to see. `not-run`: as `open`, but for
    running it. `pinned`: the name itself cannot be moved or removed, as something is mounted on it.
    """

    state: State
    mechanism: Literal["mount", "landlock"] = "mount"
    answer: Answer = Answer("deny", Rule("built-in.kernel"))
    pinned: bool = True


class EnforcementPlan(msgspec.Struct, frozen=True):
    """What holds a policy about files, sockets, programs and signals, apart from the gateway.

    `holdings`: by path. `left`: what only the stop holds, in words. `reads`, `execs`: whether opens that only read, and
    execs, have to be judged at the stop. `signals`: whether signals are, also where a Landlock scope holds them, since
    the kernel tells nobody. `opened`, `closed`: what may be written (None: everything), and what exists in there and
    may not. `other_names`: real paths and what rules call them.
    """

    mode: Mode = "observe"
    mounts: MountPlan = MountPlan()
    landlock: LandlockPlan = LandlockPlan()
    holdings: dict[str, Holding] = {}
    left: tuple[str, ...] = ()
    reads: bool = False
    execs: bool = False
    signals: bool = False
    opened: Opened | None = None
    closed: tuple[str, ...] = ()
    other_names: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return self.mode != "observe"

    def held(self, path: str) -> tuple[str, Holding] | None:
        """The nearest path, upwards from `path` and itself included, about which something is said, and what."""
        while True:
            found = self.holdings.get(path)
            if found is not None:
                return path, found
            if path in ("/", ""):
                return None
            path = posixpath.dirname(path)


def plan(
    layers: Sequence[Layer],
    disk: Disk,
    *,
    uid: int,
    tier: Literal["wall", "guard", "none"] = "wall",
    landlock_abi: int = 0,
    restricts_network: bool = False,
) -> EnforcementPlan:
    """What the kernel can hold of a policy in a tier.

    `wall`: a mount namespace of ours above the agent's. `guard`: Landlock of version `landlock_abi` (0: none), with
    `restricts_network` no TCP connection by the agent itself. `none`: signals, and else the stop alone. In mode
    `observe`: nothing.
    """
    mode = mode_of(layers)
    survey = Survey(layers, disk)
    reads = any(layer.policy.read.default == "deny" or layer.policy.read.deny for layer in layers)
    execs = any(layer.policy.exec.default == "deny" or layer.policy.exec.deny for layer in layers)
    own = bool(survey.places.secret)
    if mode == "observe":
        return EnforcementPlan(reads=reads, execs=execs, other_names=survey.other_names())
    nobodys = survey.ask(Write(NOBODYS))
    opened = survey.opened() if nobodys.verdict != "allow" else None
    base = EnforcementPlan(mode=mode, reads=reads or own, execs=execs, signals=True, other_names=survey.other_names())
    if opened is not None and opened.everywhere:
        survey.left.append("writes: a rule fits anywhere, so that no folder can be read-only")
        opened = None
    closed = closed_now(survey, opened)
    base = msgspec.structs.replace(base, opened=opened, closed=tuple(one.path for one in closed))
    if tier == "wall":
        base = _with_mounts(base, survey, opened, closed, nobodys, uid)
    if tier in ("wall", "none"):
        domain = LandlockPlan(scoped=SCOPE_SIGNAL if landlock_abi >= 6 else 0)
        return msgspec.structs.replace(base, landlock=domain, left=(*survey.left, *_never_held(opened)))
    if landlock_abi:
        base = _with_landlock(base, survey, opened, nobodys, landlock_abi, restricts_network)
    return msgspec.structs.replace(base, left=(*survey.left, *_never_held(opened)))


def closed_now(survey: Survey, opened: Opened | None) -> list[Closed]:
    """What exists now, lies where things may be written, and may not be."""
    found = {one.path: one for one in (survey.closed_in_loose(opened) if opened is not None else ())}
    for one in survey.closed_writes(opened):
        found.setdefault(one.path, one)
    return list(found.values())


def _never_held(opened: Opened | None) -> tuple[str, ...]:
    """What no mount and no domain can be told beforehand."""
    told = ["names of protected files that do not exist yet", "services that are started anew during the run"]
    told += [f"new names in {folder}" for folder in (opened.loose if opened is not None else ())]
    return tuple(told)


# Mounts

_KERNEL_SWITCHES = (
    "/proc/sys",
    "/proc/sysrq-trigger",
    "/proc/irq",
    "/proc/bus",
    "/proc/fs",
    "/proc/acpi",
    "/proc/scsi",
)
_KERNEL_SECRETS = ("/proc/kcore", "/proc/keys", "/proc/timer_list")
_DEVICE_FOLDERS = ("/dev/pts", "/dev/shm", "/dev/mqueue")
_OWN = Answer("deny", Rule("built-in.own-files"), "recordings, keys and policies are not for the agent")
_ROOT = Answer("deny", Rule("built-in.kernel"), "it acts on the machine, on which the agent is root",
               "run the agent as a user who is not root")  # fmt: skip


class _Layout:
    """Mounts by path, before they have an order."""

    def __init__(self) -> None:
        self.over: dict[str, Step] = {}
        self.holdings: dict[str, Holding] = {}

    def close(self, closed: Closed) -> None:
        self.over.setdefault(closed.path, Bind(closed.path, read_only=True))
        self.holdings.setdefault(closed.path, Holding("closed", answer=closed.answer))

    def hide(self, closed: Closed) -> None:
        self.over[closed.path] = Mask(closed.path)
        self.holdings[closed.path] = Holding("hidden", answer=closed.answer)

    def pin(self, path: str) -> None:
        """What holds something closed stays where it is: who moved it away could put another in its place."""
        if path not in self.holdings:
            self.over[path] = Bind(path)
            self.holdings[path] = Holding("open")

    def steps(self) -> list[Step]:
        """In the order in which they come to lie on each other; none inside of a mask."""
        masks = tuple(path for path, step in self.over.items() if isinstance(step, Mask))
        return [
            step
            for path, step in sorted(self.over.items())
            if not any(path != mask and defaults.is_under(path, (mask,)) for mask in masks)
        ]


def _with_mounts(
    base: EnforcementPlan,
    survey: Survey,
    opened: Opened | None,
    closed_places: Sequence[Closed],
    nobodys: Answer,
    uid: int,
) -> EnforcementPlan:
    layout = _Layout()
    steps: list[Step] = []
    if opened is not None:
        # What is written to /proc is mostly one's own business (uid_map, oom_score_adj): sandboxes in the run need it.
        places = tuple(sorted({"/proc", *opened.whole, *opened.files, *opened.loose}))
        steps += [Private(), *(Hold(path) for path in places), ReadOnly("/"), *(Put(path) for path in places)]
        layout.holdings["/"] = Holding("closed", answer=nobodys, pinned=False)
        layout.holdings |= {path: Holding("open") for path in places}
    for closed in closed_places:
        if closed.kind == "link":
            continue  # nothing can be mounted on a link itself
        layout.close(closed)
        for holder in _holders(closed.path):
            layout.pin(holder)
    _own_places(survey, layout)
    for program in survey.denied_programs():
        layout.over.setdefault(program.path, Bind(program.path, no_exec=True))
        layout.holdings.setdefault(program.path, Holding("not-run", answer=program.answer))
    for closed in (*survey.closed_reads(opened), *survey.ways_out()):
        layout.hide(closed)
    if uid == 0:
        steps += _for_root(survey, layout, opened)
    return msgspec.structs.replace(base, mounts=MountPlan((*steps, *layout.steps())), holdings=layout.holdings)


def _holders(path: str) -> list[str]:
    """The folders above a path, from the first hidden one on: `/w/.git` for `/w/.git/hooks`."""
    parts = path.split("/")[1:-1]
    first = next((index for index, part in enumerate(parts) if part.startswith(".")), len(parts))
    return ["/" + "/".join(parts[: length + 1]) for length in range(first, len(parts))]


def _own_places(survey: Survey, layout: _Layout) -> None:
    """Policies may be read, so that the agent can tell what it may do; recordings and what undo needs may not."""
    readable = {survey.exists(layer.policy.file) for layer in survey.layers if layer.policy.file.startswith("/")} - {""}
    for path in survey.places.own:
        real = survey.exists(path)
        if not real:
            continue
        kind = survey.disk.kind(real)
        closed = Closed(real, _OWN, kind)
        if kind == "folder" and not any(defaults.is_under(one, (real,)) for one in readable):
            layout.hide(closed)
        elif kind:
            layout.close(closed)


def _for_root(survey: Survey, layout: _Layout, opened: Opened | None) -> list[Step]:
    """A root agent is root for the files of the kernel too, whatever its user namespace maps (user_namespaces(7))."""
    for path in _KERNEL_SWITCHES:
        if survey.exists(path):
            layout.close(Closed(path, _ROOT))
    for path in _KERNEL_SECRETS:
        if survey.exists(path):
            layout.hide(Closed(path, _ROOT))
    if opened is None and survey.exists("/sys"):
        layout.close(Closed("/sys", _ROOT, "folder"))
    named = [
        rule.pattern.expanded
        for layer in survey.layers
        for rule in layer.policy.write.allow.literal.values()
        if rule.pattern.expanded.startswith("/dev/") and survey.may_write(rule.pattern.expanded)
    ]
    plain = [path for path in defaults.DEVICES if "*" not in path]
    shown = [path for path in (*plain, *_DEVICE_FOLDERS, *named) if survey.exists(path)]
    if not shown:
        return []
    layout.holdings["/dev"] = Holding("closed", answer=_ROOT)
    for path in shown:
        layout.holdings.setdefault(path, Holding("open"))
    return [Devices(tuple(dict.fromkeys(shown)))]


# Landlock


def _with_landlock(
    base: EnforcementPlan,
    survey: Survey,
    opened: Opened | None,
    nobodys: Answer,
    abi: int,
    restricts_network: bool,
) -> EnforcementPlan:
    handled = 0
    granted: list[tuple[str, int]] = []
    holdings: dict[str, Holding] = {}
    # The first version refuses every move and link from one folder to another (EXDEV), which would break too much.
    if opened is not None and abi >= 2:
        handled = WRITE_FILE | CHANGES_OF_FOLDERS | REFER | (TRUNCATE if abi >= 3 else 0)
        places = dict.fromkeys((*opened.whole, *opened.loose, *opened.files))
        devices = [path.removesuffix("/*") for path in defaults.DEVICES]
        granted = [(path, handled) for path in places]
        granted += [(path, WRITE_FILE | TRUNCATE) for path in ("/proc", *devices) if survey.exists(path)]
        holdings = {path: Holding("open", "landlock", pinned=False) for path, _ in granted}
        holdings["/"] = Holding("closed", "landlock", nobodys, pinned=False)
    elif opened is not None:
        survey.left.append("writes: this kernel's Landlock would forbid every move between folders")
    abstract = not any(path.startswith("@") for layer in survey.layers for path in layer.policy.unix.literal)
    scoped = (SCOPE_SIGNAL | (SCOPE_ABSTRACT if abstract else 0)) if abi >= 6 else 0
    ports = CONNECT_TCP if restricts_network and abi >= 4 else 0
    survey.left.append("writes and reads that are closed inside of what is open")
    domain = LandlockPlan(handled, ports, scoped, tuple(granted))
    return msgspec.structs.replace(base, landlock=domain, holdings=holdings)
