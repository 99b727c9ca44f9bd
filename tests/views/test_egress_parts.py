"""Lines of judgements: the verdict, what it was about, the rule where it is news, who."""

import sample_wall
from fake_recording import FakeRecording, FakeRow

from agentwrap.events import AskAnswered, AskWaiting
from agentwrap.views import noise, summary
from agentwrap.views.context import Context
from agentwrap.views.egress_parts import short_rule
from agentwrap.views.lines import stream_line
from agentwrap.views.styled import plain
from agentwrap.views.tree import build

RECORDING = FakeRecording(sample_wall.events(), meta={"cwd": "/srv"})


def told(kind: str, *, live: bool = False) -> list[str]:
    context = Context(RECORDING, live=live)
    return [" ".join(plain(stream_line(row, context))[11:].split()) for row in RECORDING.rows(kinds=(kind,))]


def test_a_denial_is_told_with_its_rule_and_who() -> None:
    assert told("net.decision")[1] == "net deny tcp 203.0.113.9:443 rule network.default node(42)"
    assert told("dns.query")[1:] == [
        "dns deny A telemetry.example rule network.default node(42)",
        "dns deny A telemetry.example 3 times rule network.default node(42)",
    ]
    assert told("net.refused") == ["net deny udp 203.0.113.5:443 rule built-in.udp node(42)"]
    assert told("act.denied") == [
        "file deny write .git/hooks/pre-commit rule built-in.git-hooks node(42)",
        "net would-deny unix /run/docker.sock rule built-in.sockets node(42)",
    ]


def test_a_connection_is_told_with_what_went_through_it() -> None:
    assert told("net.decision")[0] == "net allow tls api.example.com:443 ↑1.2KB ↓30KB 10ms agent(41)"
    assert told("net.decision", live=True)[0] == "net allow tls api.example.com:443 agent(41)"
    assert told("net.closed")[1] == "net closed api.example.com:443 ↑1.2KB ↓30KB agent(41)"
    assert told("dns.query")[0] == "dns allow A api.example.com 203.0.113.5 agent(41)"


def test_the_policy_and_a_question_with_its_answer() -> None:
    assert told("policy") == ["policy ci mode enforce from flags"]
    assert told("ask.waiting") == ["ask waits a1 connect ask.example:443 until 310.000 agent(41)"]
    assert told("ask.answered") == ["ask a1 approved once by alice (uid 1000)"]


def test_a_call_that_waits_is_told_with_its_arguments() -> None:
    arguments = b'{"b":"\x1b"}' + b" " * 99
    asked = AskWaiting(at_ns=1, ask="r1", question=b"call merge of github", until_ns=9, arguments=arguments)
    given_up = AskAnswered(at_ns=2, ask="r1", answer="withdrawn", reason=b"the client has left")
    recording = FakeRecording([asked, given_up])
    lines = [" ".join(plain(stream_line(row, Context(recording))).split()[2:]) for row in recording.rows()]
    assert lines[0].startswith('ask waits r1 call merge of github with {"b":"\\x1b"}')
    assert "\u2026" in lines[0]
    assert lines[1] == "ask r1 given up by whoever asked the client has left"


def test_a_rule_in_a_line_is_its_place_and_text() -> None:
    assert short_rule("network.default `deny` (ci.toml:6)") == "network.default"
    assert short_rule("network.deny `10.0.0.0/8` (ci.toml:9)") == "network.deny `10.0.0.0/8`"
    assert short_rule("built-in.udp") == "built-in.udp"
    assert short_rule("") == ""


def test_what_the_gateway_tells_is_not_told_again() -> None:
    def hidden(kind: str, *, walled: bool = True, live: bool = False, **data: object) -> str:
        return noise.hidden(FakeRow(1, 0, kind, data=data), walled=walled, live=live)

    inet = {"family": "inet", "transport": "tcp", "port": 443}
    assert "gateway" in hidden("net.connect", host="203.0.113.5", **inet)
    assert hidden("net.connect", host="203.0.113.5", walled=False, **inet) == ""
    assert hidden("net.connect", host="127.0.0.1", **inet) == ""
    assert hidden("net.connect", family="unix", path="/run/docker.sock") == ""
    assert "gateway" in hidden("dns.server", host="9.9.9.9")
    assert hidden("dns.query", rcode="NOERROR")
    assert hidden("dns.query", rcode="SERVFAIL") == ""
    assert hidden("net.closed", ending="reset")
    assert hidden("net.closed", ending="reset", live=True) == ""
    assert not any(noise.hidden(row, walled=True) for row in RECORDING.rows() if row.verdict in ("deny", "would-deny"))


def test_a_context_learns_of_the_gateway_from_its_statement() -> None:
    context = Context(RECORDING)
    assert context.walled is False
    for row in RECORDING.rows():
        context.follow(row)
    assert context.walled is True


def test_repeats_count_as_often_as_they_were() -> None:
    tally = summary.tally_of(RECORDING)
    assert (tally.denials, tally.by_policy, tally.would_deny) == (7, 7, 1)
    assert tally.hosts == "1 host"
    assert plain(summary.summarize(RECORDING)).endswith("1 would have been denied, 7 denied: agentwrap show --denied")
    assert build(RECORDING).touched["p2"].denied == 7
    assert build(RECORDING).touched["p1"].sockets == 1
