"""What the kernel shows of a start, against what a file says: the same server, or not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.mcp.configs.lines import Between
from agentwrap.mcp.configs.matching import LOOK_AGAIN_NS, Matcher
from agentwrap.mcp.declared import Declared


def stdio(line: str, *, name: bytes = b"s", **given_more: object) -> Declared:
    command, *rest = line.encode().split(b" ")
    return Declared(name, "mcp.json", b"F", command=command, arguments=tuple(rest), **given_more)  # type: ignore[arg-type]


def matches(declared: Declared, line: str, *, path: str = "", cwd: bytes = b"/w", **known: str) -> bool:
    environment = {key.encode(): value.encode() for key, value in {"HOME": "/home/u", **known}.items()}
    argv = tuple(line.encode().split(b" "))
    return Matcher([declared], environment=environment).match(path.encode() or argv[0], argv, cwd) is declared


@pytest.mark.parametrize(
    ("declared", "started", "path"),
    [
        ("node server.js /w", "node server.js /w", "/usr/bin/node"),
        ("node server.js /w", "/usr/bin/node server.js /w", "/usr/bin/node"),
        ("node server.js /w", "MainThread server.js /w", "/usr/bin/node"),
        ("/opt/s --x", "/opt/s --x", "/opt/s"),
        ("/opt/s --x", "s --x", "/opt/s"),
        ("./s --x", "./s --x", "./s"),
        ("./s --x", "/w/s --x", "/w/s"),
        ("bin/s", "/w/bin/../bin/s", "/w/bin/s"),
        ("~/bin/s --x", "/home/u/bin/s --x", "/home/u/bin/s"),
        # Scripts: the kernel names the file that was asked for, the interpreter's line is in front.
        ("npx -y pkg", "/usr/bin/env node /usr/bin/npx -y pkg", "/usr/bin/npx"),
        ("npx -y pkg", "node /usr/bin/npx -y pkg", "/usr/bin/node"),
        ("npx -y pkg", "/usr/bin/node --no-warnings /usr/lib/npx -y pkg", "/usr/bin/node"),
        ("mcp-git --repository /w", "/venv/bin/python /venv/bin/mcp-git --repository /w", "/venv/bin/mcp-git"),
        ("mcp-server-git", "/venv/bin/python3.12 /venv/bin/mcp-server-git", "/usr/bin/python3.12"),
        ("/opt/run.sh a", "/bin/sh /opt/run.sh a", "/opt/run.sh"),
        ("./run.sh a", "/bin/bash ./run.sh a", "./run.sh"),
        ("run.weird a", "/opt/weird -f /opt/run.weird a", "/opt/run.weird"),
        ("python -m srv", "/bin/bash /root/.pyenv/shims/python -m srv", "/root/.pyenv/shims/python"),
        ("uvx mcp-server-fetch", "uvx mcp-server-fetch", "/usr/bin/uvx"),
        ("docker run -i --rm img", "docker run -i --rm img", "/usr/bin/docker"),
        ("env FOO=1 node s.js", "env FOO=1 node s.js", "/usr/bin/env"),
        ("npx", "npx -y pkg", ""),
    ],
)  # fmt: skip
def test_the_kernel_shows_the_same_command(declared: str, started: str, path: str) -> None:
    if declared == "npx":  # the whole line as one word, which some clients split
        assert matches(Declared(b"s", "cursor", command=b"npx -y pkg"), started)
        return
    assert matches(stdio(declared), started, path=path)


@pytest.mark.parametrize(
    ("declared", "started"),
    [
        ("node server.js", "node server.js --more"),
        ("node server.js --more", "node server.js"),
        ("node server.js", "node other.js"),
        ("node server.js", "nodejs-like server.js"),
        ("node server.js", "echo node server.js"),
        ("node server.js", "python client.py /usr/bin/node server.js"),
        ("node server.js", "python /w/client.py /usr/bin/node server.js"),
        ("node server.js", "python -u /w/client.py /usr/bin/node server.js"),
        ("npx -y pkg", "ls -l /usr/bin/npx -y pkg"),
        ("npx -y pkg", "sh -c npx -y pkg"),
        ("/opt/s", "/opt/other/s"),
        ("./s", "/elsewhere/s"),
        ("npx -y pkg", "node /usr/bin/npx -y pkg2"),
        ("npx -y pkg", "node -y pkg"),
        ("cmd /c npx", "cmd /c npx"),
        ("${ANY} ${ANY2}", "true x"),
    ],
)
def test_what_only_begins_alike_or_names_it_is_another_command(declared: str, started: str) -> None:
    assert not matches(stdio(declared), started)


def test_of_a_shell_line_the_shell_is_the_server_only_if_it_is_declared() -> None:
    line = Declared(b"s", "mcp.json", command=b"sh", arguments=(b"-c", b"node s.js"))
    assert Matcher([line]).match(b"/bin/sh", (b"sh", b"-c", b"node s.js"), b"/w") is line
    inner = stdio("node s.js")
    matcher = Matcher([inner])
    assert matcher.match(b"/bin/sh", (b"sh", b"-c", b"node s.js"), b"/w") is None
    assert matcher.match(b"/usr/bin/node", (b"node", b"s.js"), b"/w") is inner


@pytest.mark.parametrize(
    ("argument", "given", "same"),
    [
        ("${HOME}/d", "/home/u/d", True),
        ("${env:HOME}/d", "/home/u/d", True),
        ("{env:HOME}/d", "/home/u/d", True),
        ("$HOME/d", "/home/u/d", True),
        ("$HOME/d", "$HOME/d", True),
        ("~/d", "/home/u/d", True),
        ("~/d", "~/d", True),
        ("${userHome}${/}d", "/home/u/d", True),
        ("${workspaceFolder}", "/w", True),
        ("${workspaceFolder}/x", "/v/x", False),
        ("${workspaceFolderBasename}", "w", True),
        ("${UNSET:-fall back}", "fall", False),
        ("--key=${input:key}", "--key=anything", True),
        ("--key=${UNSET}!", "--key=a!", True),
        ("--key=${UNSET}!", "--key=a", False),
        ("${HOME}/d", "/home/v/d", False),
        ("a.c", "abc", False),
    ],
)
def test_what_stands_for_something_else(argument: str, given: str, same: bool) -> None:
    declared = Declared(b"s", "vscode", command=b"srv", arguments=(argument.encode(),), folder=b"/w", scope="project")
    found = Matcher([declared], environment={b"HOME": b"/home/u"}).match(b"", (b"srv", given.encode()), b"/w")
    assert (found is declared) is same


@given(st.lists(st.text("ab", max_size=3), min_size=1, max_size=4), st.text("ab", max_size=10))
def test_unknown_parts_are_anything(pieces: list[str], text: str) -> None:
    meant = re.compile(".*".join(map(re.escape, pieces)), re.DOTALL).fullmatch(text) is not None
    assert Between(tuple(one.encode() for one in pieces)).fits(text.encode()) == meant


def test_many_unknown_parts_take_no_endless_time() -> None:
    declared = Declared(b"s", "cursor", command=b"srv", arguments=(b"${X}a" * 2000 + b"b",))
    assert Matcher([declared]).match(b"", (b"srv", b"a" * 100_000), b"/w") is None


def test_an_unknown_folder_of_a_known_program() -> None:
    declared = stdio("${PLUGIN_ROOT}/bin/srv --stdio")
    assert matches(declared, "/plugins/p/bin/srv --stdio")
    assert matches(declared, "node /plugins/p/bin/srv --stdio", path="/plugins/p/bin/srv")
    assert not matches(declared, "/plugins/p/bin/other --stdio")


def test_the_nearest_declaration_gives_the_name() -> None:
    user = Declared(b"user", "claude-code", command=b"srv")
    other = Declared(b"other", "claude-code", scope="project", command=b"srv", folder=b"/other")
    here = Declared(b"here", "mcp.json", scope="project", command=b"srv", folder=b"/w")
    system = Declared(b"system", "gemini", scope="system", command=b"srv")
    matcher = Matcher([system, other, user, here])
    assert matcher.match(b"", (b"srv",), b"/w/sub") is here
    assert matcher.match(b"", (b"srv",), b"/wider") is user
    assert Matcher([other]).match(b"", (b"srv",), b"/w") is other


def test_no_file_that_is_written_during_a_run_gives_a_server_another_name() -> None:
    before = Declared(b"github", "claude-code", command=b"srv")
    matcher = Matcher([before], look=lambda _folders, _whole: [here])
    here = Declared(b"harmless", "mcp.json", scope="project", command=b"srv", folder=b"/w")
    matcher.start()
    assert matcher.look_again(LOOK_AGAIN_NS)
    assert matcher.match(b"", (b"srv",), b"/w") is before
    matcher.learn([stdio("other")])
    assert matcher.match(b"", (b"other",), b"/w") is not None


def test_the_agent_that_was_seen_gives_the_name() -> None:
    cursor = Declared(b"c", "cursor", command=b"srv")
    codex = Declared(b"x", "codex", command=b"srv")
    matcher = Matcher([cursor, codex])
    matcher.observe((b"node", b"/opt/bin/codex", b"exec"), b"/w")
    assert matcher.match(b"", (b"srv",), b"/w") is codex


@pytest.mark.parametrize(
    ("glob", "line", "same"),
    [
        (b"npx *server-*", b"node /usr/bin/npx -y @x/server-fs /w", True),
        (b"*/mcp-server-*", b"python /v/bin/mcp-server-git", True),
        (b"mcp-server-*", b"/v/bin/mcp-server-git --x", True),
        (b"mcp-server-*", b"grep mcp-server-git", False),
        (b"uvx ?", b"uvx ab", False),
        (b"\xff*", b"\xffx", True),
    ],
)
def test_a_policy_names_servers_by_a_pattern(glob: bytes, line: bytes, same: bool) -> None:
    declared = Declared(b"p", "policy", pattern=glob)
    argv = tuple(line.split(b" "))
    assert (Matcher([declared]).match(argv[0], argv, b"/w") is declared) is same


def test_a_declaration_comes_before_a_pattern() -> None:
    named, pattern = stdio("srv x"), Declared(b"p", "policy", pattern=b"srv*")
    assert Matcher([pattern, named]).match(b"", (b"srv", b"x"), b"/w") is named


def test_files_are_looked_at_again_now_and_then_for_the_folders_of_programs() -> None:
    looked: list[tuple[tuple[bytes, ...], bool]] = []
    more = stdio("late")

    def look(folders: tuple[bytes, ...], whole: bool) -> list[Declared] | None:
        looked.append((folders, whole))
        return [more] if len(looked) == 2 else None

    matcher = Matcher(look=look)
    assert matcher.match(b"", (b"late",), b"/w") is None
    assert not matcher.look_again(0)
    assert not matcher.look_again(LOOK_AGAIN_NS - 1)
    assert len(looked) == 1
    assert matcher.look_again(LOOK_AGAIN_NS)
    assert matcher.match(b"", (b"late",), b"/w") is more
    assert matcher.match(b"", (b"x",), b"/v") is None
    for _ in range(2):
        matcher.look_again(2 * LOOK_AGAIN_NS, every_ns=3 * LOOK_AGAIN_NS)
    assert looked[2:] == [((b"/v",), False)]
    matcher.look_again(2 * LOOK_AGAIN_NS)
    assert looked[-1] == ((b"/w", b"/v"), True)
    for number in range(100):
        matcher.match(b"", (b"x",), b"/%d" % number)
    matcher.look_again(3 * LOOK_AGAIN_NS)
    last = looked.pop()[0]
    assert (last[-1], len(last)) == (b"/99", 64)


def test_a_server_once_declared_stays() -> None:
    matcher = Matcher([stdio("s")], look=lambda _folders, _whole: [])
    assert not matcher.look_again(0)
    assert matcher.match(b"", (b"s",), b"/w") is not None


def test_an_agents_command_line_names_files_and_texts() -> None:
    files = {(b"/w", b"m.json"): b'{"mcpServers": {"a": {"command": "srv", "args": ["1"]}}}'}
    matcher = Matcher(fetch=lambda folder, name: files.get((folder, name)))
    text = b'{"mcpServers": {"b": {"command": "srv", "args": ["2"]}}}'
    agent = (b"claude", b"-p", b"hi", b"--mcp-config", b"m.json", text, b"gone.json", b"--strict-mcp-config")
    assert matcher.observe(agent, b"/w")
    assert not matcher.observe(agent, b"/w")
    assert [one.name for one in matcher.known] == [b"a", b"b"]
    found = matcher.match(b"", (b"srv", b"1"), b"/w")
    assert found is not None
    assert (found.name, found.config, found.scope, found.client) == (b"a", b"m.json", "command", "claude-code")
    assert not Matcher().observe((b"claude", b"--mcp-config=m.json"), b"/w")


def test_our_own_command_says_its_servers_name() -> None:
    argv = (b"/v/bin/python", b"/v/bin/agentwrap", b"mcp", b"--name", b"n", b"--", b"s")
    assert Matcher().by_hand(argv) == b"n"
    assert Matcher().match(b"/v/bin/agentwrap", argv, b"/w") is None


@given(st.binary(max_size=20), st.lists(st.binary(max_size=8), max_size=6), st.lists(st.text(max_size=8), max_size=4))
def test_no_start_and_no_declaration_raises(path: bytes, argv: list[bytes], line: list[str]) -> None:
    words = [one.encode("utf-8", "surrogatepass") for one in line]
    declared = Declared(b"s", "cursor", command=words[0] if words else b"", arguments=tuple(words[1:]))
    matcher = Matcher([declared], environment={b"HOME": b"/h"})
    matcher.match(path, tuple(argv), b"/w")
    matcher.observe(tuple(argv), b"")


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), min_size=1, max_size=5))
def test_every_line_without_placeholders_is_its_own(words: list[str]) -> None:
    raw = tuple(one.encode() for one in words)
    declared = Declared(b"s", "cursor", command=raw[0], arguments=raw[1:])
    started = Matcher([declared]).match(raw[0], raw, b"/w")
    if not raw[0].rpartition(b"/")[2] or b"$" in raw[0] or b"{" in raw[0] or raw[0].lower() == b"cmd":
        return
    assert started is declared


def test_a_client_that_is_given_a_servers_command_is_not_that_server() -> None:
    matcher = Matcher([Declared(b"one", "mcp.json", command=b"/usr/bin/python3", arguments=(b"/srv/server.py",))])
    server = (b"/usr/bin/python3", b"/srv/server.py")
    assert matcher.match(b"/usr/bin/node", (b"node", b"/srv/client.mjs", *server), b"/work") is None
    assert matcher.match(server[0], server, b"/work") is not None
