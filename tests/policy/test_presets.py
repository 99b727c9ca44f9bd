"""The presets are well written, tell what they do not do, and do what their headers say."""

import re
from pathlib import Path

import pytest
from policy_texts import PLACES, connect, verdict

from agentwrap.policy.document import load
from agentwrap.policy.questions import Exec, Lookup, Read, Unix, Write
from agentwrap.policy.rules import Policy

FOLDER = Path(__file__).resolve().parents[2] / "policies"
FILES = sorted(FOLDER.glob("*.toml"))
CONFIGS = {"pip": ("pip-mirror.example:443",), "npm": ("npm-mirror.example:443",)}
HEADINGS = ["What it does", "Why one would want it", "What it does not do", "Use instead"]


def preset(name: str) -> Policy:
    return load((FOLDER / f"{name}.toml").read_bytes(), name, PLACES, CONFIGS)


def test_all_presets_are_there_and_told() -> None:
    names = {path.stem for path in FILES}
    assert names == {
        "observe", "ci-egress", "claude-code", "codex", "python-packages", "node-packages", "locked-down",
    }  # fmt: skip
    told = (FOLDER / "README.md").read_text("utf-8")
    assert set(re.findall(r"\]\(([\w-]+)\.toml\)", told)) == names
    assert "What enforces them" in told


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_preset_is_named_like_its_file_and_explained(path: Path) -> None:
    assert preset(path.stem).name == path.stem
    text = path.read_text("utf-8")
    assert text.startswith(f"# {path.stem}: ")
    assert [line[2:] for line in text.split("\n") if line[2:] in HEADINGS] == HEADINGS
    assert preset(path.stem).mode == ("observe" if path.stem == "observe" else "enforce")


@pytest.mark.parametrize("path", [path for path in FILES if path.stem != "observe"], ids=lambda path: path.stem)
def test_what_every_enforcing_preset_closes(path: Path) -> None:
    of = preset(path.stem)
    for host in ("evil.test", "192.0.2.1", "169.254.169.254", "127.0.0.1", "10.0.0.1"):
        assert connect(of, host) == "deny"
    for question in (
        Lookup("telemetry.example"), Unix("/run/docker.sock"), Write(".git/hooks/pre-commit"), Write("~/.bashrc"),
        Write(".claude/settings.json"), Write("~/.claude/settings.json"), Write("~/.codex/config.toml"),
    ):  # fmt: skip
        assert verdict(of, question) == "deny", question
    assert verdict(of, Write("src/a.py")) == "allow"
    assert verdict(of, Exec("/usr/bin/git")) == "allow"


@pytest.mark.parametrize(
    ("name", "pip", "npm"),
    [
        ("ci-egress", "allow", "allow"),
        ("claude-code", "allow", "allow"),
        ("codex", "allow", "allow"),
        ("python-packages", "allow", "deny"),
        ("node-packages", "deny", "allow"),
        ("locked-down", "deny", "deny"),
    ],
)
def test_package_hosts_are_those_that_are_configured(name: str, pip: str, npm: str) -> None:
    of = preset(name)
    assert connect(of, "pip-mirror.example") == pip
    assert connect(of, "npm-mirror.example") == npm


def test_what_single_presets_say() -> None:
    claude, codex, locked = preset("claude-code"), preset("codex"), preset("locked-down")
    assert connect(claude, "api.anthropic.com") == "allow"
    assert connect(claude, "statsig.anthropic.com") == "deny"
    assert verdict(claude, Write("~/.claude.json")) == "allow"
    assert verdict(claude, Write("~/.claude/projects/x.jsonl")) == "allow"
    assert connect(codex, "api.openai.com") == "allow"
    assert verdict(codex, Write("~/.codex/sessions/x")) == "allow"
    assert verdict(locked, Read("~/.ssh/id_ed25519")) == "deny"
    assert verdict(locked, Read("/etc/hosts")) == "allow"
    assert verdict(locked, Write("/home/u/x")) == "deny"
    assert connect(preset("observe"), "169.254.169.254") == "allow"


@pytest.mark.parametrize("page", ["docs/howto/confine-an-agent.md", "docs/reference/policy.head.md"])
def test_the_policy_on_a_page_is_well_written(page: str) -> None:
    text = (FOLDER.parent / page).read_text("utf-8")
    examples = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert examples
    assert {load(example.encode(), page, PLACES, CONFIGS).mode for example in examples} == {"enforce"}


def test_the_example_in_a_comment_is_a_rule_that_has_an_effect() -> None:
    text = (FOLDER / "claude-code.toml").read_text("utf-8")
    head, mark, example = text.partition("# [[mcp]]\n")
    assert mark
    found = load((head + re.sub(r"^# ?", "", mark + example, flags=re.MULTILINE)).encode(), "x", PLACES, CONFIGS)
    assert [one.decision for one in found.mcp.rules] == ["approve"]
    assert found.mcp.rules[0].concerns("files", "tools/call", "write_file")


def test_presets_are_part_of_the_package() -> None:
    import tomllib

    project = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text("utf-8"))
    assert "policies/*.toml" in project["tool"]["setuptools"]["package-data"]["agentwrap"]
    assert (FOLDER.parent / "agentwrap" / "policies").resolve() == FOLDER
