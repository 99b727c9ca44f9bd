"""The files of a real folder: found, read once, looked at again, told where they cannot be read."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agentwrap.events import Coverage, Gap
from agentwrap.launching import mcp_files
from agentwrap.launching.mcp_files import MAX_BYTES, Files
from agentwrap.launching.mcp_servers import Servers, coverage, words_of
from agentwrap.mcp.configs import places
from agentwrap.mcp.declared import Declared

Write = Callable[[str, object], Path]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def project(home: Path) -> Path:
    """A folder in a repository under HOME."""
    (home / "repo" / ".git").mkdir(parents=True)
    (home / "repo" / "sub").mkdir()
    return home / "repo" / "sub"


@pytest.fixture
def write(home: Path) -> Write:
    def put(name: str, content: object) -> Path:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        return path

    return put


def environment(home: Path, **more: str) -> dict[bytes, bytes]:
    return {name.encode(): os.fsencode(value) for name, value in {"HOME": str(home), **more}.items()}


def server(command: str) -> dict[str, object]:
    return {"mcpServers": {f"{command}-name": {"command": command}}}


def commands(servers: Servers) -> set[bytes]:
    return {one.command for one in servers.declared}


def of(home: Path, folder: Path, command: tuple[bytes, ...] = (), **more: str) -> Servers:
    return Servers(environment(home, **more), os.fsencode(folder), command)


def test_every_client_of_the_user_and_of_the_project_is_read(home: Path, project: Path, write: Write) -> None:
    write(".claude.json", server("claude"))
    write(".cursor/mcp.json", server("cursor"))
    write(".config/Claude/claude_desktop_config.json", server("desktop"))
    write(".config/Code/User/mcp.json", {"servers": {"x": {"command": "vscode"}}})
    write(".config/Code/User/profiles/4f/mcp.json", {"servers": {"x": {"command": "profile"}}})
    write(".codex/config.toml", '[mcp_servers.x]\ncommand = "codex"\n')
    write(".codex/fast.config.toml", '[mcp_servers.x]\ncommand = "codex-profile"\n')
    write(".gemini/settings.json", server("gemini"))
    write(".gemini/extensions/e/gemini-extension.json", server("extension"))
    write(".config/opencode/opencode.jsonc", '{"mcp": {"x": {"type": "local", "command": ["opencode"],},}} // c')
    write(".copilot/mcp-config.json", server("copilot"))
    write(".codeium/windsurf/mcp_config.json", server("windsurf"))
    plugin = write("plugins/p/.mcp.json", {"x": {"command": "plugin"}}).parent
    write(".claude/plugins/installed_plugins.json", {"plugins": {"p@m": [{"installPath": str(plugin)}]}})
    write("repo/.mcp.json", server("above"))
    write("repo/sub/.vscode/mcp.json", {"servers": {"x": {"command": "here"}}})
    write("repo/sub/opencode.json", {"mcp": {"x": {"command": ["open-here"]}}})
    servers = of(home, project)
    assert commands(servers) == {
        *(b"claude", b"cursor", b"desktop", b"vscode", b"profile", b"codex", b"codex-profile", b"gemini"),
        *(b"extension", b"opencode", b"copilot", b"windsurf", b"plugin", b"above", b"here", b"open-here"),
    }
    assert servers.losses == []
    assert "16 servers declared" in servers.words()
    assert servers.words().endswith("in 16 configurations")
    scopes = {one.command: (one.scope, one.folder) for one in servers.declared}
    assert scopes[b"above"] == ("project", os.fsencode(home / "repo"))
    assert scopes[b"here"] == ("project", os.fsencode(project))
    assert scopes[b"codex"] == ("user", b"")


def test_other_folders_are_read_where_the_environment_names_them(home: Path, project: Path, write: Write) -> None:
    write("c/.claude.json", server("claude"))
    write("x/config.toml", '[mcp_servers.x]\ncommand = "codex"\n')
    write("xdg/opencode/opencode.json", {"mcp": {"x": {"command": ["opencode"]}}})
    named = write("named.json", {"mcp": {"x": {"command": ["named"]}}})
    system = write("system.json", server("gemini"))
    servers = of(
        home,
        project,
        CLAUDE_CONFIG_DIR=str(home / "c"),
        CODEX_HOME=str(home / "x"),
        XDG_CONFIG_HOME=str(home / "xdg"),
        OPENCODE_CONFIG=str(named),
        OPENCODE_CONFIG_CONTENT='{"mcp": {"y": {"command": ["inline"]}}}',
        GEMINI_CLI_SYSTEM_SETTINGS_PATH=str(system),
    )
    assert commands(servers) == {b"claude", b"codex", b"opencode", b"named", b"inline", b"gemini"}


def test_above_the_repository_and_above_home_nothing_is_a_projects(home: Path, project: Path, write: Write) -> None:
    write(".mcp.json", server("home"))
    write("../.mcp.json", server("outside"))
    write("plain/.mcp.json", server("parent"))
    (home / "plain" / "sub").mkdir()
    assert commands(of(home, project)) == set()
    assert commands(of(home, home / "plain" / "sub")) == {b"parent"}
    assert commands(of(home / "plain", home)) == {b"home"}


def test_nothing_there_is_nothing_declared(home: Path, project: Path) -> None:
    servers = of(home, project)
    assert (servers.declared, servers.losses, servers.words()) == ((), [], "no server is declared")
    assert servers.match(b"/bin/true", (b"true",), os.fsencode(project)) is None
    assert Servers({}, b"", ()).declared == ()


def test_a_file_that_changes_is_read_again_and_no_other(home: Path, project: Path, write: Write) -> None:
    write("repo/.mcp.json", server("first"))
    files = Files(environment(home))
    here = (os.fsencode(project),)
    assert [one.command for one in files.look(here) or ()] == [b"first"]
    assert files.look(here) is None
    write("repo/.mcp.json", server("second, longer"))
    assert [one.command for one in files.look(here) or ()] == [b"second, longer"]
    write("repo/sub/.cursor/mcp.json", server("third"))
    write(".gemini/extensions/e/gemini-extension.json", server("fourth"))
    assert len(files.look(here) or ()) == 3
    (home / "repo" / ".mcp.json").unlink()
    assert len(files.look(here) or ()) == 2
    assert files.look(here) is None


def test_what_changes_again_within_a_tick_is_read_again(
    home: Path, project: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_files, "_TICK_NS", 1 << 62)

    def again(path: Path, change: Callable[[], object]) -> None:
        before = path.stat()
        change()
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    file = write("repo/.mcp.json", server("first"))
    extensions = write(".gemini/extensions/e/gemini-extension.json", server("third")).parents[1]
    files = Files(environment(home))
    here = (os.fsencode(project),)
    assert {one.command for one in files.look(here) or ()} == {b"first", b"third"}
    again(file, lambda: write("repo/.mcp.json", server("other")))
    again(extensions, lambda: write(".gemini/extensions/f/gemini-extension.json", server("fourth")))
    assert {one.command for one in files.look(here) or ()} == {b"other", b"third", b"fourth"}
    assert files.look(here) is None


def test_a_server_that_is_added_during_a_run_is_found_at_its_start(home: Path, project: Path, write: Write) -> None:
    servers = of(home, project)
    write(".claude.json", server("late"))
    # Nobody looked since the beginning, and then a program began.
    found = servers.match(b"/usr/bin/late", (b"late",), os.fsencode(project))
    assert found is not None
    assert found.config == os.fsencode(home / ".claude.json")


def test_another_projects_servers_are_found_when_one_begins_there(home: Path, project: Path, write: Write) -> None:
    write("other/.mcp.json", server("theirs"))
    servers = of(home, project)
    assert servers.match(b"", (b"theirs",), os.fsencode(project)) is None
    assert servers.match(b"", (b"theirs",), os.fsencode(home / "other")) is not None


def test_an_agents_own_command_line_is_read(home: Path, project: Path, write: Write) -> None:
    write("repo/sub/m.json", server("named"))
    command = (b"claude", b"--mcp-config", b"m.json")
    assert commands(of(home, project, command)) == {b"named"}
    servers = of(home, project)
    servers.match(b"/bin/claude", command, os.fsencode(project))
    assert servers.match(b"", (b"named",), os.fsencode(project)) is not None


def test_what_cannot_be_read_is_told_once(home: Path, project: Path, write: Write) -> None:
    broken = write("repo/.mcp.json", '{"mcpServers": {"a": {}}, ')
    half = write(".cursor/mcp.json", {"mcpServers": {"bad": 1, "good": {"command": "good"}}})
    huge = write(".gemini/settings.json", " " * (MAX_BYTES + 1))
    (home / ".codex").mkdir()
    os.mkfifo(home / ".codex" / "config.toml")
    (home / "repo" / "opencode.json").mkdir()
    servers = of(home, project)
    assert commands(servers) == {b"good"}
    told = {os.fsdecode(gap.detail).partition(": ")[0]: gap for gap in servers.losses}
    assert set(told) == {str(broken), str(half), str(huge), str(home / ".codex" / "config.toml")}
    assert {(gap.what, gap.cause) for gap in told.values()} == {("mcp-stdio", "config-unreadable")}
    assert told[str(huge)].detail.endswith(b"larger than 8 MiB")
    later: list[Gap] = []
    servers.tell_to(later.append, 0)
    for _ in range(2):
        servers.match(b"", (b"claude", b"--mcp-config", b"{"), os.fsencode(project))
    assert [gap.detail[:14] for gap in later] == [b"--mcp-config: "]
    assert later[0].at_ns == later[0].from_ns > 0


def test_a_file_that_breaks_during_a_run_is_told(home: Path, project: Path, write: Write) -> None:
    write("repo/.mcp.json", server("x"))
    servers = of(home, project)
    told: list[Gap] = []
    servers.tell_to(told.append, 0)
    broken = write("repo/.mcp.json", "{ broken")
    servers.match(b"", (b"y",), os.fsencode(project))
    assert [gap.detail.startswith(os.fsencode(broken) + b": ") for gap in told] == [True]
    assert servers.match(b"", (b"x",), os.fsencode(project)) is not None


def test_urls_have_what_is_known_put_in(home: Path, project: Path, write: Write) -> None:
    entries = {
        "a": {"url": "https://${HOST:-mcp.example.com}/mcp"},
        "b": {"httpUrl": "http://127.0.0.1:$PORT/mcp"},
        "c": {"url": "https://${UNKNOWN}/mcp"},
        "d": {"command": "x"},
    }
    write(".gemini/settings.json", {"mcpServers": entries})
    urls = {one.name: one.url for one in of(home, project, PORT="8123").urls}
    assert of(home, project, PORT="8123").tls_hosts == ("mcp.example.com:443",)
    assert urls == {b"a": b"https://mcp.example.com/mcp", b"b": b"http://127.0.0.1:8123/mcp"}


def test_the_statements(home: Path, project: Path, write: Write) -> None:
    servers = of(home, project)
    model = Coverage(at_ns=0, what="model", tier="witness", mechanism="capture", note="N")
    stdio, http = coverage(servers, relayed="descriptors swapped at exec", gated=False, model=model)
    assert (stdio.what, stdio.tier, stdio.mechanism) == ("mcp-stdio", "witness", "descriptors swapped at exec")
    assert (http.what, http.tier, http.mechanism) == ("mcp-http", "witness", "capture")
    assert coverage(servers, relayed="x", gated=True, model=model)[0].tier == "guard"
    assert coverage(servers, relayed="", gated=True, model=model)[0].tier == "none"
    unread = Coverage(at_ns=0, what="model", tier="witness", mechanism="base-url", note="N")
    assert coverage(servers, relayed="x", gated=False, model=unread)[1].tier == "none"
    one = Declared(b"a", "codex")
    assert words_of([one], 1) == "1 server declared (codex 1) in one configuration"


def test_the_page_names_every_file_of_a_project_and_of_the_machine() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "mcp-servers.md").read_text("utf-8")
    of_projects = [os.fsdecode(place.source.config) for place in places.of_project(b"")]
    of_machine = [os.fsdecode(one.source.config) for one in places.of_user_and_system({})]
    assert [name for name in (*of_projects, *of_machine) if f"`{name}`" not in page] == []
