"""The order of steps and the refusals, on an imaginary disk."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentwrap.evidence.undo import State, Trail
from agentwrap.evidence.undo_steps import PARKED, Step, plan

OLD = State(sha256="old", mode=0o644)
NEW = State(sha256="new", mode=0o644)
FOLDER = State(type="directory", mode=0o755)


@dataclass
class Entry:
    type: str
    content: str = ""
    mode: int = 0o644
    key: tuple[int, int] = (0, 0)


class FakeDisk:
    def __init__(
        self, files: dict[bytes, str], folders: Sequence[bytes] = (), at_hand: Sequence[str] = ("old",)
    ) -> None:
        self._entries = {path: Entry("file", content) for path, content in files.items()}
        self._entries |= {path: Entry("directory") for path in folders}
        self._at_hand = at_hand

    def look(self, path: bytes) -> Entry | None:
        if path.startswith(b"/link/"):
            raise ValueError("a link on the way")
        return self._entries.get(path)

    def names(self, path: bytes) -> list[bytes]:
        below = path + b"/"
        inside = [entry.removeprefix(below) for entry in self._entries if entry.startswith(below)]
        return [name for name in inside if b"/" not in name]

    def same(self, path: bytes, state: State) -> bool | None:
        found = self._entries.get(path)
        if not state.sha256 and state.type == "file":
            return None
        return found is not None and found.type == state.type and found.content == state.sha256

    def missing(self, state: State) -> str:
        return "" if state.sha256 in self._at_hand else "not kept"


def steps(disk: FakeDisk, *trails: Trail) -> list[tuple[object, ...]]:
    def short(step: Step) -> tuple[object, ...]:
        return (step.action, step.path, *([step.to] if step.to else []), *([step.why] if step.why else []))

    return [short(step) for step in plan(trails, lambda _: True, disk)]


def made(path: bytes, content: State = NEW) -> Trail:
    return Trail(None, path, content.type, last=content)


def changed(path: bytes) -> Trail:
    return Trail(path, path, first=OLD, last=NEW)


def gone(path: bytes, content: State = OLD) -> Trail:
    return Trail(path, None, content.type, first=content, last=State(type="absent"))


def moved(old: bytes, new: bytes, kind: str = "file") -> Trail:
    return Trail(old, new, kind)


def test_each_kind_of_step() -> None:
    disk = FakeDisk({b"/made": "new", b"/changed": "new", b"/b": ""}, [b"/new"])
    assert steps(
        disk, made(b"/made"), made(b"/new", FOLDER), changed(b"/changed"), gone(b"/gone"), moved(b"/a", b"/b")
    ) == [
        ("remove", b"/made"),
        ("rmdir", b"/new"),
        ("move", b"/b", b"/a"),
        ("restore", b"/changed"),
        ("recreate", b"/gone"),
    ]


def test_folders_are_made_from_the_top_and_removed_from_the_bottom() -> None:
    disk = FakeDisk({b"/n/m/x": "new"}, [b"/n", b"/n/m"])
    trails = [made(b"/n", FOLDER), made(b"/n/m", FOLDER), made(b"/n/m/x")]
    trails += [gone(b"/d/e/x"), gone(b"/d/e", FOLDER), gone(b"/d", FOLDER)]
    assert steps(disk, *trails) == [
        ("remove", b"/n/m/x"),
        ("rmdir", b"/n/m"),
        ("rmdir", b"/n"),
        ("mkdir", b"/d"),
        ("mkdir", b"/d/e"),
        ("recreate", b"/d/e/x"),
    ]


def test_what_moved_with_its_folder_comes_back_with_it() -> None:
    disk = FakeDisk({b"/e/x": "new", b"/e/z": ""}, [b"/e"])
    trails = [moved(b"/d", b"/e", "directory"), Trail(b"/d/x", b"/e/x", first=OLD, last=NEW), moved(b"/d/y", b"/e/z")]
    assert steps(disk, *trails) == [
        ("move", b"/e", b"/d"),
        ("restore", b"/d/x"),
        ("move", b"/d/z", b"/d/y"),
    ]


def test_two_that_changed_places() -> None:
    disk = FakeDisk({b"/a": "", b"/b": ""})
    assert steps(disk, moved(b"/a", b"/b"), moved(b"/b", b"/a")) == [
        ("move", b"/a", b"/a" + PARKED),
        ("move", b"/b", b"/a"),
        ("move", b"/a" + PARKED, b"/b"),
    ]


def test_a_file_made_in_the_place_of_another_is_replaced_in_one_step() -> None:
    assert steps(FakeDisk({b"/x": "new"}), gone(b"/x"), made(b"/x")) == [("restore", b"/x")]


def test_what_cannot_be_brought_back_leaves_what_is_there() -> None:
    disk = FakeDisk({b"/x": "new", b"/y": "new"}, at_hand=())
    assert steps(disk, gone(b"/x"), made(b"/x"), changed(b"/y")) == [
        ("restore", b"/y", "not kept"),
        ("recreate", b"/x", "not kept"),
    ]


def test_changed_since() -> None:
    disk = FakeDisk({b"/made": "mine", b"/changed": "mine", b"/gone": "mine"}, [b"/new"])
    found = steps(disk, made(b"/made"), changed(b"/changed"), gone(b"/gone"), made(b"/new/x"))
    assert [step[:2] for step in found] == [("remove", b"/made"), ("restore", b"/changed"), ("recreate", b"/gone")]
    assert [step[2] for step in found] == [
        "it was changed since the recording",
        "it was changed since the recording",
        "something else is there now",
    ]


def test_a_folder_with_something_foreign_stays() -> None:
    disk = FakeDisk({b"/n/x": "new", b"/n/mine": ""}, [b"/n"])
    assert steps(disk, made(b"/n", FOLDER), made(b"/n/x")) == [("remove", b"/n/x"), ("rmdir", b"/n", "it is not empty")]


def test_the_place_is_taken() -> None:
    disk = FakeDisk({b"/b": "", b"/a": "mine"})
    assert steps(disk, moved(b"/a", b"/b")) == [("move", b"/a", "something else is there now")]


def test_undone_already() -> None:
    disk = FakeDisk({b"/a": "", b"/x": "old", b"/g": "old"}, [b"/d"])
    trails = [moved(b"/a", b"/b"), changed(b"/x"), gone(b"/g"), gone(b"/d", FOLDER), made(b"/m"), made(b"/d/made")]
    assert steps(disk, *trails) == []


def test_redacted_names_and_ways_over_links_are_refused() -> None:
    name = "/«redacted:x:00»".encode()
    found = steps(FakeDisk({}), changed(name), changed(b"/link/x"), made(b"/link/y"))
    assert [step[-1] for step in found] == [
        "a link on the way",
        "its name was redacted: where it lies is not recorded",
        "a link on the way",
    ]


def test_what_was_never_recorded_cannot_be_compared() -> None:
    (step,) = steps(FakeDisk({b"/m": "?"}), made(b"/m", State(omitted="not-kept")))
    assert "cannot be told" in str(step[-1])


def test_modes() -> None:
    disk = FakeDisk({b"/x": "", b"/y": ""})
    one = Trail(b"/x", b"/x", mode_first=0o600, mode_last=0o644)
    two = Trail(b"/y", b"/y", mode_first=0o600, mode_last=0o755)
    assert steps(disk, one, two) == [("mode", b"/x"), ("restore", b"/y", "its mode was changed since")]
