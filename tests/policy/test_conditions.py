"""What a rule's `when` asks of arguments, and what it makes of values that nobody can judge."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_texts import PLACES, policy

from agentwrap.policy.conditions import hold, meant_host, meant_paths, same
from agentwrap.policy.exact_json import Ambiguous
from agentwrap.policy.hosts import HostError
from agentwrap.policy.mcp_rules import McpRule
from agentwrap.policy.paths import PathError


def rule(when: str, word: str = "allow") -> McpRule:
    body = f'[[mcp]]\nserver = "a"\nwhen = {when}\ndecision = "{word}"\n[[mcp]]\nserver = "*"\ndecision = "deny"\n'
    return policy(body).mcp.rules[0]


def holds(when: str, arguments: Any, word: str = "allow", size: int = 0) -> bool:
    return hold(rule(when, word), arguments, size, PLACES)


# (condition, arguments, whether a permission holds, whether a denial holds)
TABLE = [
    ('{ arg = "b", equals = "main" }', {"b": "main"}, True, True),
    ('{ arg = "b", equals = "main" }', {"b": "Main"}, False, False),
    ('{ arg = "b", equals = "main" }', {}, False, False),
    ('{ arg = "b", equals = "main" }', {"b": None}, False, False),
    ('{ arg = "b", equals = "main" }', None, False, False),
    ('{ arg = "b", equals = "main" }', [], False, False),
    ('{ arg = "n", equals = 1 }', {"n": 1.0}, True, True),
    ('{ arg = "n", equals = 1 }', {"n": True}, False, False),
    ('{ arg = "n", equals = true }', {"n": 1}, False, False),
    ('{ arg = "n", equals = 1 }', {"n": 9007199254740993}, False, True),
    ('{ arg = "n", equals = [1, { x = "y" }] }', {"n": [1, {"x": "y"}]}, True, True),
    ('{ arg = "n", equals = [1, { x = "y" }] }', {"n": [1, {"x": "z"}]}, False, False),
    ('{ arg = "n", in = [1, "x"] }', {"n": "x"}, True, True),
    ('{ arg = "n", in = [1, "x"] }', {"n": [1, "y"]}, False, True),
    ('{ arg = "n", in = [1, "x"] }', {"n": []}, False, False),
    ('{ arg = "a.b", equals = 1 }', {"a": {"b": 1}}, True, True),
    ('{ arg = "/a/b", equals = 1 }', {"a": {"b": 1}}, True, True),
    ('{ arg = "/a~1b", equals = 1 }', {"a/b": 1}, True, True),
    ('{ arg = "a.0", equals = 1 }', {"a": [1, 2]}, True, True),
    ('{ arg = "a.*", equals = 1 }', {"a": [1, 2]}, False, True),
    ('{ arg = "a.*.b", equals = 1 }', {"a": {"x": {"b": 1}, "y": {}}}, True, True),
    ('{ arg = "a.b", equals = 1 }', {"a": [{"b": 1}, {"b": 2}]}, False, True),
    ('{ arg = "b", matches = "^(main|release/.*)$" }', {"b": "release/1"}, True, True),
    ('{ arg = "b", matches = "^(main|release/.*)$" }', {"b": "mainly"}, False, False),
    ('{ arg = "b", matches = "x" }', {"b": 7}, False, True),
    ('{ arg = "b", matches = "x" }', {"b": {"x": "x"}}, False, True),
    ('{ arg = "b", matches = "y" }', {"b": "x" * 5_001}, False, True),
    ('{ arg = "p", path_within = "$CWD" }', {"p": "src/x"}, True, True),
    ('{ arg = "p", path_within = "$CWD" }', {"p": "/w"}, True, True),
    ('{ arg = "p", path_within = "$CWD" }', {"p": "src/../../etc/passwd"}, False, False),
    ('{ arg = "p", path_within = "$CWD" }', {"p": "/w2"}, False, False),
    ('{ arg = "p", path_within = "$CWD" }', {"p": ["src/x", "/etc/passwd"]}, False, True),
    ('{ arg = "p", path_within = ["/etc", "**/.env"] }', {"p": "a/b/.env"}, True, True),
    ('{ arg = "p", path_within = "/etc" }', {"p": "file:///etc/%70asswd"}, True, True),
    ('{ arg = "p", path_within = "/etc" }', {"p": "FILE://localhost/etc/passwd"}, True, True),
    ('{ arg = "p", path_within = "/etc" }', {"p": "file://else/etc/passwd"}, False, True),
    ('{ arg = "p", path_within = "~" }', {"p": "~/x"}, False, True),  # or below the working directory
    ('{ arg = "p", path_within = ["~", "$CWD"] }', {"p": "~/x"}, True, True),
    ('{ arg = "p", path_within = "/w" }', {"p": "~root/x"}, False, True),
    ('{ arg = "p", path_within = "/w" }', {"p": "$HOME/x"}, False, True),
    ('{ arg = "p", path_within = "/w" }', {"p": " /etc/passwd"}, False, True),
    ('{ arg = "p", path_within = "/w" }', {"p": "a/%2e%2E/x"}, False, True),
    ('{ arg = "p", path_within = "/w" }', {"p": "a\0b"}, False, True),
    ('{ arg = "p", path_within = "/w" }', {"p": ""}, False, True),
    ('{ arg = "p", path_within = "/w" }', {"p": 7}, False, True),
    ('{ arg = "u", host_within = "*.example.com" }', {"u": "https://a.example.com/x"}, True, True),
    ('{ arg = "u", host_within = "*.example.com" }', {"u": "https://A.Example.COM.:8443"}, True, True),
    ('{ arg = "u", host_within = "*.example.com:443" }', {"u": "https://a.example.com/x"}, True, True),
    ('{ arg = "u", host_within = "*.example.com:443" }', {"u": "http://a.example.com/x"}, False, False),
    ('{ arg = "u", host_within = "*.example.com:443" }', {"u": "a.example.com"}, True, True),
    ('{ arg = "u", host_within = "*.example.com" }', {"u": "https://a.example.com@evil.example/"}, False, True),
    ('{ arg = "u", host_within = "*.example.com" }', {"u": "https://evil.example\\@a.example.com/"}, False, True),
    ('{ arg = "u", host_within = "*.example.com" }', {"u": "https:a.example.com"}, False, True),
    ('{ arg = "u", host_within = "*.example.com" }', {"u": "https://evil.example/?a.example.com"}, False, False),
    ('{ arg = "u", host_within = "*.example.com" }', {"u": "https://evil.example#.example.com"}, False, False),
    ('{ arg = "u", host_within = "*.example.com" }', {"u": "ht\ttps://a.example.com"}, False, True),
    ('{ arg = "u", host_within = "10.0.0.0/8" }', {"u": "http://0x0a000001/"}, True, True),
    ('{ arg = "u", host_within = "10.0.0.0/8" }', {"u": "http://[::ffff:10.0.0.1]:80/"}, True, True),
    ('{ arg = "s", max_bytes = 3 }', {"s": "a\u20ac"}, False, False),
    ('{ arg = "s", max_bytes = 4 }', {"s": "a\u20ac"}, True, True),
    ('{ arg = "s", max_bytes = 5 }', {"s": [1, 2]}, True, True),
    ('[{ arg = "a", equals = 1 }, { arg = "b", equals = 2 }]', {"a": 1, "b": 2}, True, True),
    ('[{ arg = "a", equals = 1 }, { arg = "b", equals = 2 }]', {"a": 1}, False, False),
]


@pytest.mark.parametrize(("when", "arguments", "allows", "denies"), TABLE)
def test_what_holds_for_a_permission_and_for_a_denial(when: str, arguments: Any, allows: bool, denies: bool) -> None:
    assert holds(when, arguments) is allows
    assert holds(when, arguments, "deny") is holds(when, arguments, "approve") is denies


def test_the_size_of_all_arguments_is_that_of_their_bytes_as_they_came() -> None:
    assert holds("{ max_bytes = 10 }", {}, size=10)
    assert not holds("{ max_bytes = 10 }", {}, size=11)


@pytest.mark.parametrize("arguments", [{"b": 1, "B": 2}, {"B": 1}, {"\u212a": 1, "x": 2}, {"a": [{"B": 1}]}])
def test_an_argument_that_other_readers_take_for_it_cannot_be_judged(arguments: Any) -> None:
    when = '{ arg = "k", equals = 1 }' if "x" in arguments else '{ arg = "a.b", equals = 1 }'
    when = when if "a" in arguments else when.replace("a.b", "b")
    with pytest.raises(Ambiguous):
        holds(when, arguments)


def test_deep_arguments_cannot_be_judged() -> None:
    deep: Any = {"b": 1}
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(Ambiguous):
        holds('{ arg = "b", equals = 1 }', deep)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "B", "path"]), inner),
    max_leaves=10,
)
WHENS = [
    '{ arg = "a.b", equals = 1 }', '{ arg = "*.b", matches = "x" }', '{ arg = "path", path_within = "$CWD" }',
    '{ arg = "path", host_within = "a.example" }', '{ arg = "a", max_bytes = 3 }', '{ arg = "a", in = ["x", 1] }',
]  # fmt: skip
RULES = {(when, word): rule(when, word) for when in WHENS for word in ("allow", "deny")}


@given(JSON, st.sampled_from(WHENS))
def test_whatever_the_arguments_are_a_denial_holds_wherever_a_permission_does(value: Any, when: str) -> None:
    try:
        allowed = hold(RULES[when, "allow"], value, 0, PLACES)
        denied = hold(RULES[when, "deny"], value, 0, PLACES)
    except Ambiguous:
        return
    assert denied or not allowed


@given(JSON)
def test_a_value_is_the_same_as_itself_or_nobody_can_tell(value: Any) -> None:
    assert same(value, value) is not False


@given(st.text(max_size=40) | st.text(max_size=20).map("file:///".__add__) | st.text(max_size=20).map("~/".__add__))
def test_a_path_has_normal_forms_or_none(text: str) -> None:
    try:
        paths = meant_paths(text, PLACES)
    except PathError:
        return
    assert paths
    assert all(path.startswith("/") and "/../" not in path + "/" for path in paths)


@given(st.text(max_size=40) | st.text(max_size=20).map("https://".__add__))
def test_a_url_has_one_host_or_none(text: str) -> None:
    try:
        host, port = meant_host(text)
    except HostError:
        return
    assert str(host)
    assert port is None or 0 <= port <= 99_999
