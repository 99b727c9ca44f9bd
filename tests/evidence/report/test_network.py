"""What the gateway allowed is judged again by the policy's text: the part of control 5 that is about connections."""

from pathlib import Path
from typing import Any

import pytest
from mcp_story import POLICY, Story

from agentwrap.events import AskWaiting, DnsQuery
from agentwrap.policy.document import load
from agentwrap.policy.flags import Given, flags_policy
from agentwrap.policy.layers import Layer
from agentwrap.policy.loaded import loaded_event
from agentwrap.policy.paths import Places

PLACES = Places("/srv", "/home/a", "/tmp")
APPROVED: dict[str, Any] = {"rule": b"built-in.approved"}
INNER: dict[str, Any] = {"rule": b"built-in.inner"}


def told(story: Story, folder: Path) -> tuple[str, int, list[str]]:
    control = story.control(folder, "decided")
    return control.outcome, control.population, [one.why for one in control.exceptions]


def asked(story: Story, question: bytes) -> None:
    at_ns = story.now()
    story.add(AskWaiting(at_ns=at_ns, ask="a1", question=question, until_ns=at_ns + 10**9, **story.who))
    story.reply("a1")


def test_what_the_rules_allow_passes_and_refusals_are_not_judged(tmp_path: Path) -> None:
    story = Story()
    story.connect("c1", "allow", b"api.example", address=b"203.0.113.5")
    story.connect("c2", "allow", b"10.1.2.3", address=b"10.1.2.3")
    story.connect("c3", "deny", b"api.example", rule=b"built-in.sni")
    story.connect("c4", "allow", b"127.0.0.1", port=8000, **INNER)
    story.connect("c5", "allow", b"198.51.100.1", rule=b"--publish")
    story.add(DnsQuery(at_ns=story.now(), name=b"api.example", qtype="A", decision="allow", by="wall", **story.who))
    assert told(story, tmp_path) == ("pass", 4, [])


@pytest.mark.parametrize(
    ("host", "fields", "why"),
    [
        (b"evil.example", {}, "the rules deny it, and it was allowed"),
        (b"api.example", {"port": 80}, "the rules deny it, and it was allowed"),
        (b"api.example", {"address": b"169.254.169.254"}, "the rules deny it, and it was allowed"),
        (b"evil.example", APPROVED, "it says that a human allowed it, and none did"),
        (b"198.51.100.1", INNER, "it was allowed as the run's own, and is not"),
        (b"\xff", {}, "the rules deny it, and it was allowed"),
    ],
)
def test_what_the_rules_do_not_allow_fails(tmp_path: Path, host: bytes, fields: dict[str, Any], why: str) -> None:
    story = Story()
    story.connect("c1", "allow", host, **fields)
    assert told(story, tmp_path) == ("fail", 1, [why])


def test_a_lookup_that_the_rules_deny_fails(tmp_path: Path) -> None:
    story = Story()
    story.add(DnsQuery(at_ns=story.now(), name=b"evil.example", qtype="A", decision="allow", by="wall", **story.who))
    assert told(story, tmp_path) == ("fail", 1, ["the rules deny it, and it was allowed"])


def test_what_a_human_allowed_was_asked_about_before(tmp_path: Path) -> None:
    story = Story()
    asked(story, b"connect to evil.example:443 at 203.0.113.9")
    story.connect("c1", "allow", address=b"203.0.113.9", **APPROVED)
    assert told(story, tmp_path) == ("pass", 1, [])
    story.connect("c2", "allow", b"other.example", **APPROVED)
    assert told(story, tmp_path) == ("fail", 2, ["it says that a human allowed it, and none did"])
    late = Story()
    late.connect("c1", "allow", **APPROVED)
    asked(late, b"connect to evil.example:443")
    assert told(late, tmp_path) == ("fail", 1, ["it says that a human allowed it, and none did"])


def test_options_beside_a_policy_have_its_defaults(tmp_path: Path) -> None:
    text = POLICY.replace("[network]\nallow", '[network]\ndefault = "deny"\nallow')
    for default, outcome in (("deny", "fail"), ("allow", "pass")):
        mine = text.replace('default = "deny"\nallow = ["api.example:443", "10.0.0.0/8:443"]', f'default = "{default}"')
        base = load(mine.encode(), "ci.toml", PLACES, {})
        options = flags_policy(Given(allow=("b.example:443",)), PLACES, {}, base=base)
        story = Story(None)
        story.items.insert(1, loaded_event([Layer("flags", options), Layer("flags", base)]))
        story.connect("c1", "allow", b"b.example")
        assert told(story, tmp_path)[0] == "pass"
        story.connect("c2", "allow", b"c.example")
        assert told(story, tmp_path)[0] == outcome


def test_what_could_not_be_told_apart_cannot_be_judged(tmp_path: Path) -> None:
    story = Story()
    story.connect("c1", "allow", b"(others)", port=0)
    assert told(story, tmp_path) == ("cannot-tell", 1, ["more was allowed than could be told apart"])
