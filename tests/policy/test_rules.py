import pytest
from policy_texts import PLACES, network, policy

from agentwrap.policy.paths import parse_pattern
from agentwrap.policy.rules import PathList, PathRule, Rule


def rules(*patterns: str) -> PathList:
    return PathList.of([PathRule(Rule("w", text), parse_pattern(text, PLACES)) for text in patterns])


def test_a_rule_is_told_with_its_place() -> None:
    assert str(Rule("network.allow", "a.example", "ci.toml", 5)) == "network.allow `a.example` (ci.toml:5)"
    assert str(Rule("built-in.udp")) == "built-in.udp"


def test_the_rule_that_names_a_path_comes_before_those_that_fit_it() -> None:
    found = rules("/a/**", "/a/*", "/a/b")
    assert len(found) == 3
    texts = [rule.rule.text for path in ("/a/b", "/a/c", "/a/c/d") if (rule := found.match(path)) is not None]
    assert texts == ["/a/b", "/a/**", "/a/**"]
    assert found.match("/b") is None
    assert not rules()


def test_what_lies_below() -> None:
    found = rules("/a/b/c", "**/x/*.y")
    assert found.below("/a/b") is not None
    assert found.below("/q/x") is not None
    assert found.below("/q") is None


@pytest.mark.parametrize(
    ("body", "mode", "kinds"),
    [
        ("", "observe", ()),
        ("", "enforce", ("process", "connect", "dns", "udp", "unix", "file-write")),
        ('[files.read]\ndefault = "allow"\ndeny = ["/x"]\n', "observe", ("process", "file-read")),
        ('[exec]\ndefault = "deny"\n', "observe", ("process", "exec")),
        ('[network]\ndefault = "allow"\n[files.write]\ndefault = "allow"\n', "enforce", ("process", "file-write")),
    ],
)
def test_what_has_to_be_seen_to_judge_by_a_policy(body: str, mode: str, kinds: tuple[str, ...]) -> None:
    assert policy(body, mode=mode).restricts() == kinds


def test_a_denial_of_hosts_has_to_be_seen_too() -> None:
    assert "connect" in network(default="allow", deny=("a.example",), mode="observe").restricts()
