"""The policy at the stop: every reported act is judged before it goes on, and what is refused is told first.

Knows names, numbers and the policy; how a call names its files is `judged_files`' business. Arguments in memory can
change between our reading and the kernel's: what the stop alone refuses is testimony (`witness`), unless mounts, a
domain or a filter hold it as well.
"""

import errno
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence

import msgspec

from agentwrap.events import Sink
from agentwrap.events.egress import Act, ActDenied, By
from agentwrap.events.repeats import Teller
from agentwrap.launching.enforcement import EnforcementPlan
from agentwrap.policy.defaults import is_device
from agentwrap.policy.layers import Layer, decide_layers, mode_of
from agentwrap.policy.questions import Answer, Exec, Family, Question, Read, Unix, Write
from agentwrap.policy.repositories import OwnRepositories
from agentwrap.policy.rules import Rule
from agentwrap.tracing.processes import Process

_ANSWERS = 8_192
_PROCESS_FILE = re.compile(r"/proc/(\d+|self|thread-self)(?:/.*)?\Z", re.DOTALL)
# Landlock holds no change of attributes (landlock(7), "current limitations").
_ATTRIBUTES = re.compile(r"ch(mod|own)|xattr|setattr")
_ABOUT_OTHERS = "another process of the machine, outside of the run"


