"""`approve --always`: the user's own policy with one entry more, checked before it takes the old one's place.

An entry that would not allow it in the next run is not written: whoever reads it there would believe in it.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from agentwrap.approvals import permission
from agentwrap.approvals.messages import LayerText, RunFacts
from agentwrap.cli.layers import run_places
from agentwrap.cli.package_hosts import configured, policy_bytes
from agentwrap.errors import AgentwrapError
from agentwrap.policy.document import MAX_BYTES, load
from agentwrap.policy.layers import Layer, decide_layers
from agentwrap.policy.rules import Mode, Policy
from agentwrap.recording.places import policy_path

_NAME = "mine"


class Change:
    """A policy file that is ready to be put in place. `lines`: what is new in it, by number; none if nothing is."""

    def __init__(self, path: Path, lines: tuple[tuple[int, str], ...], mode: Mode, *, created: bool) -> None:
        self.path, self.lines, self.mode, self.created = path, lines, mode, created
        self.fresh: Path | None = None
        self.target = path

    def put(self) -> None:
        """Take the old one's place. Nothing to do where nothing is new."""
        if self.fresh is not None:
            self.fresh.replace(self.target)
            self.fresh = None


@contextmanager
def prepared(env: Mapping[str, str], facts: RunFacts, question: str, shown: str) -> Iterator[Change]:
    """The change that allows `question`, written beside the policy; dropped at the end unless it was put in place.

    Raises AgentwrapError where no entry can allow it, or where this one would not.
    """
    wanted = permission.permission_for(question)
    if wanted is None:
        raise AgentwrapError(
            "refused", "no entry of a policy can allow this", evidence=question,
            hint=f"agentwrap approve {shown} --run",
        )  # fmt: skip
    path = policy_path(env)
    with _alone(path):
        change, text = _edited(path, wanted, facts)
        _check(env, facts, path, text, wanted, shown)
        try:
            if change.lines:
                _write(change, text)
            yield change
        finally:
            if change.fresh is not None:
                change.fresh.unlink(missing_ok=True)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Two approvers write one after the other (flock(2) on the folder)."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _edited(path: Path, wanted: permission.Permission, facts: RunFacts) -> tuple[Change, str]:
    if not os.path.lexists(path):
        mode = _inherited_mode(facts)
        edit = permission.fresh(wanted.entries, _NAME, mode)
        return Change(path, edit.lines, mode, created=True), edit.text
    data = policy_bytes(path, MAX_BYTES)
    try:
        edit = permission.add(data.decode("utf-8"), wanted.entries)
    except ValueError as error:
        raise AgentwrapError(
            "refused", "your policy cannot be added to", evidence=f"{path}: {error}",
            hint=f"`agentwrap policy check {path}` tells what is wrong with it",
        ) from error  # fmt: skip
    return Change(path, edit.lines, "observe", created=False), edit.text


def _inherited_mode(facts: RunFacts) -> Mode:
    """A new policy must not weaken the system's, nor stop what nothing stopped before."""
    system = [_loose(one) for one in facts.layers if one.name == "system"]
    modes = [mode for mode in system if mode is not None]
    return modes[0] if modes else "observe"


def _loose(layer: LayerText) -> Mode | None:
    import tomllib

    found = tomllib.loads(layer.text).get("mode")
    return found if found in ("observe", "ask", "enforce") else None


def _check(
    env: Mapping[str, str], facts: RunFacts, path: Path, text: str, wanted: permission.Permission, shown: str
) -> None:
    """Whether the next run will allow it, under all the policies of this one and the changed one."""
    cwd = Path(facts.cwd or "/")
    files = [one.file for one in facts.layers if one.file.startswith("/")]
    places = run_places(env, env, cwd, [str(path), *files])
    configs = configured(env, cwd)

    def read(name: str, source: str) -> Policy:
        return load(source.encode("utf-8", "surrogateescape"), name, places, configs)

    entries = " and ".join(f"`{entry}`" for entry in wanted.entries)
    otherwise = f"agentwrap approve {shown} --run"
    try:
        mine = read(str(path), text)
    except AgentwrapError as error:
        told = f"with {entries} in network.allow: {error.evidence}"
        raise AgentwrapError("refused", "your policy would be refused", evidence=told, hint=otherwise) from error
    others = [
        Layer(one.name, read(one.file, one.text), trusted=one.trusted)
        for one in facts.layers
        if os.path.realpath(one.file) != os.path.realpath(path)
    ]
    answer = decide_layers([*others, Layer("user", mine)], wanted.question)
    if answer.verdict != "allow":
        raise AgentwrapError(
            "refused", "your policy alone cannot allow this for later runs",
            evidence=f"by {answer.rule}: {answer.why}\nto allow it: {answer.change}", hint=otherwise,
        )  # fmt: skip


def _write(change: Change, text: str) -> None:
    """Beside the file that the name leads to (it may be a link), with that one's owner and mode, else 0600."""
    target = Path(os.path.realpath(change.path))
    fresh = target.with_name(f".{target.name}-{os.getpid()}")
    try:
        seen = target.stat() if target.exists() else None
        fresh.unlink(missing_ok=True)  # of one that was killed; the folder is locked
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        change.fresh, change.target = fresh, target
        with open(descriptor, "wb") as file:
            if os.geteuid() == 0:
                owner = seen or target.parent.stat()
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            if seen is not None:
                os.fchmod(descriptor, seen.st_mode & 0o755)
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        raise _unwritable(change.path, error) from error


def _unwritable(path: Path, error: OSError) -> AgentwrapError:
    return AgentwrapError(
        "output", "your policy cannot be written", evidence=f"{path}: {error.strerror}",
        hint="nothing was answered; --once or --run need no file",
    )  # fmt: skip
