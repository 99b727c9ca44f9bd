import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_texts import HEAD, PLACES, network, policy, refusal

from agentwrap.errors import AgentwrapError
from agentwrap.policy import keys
from agentwrap.policy.document import MAX_BYTES, load

WHOLE = """version = 1
name = "ci"
mode = "enforce"
agent = "release-bot"
on_behalf_of = "env:USER"
require = ["wall|guard", "dns"]
[network]
default = "deny"
allow = ["api.example.com", "*.example.net:443", "10.2.0.0/16:5432", "host.loopback:11434", "config:pip"]
deny = ["169.254.0.0/16"]
unix = ["/run/docker.sock", "@x"]
[files]
write = { default = "deny", allow = ["$CWD/**", "$TMP/**"], deny = ["**/secret/**"] }
read = { default = "allow", deny = ["~/.ssh/**", "~/.aws/**"] }
[exec]
default = "deny"
allow = ["/usr/bin/**"]
"""


def test_a_whole_policy_with_the_lines_of_its_rules() -> None:
    found = load(WHOLE.encode(), "ci.toml", PLACES, {"pip": ("mirror.example:443",)})
    assert (found.name, found.mode, found.agent, found.on_behalf_of) == ("ci", "enforce", "release-bot", "env:USER")
    assert [(one.kind, sorted(one.tiers)) for one in found.require] == [("dns", ["guard", "wall"])]
    assert [str(one.rule) for one in found.network.deny] == ["network.deny `169.254.0.0/16` (ci.toml:10)"]
    assert found.network.default_rule.line == 8
    assert set(found.unix.literal) == {"/run/docker.sock", "@x"}
    assert [one.rule.line for one in found.write.deny.wild] == [13]
    assert found.exec.allow.wild[0].rule.line == 17
    assert found.restricts() == ("process", "connect", "dns", "udp", "unix", "file-write", "file-read", "exec")


def test_what_a_section_is_that_is_not_there() -> None:
    strict, loose = policy(""), policy("", mode="observe")
    assert [one.default for one in (strict.network, strict.write, strict.read, strict.exec)] == [
        "deny",
        "deny",
        "allow",
        "allow",
    ]
    assert [one.default for one in (loose.network, loose.write, loose.read, loose.exec)] == ["allow"] * 4
    assert loose.restricts() == ()


@pytest.mark.parametrize(
    ("body", "line", "told", "hint"),
    [
        ("alow = 1", 4, "there is no key `alow`", ""),
        ("[netwrok]\ndefault = 'deny'", 4, "there is no key `netwrok`", "did you mean `network`?"),
        ("[network]\nalow = ['a.example']", 5, "there is no key `network.alow`", "did you mean `allow`?"),
        ("[files]\ndefault = 'deny'", 5, "there is no key `files.default`", "did you mean `files.write.default`?"),
        ("[[mcp]]\nserver = 'x'", 4, "`mcp.decision` is missing", "add: decision"),
        ("[model]", 4, "`model` is empty", ""),
        ("[model]\nx = 1", 5, "there is no key `model.x`", "there are intercept, pass"),
        ("[model]\nintercept = []", 5, "`model.intercept` is empty and has no effect", ""),
        ("[model]\nintercept = ['*']", 5, "is every host", ""),
        ("[model]\nintercept = ['a.example']\npass = ['*.example']", 5, "`a.example` is never allowed", "remove one"),
        ("record = {}", 4, "`record` is empty: it says nothing", "add: mcp_stdio"),
        ("agent = 3", 4, "`agent` is a text", ""),
        ("agent = ''", 4, "`agent` is a text", ""),
        ("require = 'exec'", 4, "`require` is a list of texts", ""),
        ("require = ['exec',\n'fle']", 5, "`fle` is nothing that can be required", "kinds:"),
        ("network = 3", 4, "`network` is a table", ""),
        ("[network]\ndefault = 'maybe'", 5, "`network.default` is `allow` or `deny`", ""),
        ("[network]\nallow = 'a.example'", 5, "`network.allow` is a list of texts", ""),
        ("[network]\nallow = ['a.example', 3]", 5, "`network.allow` is a list of texts", ""),
        ("[network]\nunix = [3]", 5, "`network.unix` is a list of texts", ""),
        ("[network]\nallow = []", 5, "`network.allow` is empty", "allows nothing"),
        ("[network]\ndeny = []", 5, "`network.deny` is empty", "refuses nothing"),
        ("[network]", 4, "`network` is empty", "default"),
        ("[files]", 4, "`files` is empty", ""),
        ("[files.write]", 4, "`files.write` is empty", ""),
        ("[network]\nallow = [\n'a.example',\n'*']", 7, "`*`: `*` is every host", ""),
        ("[network]\nallow = ['*.com']", 5, "anybody can have a name under `com`", ""),
        ("[network]\nallow = ['a.example',\n'A.example.']", 6, "is line 5's `a.example` again", "remove one"),
        ("[network]\nallow = ['*.a.example',\n'x.a.example']", 6, "reached by nothing: line 5, `*.a.example`", ""),
        ("[network]\nallow = ['x.a.example',\n'*.a.example']", 5, "reached by nothing: line 6", ""),
        ("[network]\nallow = ['10.1.0.0/16',\n'10.0.0.0/8']", 5, "reached by nothing", ""),
        ("[network]\nallow = ['x.example']\ndeny = ['x.example']", 5, "never allowed: deny, line 6", ""),
        ("[network]\nallow = ['x.example']\ndeny = ['*']", 5, "never allowed", ""),
        ("[network]\nallow = ['x.a.example']\ndeny = ['*.a.example']", 5, "never allowed", ""),
        ("[network]\ndefault = 'allow'\nallow = ['x.example']", 6, 'has no effect: default is "allow"', ""),
        ("[network]\nunix = ['x']", 5, "a path begins with", ""),
        ("[files.write]\nallow = ['x']", 5, "a path begins with", ""),
        ("[files.write]\nallow = ['/a/**',\n'/a/b']", 6, "reached by nothing", ""),
        ("[files.write]\nallow = ['/a/b',\n'/a//b/']", 6, "is line 5's `/a/b` again", ""),
        ("[files.write]\nallow = ['/a/b']\ndeny = ['/a/**']", 5, "never allowed", ""),
        ("[files.write]\ndefault = 'allow'\nallow = ['/a/b']", 6, "has no effect", ""),
        ("[files.read]\ndefault = 'allow'\nallow = ['/a/b']", 6, "has no effect", ""),
        ("[exec]\nallow = ['/a/../b']", 5, "`..` has no place", ""),
        ("x = ", 4, "not TOML", ""),
        ("name = 'again'", 4, "not TOML: Cannot overwrite a value", ""),
    ],
)
def test_what_is_refused_with_line_reason_and_suggestion(body: str, line: int, told: str, hint: str) -> None:
    error = refusal(HEAD + body)
    assert (error.kind, error.exit_status) == ("usage", 2)
    (first, shown, *rest) = error.evidence.split("\n")
    assert first.startswith(f"t.toml:{line}: ")
    assert told in first
    assert shown.strip() == (HEAD + body).split("\n")[line - 1].strip()
    assert hint in "\n".join(rest)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "`version` is missing"),
        ('version = 1\nmode = "enforce"', "`name` is missing"),
        ('version = 1\nname = "x"', "`mode` is missing"),
        ('version = 2\nname = "x"\nmode = "enforce"', "t.toml:1: `version` is 1 in this version"),
        ('version = true\nname = "x"\nmode = "enforce"', "t.toml:1: `version` is 1"),
        ('version = 1\nname = "x"\nmode = "enforced"', "t.toml:3: `mode` is one of observe, ask, enforce"),
        (b"version = 1\n# \xff", "t.toml:2: byte 0xff is not UTF-8"),
        (b" " * (MAX_BYTES + 1), "larger than 1 MiB"),
        ("a = " + "[" * 100_000, "nested too deeply"),
        ("\0", "not TOML"),
        (HEAD + "[exec]\nallow = [" + "'/x'," * 6000 + "]", "more than 5,000 entries"),
    ],
)
def test_what_is_wrong_with_a_whole_file(text: str | bytes, told: str) -> None:
    assert told in refusal(text).evidence