class StopJudge:
    """Judges acts; each method returns 0, or the errno with which the call is to be refused.

    `plan`: what the kernel holds besides. `belongs(pid)`: whether a process is one of the run. `hold`: returns when
    what was told is on disk. In mode `observe` everything passes and is told as `would-deny`.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        plan: EnforcementPlan,
        sink: Sink,
        now: Callable[[], int],
        belongs: Callable[[int], bool],
        hold: Callable[[], None] = lambda: None,
    ) -> None:
        self.plan = plan
        self.observes = mode_of(layers) == "observe"
        self.denied = 0
        self._layers = layers
        self._now = now
        self._belongs = belongs
        self._hold = hold
        self._lock = threading.Lock()
        self._repeats: Teller[ActDenied] = Teller(sink)
        self._answers: dict[Question, Answer] = {}
        self.repositories = OwnRepositories()

    @property
    def folders(self) -> tuple[str, ...]:
        """Where the command was started and what is its home: what rules about files are mostly about."""
        return tuple(folder for layer in self._layers for folder in (layer.policy.places.cwd, layer.policy.places.home))

    @property
    def waiting(self) -> bool:
        """Whether counts of repeats wait to be told."""
        return self._repeats.waiting

    def settle(self) -> None:
        """Tell repeats that have waited long enough. From any thread."""
        with self._lock:
            self._repeats.flush(self._now())

    def finish(self) -> None:
        """Tell every count that is left."""
        with self._lock:
            self._repeats.flush(self._now(), everything=True)

    def _ask(self, question: Question) -> Answer:
        answer = self._answers.get(question)
        if answer is None:
            if len(self._answers) >= _ANSWERS:
                self._answers.clear()
            answer = self._answers[question] = self._decide(question)
        return answer

    def _decide(self, question: Question) -> Answer:
        """Under each name that a path has by the rules' own links: a denial by name holds, then what allows by name."""
        answers = [decide_layers(self._layers, one) for one in (question, *self._renamed(question))]
        named = [one for one in answers if not one.rule.where.endswith(".default")]
        refused = [one for one in named if one.verdict != "allow"]
        return (refused or [one for one in named if one.verdict == "allow"] or answers)[0]

    def _renamed(self, question: Question) -> Iterator[Question]:
        path = getattr(question, "path", "")
        for real, name in self.plan.other_names:
            if path == real or path.startswith(real + "/"):
                yield msgspec.structs.replace(question, path=name + path[len(real) :])

    # Files

    def refusal_to_write(self, path: bytes, *, folder: bool = False, tree: bool = False) -> Answer | None:
        """Why a name may not be changed; None where it may."""
        name = os.fsdecode(path)
        if _PROCESS_FILE.match(name):
            if self._is_its_own(name):
                return None
            return Answer("deny", Rule("built-in.reach"), _ABOUT_OTHERS, "nothing in a policy")
        answer = self._ask(Write(name, folder, tree, name in self.repositories))
        if answer.verdict != "allow":
            return answer
        return None if answer.rule.where == "built-in.device" else self._held(name, "closed")

    def refusal_to_read(self, path: bytes, *, folder: bool = False) -> Answer | None:
        """Why a content may not be read; None where it may.

        Folders are listed, harmless devices and what /proc tells about the run are read unless a rule names them.
        """
        name = os.fsdecode(path)
        answer = self._ask(Read(name))
        if answer.verdict == "allow":
            return self._held(name, "")
        by_default = answer.rule.where.endswith(".default")
        if by_default and (folder or self._is_its_own(name) or is_device(name, self._layers[0].policy.places)):
            return self._held(name, "")
        return answer

    def _is_its_own(self, name: str) -> bool:
        """Whether it is a file in /proc about a process of the run."""
        found = _PROCESS_FILE.match(name)
        return found is not None and (not found[1].isdigit() or self._belongs(int(found[1])))

    def refusal_to_move(self, path: bytes) -> Answer | None:
        """Why a content may not come under another name: it, or something below it, may not be read here."""
        if not self.plan.reads:
            return None
        name = os.fsdecode(path)
        for layer in self._layers:
            below = layer.policy.read.deny.below(name)
            if below is not None:
                return Answer("deny", below.rule, "it holds what may not be read", f"remove {below.rule}")
        return self.refusal_to_read(path)

    def _held(self, name: str, state: str) -> Answer | None:
        """What the kernel holds though no rule says so of this very name: its neighbours in a closed folder."""
        found = self.plan.held(name)
        if found is None or found[0] == "/" or found[1].state not in ("hidden", state):
            return None
        return found[1].answer

    def by_name(self, path: bytes) -> bool:
        """Whether a name is hidden by us: what is found there is ours, and says nothing about it."""
        found = self.plan.held(os.fsdecode(path))
        return found is not None and found[1].state == "hidden"

    def refuse_file(self, process: Process, act: Act, path: bytes, call: str, answer: Answer) -> int:
        """Tell that a file was refused."""
        by, mechanism = self._strength(act, os.fsdecode(path), call)
        if answer.rule.where == "built-in.reach":
            act = "reach"
        return self._refuse(process, act, path, call, answer, errno.EACCES, by, mechanism)

    def _strength(self, act: Act, name: str, call: str) -> tuple[By, str]:
        found = self.plan.held(name)
        if found is None:
            return "witness", "stop"
        where, holding = found
        if holding.mechanism == "landlock" and _ATTRIBUTES.search(call):
            return "witness", "stop"
        moves = call.startswith(("rename", "unlink", "rmdir")) and where == name and holding.pinned
        held = {"write": ("closed", "hidden"), "read": ("hidden",), "exec": ("hidden", "not-run"), "unix": ("hidden",)}
        if holding.state in held.get(act, ()) or (act == "write" and moves):
            return "wall", holding.mechanism
        return "witness", "stop"

    # Programs, sockets, processes

    def run(self, process: Process, path: bytes, call: str) -> int:
        """A program is to be run."""
        name = os.fsdecode(path)
        answer = self._ask(Exec(name))
        if answer.verdict == "allow":
            held = self._held(name, "not-run")
            if held is None:
                return 0
            answer = held
        by, mechanism = self._strength("exec", name, call)
        return self._refuse(process, "exec", path, call, answer, errno.EACCES, by, mechanism)

    def run_by_link(self, process: Process, path: bytes, call: str) -> int:
        """A link is run: what it leads to counts, but a denial of the link's own name does, too."""
        answer = self._ask(Exec(os.fsdecode(path)))
        if answer.verdict == "allow" or answer.rule.where.endswith(".default"):
            return 0
        return self._refuse(process, "exec", path, call, answer, errno.EACCES, "witness", "stop")

    def runs(self, process: Process) -> bool:
        """Whether a process that just became another program may run it. Nothing of it has run yet: a race ends here.

        A program of a sandbox's own view is left alone: its name there says nothing.
        """
        if not self.plan.execs or process.foreign:
            return True
        try:
            path = os.readlink(b"/proc/%d/exe" % process.pid).removesuffix(b" (deleted)")
        except OSError:
            return True  # dead already
        answer = self._ask(Exec(os.fsdecode(path)))
        if answer.verdict == "allow":
            return True
        return not self._refuse(process, "exec", path, "execve", answer, errno.EACCES, "guard", "stop")

    def unix(self, process: Process, path: bytes, call: str, *, inner: bool) -> int:
        """A unix socket is connected or sent to; abstract ones begin with `@`."""
        name = os.fsdecode(path)
        answer = self._ask(Unix(name, inner))
        if answer.verdict == "allow":
            return 0
        abstract = path.startswith(b"@")
        by, mechanism = self._strength("unix", name, call)
        number = errno.ECONNREFUSED if abstract else errno.EACCES
        return self._refuse(process, "unix", path, call, answer, number, by, mechanism)

    def family(self, process: Process, name: str, call: str) -> int:
        """A socket of a family that the filter does not let through. The number is in a register: nothing to race."""
        answer = self._ask(Family(name))
        if answer.verdict == "allow":
            return 0
        target = name.encode()
        return self._refuse(process, "family", target, call, answer, errno.EAFNOSUPPORT, "wall", "seccomp")

    def signal(self, process: Process, target: int, call: str) -> int:
        """A signal to a process: 0 and below mean groups (kill(2))."""
        if target == 0 or (target > 0 and self._belongs(target)):
            return 0
        if target < -1 and self._group_belongs(-target):
            return 0
        return self._refuse_reach(process, "signal", target, call)

    def reach(self, process: Process, target: int, call: str) -> int:
        """The memory or the descriptors of another process."""
        return 0 if self._belongs(target) else self._refuse_reach(process, "reach", target, call)

    def _refuse_reach(self, process: Process, act: Act, target: int, call: str) -> int:
        answer = Answer("deny", Rule("built-in.reach"), _ABOUT_OTHERS, "nothing in a policy")
        return self._refuse(process, act, b"%d" % target, call, answer, errno.EPERM, "guard", "stop")

    def _group_belongs(self, group: int) -> bool:
        """Whether every process of a group is of the run; one that nobody is in harms nobody."""
        for name in os.listdir("/proc"):
            if name.isdigit() and _group_of(int(name)) == group and not self._belongs(int(name)):
                return False
        return True

    def fast_open(self, process: Process, target: bytes, call: str) -> int:
        """Data with the connection request (MSG_FASTOPEN): no connect would be judged. Refused as where it is off."""
        answer = Answer("deny", Rule("built-in.fast-open"), "data would leave before the connection is judged",
                        "nothing: programs connect first instead")  # fmt: skip
        return self._refuse(process, "call", target, call, answer, errno.EOPNOTSUPP, "wall", "seccomp")

    def raw_socket(self, process: Process, family: str, call: str) -> int:
        """A raw socket of the internet families: it would send packets that no rule names."""
        answer = Answer(
            "deny", Rule("built-in.family"), "raw sockets are let through for nobody", "nothing in a policy"
        )
        return self._refuse(
            process, "family", b"%b raw" % family.encode(), call, answer, errno.EPERM, "wall", "seccomp"
        )

    def terminal(self, process: Process, request: str) -> int:
        """Input put into a terminal, for whoever reads it next (ioctl_tty(2)). The number is in a register."""
        answer = Answer(
            "deny", Rule("built-in.terminal"), "whoever reads it next takes it for typed", "nothing in a policy"
        )
        return self._refuse(process, "call", request.encode(), "ioctl", answer, errno.EPERM, "wall", "seccomp")

    def device_node(self, process: Process, path: bytes, call: str) -> int:
        """A device node: a way to a disk or to memory that no rule about files names."""
        answer = Answer(
            "deny", Rule("built-in.device-node"), "a device node leads past every file", "nothing in a policy"
        )
        return self._refuse(process, "write", path, call, answer, errno.EPERM, "guard", "stop")

    def unreadable(self, process: Process, call: str) -> int:
        """A call about files of a process whose memory we may not read: nobody knows what it asks for."""
        root = self.plan.holdings.get("/")
        if not self.plan or (root is not None and root.state == "closed"):
            return 0  # the kernel holds what is closed, whoever asks
        answer = Answer("deny", Rule("built-in.unclear-path"), "the process does not let us read what it asks for")
        return self._refuse(process, "call", call.encode(), call, answer, errno.EACCES, "guard", "stop")

    def _refuse(
        self,
        process: Process,
        act: Act,
        target: bytes,
        call: str,
        answer: Answer,
        number: int,
        by: By,
        mechanism: str,
    ) -> int:
        event = ActDenied(
            at_ns=self._now(),
            span=process.span,
            pid=process.pid,
            decision="would-deny" if self.observes else "deny",
            by="witness" if self.observes else by,
            rule=os.fsencode(str(answer.rule)),
            why=os.fsencode(answer.why),
            change=os.fsencode(answer.change),
            act=act,
            target=target,
            call=call,
            mechanism="" if self.observes else mechanism,
            errno="" if self.observes else errno.errorcode[number],
        )
        with self._lock:
            self.denied += not self.observes
            first = self._repeats.tell(event)
        if self.observes:
            return 0
        if first:
            self._hold()
        return number


def _group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return -1


def descends(pid: int, ancestor: int) -> bool:
    """Whether a process (or thread) is a descendant of another, by /proc; no for one that is gone."""
    for _ in range(1_000):
        if pid <= 1:
            return False
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            return False
        if parent == ancestor:
            return True
        pid = parent
    return False
