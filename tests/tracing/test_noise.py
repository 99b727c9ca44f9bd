"""Classes of paths as real agents, package managers and git wrote them under strace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.tracing.noise import Classifier

CWD = b"/home/ann/project"
AT_HOME = Classifier(CWD, b"/home/ann", b"/home/ann/tmp/")


@pytest.mark.parametrize(
    ("path", "klass"),
    [
        (CWD, "work"),
        (CWD + b"/hello.py", "work"),
        (CWD + b"/hello.py.tmp.4711.f00", "work"),
        (CWD + b"/build/out.o", "work"),
        (CWD + b"/target/debug/x", "work"),
        (CWD + b"/.claude/settings.json", "work"),
        (CWD + b"/.mcp.json", "work"),
        (CWD + b"/.github/workflows/ci.yml", "work"),
        (b"/home/ann/.bashrc", "work"),
        (b"/home/ann/.ssh/authorized_keys", "work"),
        (b"/etc/passwd", "work"),
        (b"/usr/lib/python3/dist-packages/x.py", "work"),
        # caches nested in the work
        (CWD + b"/node_modules", "cache"),
        (CWD + b"/node_modules/left-pad/index.js", "cache"),
        (CWD + b"/pkg/__pycache__/a.cpython-311.pyc", "cache"),
        (CWD + b"/.venv/bin/python", "cache"),
        (CWD + b"/.pytest_cache/v/cache/lastfailed", "cache"),
        (b"/home/ann/.cache/pip/http/a", "cache"),
        (b"/home/ann/.npm/_cacache/tmp/x", "cache"),
        (b"/home/ann/.cargo/registry/index/x", "cache"),
        (b"/home/ann/.cargo/config.toml", "work"),
        (b"/var/cache/apt/archives/lock", "cache"),
        # version control, and what of it decides what runs later
        (CWD + b"/.git", "version-control"),
        (CWD + b"/.git/index.lock", "version-control"),
        (CWD + b"/.git/objects/ab/cdef", "version-control"),
        (CWD + b"/.git/hooks/pre-commit", "work"),
        (CWD + b"/.git/config", "work"),
        (CWD + b"/.git/config.lock", "version-control"),
        (CWD + b"/.git/modules/sub/hooks/post-checkout", "work"),
        (CWD + b"/.git/modules/sub/index", "version-control"),
        (CWD + b"/.git/worktrees/w/config.worktree", "work"),
        # the agents' own state
        (b"/home/ann/.claude/projects/x/y.jsonl", "agent-state"),
        (b"/home/ann/.claude", "agent-state"),
        (b"/home/ann/.claude/settings.json", "work"),
        (b"/home/ann/.claude/hooks/before", "work"),
        (b"/home/ann/.claude/hooks-cache", "agent-state"),
        (b"/home/ann/.codex/config.toml", "work"),
        (b"/home/ann/.codex/x/config.toml", "agent-state"),
        (b"/home/ann/.claude.json", "agent-state"),
        (b"/home/ann/.claude.json.tmp.12.ab", "agent-state"),
        (b"/home/ann/.claude.json.lock", "agent-state"),
        (b"/home/ann/.codex/state_5.sqlite-wal", "agent-state"),
        (b"/home/ann/.pi/agent/auth.json", "agent-state"),
        (b"/home/ann/.gemini/tmp/x", "agent-state"),
        (b"/home/ann/.config/opencode/x.json", "agent-state"),
        (b"/home/ann/.config/mini-swe-agent", "agent-state"),
        (b"/tmp/claude-1000/x/tasks/b.output", "agent-state"),
        (b"/tmp/claude-b6b9-cwd", "agent-state"),
        (b"/tmp/codex-bwrap-synthetic-mount-targets-0/lock", "agent-state"),
        (b"/home/ann/.claudette", "work"),
        # temporary
        (b"/tmp/script.sh", "temporary"),
        (b"/var/tmp/x/y", "temporary"),
        (b"/home/ann/tmp/x", "temporary"),
        (b"/dev/shm/sem.x", "temporary"),
        (b"/tmpfile", "work"),
        # kernel and devices
        (b"/dev/null", "device"),
        (b"/dev/pts/3", "device"),
        (b"/proc/self/oom_score_adj", "system"),
        (b"/sys/kernel/debug/tracing/trace_marker", "system"),
        (b"/run/user/1000/x", "system"),
        (b"/newroot/dev/shm", "system"),
        (b"/newroot", "system"),
        (b"/tmp/newroot", "system"),
        (b"/tmp/newroot/x", "system"),
    ],
)
def test_classes(path: bytes, klass: str) -> None:
    assert AT_HOME(path) == klass
    assert AT_HOME(path) == klass, "the remembered answer is another one"


@pytest.mark.parametrize(
    "cwd", [b"/tmp/checkout", b"/home/ann/.cache/work", b"/home/ann/.claude/skills/mine", b"/opt/x/node_modules/y"]
)
def test_where_the_command_was_started_is_work(cwd: bytes) -> None:
    classify = Classifier(cwd, b"/home/ann", b"/tmp")
    assert classify(cwd + b"/a.py") == "work"
    assert classify(cwd + b"/deep/a.py") == "work"
    assert classify(cwd + b"/node_modules/a.js") == "cache"
    assert classify(cwd + b"/.git/index") == "version-control"
    assert classify(b"/tmp/other") == "temporary"
    assert classify(b"/home/ann/.claude/other") == "agent-state"


def test_started_at_home() -> None:
    classify = Classifier(b"/home/ann", b"/home/ann")
    assert classify(b"/home/ann/notes.txt") == "work"
    assert classify(b"/home/ann/.claude/x") == "agent-state"
    assert classify(b"/home/ann/.claude.json") == "agent-state"
    assert classify(b"/home/ann/.cache/x") == "cache"


def test_started_at_the_root_of_the_file_system() -> None:
    classify = Classifier(b"/", b"/root")
    assert classify(b"/etc/passwd") == "work"
    assert classify(b"/tmp/x") == "temporary"
    assert classify(b"/x") == "work"


def test_folders_named_by_the_environment() -> None:
    classify = Classifier(CWD, b"/home/ann", b"", [b"/srv/claude-config/"])
    assert classify(b"/srv/claude-config/projects/x") == "agent-state"


_PARTS = [b"a", b".git", b"hooks", b"config", b"modules", b"node_modules", b".claude", b".claude.json", b"claude-1"]


@given(st.sampled_from([b"", b"/tmp", b"/home/ann", CWD, b"/dev"]), st.lists(st.sampled_from(_PARTS), max_size=5))
def test_what_is_remembered_of_a_folder_is_what_a_closer_look_says(root: bytes, parts: list[bytes]) -> None:
    path = b"/".join([root, *parts]) or b"/"
    assert AT_HOME(path) == AT_HOME._classify(path)


@given(st.binary(max_size=60))
def test_any_path_has_a_class_and_keeps_it(tail: bytes) -> None:
    path = b"/" + tail
    assert AT_HOME(path) == AT_HOME(path) == Classifier(CWD, b"/home/ann", b"/home/ann/tmp")(path)
