"""What the documentation names must exist: links, source files, and each function on the journey."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from agentwrap.events import AnyEvent

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")])
PACKAGES = (
    "cli|session|launching|tracing|gateway|models|claims|approvals|recording|evidence|views|export|events|policy|text|errors"
)


def pages(pattern: str) -> list[tuple[str, str]]:
    """(page, what the pattern's group found), for all pages."""
    found = []
    for page in PAGES:
        found += [(str(page.relative_to(ROOT)), hit) for hit in re.findall(pattern, page.read_text("utf-8"))]
    return found


def test_links_lead_somewhere() -> None:
    broken = []
    for page, target in pages(r"\]\(([^)#\s]+)[^)]*\)"):
        if not target.startswith(("http:", "https:")) and not (ROOT / page).parent.joinpath(target).exists():
            broken.append((page, target))
    assert broken == []


def test_files_that_are_named_exist() -> None:
    named = pages(r"`((?:agentwrap|tests|policies|vagrant|docs)/[\w./-]+)`")
    examples = re.compile(r"/(A|NAME)/|/(b|test_b)\.py")
    missing = {(page, path) for page, path in named if not (ROOT / path).exists() and not examples.search(path)}
    assert missing == set()


def test_tests_that_are_named_exist() -> None:
    named = pages(r"`(tests/[\w./-]+\.py::\w+)`")
    lost = []
    for page, name in named:
        file, _, function = name.partition("::")
        if not (ROOT / file).exists() or function not in members(ROOT / file):
            lost.append((page, name))
    assert named
    assert lost == []


def test_every_decision_is_listed_and_every_listed_one_is_there() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = set(re.findall(r"\]\((\d{4}-[\w-]+\.md)\)", (folder / "README.md").read_text()))
    assert listed == {path.name for path in folder.glob("[0-9]*.md")}


@cache
def members(path: Path) -> dict[str, set[str]]:
    """Names defined at the top of a module; for classes, the names in them."""
    found: dict[str, set[str]] = {}
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef):
            inside = [one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
            found[node.name] = set(inside)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = set()
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: set[str]() for target in targets if isinstance(target, ast.Name)}
    return found


def resolves(name: str) -> bool:
    """Whether `package.module[.Class[.method] | .function]` is in the source."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = ROOT.joinpath("agentwrap", *parts[:length])
        module = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if not module.exists():
            continue
        rest = parts[length:]
        known = members(module)
        return not rest or (rest[0] in known and (len(rest) == 1 or (len(rest) == 2 and rest[1] in known[rest[0]])))
    return False


KINDS = {str(event.__struct_config__.tag) for event in get_args(AnyEvent)}
NAMED = sorted({name for _, name in pages(rf"`((?:{PACKAGES})(?:\.(?!py`)\w+)+)`")} - KINDS)


@pytest.mark.parametrize("name", NAMED)
def test_a_name_in_the_documentation_is_in_the_source(name: str) -> None:
    assert resolves(name)


def test_a_name_that_is_not_there_is_noticed() -> None:
    assert resolves("text.escape")
    assert not resolves("text.unescape")
    assert not resolves("session.conductor.Session.nothing")
    assert not resolves("nowhere.at_all")


def test_the_journey_names_enough_to_be_a_journey() -> None:
    text = (ROOT / "docs" / "journey.md").read_text()
    stages = {name.split(".")[0] for name in re.findall(rf"`((?:{PACKAGES})(?:\.\w+)+)`", text)}
    assert {"cli", "session", "launching", "tracing", "events", "recording", "views", "text"} <= stages
