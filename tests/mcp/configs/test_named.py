"""Command lines that name servers: an agent's options, and our own command."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.mcp.configs.formats import Found
from agentwrap.mcp.configs.named import by_hand, names_servers, observed, overrides, references
from agentwrap.mcp.declared import Declared


def words(line: str) -> tuple[bytes, ...]:
    return tuple(line.encode().split(b" "))


def test_files_and_texts_up_to_the_next_option() -> None:
    found = references((*words("claude -p x --mcp-config a.json"), b' {"mcpServers": {}}', *words("--model m b.json")))
    assert [one.file or one.text for one in found] == [b"a.json", b' {"mcpServers": {}}']
    assert references(words("claude --mcp-config=a.json b.json -p c"))[1].file == b"b.json"


@pytest.mark.parametrize(
    "line",
    [
        "codex -c mcp_servers.fs.command=node -c mcp_servers.fs.args=['s.js','/w'] exec",
        'codex exec --config mcp_servers.fs.command="node" --config mcp_servers.fs.args=["s.js","/w"]',
        'codex -c mcp_servers.fs={command="node",args=["s.js","/w"]}',
        'codex --config=mcp_servers.fs.command=node -cmcp_servers.fs.args=["s.js","/w"]',
    ],
)  # fmt: skip
def test_codex_takes_servers_from_its_command_line(line: str) -> None:
    assert names_servers(words(line))
    found = overrides(words(line), ())
    assert found.problems == ()
    (one,) = found.servers
    assert (one.name, one.command, one.arguments, one.scope) == (b"fs", b"node", (b"s.js", b"/w"), "command")


def test_an_override_changes_what_the_file_says() -> None:
    known = Declared(b"fs", "codex", command=b"node", arguments=(b"s.js",), cwd=b"/v")
    (one,) = overrides(words('codex -c mcp_servers.fs.args=["t.js"] -c mcp_servers.fs.env.A=1'), [known]).servers
    assert (one.command, one.arguments, one.cwd, one.environment) == (b"node", (b"t.js",), b"/v", ((b"A", b"1"),))


@pytest.mark.parametrize("line", ["git -c core.pager=cat log", "sh -c mcp_servers", "codex -c model=o3 exec x"])
def test_other_options_name_none(line: str) -> None:
    assert not names_servers(words(line))
    assert observed(words(line), (), lambda _file: None) == Found()


def test_what_cannot_be_read_of_a_command_line_is_told() -> None:
    found = observed(words("claude --mcp-config a.json {] -c mcp_servers.x=1"), (), lambda _file: b"[")
    assert [one.partition(":")[0] for one in found.problems] == ["a.json", "--mcp-config", "x"]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("agentwrap mcp --name fs -- node s.js", b"fs"),
        ("/v/bin/python3 /v/bin/agentwrap mcp --name=fs node s.js", b"fs"),
        ("/usr/bin/env python3 /v/bin/agentwrap mcp -o F -- /opt/srv --name x", b"srv"),
        ("/v/bin/python -m agentwrap mcp -q --policy p.toml --name fs -- s", b"fs"),
        ("/v/bin/python -I -m agentwrap mcp s", b"s"),
        ("agentwrap mcp --name fs --", None),
        ("agentwrap mcp", None),
        ("agentwrap run -- mcp", None),
        ("grep agentwrap mcp x", None),
        ("agentwrap show mcp", None),
        ("mcp agentwrap", None),
    ],
)
def test_our_own_command_says_the_name(line: str, name: bytes | None) -> None:
    assert by_hand(words(line)) == name


@given(st.lists(st.binary(max_size=12) | st.sampled_from([b"mcp", b"agentwrap", b"--name", b"--", b"--mcp-config"])))
def test_no_command_line_raises(argv: list[bytes]) -> None:
    by_hand(tuple(argv))
    observed(tuple(argv), (), lambda file: file)


@given(st.text(), st.text())
def test_no_override_raises(key: str, value: str) -> None:
    override = f"mcp_servers.{key}={value}".encode("utf-8", "surrogatepass")
    argv = (b"codex", b"-c", override, b"-c", b"mcp_servers.a.b.c=1", b"-c", b"mcp_servers.a.b=2")
    observed(argv, (), lambda _: None)
