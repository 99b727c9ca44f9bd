"""A suggestion allows what was asked, and nothing in it could be left out."""

import re
import tomllib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from policy_texts import OWN, PLACES

from agentwrap.errors import AgentwrapError
from agentwrap.policy.decide import decide
from agentwrap.policy.document import load
from agentwrap.policy.paths import Places
from agentwrap.policy.questions import Call, Connect, Exec, Family, Lookup, Question, Unix, Write
from agentwrap.policy.suggest import MANY_IN_A_FOLDER, MAX_ENTRIES, Asked, suggest

ENTRY = re.compile(r'^  ".*",  # ')


def made(acts: list[Asked], places: Places = PLACES) -> str:
    return suggest(acts, places, name="suggested", source="x.agentlog")


def denied(text: str, acts: list[Asked], places: Places = PLACES) -> list[Question]:
    of = load(text.encode(), "s.toml", places, {})
    return [act.question for act in acts if decide(of, act.question).verdict == "deny"]


def without(text: str, line: str) -> str:
    """The text without one entry, and without the list if it was the only one."""
    lines = text.split("\n")
    lines.remove(line)
    return re.sub(r"^\w+ = \[\n\]\n", "", "\n".join(lines), flags=re.MULTILINE)


def entries(text: str) -> list[str]:
    return [line for line in text.split("\n") if ENTRY.match(line)]


def of(text: str, *keys: str) -> list[str]:
    value = tomllib.loads(text)
    for key in keys:
        value = value.get(key, {})
    return list(value)


def writes(*paths: str, klass: str = "work", who: str = "bash") -> list[Asked]:
    return [Asked(Write(path), seq, who, klass) for seq, path in enumerate(paths, 1)]


def test_work_is_allowed_by_name_and_what_changes_by_folder() -> None:
    acts = [
        *writes("/w/a.py", "/w/b.py"),
        *writes("/tmp/x1", "/tmp/d/x2", klass="temporary"),
        *writes("/home/u/.claude/projects/1/2.jsonl", "/home/u/.claude/x", klass="agent-state"),
        *writes("/home/u/.cache/pip/http/a", "/w/node_modules/a/b", "/w/p/__pycache__/x.pyc", klass="cache"),
        *writes("/w/.git/objects/ab/cd", "/w/.git/index", klass="version-control"),
        *writes("/w/.git/hooks/pre-commit", klass="version-control"),
    ]
    text = made(acts)
    assert of(text, "files", "write", "allow") == [
        "$CWD/.git/**", "$CWD/.git/hooks/pre-commit", "$CWD/a.py", "$CWD/b.py", "$CWD/node_modules/**",
        "$CWD/p/__pycache__/**", "$TMP/**", "~/.cache/pip/**", "~/.claude/**",
    ]  # fmt: skip
    assert denied(text, acts) == []


def test_names_that_end_in_chance_are_allowed_with_a_star() -> None:
    acts = writes(
        "/w/hello.py.tmp.15985.486f39d9ae47", "/w/hello.py.tmp.7", "/w/hello.py.tmp.x", "/w/x.123456789012",
        "/w/a.20260101", "/w/v1.2.3", "/tmp/d/e", "/w/.tmp.1", "/newroot/etc",
    )  # fmt: skip
    text = made(acts)
    assert of(text, "files", "write", "allow") == [
        "$CWD/.tmp.*", "$CWD/a.*", "$CWD/hello.py.tmp.*", "$CWD/v1.2.3", "$CWD/x.*", "$TMP/**", "/newroot/**",
    ]  # fmt: skip
    assert denied(text, acts) == []


def test_many_files_of_one_folder_are_allowed_as_the_folder() -> None:
    few = writes(*(f"/w/few/{n}" for n in range(MANY_IN_A_FOLDER)))
    many = writes(*(f"/w/many/{n}" for n in range(MANY_IN_A_FOLDER + 1)))
    text = made(few + many)
    assert "$CWD/many/*" in of(text, "files", "write", "allow")
    assert len(of(text, "files", "write", "allow")) == MANY_IN_A_FOLDER + 1


def test_names_are_allowed_with_the_only_port_that_was_used() -> None:
    acts = [Asked(Lookup("a.example"), 1, "curl"), Asked(Connect("192.0.2.1", 443, nameless=True), 2, "curl")]
    text = made(acts)
    assert of(text, "network", "allow") == ["a.example:443"]
    assert "connect 192.0.2.1:443: the name behind it is not known" in text
    text = made([*acts, Asked(Connect("192.0.2.1", 80, nameless=True), 3, "wget")])
    assert of(text, "network", "allow") == ["a.example"]


