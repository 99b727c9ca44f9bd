"""Which command lines look like MCP servers, and what a script was called with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.tracing.interposing.words import as_called, speaks_of_mcp

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
        b"bun ./mcp.ts",
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


@given(path=st.binary(max_size=20), argv=words)
def test_any_words_will_do(path: bytes, argv: list[bytes]) -> None:
    speaks_of_mcp(tuple(argv))
    called = as_called(path, b"/", tuple(argv))
    assert called == tuple(argv)[len(argv) - len(called) :]
