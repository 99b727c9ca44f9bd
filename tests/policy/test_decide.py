"""The decision, and the part of the table of bypasses (names and addresses, files) that a pure function can hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_texts import KEY, OWN, connect, network, policy, verdict

from agentwrap.policy.decide import decide
from agentwrap.policy.defaults import WAYS_OUT, WRITES
from agentwrap.policy.document import load
from agentwrap.policy.paths import Places
from agentwrap.policy.questions import Connect, Exec, Family, Lookup, Question, Read, Unix, Write
from agentwrap.policy.rules import HostRules, Rule

GITHUB = ("*.example.com",)


# Names and addresses: rows 1 to 12 of the table of bypasses


def test_row_1_an_empty_list_allows_nothing() -> None:
    empty = policy("")
    assert empty.network == HostRules("deny", Rule("network.default", "deny, as the section is not there", "t.toml"))
    for host in ("a.example", "192.0.2.1", "2001:db8::1"):
        assert connect(empty, host) == "deny"
    assert verdict(network(), Lookup("a.example")) == "deny"
    assert verdict(policy(""), Write("/w/x")) == "deny"


@pytest.mark.parametrize(
    "host", ["evilexample.com", "api.example.com.evil.test", "example.com", "example.com.evil.test"]
)
def test_row_2_whole_labels(host: str) -> None:
    assert connect(network(*GITHUB), host) == "deny"
    assert connect(network(*GITHUB), "api.example.com") == "allow"


@pytest.mark.parametrize(
    "host", ["API.EXAMPLE.COM", "api.example.com.", "api\uff0eexample\u3002com", "\uff41pi.example.com"]
)
def test_row_3_one_normal_form_before_any_compare(host: str) -> None:
    assert connect(network("api.example.com"), host) == "allow"
    assert connect(network(*GITHUB, deny=("api.example.com",)), host) == "deny"


@pytest.mark.parametrize("host", ["api.example.com\0.evil.test", "api.example.com\r\nHost: evil", "api.example.com\n"])
def test_row_4_nul_and_line_breaks(host: str) -> None:
    answer = decide(network("api.example.com"), Connect(host, 443))
    assert (answer.verdict, answer.rule.where) == ("deny", "built-in.malformed")


@pytest.mark.parametrize(
    "host", ["api.example.com@evil.test", "api.example.com\\@evil.test", "evil.test\\.example.com", "a/b"]
)
def test_row_5_user_information_and_backslashes(host: str) -> None:
    assert connect(network(*GITHUB), host) == "deny"
    assert connect(network(default="allow"), host) == "deny"


@pytest.mark.parametrize("host", ["3221225985", "0xc0.0.2.1", "0300.0.2.1", "192.0.513"])
def test_row_6_spellings_of_an_address(host: str) -> None:
    assert connect(network(*GITHUB), host) == "deny"
    assert connect(network("192.0.2.1"), host) == "allow"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]", "0", "::ffff:0.0.0.0", "127.1", "localhost", "a.localhost."])
def test_row_7_all_names_of_loopback(host: str) -> None:
    for of in (network(*GITHUB), network(default="allow"), network("10.0.0.0/8")):
        answer = decide(of, Connect(host, 80))
        assert (answer.verdict, answer.rule.where) == ("deny", "built-in.loopback")
    assert connect(network("host.loopback:80"), host, 80) == "allow"
    assert connect(network("host.loopback:80"), host, 81) == "deny"


@pytest.mark.parametrize("form", ["::ffff:{}", "64:ff9b::{}", "::{}"])
def test_row_8_unwrapped_then_judged(form: str) -> None:
    for of in (network(default="allow"), network("2000::/3")):
        assert connect(of, form.format("10.0.0.1")) == "deny"
        assert connect(of, form.format("127.0.0.1")) == "deny"
        assert connect(of, form.format("169.254.169.254")) == "deny"
    assert connect(network("10.0.0.0/8"), form.format("10.0.0.1")) == "allow"
    assert connect(network("10.0.0.1"), "2002:a00:1::") == "allow"


def test_row_9_ipv6_is_closed_where_ipv4_is() -> None:
    for of in (network(*GITHUB), network("192.0.2.0/24")):
        assert connect(of, "2001:db8::1") == "deny"


@pytest.mark.parametrize("host", ["192.0.2.7", "2001:db8::7"])
def test_row_10_an_address_without_a_name_needs_a_rule_of_its_own(host: str) -> None:
    assert connect(network(*GITHUB), host) == "deny"
    assert connect(network(host), host) == "allow"


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "fd00:ec2::254",
        "100.100.100.200",
        "168.63.129.16",
        "metadata.google.internal",
        "169.254.170.2",
    ],
)
def test_row_11_metadata_services_are_closed_under_every_star(host: str) -> None:
    wide = network("*.google.internal", "169.254.0.0/16", "fd00::/8", "100.64.0.0/10", "168.0.0.0/8")
    for of in (wide, network(default="allow"), network(default="allow", mode="observe")):
        answer = decide(of, Connect(host, 80))
        assert (answer.verdict, answer.rule.where) == ("deny", "built-in.metadata")
    assert connect(network(host if ":" not in host else f"[{host}]"), host, 80) == "allow"


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "127.0.0.1", "::1", "169.254.169.254", "::ffff:192.168.0.1", "0.0.0.0"]
)
def test_row_12_what_a_name_leads_to_is_judged_too(address: str) -> None:
    of = network("api.example.com")
    assert connect(of, "api.example.com", address="192.0.2.1") == "allow"
    assert connect(of, "api.example.com", address=address) == "deny"
    assert connect(network("api.example.com", deny=("192.0.2.0/24",)), "api.example.com", address="192.0.2.1") == "deny"
    # An address that is allowed does not make a name allowed.
    assert connect(network("10.0.0.0/8"), "evil.test", address="10.0.0.1") == "deny"
    assert connect(network("10.0.0.0/8", "api.example.com"), "api.example.com", address="10.0.0.1") == "allow"


# Other channels


@pytest.mark.parametrize(
    ("question", "expected", "where"),
    [
        (Lookup("api.example.com"), "allow", "network.allow"),
        (Lookup("API.example.com."), "allow", "network.allow"),
        (Lookup("evil.test"), "deny", "network.default"),
        (Lookup("secret-data.evil.test"), "deny", "network.default"),
        (Lookup("no.example.com"), "deny", "network.deny"),
        (Lookup("half.example.com"), "allow", "network.allow"),
        (Lookup("localhost"), "allow", "built-in.no-lookup"),
        (Lookup("metadata.google.internal"), "deny", "built-in.metadata"),
        (Lookup("a..b"), "deny", "built-in.malformed"),
        (Connect("half.example.com", 22), "deny", "network.deny"),
        (Connect("half.example.com", 443), "allow", "network.allow"),
        (Connect("api.example.com", 443, transport="udp"), "deny", "built-in.udp"),
        (Connect("api.example.com", 0), "deny", "built-in.malformed"),
        (Connect("127.0.0.1", 8080, inner=True), "allow", "built-in.inner"),
        (Connect("127.0.0.1", 8080, transport="udp", inner=True), "allow", "built-in.inner"),
        (Connect("192.0.2.1", 8080, inner=True), "deny", "network.default"),
        (Unix("/run/docker.sock"), "deny", "built-in.sockets"),
        (Unix("/var/run/docker.sock"), "deny", "built-in.sockets"),
        (Unix("/proc/self/root/run/docker.sock"), "deny", "built-in.sockets"),
        (Unix("/run/user/1000/bus"), "deny", "built-in.sockets"),
        (Unix("/run/nscd/socket"), "deny", "built-in.sockets"),
        (Unix("/w/own.sock"), "allow", "built-in.unix"),
        (Unix("/run/dbus/system_bus_socket"), "allow", "network.unix"),
        (Unix("@named"), "allow", "network.unix"),
        (Unix("@other"), "deny", "built-in.abstract-socket"),
        (Unix("@other", inner=True), "allow", "built-in.inner"),
        (Unix("/proc/self/fd/3"), "deny", "built-in.malformed"),
        (Family("vsock"), "deny", "built-in.family"),
        (Family("packet"), "deny", "built-in.family"),
        (Family("netlink"), "allow", "built-in.family"),
    ],
)
def test_names_sockets_and_families(question: Question, expected: str, where: str) -> None:
    of = policy(
        '[network]\nallow = ["*.example.com"]\ndeny = ["no.example.com", "half.example.com:22"]\n'
        'unix = ["/run/dbus/system_bus_socket", "@named"]\n'
    )
    answer = decide(of, question)
    assert (answer.verdict, answer.rule.where) == (expected, where)


def test_what_is_not_known_is_unknown_only_where_it_matters() -> None:
    of = network("api.example.com:443", "192.0.2.9", deny=("198.51.100.0/24",))
    assert connect(of, "192.0.2.1", 443, nameless=True) == "unknown"
    assert connect(of, "192.0.2.1", 22, nameless=True) == "deny"
    assert connect(of, "192.0.2.9", 22, nameless=True) == "allow"
    assert connect(of, "198.51.100.1", 443, nameless=True) == "deny"
    assert connect(of, "10.0.0.1", 443, nameless=True) == "deny"
    assert connect(network(), "192.0.2.1", 443, nameless=True) == "deny"
    by_name = network(default="allow", deny=("evil.test",))
    assert connect(by_name, "192.0.2.1", nameless=True) == "unknown"
    assert connect(by_name, "192.0.2.1") == "allow"


def test_a_placeholder_without_a_meaning_leaves_it_open() -> None:
    of = network("config:pip", "a.example")
    assert connect(of, "mirror.example") == "unknown"
    assert verdict(of, Lookup("mirror.example")) == "unknown"
    assert connect(of, "a.example") == "allow"
    assert connect(of, "10.0.0.1") == "deny"
    for question in (Connect("198.51.100.1", 443), Connect("mirror.example", 443), Lookup("mirror.example")):
        answer = decide(of, question)
        assert (answer.verdict, answer.rule) == ("unknown", of.network.default_rule)
        assert "what `config:pip` stands for is not known here" in answer.why
        assert answer.change.startswith("add `")
    known = network("config:pip", configs={"pip": ("mirror.example:443",)})
    assert (connect(known, "mirror.example"), connect(known, "b.example")) == ("allow", "deny")


def test_observe_without_a_word_about_the_network_refuses_nothing() -> None:
    of = policy("", mode="observe")
    for question in (Connect("169.254.169.254", 80), Connect("127.0.0.1", 1), Unix("/run/docker.sock"), Family("vsock"),
                     Lookup("metadata"), Write(OWN + "/x"), Write("~/.bashrc"), Read(KEY), Exec("/x"),
                     Write("/proc/self/fd/1")):  # fmt: skip
        assert verdict(of, question) == "allow", question


# Files: rows 52, 53, 55, 57

FILES = """[files]
write = { allow = ["$CWD/**", "$CWD/.git/hooks/post-merge"], deny = ["$CWD/no/**"] }
read = { default = "allow", deny = ["~/.ssh/**"] }
[exec]
allow = ["/usr/bin/**"]
deny = ["/usr/bin/sudo"]
"""


@pytest.mark.parametrize(
    ("question", "expected", "where"),
    [
        (Write("/w/src/a.py"), "allow", "files.write.allow"),
        (Write("src/../a.py"), "allow", "files.write.allow"),
        (Write("/w/../etc/passwd"), "deny", "files.write.default"),
        (Write("/w/no/x"), "deny", "files.write.deny"),
        (Write("/w/no"), "deny", "files.write.deny"),
        (Write("/wx"), "deny", "files.write.default"),
        (Write("/dev/null"), "allow", "built-in.device"),
        (Write("/dev/sda"), "deny", "files.write.default"),
        (Write(".git/hooks/pre-commit"), "deny", "built-in.git-hooks"),
        (Write(".git/hooks/post-merge"), "allow", "files.write.allow"),
        (Write(".git/hooks"), "deny", "built-in.git-hooks"),
        (Write(".git", tree=True), "deny", "built-in.git-hooks"),
        (Write("sub/.claude", tree=True), "deny", "built-in.agent-settings"),
        (Write("sub/other", tree=True), "allow", "files.write.allow"),
        (Write("sub", tree=True), "allow", "files.write.allow"),
        (Write("/w", tree=True), "deny", "files.write.deny"),
        (Write("/home/u/.local/state", tree=True), "deny", "built-in.own-files"),
        (Write(".git/hooks", folder=True), "allow", "files.write.allow"),
        (Write("no/d", folder=True), "deny", "files.write.deny"),
        (Write(".git/hooks/pre-commit.sample"), "allow", "files.write.allow"),
        (Write("sub/.git/hooks/pre-commit"), "deny", "built-in.git-hooks"),
        (Write("/proc/self/root/w/.git/hooks/pre-commit"), "deny", "built-in.git-hooks"),
        (Write(".mcp.json"), "deny", "built-in.agent-settings"),
        (Write(".claude/settings.local.json"), "deny", "built-in.agent-settings"),
        (Write(".github/workflows/ci.yml"), "deny", "built-in.ci"),
        (Write("~/.bashrc"), "deny", "built-in.shell-start"),
        (Write("~/.ssh/authorized_keys"), "deny", "built-in.login"),
        (Write(OWN + "/recordings/x.agentlog"), "deny", "built-in.own-files"),
        (Write("/proc/self/fd/9"), "deny", "built-in.unclear-path"),
        (Write(""), "deny", "built-in.unclear-path"),
        (Read("/etc/passwd"), "allow", "files.read.default"),
        (Read("~/.ssh/id"), "deny", "files.read.deny"),
        (Read(KEY), "deny", "built-in.own-keys"),
        (Read("/proc/self/fd/9"), "deny", "built-in.unclear-path"),
        (Exec("/usr/bin/curl"), "allow", "exec.allow"),
        (Exec("/usr/bin/sudo"), "deny", "exec.deny"),
        (Exec("/usr/bin/../sbin/x"), "deny", "exec.default"),
        (Exec("/memfd:x (deleted)"), "deny", "exec.default"),
    ],
)
def test_files_and_programs(question: Question, expected: str, where: str) -> None:
    answer = decide(policy(FILES), question)
    assert (answer.verdict, answer.rule.where) == (expected, where)


@pytest.mark.parametrize("mode", ["ask", "enforce"])
@pytest.mark.parametrize("group", WRITES, ids=lambda group: group.name)
def test_what_decides_what_runs_later_is_closed_also_where_writes_are_open(mode: str, group: object) -> None:
    assert isinstance(group, type(WRITES[0]))
    open_ = policy('[files.write]\ndefault = "allow"\n', mode=mode)
    for pattern in group.paths:
        path = pattern.replace("**/", "/w/a/", 1) if pattern.startswith("**/") else pattern
        path = path.replace("/**/", "/x/").replace("/**", "/x").replace("*", "x")
        answer = decide(open_, Write(path))
        assert (answer.verdict, answer.rule.where) == ("deny", f"built-in.{group.name}"), path
        asked = f'[files.write]\ndefault = "allow"\nallow = ["{path}"]\n'
        assert verdict(policy(asked, mode=mode), Write(path)) == "allow"


@pytest.mark.parametrize("pattern", WAYS_OUT.paths)
def test_ways_out_are_closed_and_can_be_named(pattern: str) -> None:
    path = pattern.replace("/**", "/x").replace("*", "1")
    assert verdict(network(default="allow"), Unix(path)) == "deny"
    assert verdict(policy(f'[network]\nunix = ["{path}"]\n'), Unix(path)) == "allow"


# What is true of every answer

TEXTS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        ["/w/x", "api.example.com", "127.1", "::1", "/run/docker.sock", "@x", "~/.bashrc", "192.0.2.1", "vsock"]
    ),
)
QUESTIONS = st.one_of(
    st.builds(
        Connect, TEXTS, st.integers(-1, 70000), transport=st.sampled_from(["tcp", "udp"]), address=TEXTS | st.just(""),
        inner=st.booleans(), nameless=st.booleans(),
    ),
    *(st.builds(kind, TEXTS) for kind in (Lookup, Family, Write, Read, Exec)),
    st.builds(Write, TEXTS, st.booleans(), st.booleans()),
    st.builds(Unix, TEXTS, st.booleans()),
)  # fmt: skip
POLICIES = [
    policy(""), policy("", mode="observe"), network(default="allow"), policy(FILES), network("config:pip"),
    network("*.example.com", "10.0.0.0/8", deny=("192.0.2.0/24",)),
]  # fmt: skip


@given(st.sampled_from(POLICIES), QUESTIONS)
def test_every_question_has_an_answer_with_a_rule(of: object, question: Question) -> None:
    assert isinstance(of, type(POLICIES[0]))
    answer = decide(of, question)
    assert answer.rule.where
    assert str(answer.rule)
    assert bool(answer.change) == (answer.verdict == "deny" or (answer.verdict == "unknown" and "stands" in answer.why))
    assert decide(of, question) == answer


@given(TEXTS, st.integers(-1, 70000), st.booleans())
def test_a_denial_of_every_host_denies_every_connection(host: str, port: int, nameless: bool) -> None:
    closed = network("a.example", deny=("*.b.example",)), network(default="allow", deny=("*",))
    assert connect(closed[1], host, port, nameless=nameless) == "deny"
    if connect(closed[0], host, port) == "allow":
        assert host.lower().removesuffix(".") == "a.example"


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("_http._tcp.a.example", "allow"),
        ("_dmarc.a.example", "allow"),
        ("_http._tcp.b.example", "deny"),
        ("_x.data._tcp.a.example", "deny"),
        ("_http", "deny"),
    ],
)
def test_a_question_about_a_service_is_about_its_host(name: str, verdict: str) -> None:
    text = b'version = 1\nname = "t"\nmode = "enforce"\n[network]\ndefault = "deny"\nallow = ["a.example:80"]\n'
    policy = load(text, "t.toml", Places("/w", "/home/u"), {})
    assert decide(policy, Lookup(name)).verdict == verdict
