"""What `agentwrap undo` asks of the disk, the recording and the undo store, and the carrying out of its steps.

The thin shell under `evidence.undo_steps`: every refusal of the disk becomes a reason, and nothing is tried twice.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentwrap.evidence.undo import State
from agentwrap.evidence.undo_steps import Step
from agentwrap.recording import places, restore, undo_store
from agentwrap.recording.foreign import to_json

if TYPE_CHECKING:
    from agentwrap.recording.reader import Reader

_MARK = "«redacted:".encode()

_OMITTED = {
    "over-cap": "its content before was larger than what is kept",
    "unreadable": "its content before could not be read",
    "not-kept": "its content before was not kept",
    "special": "it was no regular file",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a step: done (or possible) if `why` is empty."""

    step: Step
    why: str = ""

    def document(self) -> dict[str, Any]:
        """The JSON form; names are stable."""
        told: dict[str, Any] = {"action": self.step.action, "path": to_json(self.step.path)}
        if self.step.to:
            told["to"] = to_json(self.step.to)
        told["refused" if self.step.action != "note" else "kept"] = self.why
        return {name: value for name, value in told.items() if value}


class Workbench:
    """The disk as it is now, with the contents that are at hand. See `evidence.undo_steps.Disk`."""

    def __init__(self, source: "Reader") -> None:
        self._source = source
        self._kept = undo_store.Kept(places.undo_dir(os.environ, source.meta.get("run_id", "-")))

    def look(self, path: bytes) -> restore.Found | None:
        """See `Disk`."""
        try:
            return restore.look(path)
        except restore.RestoreError as error:
            raise ValueError(str(error)) from error

    def names(self, path: bytes) -> list[bytes]:
        """See `Disk`."""
        try:
            return restore.names(path)
        except restore.RestoreError as error:
            raise ValueError(str(error)) from error

    def same(self, path: bytes, state: State) -> bool | None:
        """See `Disk`."""
        found = self.look(path)
        if found is None:
            return state.type == "absent"
        if found.type != state.type:
            return False
        if state.type == "symlink":
            return found.target == state.target
        if state.type != "file":
            return True
        if found.size != state.size:
            return False
        digests = _digests_of(state)
        if not digests and not (state.keyed and self._kept.key):
            # A content that was never kept: unchanged if even its time of change is the same.
            return True if state.omitted and found.mtime_ns == state.mtime_ns else None
        try:
            data = restore.read(path)
        except restore.RestoreError as error:
            raise ValueError(str(error)) from error
        if digests:
            return hashlib.sha256(data).hexdigest() in digests
        return self._kept.keyed(data) == state.keyed

    def missing(self, state: State) -> str:
        """See `Disk`."""
        if state.type == "symlink":
            return "what it led to was redacted" if _MARK in state.target else ""
        if state.type != "file":
            return _OMITTED["special"]
        if self.content(state) is not None:
            return ""
        if state.redacted:
            return "its content before had secrets in it, which only the undo store keeps, and that is not here"
        return _OMITTED.get(state.omitted, "its content before is not in the recording")

    def content(self, state: State) -> bytes | None:
        """The raw content of a state, from the undo store, or from the recording if it was not redacted."""
        digest = state.raw_sha256 or ("" if state.redacted else state.sha256)
        data = self._kept.find(state.size, digest, state.keyed)
        if data is None and state.sha256 and not state.redacted:
            data = self._source.blob(state.sha256)
            if data is not None and hashlib.sha256(data).hexdigest() != state.sha256:
                return None  # the file was tampered with: `verify` tells
        return data

    def foresee(self, steps: Sequence[Step]) -> list[Outcome]:
        """What would become of the steps."""
        return [Outcome(step, step.why) for step in steps]

    def carry_out(self, steps: Sequence[Step]) -> list[Outcome]:
        """Do them, one by one. What follows on a failed step of the same path is left out."""
        outcomes: list[Outcome] = []
        failed: set[bytes] = set()
        for step in steps:
            if step.why:
                outcomes.append(Outcome(step, step.why))
                continue
            if step.path in failed:
                continue
            try:
                self._do(step)
            except (restore.RestoreError, ValueError) as error:
                failed |= {step.path, step.to}
                outcomes.append(Outcome(step, str(error)))
            else:
                outcomes.append(Outcome(step))
        return outcomes

    def _do(self, step: Step) -> None:
        if step.action in ("restore", "recreate"):
            self._put(step)
        elif step.action == "remove":
            restore.remove(step.path, unless=lambda: self._still(step))
        elif step.action == "move":
            restore.move(step.path, step.to)
        elif step.action == "rmdir":
            restore.remove_folder(step.path)
        elif step.action == "owner":
            restore.set_owner(step.path, step.owner)
        elif step.state is not None and step.action == "mkdir":
            restore.make_folder(step.path, step.state.mode)
        elif step.state is not None and step.action == "mode":
            restore.set_mode(step.path, step.state.mode)

    def _put(self, step: Step) -> None:
        state = step.state
        assert state is not None
        if state.type == "symlink":
            restore.put_symlink(step.path, state.target, unless=lambda: self._still(step))
            return
        data = self.content(state)
        if data is None:
            raise ValueError(self.missing(state))
        restore.put_file(
            step.path,
            data,
            mode=state.mode,
            owner=(state.uid, state.gid),
            mtime_ns=state.mtime_ns,
            keep_names=step.keep_names,
            unless=lambda: self._still(step),
        )

    def _still(self, step: Step) -> None:
        """Raise unless what is about to be replaced or removed is still what was looked at."""
        if step.action == "recreate":
            if self.look(step.path) is not None:
                raise ValueError("something else is there now")
        elif step.expect is not None and self.same(step.path, step.expect) is False:
            raise ValueError("it was changed since the recording")


def _digests_of(state: State) -> set[str]:
    """SHA-256 of the raw content, where the recording tells it."""
    found = {state.raw_sha256} if state.raw_sha256 else set()
    if state.sha256 and not state.redacted:
        found.add(state.sha256)
    return found