def test_behind_a_gateway_names_are_allowed_with_their_ports() -> None:
    acts = [
        Asked(Lookup("api.example"), 1, "node"),
        Asked(Connect("api.example", 443, address="192.0.2.1"), 2, "node"),
        Asked(Connect("api.example", 8443, address="192.0.2.1"), 3, "node"),
        Asked(Lookup("only.looked.up.example"), 4, "getent"),
        Asked(Connect("192.0.2.9", 22), 5, "ssh"),
        Asked(Lookup("db.example"), 6, "psql"),
        Asked(Connect("db.example", 5432, address="10.0.0.1"), 7, "psql"),
    ]
    text = made(acts)
    expected = [
        "10.0.0.1:5432", "192.0.2.9:22", "api.example:443", "api.example:8443", "db.example:5432",
        "only.looked.up.example:443",
    ]  # fmt: skip
    assert of(text, "network", "allow") == expected
    assert "not known" not in text
    assert denied(text, acts) == []


def test_without_names_addresses_are_allowed() -> None:
    acts = [
        Asked(Connect("192.0.2.1", 443, nameless=True), 1, "curl"),
        Asked(Connect("2001:db8::1", 443, nameless=True), 2, "curl"),
        Asked(Connect("10.0.0.1", 5432, nameless=True), 3, "psql"),
        Asked(Connect("127.0.0.1", 11434, nameless=True), 4, "python3"),
        Asked(Connect("127.0.0.1", 8080, inner=True, nameless=True), 5, "python3"),
        Asked(Connect("169.254.169.254", 80, nameless=True), 6, "aws"),
    ]
    text = made(acts)
    expected = ["10.0.0.1:5432", "169.254.169.254:80", "192.0.2.1:443", "[2001:db8::1]:443", "host.loopback:11434"]
    assert of(text, "network", "allow") == expected
    assert denied(text, acts) == []


def test_what_no_policy_allows_is_said() -> None:
    acts = [
        Asked(Family("vsock"), 1, "x"),
        Asked(Connect("192.0.2.1", 9, transport="udp", nameless=True), 2, "x"),
        Asked(Write(OWN + "/y"), 3, "x"),
        Asked(Write("/proc/self/fd/3"), 4, "x"),
        Asked(Lookup("a..b"), 5, "x"),
        Asked(Exec("/proc/self/fd/3"), 6, "x"),
    ]
    text = made(acts)
    assert text.count("# no policy allows ") == 6
    assert entries(text) == []


def test_what_nobody_could_read_is_not_written() -> None:
    scan = [Asked(Connect("192.0.2.1", port, nameless=True), port, "nmap") for port in range(1, MAX_ENTRIES + 2)]
    with pytest.raises(AgentwrapError, match="too much was done") as raised:
        made(scan)
    assert raised.value.evidence == "2,001 entries for network, 2,000 are the limit"
    assert denied(made(scan[1:]), scan[1:]) == []
    notes = made([Asked(Write(f"{OWN}/{n}"), n, "x") for n in range(500)])
    assert notes.count("no policy allows") == 200
    assert "# and 300 more of this kind" in notes


def test_programs_are_named_and_foreign_text_stays_in_its_comment() -> None:
    acts = [Asked(Exec("/bin/x"), 1, 'evil\n[network]\ndefault = "allow" \x1b[31m\u202e'), *writes('/w/a"b\\\n\x01c#')]
    text = made(acts)
    assert tomllib.loads(text)["network"] == {"default": "deny"}
    assert of(text, "files", "write", "allow") == ['$CWD/a"b\\\n\x01c#']
    assert "\x1b" not in text
    assert "\u202e" not in text
    crowd = [Asked(Exec("/bin/x"), n, f"p{n}") for n in range(9)]
    assert '  "/bin/x",  # p0, p1, p2 and 6 more' in made(crowd)


def test_names_that_are_no_utf8_are_allowed_by_a_mark_for_each_byte() -> None:
    acts = writes("/w/\udcff\udcfe", "/w/\udcff\udcfd")
    text = made(acts)
    assert of(text, "files", "write", "allow") == ["$CWD/??"]
    assert denied(text, acts) == []


