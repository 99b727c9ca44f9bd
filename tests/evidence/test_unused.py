"""Entries that decided nothing, and the policy of a run out of its recording."""

import sample_wall
from fake_recording import FakeRecording, FakeRow
from policy_texts import PLACES, network, policy

from agentwrap.events import Coverage, Event, FileEdit, FileRead, FileState, NetDecision, PolicyLoaded
from agentwrap.evidence.unused import Unused, recorded_layers, rules_of, unused
from agentwrap.policy.flags import Given, flags_policy
from agentwrap.policy.layers import Layer
from agentwrap.policy.loaded import loaded_event
from agentwrap.policy.rules import Policy


def passed(of: Policy, index: int) -> NetDecision:
    rule = str(of.network.allow[index].rule).encode()
    return NetDecision(at_ns=1, host=b"x.example", port=443, decision="allow", by="wall", rule=rule)


def edit(path: bytes) -> FileEdit:
    return FileEdit(at_ns=1, path=path, change="create", before=FileState(type="absent"), after=FileState())


def idle(found: Unused) -> list[str]:
    return [one.rule.text for one in found.idle]


def test_a_rule_that_let_something_pass_is_used() -> None:
    of = network("a.example:443", "b.example:443", deny=("c.example",))
    found = unused(FakeRecording([passed(of, 0)]), [Layer("flags", of)])
    assert idle(found) == ["b.example:443", "c.example"]
    assert idle(unused(FakeRecording([passed(of, 0), passed(of, 1)]), [Layer("flags", of)])) == ["c.example"]


def test_changes_of_files_are_asked_again() -> None:
    of = policy('[files.write]\nallow = ["$CWD/**", "/opt/**", "/srv/x"]\n[network]\nunix = ["/run/docker.sock"]\n')
    found = unused(FakeRecording([edit(b"/w/a"), edit(b"/srv/x"), edit(b"/etc/no")]), [Layer("user", of)])
    assert idle(found) == ["/opt/**", "/run/docker.sock"]
    assert found.complete
    assert not unused(FakeRecording([edit(b"/w/a"), edit(b"/w/b")]), [Layer("user", of)], 1).complete


def test_lists_about_reads_are_only_judged_where_reads_were_recorded() -> None:
    of = policy('[files.read]\nallow = ["/a/**", "/b/**"]\n')
    read = FileRead(at_ns=1, path=b"/a/x")
    found = unused(FakeRecording([read]), [Layer("user", of)])
    assert (idle(found), found.unread) == ([], True)
    seen = Coverage(at_ns=0, what="file-read", tier="witness", mechanism="m")
    assert idle(unused(FakeRecording([seen, read]), [Layer("user", of)])) == ["/b/**"]


def test_the_layers_of_a_run_come_out_of_its_recording() -> None:
    user = policy('[network]\nallow = ["u.example"]\n')
    project = network("p.example", deny=("q.example",))
    flags = flags_policy(Given(allow=("f.example",)), PLACES, {})
    layers = [Layer("flags", flags), Layer("project", project, trusted=False), Layer("user", user)]
    recording = FakeRecording([loaded_event(layers)])
    again = recorded_layers(recording, PLACES, {})
    assert [(one.name, one.trusted, one.policy.file) for one in again] == [
        ("flags", True, "command line"), ("project", False, "t.toml"), ("user", True, "t.toml"),
    ]  # fmt: skip
    assert [[str(rule) for rule in rules_of(one.policy)] for one in again] == [
        [str(rule) for rule in rules_of(one.policy)] for one in layers
    ]
    assert again[0].policy.silent == flags.silent
    assert idle(unused(recording, again)) == ["f.example", "p.example", "q.example", "u.example"]


def test_a_run_without_a_policy_has_no_layers() -> None:
    assert recorded_layers(FakeRecording([]), PLACES, {}) == ()


def test_rows_made_by_hand_end_in_an_answer() -> None:
    events: list[Event] = [PolicyLoaded(at_ns=0, name=b"x", mode="enforce", sha256="", layers=((b"user", b"f"),))]
    assert recorded_layers(FakeRecording(events), PLACES, {}) == ()
    recording = FakeRecording(sample_wall.events())
    recording._rows = [
        FakeRow(1, 0, "policy", data={"layers": 3, "text": {"b64": "?"}}),
        FakeRow(2, 0, "net.decision", data={"rule": []}),
        FakeRow(3, 0, "coverage", data={"what": []}),
    ]
    assert recorded_layers(recording, PLACES, {}) == ()
    assert idle(unused(recording, [Layer("user", network("a.example"))])) == ["a.example"]
