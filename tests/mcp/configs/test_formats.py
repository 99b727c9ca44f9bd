"""Configurations as the clients' documentation shows them, and as nobody should write them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.mcp.configs.formats import _READERS, Format, Found, Source, _claude_code_in_parts, plugin_folders, read
from agentwrap.mcp.declared import Declared


def servers(form: Format, text: str | bytes, source: Source | None = None) -> dict[bytes, Declared]:
    found = read(form, text.encode() if isinstance(text, str) else text, source or Source("mcp.json", b"F"))
    assert found.problems == ()
    return {one.name: one for one in found.servers}


def test_a_projects_file_declares_programs_and_urls() -> None:
    found = servers(
        "servers",
        """{"mcpServers": {
            "fs": {"command": "npx", "args": ["-y", "pkg", 7, true], "env": {"A": "1", "B": 2}, "cwd": "sub"},
            "far": {"type": "http", "url": "https://mcp.example.com/mcp", "headers": {"X": "y"}},
            "old": {"type": "sse", "url": "https://mcp.example.com/sse"},
            "typeless": {"url": "http://127.0.0.1:8080/mcp"}}}""",
        Source("mcp.json", b"/p/.mcp.json", "project", b"/p"),
    )
    assert found[b"fs"] == Declared(
        b"fs", "mcp.json", b"/p/.mcp.json", "project", b"npx", (b"-y", b"pkg", b"7", b"true"),
        ((b"A", b"1"), (b"B", b"2")), b"sub", folder=b"/p",
    )  # fmt: skip
    assert (found[b"far"].url, found[b"far"].transport) == (b"https://mcp.example.com/mcp", "http")
    assert found[b"old"].transport == "sse"
    assert found[b"typeless"].transport == "http"
    assert not found[b"far"].command


def test_a_plugins_file_may_have_servers_and_nothing_around_them() -> None:
    found = servers("plugin", '{"db": {"command": "${CLAUDE_PLUGIN_ROOT}/db"}, "version": 1, "x": {"y": 2}}')
    assert list(found) == [b"db"]
    assert list(servers("plugin", '{"name": "p", "mcpServers": {"a": {"command": "x"}}}')) == [b"a"]
    assert servers("plugin", '{"name": "p", "mcpServers": "./mcp.json"}') == {}


def test_plugins_are_where_the_list_of_them_says() -> None:
    text = b"""{"version": 2, "plugins": {"a@m": [{"scope": "user", "installPath": "/p/a"}],
        "b@m": {"installPath": "/p/b"},
        "c@m": [1, {"installPath": 2}], "d@m": null}}"""
    assert plugin_folders(text) == (b"/p/a", b"/p/b")
    assert plugin_folders(b"[") == plugin_folders(b'{"plugins": 3}') == ()


def test_claude_code_has_servers_of_the_user_and_of_each_project() -> None:
    text = json.dumps(
        {
            "numStartups": 12,
            "mcpServers": {"mine": {"type": "stdio", "command": "a", "args": [], "env": {}}},
            "projects": {
                "/w": {"history": [{"display": "x" * 1000}], "mcpServers": {"ours": {"command": "b"}}},
                "/v": {"mcpServers": {}, "allowedTools": []},
                "/u": {},
            },
        }
    )
    found = servers("claude-code", text, Source("claude-code", b"F"))
    assert (found[b"mine"].scope, found[b"mine"].folder) == ("user", b"")
    assert (found[b"ours"].scope, found[b"ours"].folder, found[b"ours"].command) == ("project", b"/w", b"b")


@pytest.mark.parametrize("more", ["", '"theme": {"a": [1, 2]},', '"theme": null, // a comment\n'])
def test_a_well_formed_file_is_read_as_any_other(more: str) -> None:
    server = '{"command": "c", "args": ["\\u00e9"]}'
    text = '{%s "mcpServers": {"a": %s, "b": 1}, "projects": {"/w": {"mcpServers": {"a": %s}}, "/v": {}}}'
    data, source = (text % (more, server, server)).encode(), Source("claude-code", b"F")
    found = read("claude-code", data, source)
    in_parts = list(_claude_code_in_parts(data, source))
    assert list(found.servers) == [one for one in in_parts if isinstance(one, Declared)]
    assert list(found.problems) == [one for one in in_parts if isinstance(one, str)] == ["b: no object"]
    assert [one.folder for one in found.servers] == [b"", b"/w"]


def test_vs_code_has_comments_commas_and_another_key() -> None:
    text = """// servers of this workspace
    { "inputs": [{"type": "promptString", "id": "key"}], /* "servers": {"not": {"command": "x"}} */
      "servers": {
        "a": { "type": "stdio", "command": "${workspaceFolder}/bin/s",
               "args": ["--key", "${input:key}", "// no comment",], },
        "b": { "url": "http://localhost:3000/mcp", }, // the last
      }, }"""
    found = servers("vscode", text)
    assert found[b"a"].arguments == (b"--key", b"${input:key}", b"// no comment")
    assert found[b"b"].url == b"http://localhost:3000/mcp"
    assert list(servers("vscode", '{"mcp": {"servers": {"c": {"command": "c"}}}, "editor.tabSize": 2}')) == [b"c"]


def test_gemini_tells_its_two_kinds_of_urls_apart_by_name() -> None:
    found = servers(
        "gemini",
        """{"theme": "x", "mcp": {"allowed": ["a"]}, "mcpServers": {
            "a": {"command": "python", "args": ["s.py"], "cwd": "./d", "trust": false},
            "b": {"url": "http://h/sse"}, "c": {"httpUrl": "http://h/mcp"},
            "d": {"url": "http://h/mcp", "type": "http"}}}""",
    )
    assert [found[name].transport for name in (b"a", b"b", b"c", b"d")] == ["stdio", "sse", "http", "http"]
    assert found[b"c"].url == b"http://h/mcp"


@pytest.mark.parametrize("around", ['{"mcp": %s}', '{"mcp": {"servers": %s}}'])
def test_opencode_has_the_whole_command_line_in_one_list(around: str) -> None:
    inner = """{"a": {"type": "local", "command": ["npx", "-y", "pkg"], "environment": {"K": "{env:K}"},
                      "enabled": true},
                "b": {"type": "remote", "url": "https://h/mcp"}}"""
    found = servers("opencode", around % inner)
    assert (found[b"a"].command, found[b"a"].arguments) == (b"npx", (b"-y", b"pkg"))
    assert found[b"a"].environment == ((b"K", b"{env:K}"),)
    assert (found[b"b"].url, found[b"b"].transport) == (b"https://h/mcp", "http")


def test_opencode_may_only_switch_a_server_off() -> None:
    assert servers("opencode", '{"mcp": {"a": {"enabled": false}}}') == {}


def test_codex_has_tables() -> None:
    text = """model = "m"
    [mcp_servers.fs]
    command = "node"
    args = ["index.js", "/w"]
    cwd = "/w"
    startup_timeout_sec = 20
    [mcp_servers.fs.env]
    A = "1"
    [mcp_servers."with.point"]
    url = "https://h/mcp"
    bearer_token_env_var = "T"
    """
    found = servers("codex", text)
    assert (found[b"fs"].command, found[b"fs"].arguments, found[b"fs"].cwd) == (b"node", (b"index.js", b"/w"), b"/w")
    assert found[b"fs"].environment == ((b"A", b"1"),)
    assert found[b"with.point"].url == b"https://h/mcp"


@pytest.mark.parametrize("form", _READERS)
@pytest.mark.parametrize("empty", [b"", b"  \n", b"{}", b"\xef\xbb\xbf"])
def test_a_file_without_servers_is_no_problem(form: Format, empty: bytes) -> None:
    if form == "codex" and empty == b"{}":
        empty = b"# nothing"
    assert read(form, empty, Source("mcp.json")) == Found()


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("servers", b"{"),
        ("servers", b'{"mcpServers": []}'),
        ("servers", b'{"mcpServers": {"a": 1}}'),
        ("servers", b'{"mcpServers": {"a": {"command": 7}}}'),
        ("servers", b'{"mcpServers": {"a": {}}}'),
        ("claude-code", b'{"projects": {"/w": 3}}'),
        ("codex", b"[mcp_servers"),
        ("codex", b"mcp_servers = 3"),
        ("codex", b"\xff = 1"),
        ("gemini", b'{"mcpServers": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"),
        ("vscode", b'{"servers": ' * 2000),
    ],
)
def test_what_makes_no_sense_is_told_in_words(form: Format, text: bytes) -> None:
    found = read(form, text, Source("mcp.json"))
    assert found.servers == ()
    assert len(found.problems) == 1
    assert found.problems[0]


def test_a_number_that_python_does_not_spell_is_a_word_all_the_same() -> None:
    number = b"0x" + b"f" * 4000
    text = b'[mcp_servers.a]\ncommand = "x"\nargs = [%b, 7]\nenv = { N = %b }\n' % (number, number)
    (server,) = read("codex", text, Source("codex")).servers
    assert (server.arguments, server.environment) == ((number, b"7"), ((b"N", number),))


def test_a_bad_server_costs_only_itself() -> None:
    text = b'{"mcpServers": {"a": null, "b": {"command": "b"}, "c": {"args": []}}}'
    found = read("servers", text, Source("mcp.json"))
    assert [one.name for one in found.servers] == [b"b"]
    assert found.problems == ("a: no object", "c: neither a command nor a URL")


def test_problems_without_end_have_an_end() -> None:
    many = json.dumps({"mcpServers": {str(n): n for n in range(3000)}})
    assert len(read("servers", many.encode(), Source("mcp.json")).problems) == 20


def test_endless_servers_have_an_end() -> None:
    many = json.dumps({"mcpServers": {str(n): {"command": "x"} for n in range(3000)}})
    found = read("servers", many.encode(), Source("mcp.json"))
    assert len(found.servers) == 1000
    assert found.problems == ("more than 1000 servers",)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
_KEYS = st.sampled_from(
    ["mcpServers", "servers", "mcp", "projects", "mcp_servers", "command", "args", "env", "url", "type", "cwd", "a", ""]
)
_LIKELY = st.recursive(
    st.sampled_from(["stdio", "http", "x", 1, None, True, ["a"], []]) | _JSON,
    lambda inner: st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("form", _READERS)
@given(st.binary())
def test_no_bytes_raise(form: Format, data: bytes) -> None:
    read(form, data, Source("mcp.json"))
    plugin_folders(data)


@pytest.mark.parametrize("form", [one for one in _READERS if one != "codex"])
@given(_LIKELY, st.integers(0, 400))
def test_no_json_raises_whole_or_cut_off(form: Format, value: object, end: int) -> None:
    data = json.dumps(value).encode()
    read(form, data, Source("mcp.json"))
    read(form, data[:end], Source("mcp.json"))


@given(st.text(alphabet="[]{}=\".'#\n amcp_servers1,"))
def test_no_toml_raises(text: str) -> None:
    read("codex", b"[mcp_servers.a]\n" + text.encode(), Source("codex"))
    read("codex", text.encode(), Source("codex"))