NAMES = st.sampled_from(
    [
        "a",
        "a.tmp.1f",
        "a.12345678",
        "a.tmp.q",
        "b.py",
        "x*",
        "[y]",
        "\u00e9",
        ".git",
        "hooks",
        "node_modules",
        ".claude",
        "settings.json",
        ".bashrc",
    ]
)
PATHS = st.builds(
    lambda base, parts: base + "/".join(parts),
    st.sampled_from(["/w/", "/tmp/", "/home/u/", "/etc/", "/home/u/.cache/", "/var/tmp/"]),
    st.lists(NAMES, min_size=1, max_size=4),
)
CLASSES = st.sampled_from(["work", "temporary", "cache", "agent-state", "version-control"])
NUMERIC = [
    "192.0.2.1",
    "192.0.2.2",
    "2001:db8::1",
    "10.0.0.1",
    "127.0.0.1",
    "::1",
    "169.254.169.254",
    "::ffff:10.1.1.1",
]
COMMON: list[st.SearchStrategy[Question]] = [
    st.builds(Write, PATHS, st.booleans(), st.booleans()),
    st.builds(Exec, PATHS),
    st.builds(Lookup, st.sampled_from(["a.example", "B.example.", "c.a.example", "localhost", "metadata"])),
    st.builds(Unix, st.sampled_from(["/run/docker.sock", "/var/run/dbus/x", "/w/own", "@x", "@y"]), st.booleans()),
]
NAMELESS = st.builds(
    Connect, st.sampled_from(NUMERIC), st.sampled_from([80, 443, 5432]), inner=st.booleans(), nameless=st.just(True)
)
NAMED = st.builds(
    Connect,
    st.sampled_from(["a.example", "B.example.", "c.a.example", "localhost", "metadata", "192.0.2.7", "[::1]"]),
    st.sampled_from([80, 443]),
    address=st.sampled_from(["", "192.0.2.7", "10.0.0.1", "127.0.0.1", "::1", "169.254.169.254", "fd00::1"]),
)


def acts_of(connects: st.SearchStrategy[Connect]) -> st.SearchStrategy[list[Asked]]:
    who = st.sampled_from(["bash", "python3", ""])
    return st.lists(st.builds(Asked, st.one_of(*COMMON, connects), st.just(1), who, CLASSES), max_size=12)


ACTS = st.one_of(acts_of(NAMELESS), acts_of(NAMED))  # a gateway was there, or it was not
ALL_PLACES = st.sampled_from(
    [PLACES, Places("/tmp/w", "/home/u"), Places("/home/u", "/home/u", "/home/u/tmp"), Places("/", "/")]
)


@given(ACTS, ALL_PLACES)
@example(
    [*writes("/tmp/w/.git/x", klass="version-control"), *writes("/tmp/y", klass="temporary")], Places("/tmp/w", "/h")
)
def test_a_suggestion_allows_what_was_asked_and_nothing_in_it_is_idle(acts: list[Asked], places: Places) -> None:
    text = made(acts, places)
    assert denied(text, acts, places) == []
    for line in entries(text):
        assert denied(without(text, line), acts, places) != [], line


@given(ACTS, st.randoms(use_true_random=False))
def test_the_order_of_acts_does_not_matter(acts: list[Asked], chance: object) -> None:
    shuffled = list(acts)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert made(shuffled) == made(acts)


def test_of_each_server_the_tools_and_requests_that_were_used() -> None:
    calls = [("github", "tools/call", "merge"), ("github", "tools/call", "a*"), ("github", "tools/list", ""),
             ("files", "resources/read", "file:///x"), ("files", "roots/list", ""), ("idle", "initialize", ""),
             ("files", "tools/call", ""), ("files", "tools/call", "a\udcff")]  # fmt: skip
    acts = [Asked(Call(*one), 1, "node") for one in calls]
    text = made(acts)
    assert tomllib.loads(text)["mcp"] == [
        {"server": "files", "methods": ["resources/read", "roots/list"], "decision": "allow"},
        {"server": "github", "tools": ["a[*]", "merge"], "decision": "allow"},
        {"server": "*", "decision": "deny"},
    ]
    assert "# no rule names mcp files" in text
    assert denied(text, acts[:6]) == []
    others = [Call("github", "tools/call", "delete"), Call("files", "prompts/get"), Call("x", "tools/call", "merge")]
    assert denied(text, [Asked(one) for one in others]) == others
    assert "mcp" not in tomllib.loads(made([]))


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5).filter(str.strip)
CALLS = st.builds(Call, NAMES, st.sampled_from(["tools/call", "resources/read", "tools/list", "x/y"]), NAMES)


@given(st.lists(st.builds(Asked, CALLS), max_size=8))
def test_whatever_was_called_is_allowed(acts: list[Asked]) -> None:
    assert denied(made(acts), acts) == []
