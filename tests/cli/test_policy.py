import json
from pathlib import Path

import pytest
import sample_run
from policy_texts import PLACES

from agentwrap.cli import package_hosts, policy_files
from agentwrap.cli.main import run
from agentwrap.policy.document import load
from agentwrap.policy.layers import Layer
from agentwrap.policy.loaded import loaded_event

Capture = pytest.CaptureFixture[str]
CI = """version = 1
name = "ci"
mode = "enforce"
[network]
allow = ["api.example.com:443", "config:pip"]
[files.write]
allow = ["$CWD/**"]
"""


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE", "VIRTUAL_ENV", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(package_hosts, "SYSTEM_PIP", ())
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "ci.toml").write_text(CI)
    return "ci.toml"


def test_check_tells_what_a_policy_means(policy: str, capsys: Capture) -> None:
    assert run(["policy", "check", policy, "--config", "pip=mirror.example:443"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("well written  ci.toml: ci, mode enforce\n")
    assert "mirror.example:443" in out
    assert "what it denies is refused: agentwrap --policy ci.toml -- COMMAND" in out
    assert run(["policy", "check", policy, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["network"] == {"default": "deny", "allow": 2, "deny": 0}


def test_check_refuses_with_line_and_suggestion(policy: str, capsys: Capture) -> None:
    Path(policy).write_text(CI.replace('allow = ["$CWD/**"]', "alow = 3"))
    assert run(["policy", "check", policy]) == 2
    error = capsys.readouterr().err
    assert "ci.toml:7: there is no key `files.write.alow`" in error
    assert "did you mean `allow`?" in error


@pytest.mark.parametrize(
    ("question", "status", "told"),
    [
        (["connect", "api.example.com:443"], 0, "network.allow `api.example.com:443` (ci.toml:5)"),
        (["connect", "API.example.com.:443"], 0, "network.allow"),
        (["connect", "[::1]:80"], 1, "add `host.loopback:80` to network.allow of ci.toml"),
        (["connect", "api.example.com:443", "--address", "10.0.0.1"], 1, "leads to 10.0.0.1"),
        (["connect", "mirror.example:443"], 3, "what `config:pip` stands for is not known here"),
        (["connect", "mirror.example:443", "--config", "pip=mirror.example"], 0, "config:pip"),
        (["connect", "other.example:443", "--config", "pip=mirror.example"], 1, "add `other.example:443`"),
        (["lookup", "api.example.com"], 0, "network.allow"),
        (["write", "./.git/hooks/pre-commit"], 1, "add `$CWD/.git/hooks/pre-commit`, without wildcards"),
        (["write", "src/a b.py"], 0, "files.write.allow `$CWD/**` (ci.toml:7)"),
        (["write", "src/a", "b.py"], 0, "write src/a b.py"),
        (["write", "ci.toml"], 1, "built-in.own-files"),
        (["write", "$CWD/../x"], 1, "files.write.default"),
        (["read", "/etc/passwd"], 0, "files.read.default"),
        (["exec", "/usr/bin/curl"], 0, "exec.default"),
        (["unix", "/var/run/docker.sock"], 1, "to network.unix"),
    ],
)
def test_explain(policy: str, capsys: Capture, question: list[str], status: int, told: str) -> None:
    assert run(["policy", "explain", policy, *question]) == status
    assert told in capsys.readouterr().out
    assert run(["policy", "explain", "--json", policy, *question]) == status
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == {0: "allow", 1: "deny", 3: "unknown"}[status]


MCP = """
[[mcp]]
server = "files"
tools = ["read_*"]
when = { arg = "path", path_within = "$CWD" }
decision = "allow"
[[mcp]]
server = "github"
tools = ["merge_*"]
decision = "approve"
reason = "Merges need a human."
[[mcp]]
server = "files"
decision = "deny"
"""


@pytest.mark.parametrize(
    ("words", "status", "verdict", "told"),
    [
        (["files", "read_file", '{"path": "src/x"}'], 0, "allow", "mcp.allow `files read_*` (ci.toml:9)"),
        (["files", "read_file", '{"path": "../x"}'], 1, "deny", "before line 19 of ci.toml"),
        (["files", "read_file"], 3, "unknown", "it depends on arguments that are not known"),
        (["files", "write_file"], 1, "deny", "mcp.deny `files`"),
        (["github", "merge_pr"], 1, "approve", "Merges need a human."),
        (["github", "list_prs"], 0, "allow", "no rule names it"),
        (["files", "tools/list"], 0, "allow", "no rule names it"),
        (["files", "resources/read", '{"uri": "file:///x"}'], 1, "deny", "mcp files resources/read file:///x"),
    ],
)
def test_explain_a_call(
    policy: str, capsys: Capture, words: list[str], status: int, verdict: str, told: str
) -> None:  # fmt: skip
    Path(policy).write_text(CI + MCP)
    assert run(["policy", "explain", policy, "mcp", *words]) == status
    out = capsys.readouterr().out
    assert out.startswith(verdict)
    assert told in out
    assert run(["policy", "check", policy]) == 0
    assert "1 allow, 1 approve, 1 deny; what no rule names is allowed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["mcp", "github"], "no question `mcp github`"),
        (["mcp", "github", "x", '{"a":1,"a":2}'], "the name `a` is in one object twice"),
        (["connect", "api.example.com"], "connect api.example.com:443"),
        (["connect", "2001:db8::1"], "connect [2001:db8::1]:443"),
        (["conect", "a:1"], "no question `conect a:1`"),
        (["write"], "no question `write`"),
    ],
)
def test_questions_that_cannot_be_read(policy: str, capsys: Capture, words: list[str], told: str) -> None:
    assert run(["policy", "explain", policy, *words]) == 2
    assert told in capsys.readouterr().err


def test_a_projects_policy_may_only_narrow(policy: str, capsys: Capture) -> None:
    Path("project.toml").write_text(CI.replace("api.example.com:443", "*.example.com"))
    assert run(["policy", "explain", "project.toml", "connect", "b.example.com:443"]) == 0
    config = ["--config", "pip=mirror.example"]
    assert run(["policy", "explain", "project.toml", "connect", "b.example.com:443", "--under", policy, *config]) == 1
    assert run(["policy", "explain", "project.toml", "connect", "api.example.com:443", "--under", policy, *config]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("command", [["policy", "check"], ["check", "x.agentlog", "--policy"]])
def test_files_that_are_no_policy(policy: str, capsys: Capture, command: list[str]) -> None:
    sample_run.record(Path("x.agentlog"))
    Path("loop").symlink_to("loop")
    Path("big").write_bytes(b"#" * 10_000_000)
    Path("bytes").write_bytes(b"version = 1 # \xff")
    for name, told in (
        ("missing", "No such file"), ("loop", "Too many levels"), (".", "Is a directory"), ("big", "larger than"),
        ("bytes", "bytes:1: byte 0xff is not UTF-8"), ("/dev/null", "`version` is missing"),
    ):  # fmt: skip
        assert run([*command, name]) == 2
        assert told in capsys.readouterr().err


def test_a_fifo_is_not_waited_for(policy: str, capsys: Capture) -> None:
    import os

    os.mkfifo("fifo")
    assert run(["policy", "check", "fifo"]) == 2
    assert "error: the policy is refused" in capsys.readouterr().err


def test_suggest_writes_a_policy_that_judges_its_recording_clean(policy: str, capsys: Capture) -> None:
    recording = str(sample_run.record(Path("x.agentlog")))
    assert run(["policy", "suggest", recording]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("judged by it, x.agentlog has 0 violations")
    assert run(["policy", "suggest", recording, "-o", "new.toml", "--name", "mine"]) == 0
    assert Path("new.toml").read_text().replace('"mine"', '"suggested"') == printed.out
    capsys.readouterr()
    assert run(["policy", "suggest", recording, "-o", "new.toml"]) == 2
    assert "the policy is there already" in capsys.readouterr().err
    assert run(["policy", "suggest", recording, "-o", "no/new.toml"]) == 2
    assert run(["policy", "check", "new.toml"]) == 0
    capsys.readouterr()
    assert run(["check", recording, "--policy", "new.toml", "--require", "exec"]) == 3
    assert "cannot tell" in capsys.readouterr().out


def test_a_recording_is_judged(policy: str, capsys: Capture) -> None:
    recording = str(sample_run.record(Path("x.agentlog")))
    assert run(["check", recording, "--policy", policy, "--config", "pip=mirror.example"]) == 1
    out = capsys.readouterr().out
    assert "violated    event" in out
    assert "lookup telemetry.example  by pytest" in out
    assert "network.default `deny, as" not in out
    assert out.splitlines()[-1].startswith("violated: the policy `ci` refuses 2 of ")
    assert run(["check", recording, "--policy", policy, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["policy"]["policy"] == "ci"
    Path("observe.toml").write_text('version = 1\nname = "o"\nmode = "observe"\n')
    assert run(["check", recording, "--policy", "observe.toml"]) == 0
    assert run(["check", recording, "--policy", "observe.toml", "--require", "exec:wall"]) == 3
    Path("wall.toml").write_text('version = 1\nname = "o"\nmode = "observe"\nrequire = ["exec:wall"]\n')
    assert run(["check", recording, "--policy", "wall.toml"]) == 3
    capsys.readouterr()


def test_a_recording_of_shapes_alone_cannot_be_judged(policy: str, capsys: Capture) -> None:
    recording = str(sample_run.record(Path("x.agentlog"), shape_only=True))
    run(["check", recording, "--policy", policy])
    assert "the name is hidden in the recording" in capsys.readouterr().out


def test_the_group_alone_says_what_is_missing(capsys: Capture) -> None:
    assert run(["policy"]) == 2
    assert "error: missing command" in capsys.readouterr().err
    assert run(["policy", "chek"]) == 2
    capsys.readouterr()


@pytest.fixture
def layered(policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project and a user with policies of their own."""
    monkeypatch.setattr(policy_files, "SYSTEM", tmp_path / "etc/policy.toml")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    user = tmp_path / "home/.config/agentwrap/policy.toml"
    user.parent.mkdir(parents=True)
    text = CI.replace(', "config:pip"', "")
    user.write_text(text.replace("ci", "mine").replace("api.", "mine."))
    Path("agentwrap.toml").write_text(text.replace("ci", "proj"))
    return user


def test_without_a_file_check_tells_what_holds_here(layered: Path, capsys: Capture) -> None:
    assert run(["policy", "check"]) == 0
    out = capsys.readouterr().out
    assert "agentwrap.toml: proj, mode enforce  not trusted: it may only narrow" in out
    assert f"user     {layered}: mine, mode enforce\n" in out
    assert out.endswith("mode enforce\n")
    assert run(["policy", "check", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(one["layer"], one["trusted"]) for one in document["layers"]] == [("project", False), ("user", True)]
    assert document["mode"] == "enforce"


def test_without_a_file_explain_says_whose_rule_it_was(layered: Path, capsys: Capture) -> None:
    assert run(["policy", "explain", "connect", "api.example.com:443"]) == 1
    assert f"({layered}:4) [user]: no rule allows it" in capsys.readouterr().out
    assert run(["policy", "trust", "agentwrap.toml"]) == 0
    assert capsys.readouterr().out.startswith("trusted  ")
    assert run(["policy", "explain", "connect", "api.example.com:443"]) == 0
    assert ":5) [project]\n" in capsys.readouterr().out
    assert run(["policy", "explain", "--json", "connect", "mine.example.com:443"]) == 0
    assert json.loads(capsys.readouterr().out)["layer"] == "user"
    assert run(["policy", "trust", "agentwrap.toml"]) == 0
    assert capsys.readouterr().out.startswith("trusted already  ")
    assert run(["policy", "untrust", "agentwrap.toml"]) == 0
    assert capsys.readouterr().out.startswith("not trusted any more  ")
    assert run(["policy", "explain", "connect", "api.example.com:443"]) == 1


def test_where_no_policy_holds_that_is_said(layered: Path, capsys: Capture) -> None:
    layered.unlink()
    Path("agentwrap.toml").unlink()
    assert run(["policy", "check"]) == 0
    assert "no policy holds here" in capsys.readouterr().out
    assert run(["policy", "explain", "exec", "/bin/ls"]) == 0
    assert "no policy holds here" in capsys.readouterr().out


def test_what_is_not_well_written_is_not_trusted(policy: str, capsys: Capture) -> None:
    Path(policy).write_text("version = 1\n")
    assert run(["policy", "trust", policy]) == 2
    assert "the policy is refused" in capsys.readouterr().err


def test_presets_are_asked_by_their_names(policy: str, capsys: Capture) -> None:
    assert run(["policy", "check", "locked-down"]) == 0
    assert "locked-down, mode enforce" in capsys.readouterr().out
    assert run(["policy", "explain", "locked-down", "connect", "a.example:443"]) == 1


def test_entries_that_no_use_was_seen_of(policy: str, tmp_path: Path, capsys: Capture) -> None:
    recording = tmp_path / "r.agentlog"
    assert run(["policy", "unused", str(sample_run.record(tmp_path / "bare.agentlog"))]) == 0
    assert capsys.readouterr().out == "the run had no policy\n"
    loaded = load(CI.encode(), "ci.toml", PLACES, {})
    sample_run.record(recording, [loaded_event([Layer("flags", loaded)]), *sample_run.items()])
    assert run(["policy", "unused", str(recording)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("no use seen\n  network.allow `api.example.com:443` (ci.toml:5)  flags\n")
    assert "$CWD/**" not in out
    assert run(["policy", "unused", "--json", str(recording)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["unused"][0] == {"layer": "flags", "rule": "network.allow `api.example.com:443` (ci.toml:5)"}