def test_every_problem_is_told_at_once_and_in_order() -> None:
    error = refusal('version = 3\nnmae = "x"\nmode = "no"\n[network]\nallow = ["*", "good@evil"]\n')
    assert error.message == "the policy is refused: 6 problems"
    lines = [
        line.split(":")[1] for line in error.evidence.split("\n") if line.startswith("t.toml:") and line[7].isdigit()
    ]
    assert lines == sorted(lines)
    many = refusal(HEAD + "[network]\nallow = [" + '"*",' * 50 + "]")
    assert many.evidence.endswith("and 30 more")


def test_what_lifts_a_built_in_denial_has_an_effect() -> None:
    network("10.0.0.0/8", "host.loopback:80", "169.254.169.254:80", "metadata.google.internal", default="allow")
    network("169.254.0.0/16", "169.254.169.254")
    policy('[files.write]\ndefault = "allow"\nallow = ["$CWD/.git/hooks/pre-commit"]\n')
    policy('[files.write]\nallow = ["$CWD/**", "$CWD/.git/hooks/pre-commit"]\n')


def test_what_folders_lie_in_each_other_by_chance_is_no_problem() -> None:
    from agentwrap.policy.paths import Places

    text = HEAD + '[files.write]\nallow = ["$CWD/**", "$TMP/**", "~/**"]\n'
    load(text.encode(), "t.toml", Places("/tmp", "/tmp"), {})


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_a_policy_or_refused(data: bytes) -> None:
    for whole in (data, HEAD.encode() + data):
        try:
            load(whole, "t.toml", PLACES, {})
        except AgentwrapError as error:
            told = error.evidence
        else:
            continue
        assert told.startswith("t.toml")


VALUES = st.recursive(
    st.sampled_from(['"deny"', '"allow"', '"*"', '"a.example"', '"/x"', "1", "true"]),
    lambda inner: st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
    max_leaves=4,
)


@given(st.lists(st.tuples(st.sampled_from([key.path for key in keys.KEYS] + ["mcp", "x.y"]), VALUES), max_size=4))
def test_any_value_of_any_key_is_read_or_refused_with_its_line(pairs: list[tuple[str, str]]) -> None:
    text = HEAD + "".join(f"{name} = {value}\n" for name, value in pairs)
    try:
        load(text.encode(), "t.toml", PLACES, {})
    except AgentwrapError as error:
        told = error.evidence
    else:
        return
    assert told.startswith("t.toml:")
