"""Repositories that a run makes itself are its own, those that were there stay as they are; with git itself."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernel.test_file_policy import CLOSED, HEAD, OPEN, TIERS, check, denied, guarded
from tests.wrapping import AGENTWRAP, environment

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
IDENTITY = "git config user.email a@example.com && git config user.name a"


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, env=os.environ | {"HOME": str(folder)})


def repository(folder: Path) -> Path:
    """A repository with one commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / "a").write_text("a")
    git(folder, "add", "a")
    git(folder, "-c", "user.email=a@example.com", "-c", "user.name=a", "commit", "-qm", "one")
    return folder


@pytest.mark.parametrize("tier", TIERS)
def test_a_repository_is_made_cloned_set_up_and_committed_to(tmp_path: Path, tier: str) -> None:
    repository(tmp_path / "work")
    script = (
        f"set -e; git init -q new; cd new; {IDENTITY}; echo b > b; git add b; git commit -qm two;"
        f"printf '#!/bin/sh\\n' > .git/hooks/pre-commit; cd ..; git clone -q new copy; cd copy; {IDENTITY};"
        "echo c > c; git add c; git commit -qm three; git push -q origin HEAD:other; cd ..;"
        "git clone -q . again; rm -rf copy; git clone -q new copy; mv copy moved; git -C moved log --format=%s"
    )
    run = guarded(tmp_path, CLOSED, script, tier=tier)
    assert denied(run) == []
    assert (run.status, run.stdout) == (0, b"two\n"), run.stderr
    told = check(run.recording, tmp_path / "policy.toml")
    assert told.returncode == 0, told.stdout
    # What came in the run and may be there is not told again as nobody's at the end.
    assert not [event for event in run.events("file.edit") if event.data.get("via") == "unknown"]


@pytest.mark.parametrize("tier", TIERS)
def test_a_repository_that_was_there_keeps_its_hooks_and_its_configuration(tmp_path: Path, tier: str) -> None:
    work = repository(tmp_path / "work")
    repository(work / "sub")
    config = (work / ".git" / "config").read_text()
    inner = (work / "sub" / ".git" / "config").read_text()
    script = (
        "git config user.email x; git init -q; echo x > .git/hooks/pre-commit; rm -f .git/config; mv .git/config c;"
        "ln .git/config c; chmod 777 .git/config; mv .git/hooks h; mv .git .g; git -C sub config user.email x;"
        "git init -q own; mv sub old; mv own/.git sub/.git; mv own/.git other/.git; mkdir -p .git/a/.git/hooks;"
        "echo x > .git/a/.git/hooks/post-commit; ln -s ../.git own/.g && echo x > own/.g/hooks/post-commit;"
        "mkdir link; ln -s ../.git link/.git; mv own .git/modules; echo done"
    )
    run = guarded(tmp_path, CLOSED, script, tier=tier)
    assert run.stdout.endswith(b"done\n")
    assert (work / ".git" / "config").read_text() == config
    assert (work / "sub" / ".git" / "config").read_text() == inner
    assert not [name for name in os.listdir(work / ".git" / "hooks") if not name.endswith(".sample")]
    assert not (work / ".git" / "a" / ".git" / "hooks" / "post-commit").exists()
    assert not (work / "link" / ".git").is_symlink()
    assert {"sub", ".git", "own"} <= set(os.listdir(work))
    assert {"c", ".g", "old", "other"} & set(os.listdir(work)) == set()
    told = {target for _, target, _ in denied(run)}
    assert {
        *(f"work/.git{name}" for name in ("", "/config", "/hooks", "/hooks/pre-commit", "/a/.git/hooks/post-commit")),
        *(f"work/sub/.git{name}" for name in ("", "/config", "/.git")),
        "work/link/.git",
    } <= told


def test_an_own_repository_in_the_place_of_another_is_protected(tmp_path: Path) -> None:
    """The guard alone: no mount holds anything there."""
    work = tmp_path / "work"
    repository(work / "group" / "theirs")
    script = (
        "git init -q own; mv own group2; echo x > group2/.git/hooks/post-commit; mv group aside;"
        "git init -q group/theirs; mkdir -p group/theirs; echo x > group/theirs/.git/hooks/post-commit;"
        "echo 'gitdir: /x' > group/theirs/.git; rmdir empty/.git; git init -q empty; echo done"
    )
    (work / "empty" / ".git").mkdir(parents=True)
    run = guarded(tmp_path, CLOSED, script, tier="guard")
    assert run.stdout.endswith(b"done\n")
    told = {target for _, target, _ in denied(run)}
    assert {
        "work/group2/.git/hooks/post-commit",
        "work/group/theirs/.git/config",
        "work/group/theirs/.git/hooks/post-commit",
        "work/empty/.git/config",
    } <= told


