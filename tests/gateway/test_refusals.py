from agentwrap.gateway.refusals import dns_text, http_text, line, malformed_text, other_host_text
from agentwrap.policy.questions import Answer, Connect, Lookup
from agentwrap.policy.rules import Rule

RULE = Rule("network.default", "deny", "ci.toml", 4)
ANSWER = Answer("deny", RULE, "no rule allows it", "add `b.example:80` to network.allow of ci.toml")
EVIL = "b.example\r\n\x1b[2J\u202e" + "x" * 5000


def safe(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n")) and len(text) < 3000


def test_a_denied_request_is_told_everything() -> None:
    text = http_text(ANSWER, Connect("b.example", 80), process="node(4130)")
    assert text == (
        "agentwrap denied: connect b.example:80\n"
        "\n"
        "This answer comes from agentwrap, the program that this run is wrapped in. It does not come from the server:"
        " nothing was sent there.\n"
        "Rule: network.default `deny` (ci.toml:4)\n"
        "Why: no rule allows it\n"
        "Process: node(4130)\n"
        "Trying again, or in another way, gives the same answer.\n"
        "A person may allow it: add `b.example:80` to network.allow of ci.toml"
    )


def test_without_a_change_a_person_is_asked() -> None:
    assert http_text(Answer("deny", RULE), Connect("b", 1)).endswith(
        "\nA person may allow it: ask the person who runs this"
    )


def test_foreign_text_stays_on_its_line_and_short() -> None:
    evil = Answer("deny", Rule("network.deny", EVIL, EVIL, 1), EVIL, EVIL)
    for text in (
        http_text(evil, Connect(EVIL, 80), process=EVIL),
        malformed_text(EVIL),
        other_host_text(EVIL, EVIL),
        dns_text(evil, Lookup(EVIL)),
    ):
        assert safe(text), text
    assert "\n" not in line(evil, Connect(EVIL, 80))


def test_short_forms() -> None:
    assert dns_text(ANSWER, Lookup("b.example")) == (
        "agentwrap denied: lookup b.example; rule network.default `deny` (ci.toml:4)"
    )
    assert line(ANSWER, Connect("b.example", 80)) == (
        "agentwrap denied: connect b.example:80 (rule network.default `deny` (ci.toml:4));"
        " to allow: add `b.example:80` to network.allow of ci.toml"
    )
    assert "the connection was made to a.example and the request is for b.example" in malformed_text(
        other_host_text("a.example", "b.example")
    )
