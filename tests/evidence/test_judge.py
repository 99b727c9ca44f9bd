import sample_run
import sample_wall
from fake_recording import FakeRecording
from policy_texts import PLACES, network, policy

from agentwrap.events import DnsServer, Event, NetConnect
from agentwrap.evidence.asked import Asked, asked, places_of
from agentwrap.evidence.check import check
from agentwrap.evidence.judge import judge
from agentwrap.policy.coverage import parse_requirements
from agentwrap.policy.document import load
from agentwrap.policy.suggest import suggest

RUN = [item for item in sample_run.items() if isinstance(item, Event)]
OPEN = 'mode = "observe"\n'


def tcp(host: bytes, port: int = 443) -> NetConnect:
    return NetConnect(at_ns=1, family="inet", transport="tcp", host=host, port=port)


def test_violations_are_told_once_with_event_program_rule_and_count() -> None:
    judged = judge(FakeRecording([tcp(b"192.0.2.1"), tcp(b"192.0.2.1"), tcp(b"192.0.2.2")]), network("192.0.2.2"))
    (one,) = judged.violations
    assert (one.seq, one.what, one.count, one.rule) == (
        1,
        "connect 192.0.2.1:443",
        2,
        "network.default `deny` (t.toml:5)",
    )
    assert (judged.acts, judged.violated, judged.cannot_tell) == (3, 2, [])


def test_an_address_that_could_be_an_allowed_name_is_neither_clean_nor_violated() -> None:
    recording = FakeRecording([DnsServer(at_ns=0, host=b"192.0.2.53", names=(b"a.example",)), tcp(b"192.0.2.1")])
    judged = judge(recording, network("a.example:443"))
    assert (judged.violated, [(one.seq, one.count) for one in judged.cannot_tell]) == (0, [(2, 1)])
    report = check(recording, (), judged=judged)
    assert (report.word, report.status) == ("not covered", 3)
    judged = judge(recording, network("a.example:22"))
    assert judged.violated == 1
    assert check(recording, (), judged=judged).status == 1


def test_behind_a_gateway_a_policy_of_names_is_judged_by_name() -> None:
    recording = FakeRecording(sample_wall.events(), meta={"cwd": "/srv"})
    allowed = network("api.example.com:443")
    clean = judge(recording, allowed)
    assert (clean.violated, clean.cannot_tell) == (0, [])
    report = check(recording, parse_requirements("connect:wall,dns"), judged=clean)
    assert (report.word, report.status) == ("covered", 0)
    assert judge(recording, network("other.example:443")).violated == 2
    assert [one.what for one in judge(recording, network(default="allow", deny=("203.0.113.0/24",))).violations] == [
        "connect api.example.com:443"
    ]


def test_the_three_values_with_a_policy() -> None:
    recording = FakeRecording(RUN)
    clean = judge(recording, policy("", mode="observe"))
    assert (clean.violated, clean.cannot_tell) == (0, [])
    covered, uncovered = parse_requirements("exec"), parse_requirements("file-write")
    assert check(recording, covered, judged=clean).status == 0
    assert check(recording, uncovered, judged=clean).status == 3
    refused = judge(recording, policy(""))
    assert check(recording, uncovered, judged=refused).status == 1
    document = check(recording, covered, judged=refused).document()["policy"]
    assert document["violated"] == refused.violated > 0
    assert {"seq", "what", "who", "rule", "why", "change", "count"} == set(document["violations"][0])
    assert "policy" not in check(recording, covered).document()


def test_a_suggestion_from_a_run_behind_a_wall_names_hosts_and_judges_it_clean() -> None:
    recording = FakeRecording(sample_wall.events(), meta={"cwd": "/srv"})
    places = places_of(recording)
    text = suggest((one for one in asked(recording) if isinstance(one, Asked)), places, name="s")
    assert '"api.example.com:443",  # agent' in text
    judged = judge(recording, load(text.encode(), "s.toml", places, {}))
    assert (judged.violations, judged.cannot_tell) == ([], [])


def test_a_suggestion_from_a_run_judges_that_run_clean() -> None:
    recording = FakeRecording(RUN, meta={"cwd": "/srv/project"})
    places = places_of(recording)
    text = suggest((one for one in asked(recording) if isinstance(one, Asked)), places, name="s")
    judged = judge(recording, load(text.encode(), "s.toml", places, {}))
    assert (judged.violations, judged.acts > 10) == ([], True)
    elsewhere = judge(recording, load(text.encode(), "s.toml", PLACES, {}))
    assert elsewhere.violated > 0