@pytest.mark.parametrize("tier", TIERS)
def test_worktrees_and_submodules(tmp_path: Path, tier: str) -> None:
    """A worktree may be made; the file by which one is found is not changed; a submodule needs the configuration."""
    work = repository(tmp_path / "work")
    repository(tmp_path / "other")
    git(work, "worktree", "add", "-q", "theirs")
    script = (
        "git worktree add -q mine; git worktree list | wc -l; git worktree remove mine;"
        "echo x > .git/commondir; echo x > .git/worktrees/theirs/commondir; echo x > theirs/.git;"
        "rm -f theirs/.git; mv theirs/.git t; mv theirs aside; ls -A theirs;"
        "git -c protocol.file.allow=always submodule add -q ../other sub || echo refused;"
        "git init -q own; cd own; git -c protocol.file.allow=always submodule add -q ../../other sub && echo added"
    )
    run = guarded(tmp_path, CLOSED, script, tier=tier)
    assert run.stdout == b"3\n.git\na\nrefused\nadded\n", run.stderr
    assert (work / "theirs" / ".git").read_text().startswith("gitdir: ")
    targets = {target for _, target, _ in denied(run)}
    assert {"work/theirs/.git", "work/.git/commondir", "work/.git/worktrees/theirs/commondir"} <= targets
    assert not [event for event in run.events("file.edit") if event.data.get("via") == "unknown"]
    enforced = check(run.recording, tmp_path / "policy.toml").stdout.decode()
    assert "/mine/" not in enforced
    assert {target for target in targets if "/own/" in target or "/mine" in target} == set()


def test_the_same_is_said_about_a_recording(tmp_path: Path) -> None:
    work = repository(tmp_path / "work")
    script = (
        f"git init -q new; cd new; {IDENTITY}; cd ..; echo x > .git/hooks/post-commit; git config user.email x;"
        "git init -q own; mv own moved; git -C moved config user.email x"
    )
    run = guarded(tmp_path, OPEN, script, tier="guard", mode="observe")
    enforced = tmp_path / "enforced.toml"
    enforced.write_text(HEAD + CLOSED)
    told = check(run.recording, enforced)
    assert told.returncode == 1
    words = told.stdout.decode()
    for path in (work / ".git" / "hooks" / "post-commit", work / ".git" / "config", work / "moved" / ".git" / "config"):
        assert json.dumps(str(path))[1:-1] in words
    assert f"{work}/new/" not in words
    assert f"{work}/own/" not in words


def test_a_package_is_installed_from_a_repository(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "pyproject.toml").write_text(
        '[project]\nname = "tiny-one"\nversion = "1"\n[build-system]\nrequires = []\nbuild-backend = "back"\n'
        'backend-path = ["."]\n'
    )
    (package / "back.py").write_text(
        "import zipfile\n"
        "def build_wheel(folder, config_settings=None, metadata_directory=None):\n"
        "    name = 'tiny_one-1-py3-none-any.whl'\n"
        "    with zipfile.ZipFile(folder + '/' + name, 'w') as wheel:\n"
        "        info = 'tiny_one-1.dist-info/'\n"
        "        wheel.writestr('tiny_one.py', 'x = 1\\n')\n"
        "        wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: tiny-one\\nVersion: 1\\n')\n"
        "        wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n"
        "        wheel.writestr(info + 'RECORD', '')\n"
        "    return name\n"
    )
    git(package, "init", "-q")
    git(package, "add", ".")
    git(package, "-c", "user.email=a@example.com", "-c", "user.name=a", "commit", "-qm", "one")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-cache-dir", "--target", "site"]
    if subprocess.run([*pip[:3], "--version"], capture_output=True).returncode:
        pytest.skip("no pip here")
    policy = '[files.write]\ndefault = "deny"\nallow = ["$CWD/**", "$TMP/**"]\n'
    run = guarded(tmp_path, policy, f"TMPDIR=$PWD {' '.join(pip)} git+file://{package}")
    assert run.status == 0, run.stderr
    assert denied(run) == []
    assert (tmp_path / "work" / "site" / "tiny_one.py").exists()


@pytest.mark.parametrize("mode", ["ask", "enforce"])
def test_the_working_directory_becomes_a_repository(tmp_path: Path, mode: str) -> None:
    script = (
        f"set -e; git init -q; {IDENTITY}; echo a > a; git add a; git commit -qm one; git gc -q; git remote add o /x"
    )
    run = guarded(tmp_path, CLOSED, script, mode=mode)
    assert (run.status, denied(run)) == (0, []), run.stderr


def test_a_suggested_policy_lets_the_same_repositories_be_made(tmp_path: Path) -> None:
    repository(tmp_path / "work" / "theirs")
    script = f"git clone -q theirs mine; cd mine; {IDENTITY}; echo b > b; git add b; git commit -qm two"
    watched = guarded(tmp_path, OPEN, script, tier="guard", mode="observe")
    words = [*AGENTWRAP, "policy", "suggest", str(watched.recording)]
    suggested = subprocess.run(words, capture_output=True, text=True, env=environment(tmp_path), check=True).stdout
    written = suggested[suggested.index("[files.write]") : suggested.index("# Reads")]
    watched.recording.unlink()
    shutil.rmtree(tmp_path / "work" / "mine")
    again = guarded(tmp_path, written, script)
    assert (again.status, denied(again)) == (0, []), again.stderr
