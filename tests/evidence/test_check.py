import sample_run
import sample_wall
from fake_recording import FakeRecording

from agentwrap.events import Event, ProcessDenied
from agentwrap.evidence.check import check, holes, statements
from agentwrap.policy.coverage import parse_requirements

RUN = [item for item in sample_run.items() if isinstance(item, Event)]


def test_statements_and_gaps_are_read_from_rows() -> None:
    recording = FakeRecording(RUN)
    assert [(one.kind, one.tier) for one in statements(recording)][-1] == ("file-read", "none")
    (hole,) = holes(recording)
    assert (hole.kind, hole.cause, hole.detail) == ("file-write", "over-cap", "/srv/project/big.iso")


def test_the_three_values() -> None:
    recording = FakeRecording(RUN)
    covered, uncovered = parse_requirements("exec"), parse_requirements("exec,file-write")
    assert (check(recording, covered).word, check(recording, covered).status) == ("covered", 0)
    assert (check(recording, uncovered).word, check(recording, uncovered).status) == ("not covered", 3)
    failed = check(recording, uncovered, fail_on_deny=True)
    assert (failed.word, failed.status) == ("violated", 1)


def test_the_run_has_to_be_over_and_closed() -> None:
    for state, reason in (("live", "the run is not over"), ("torn", "the recording is torn: its end was not recorded")):
        report = check(FakeRecording(RUN, state=state), parse_requirements("exec"))
        assert report.status == 3
        assert report.judgements[0].reasons == (reason,)


def test_only_some_denials_are_listed_and_all_are_counted() -> None:
    denial = ProcessDenied(at_ns=1, what="setuid", why="w")
    report = check(FakeRecording([denial] * 50), parse_requirements("exec"), fail_on_deny=True)
    assert report.denials == 50
    assert len(report.shown_denials) == 20
    assert report.document()["denials"] == 50


def test_denials_of_the_gateway_count_as_often_as_they_were() -> None:
    report = check(FakeRecording(sample_wall.events()), (), fail_on_deny=True)
    assert (report.word, report.denials) == ("violated", 7)
    one = report.shown_denials[1]
    assert (one.kind, one.subject, one.count) == ("dns.query", "telemetry.example", 3)
    assert one.rule == "network.default `deny` (ci.toml:6)"
