"""Which command lines look like MCP servers, and what a script was called with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.tracing.interposing.words import as_called, name_of, speaks_of_mcp

words = st.lists(st.one_of(st.binary(max_size=30), st.sampled_from([b"node", b"/", b"mcp", b"node_modules/"])))


@pytest.mark.parametrize(
    "line",
    [
        b"mcp-server-git --repository .",
        b"/usr/local/bin/github-mcp-server stdio",
        b"npx -y @modelcontextprotocol/server-filesystem /tmp",
        b"node /x/node_modules/@modelcontextprotocol/server-everything/dist/index.js",
        b"node /x/node_modules/.bin/mcp-server-everything",
        b"python3 -m mcp_server_time",
        b"uvx mcp-server-fetch",
        b"docker run -i --rm mcp/time",
        b"node /home/me/my-mcp/build/index.js stdio",
        b"bun run ./mcp.ts",
        b"java -jar /opt/weather-mcp.jar",
        b"docker mcp gateway run",
    ],
)
def test_it_looks_like_a_server(line: bytes) -> None:
    assert speaks_of_mcp(tuple(line.split(b" ")))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"grep -r mcp .",
        b"cat mcp.json",
        b"node /home/me/mcp-work/node_modules/typescript/bin/tsc",
        b"node /home/me/mcp/tools/format.js",
        b"python3 -c import\tmcp",
        b"make -j2",
        b"claude --mcp-config x-mcp.json",
        b"node /x/node_modules/@some/agent/cli.js --mcp-config /w/.mcp.json mcp",
        b"npx agent --config .mcp.json",
        b"python3 -m json.tool mcp",
        b"git log",
        b"node /x/cmcpu/index.js",
    ],
)
def test_it_does_not(line: bytes) -> None:
    assert not speaks_of_mcp(tuple(line.split(b" ")) if line else ())


def test_a_script_is_called_by_its_path() -> None:
    called = (b"/usr/bin/npx", b"-y", b"server")
    for front in ((b"/usr/bin/env", b"node"), (b"/bin/sh",), (b"/bin/sh", b"-e", b"/opt/runner", b"x")):
        assert as_called(b"/usr/bin/npx", b"/w", (*front, *called)) == called
    assert as_called(b"/w/run", b"/w", (b"/bin/sh", b"run", b"a")) == (b"run", b"a")
    assert as_called(b"/w/gone", b"/w", (b"node", b"x")) == (b"node", b"x")


def test_a_server_without_a_name_is_called_after_what_speaks_of_mcp() -> None:
    for line, name in (
        (b"npx -y @modelcontextprotocol/server-filesystem /tmp", b"@modelcontextprotocol/server-filesystem"),
        (b"/usr/bin/weather --stdio", b"weather"),
        (b"python3 -m mcp_server_time", b"mcp_server_time"),
        (b"", b""),
    ):
        assert name_of(tuple(line.split(b" ")) if line else ()) == name


@given(path=st.binary(max_size=20), argv=words)
def test_any_words_will_do(path: bytes, argv: list[bytes]) -> None:
    assert speaks_of_mcp(tuple(argv)) in (True, False)
    assert bool(name_of(tuple(argv))) or not (argv and argv[0].rpartition(b"/")[2])
    called = as_called(path, b"/", tuple(argv))
    assert called == tuple(argv)[len(argv) - len(called) :]
