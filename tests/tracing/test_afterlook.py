import os
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from agentwrap.events.file import FileEdit
from agentwrap.launching import survey
from agentwrap.launching.disk import MachineDisk
from agentwrap.launching.enforcement import plan
from agentwrap.policy.layers import Layer
from agentwrap.policy.paths import Places
from agentwrap.tracing import afterlook
from agentwrap.tracing.afterlook import AfterLook
from tests.policy_texts import policy

CLOCK_REALTIME_COARSE = 5  # linux/time.h: what the times of new files are taken from
OPEN = '[files.write]\ndefault = "allow"\n'


class Look:
    """A look at a folder as working directory, made now; `edits` is what it tells at the end."""

    def __init__(self, folder: Path, tier: str = "none") -> None:
        places = Places(str(folder), "/nonexistent", str(folder / "tmp"))
        layers = (Layer("flags", replace(policy(OPEN), places=places)),)
        made = plan(layers, MachineDisk(), uid=1000, tier=tier)  # type: ignore[arg-type]
        self.folder = folder
        self.look = AfterLook(layers, made)

    def edits(self) -> list[tuple[str, str]]:
        told: list[FileEdit] = []
        self.look.tell(told.append, 7)  # type: ignore[arg-type]
        assert all(edit.via == "unknown" and edit.at_ns == 7 for edit in told)
        return [(edit.change, os.fsdecode(edit.path).removeprefix(f"{self.folder}/")) for edit in told]


def test_nothing_is_told_where_nothing_happened(tmp_path: Path) -> None:
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / ".envrc").write_text("x")
    look = Look(tmp_path)
    (tmp_path / "allowed").write_text("x")
    assert look.edits() == []


def test_names_that_came_changed_or_went_are_told(tmp_path: Path) -> None:
    for name in (".envrc", ".mcp.json"):
        (tmp_path / name).write_text("x")
    look = Look(tmp_path)
    (tmp_path / ".envrc").write_text("other")
    (tmp_path / ".mcp.json").unlink()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "Jenkinsfile").symlink_to("x")
    # Which of two names of a folder is found first is up to the file system.
    assert sorted(look.edits()) == [("create", "sub/Jenkinsfile"), ("delete", ".mcp.json"), ("modify", ".envrc")]


def test_of_a_folder_that_may_be_made_only_what_may_not_be_in_it_is_told(tmp_path: Path) -> None:
    look = Look(tmp_path)
    (tmp_path / ".github" / "workflows").mkdir(parents=True)
    assert look.edits() == []
    (tmp_path / ".github" / "workflows" / "ci.yml").write_text("x")
    assert look.edits() == [("create", ".github/workflows/ci.yml")]


def test_of_a_repository_that_the_run_made_nothing_is_told(tmp_path: Path) -> None:
    look = Look(tmp_path)
    (tmp_path / "new" / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / "new" / ".git" / "hooks" / "pre-commit").write_text("x")
    assert look.edits() == []


def test_of_a_repository_that_was_there_its_hooks_are_told_but_for_samples(tmp_path: Path) -> None:
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    look = Look(tmp_path)
    (tmp_path / ".git" / "hooks" / "a.sample").write_text("x")
    assert look.edits() == []
    (tmp_path / ".git" / "hooks" / "pre-commit").write_text("x")
    assert look.edits() == [("create", ".git/hooks/pre-commit")]


def test_what_came_into_a_closed_folder_is_told_by_itself(tmp_path: Path) -> None:
    hooks = tmp_path / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "old").write_text("x")
    look = Look(tmp_path)
    (hooks / "new.sample").write_text("x")
    (hooks / "old").write_text("other")
    (hooks / "sub").mkdir()
    (hooks / "sub" / "deep").write_text("x")
    (hooks / "pre-commit").write_text("x")
    found = look.edits()
    assert ("modify", ".git/hooks/old") in found
    assert sorted(name for change, name in found if change == "create") == [
        ".git/hooks/pre-commit",
        ".git/hooks/sub/deep",
    ]


def test_what_a_mount_holds_was_changed_by_somebody_else(tmp_path: Path) -> None:
    (tmp_path / ".envrc").write_text("x")
    look = Look(tmp_path, tier="wall")
    (tmp_path / ".envrc").write_text("by the user, in another terminal")
    assert look.edits() == []


def test_a_folder_too_large_to_look_through_gives_no_false_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(afterlook, "_MOST", 3)
    hooks = tmp_path / ".git" / "hooks"
    hooks.mkdir(parents=True)
    for number in range(9):
        (hooks / f"{number}").write_text("x")
    look = Look(tmp_path)
    (hooks / "new").write_text("x")
    assert [edit for edit in look.edits() if edit[0] == "create"] == []


def test_what_was_there_before_is_no_new_name_though_it_was_not_found_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(afterlook, "_COARSE_NS", 0)
    deep = tmp_path.joinpath(*"abcdefgh")
    deep.mkdir(parents=True)
    (deep / "Jenkinsfile").write_text("x")
    look = Look(tmp_path)
    monkeypatch.setattr(survey, "_WALK_DEPTH", 20)
    assert look.edits() == []
    while time.clock_gettime_ns(CLOCK_REALTIME_COARSE) < look.look._began_ns:
        pass  # a fast machine is here before the clock's next tick
    (deep / ".envrc").write_text("x")
    assert look.edits() == [("create", "a/b/c/d/e/f/g/h/.envrc")]
