"""Controls about approvals and rules: forged, reused, late, for something else, by whom they must not be given."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_story import MERGE, POLICY, Story, digest

from agentwrap.events import McpFinding, ProcessExit, ProcessStart

OTHER = b'{"branch":"main","force":true}'
Fault = Callable[[Story], Any]


def whys(story: Story, folder: Path, name: str) -> tuple[str, list[str]]:
    control = story.control(folder, name)
    return control.outcome, [one.why for one in control.exceptions]


def merged(story: Story, ask: str = "r1", arguments: bytes = MERGE, **decision: Any) -> None:
    """A merge that went on with the approval `ask`, whatever that is."""
    call = story.begin("merge", arguments)
    story.decide(call, "allow", "merge", arguments, ask=ask, **decision)
    story.answer(call)


def test_a_merge_that_was_approved_and_what_needs_no_approval_pass(tmp_path: Path) -> None:
    story = Story()
    story.fine()
    story.approved()
    story.approved("r2")
    story.answer(story.begin("merge", b'{"branch":"dev"}'))
    for name, population in (("approved", 2), ("separated", 2), ("decided", 2)):
        control = story.control(tmp_path, name)
        assert (control.outcome, control.population, control.exceptions) == ("pass", population, ()), name


def test_a_merge_that_was_refused_is_tested_and_passes(tmp_path: Path) -> None:
    story = Story()
    call = story.begin("merge", MERGE, passed=False)
    story.ask(answer="deny")
    story.decide(call, "deny", "merge", MERGE, ask="r1")
    story.answer(call, "denied", ours=True)
    assert story.control(tmp_path, "approved").population == 1
    assert whys(story, tmp_path, "approved") == ("pass", [])
    assert whys(story, tmp_path, "decided") == ("pass", [])
    assert whys(story, tmp_path, "separated") == ("not-applicable", [])


def unasked(story: Story) -> None:
    story.answer(story.begin("merge", MERGE))


def forged(story: Story) -> None:
    merged(story, "r77")


def unanswered(story: Story) -> None:
    story.ask(answered=False)
    merged(story)


def refused(story: Story) -> None:
    story.ask(answer="deny")
    merged(story)


def expired(story: Story) -> None:
    story.ask(waits_ms=1)
    merged(story)


def reused(story: Story) -> None:
    story.approved()
    merged(story)


def for_others(story: Story) -> None:
    story.ask(arguments=OTHER)
    merged(story)


def judged_for_others(story: Story) -> None:
    story.ask()
    call = story.begin("merge", MERGE)
    story.decide(call, "allow", "merge", OTHER, ask="r1")
    story.answer(call)


def for_another_tool(story: Story) -> None:
    story.ask(question={"tool": b"search"})
    merged(story)


def for_another_server(story: Story) -> None:
    story.ask(question={"server": b"jira"})
    merged(story)


def too_late(story: Story) -> None:
    merged(story)
    story.ask()


def before_the_question(story: Story) -> None:
    story.reply()
    story.ask(answered=False)
    merged(story)


def by_nobody(story: Story) -> None:
    story.ask(approver=b"", uid=-1)
    merged(story)


def answered_twice(story: Story) -> None:
    story.ask(answer="deny")
    story.reply()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (unasked, "it needed approval and went on without"),
        (forged, "the question that its approval is said to be is not in the recording"),
        (unanswered, "the answer that its approval is said to be is not in the recording"),
        (refused, "the answer was `deny`"),
        (expired, "its approval had expired when it was given"),
        (reused, "its approval was used before"),
        (for_others, "its approval is for other arguments"),
        (judged_for_others, "its approval is for other arguments"),
        (for_another_tool, "its approval is for another tool"),
        (for_another_server, "its approval is for another server"),
        (too_late, "it went on before its approval was given"),
        (before_the_question, "its approval was given before anybody was asked"),
        (by_nobody, "nobody is named who approved it"),
        (answered_twice, "r1 was asked or answered twice"),
    ],
)
def test_approvals_that_are_none(tmp_path: Path, fault: Fault, expected: str) -> None:
    story = Story()
    fault(story)
    assert whys(story, tmp_path, "approved") == ("fail", [expected])


def test_arguments_that_a_secret_hides_cannot_be_compared(tmp_path: Path) -> None:
    story = Story()
    story.approved(arguments=b'{"branch":"main","token":"ghp_%b"}' % (b"a1B2" * 9))
    for name in ("approved", "decided"):
        assert whys(story, tmp_path, name) == ("cannot-tell", ["the request was not kept as it came"])


def test_a_policy_whose_text_is_hidden_or_ambiguous_decides_nothing(tmp_path: Path) -> None:
    story = Story(POLICY + "# sk-ant-api03-" + "q" * 93 + "AA\n")
    story.fine()
    outcome, (why,) = whys(story, tmp_path, "approved")
    assert outcome == "cannot-tell"
    assert why == "the policy's text is not what was read: some of it is hidden"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"approver": b"alice"}, ("fail", ["whom the agent acts for gave it"])),
        ({"approver": b" Alice\n"}, ("fail", ["whom the agent acts for gave it"])),
        ({"approver": b"release-bot"}, ("fail", ["whom the agent acts for gave it"])),
        ({"approver_pid": 42}, ("fail", ["a process of the run itself gave it"])),
        ({"approver": b""}, ("cannot-tell", ["it is not told who gave it"])),
        ({"approver": b"carol", "uid": 1000}, ("pass", [])),
    ],
)
def test_who_may_not_approve(tmp_path: Path, answer: dict[str, Any], expected: tuple[str, list[str]]) -> None:
    story = Story()
    story.ask(**answer)
    assert whys(story, tmp_path, "separated") == expected
    notes = story.control(tmp_path, "separated").notes
    assert bool(notes) == (answer.get("uid") == 1000)


def test_a_pid_that_the_run_no_longer_has_is_somebody_elses(tmp_path: Path) -> None:
    story = Story()
    story.add(ProcessExit(at_ns=story.now(), span="p2", pid=42, status=0))
    story.ask(approver_pid=42)
    assert whys(story, tmp_path, "separated") == ("pass", [])


def test_whom_a_run_without_a_person_acts_for_cannot_be_told(tmp_path: Path) -> None:
    story = Story(None, agent=b"", on_behalf_of=b"")
    story.ask()
    assert whys(story, tmp_path, "separated") == ("cannot-tell", ["it is not told for whom the agent acts"])


def test_a_self_approval_that_the_recorder_noticed_counts(tmp_path: Path) -> None:
    story = Story()
    story.ask()
    told: dict[str, Any] = {"what": "self-approval", "session": "", "server": b"github"}
    refused = McpFinding(at_ns=story.now(), detail=b"r1 refused: approved by alice (user 5)", **told)
    story.add(refused)
    control = story.control(tmp_path, "separated")
    assert (control.outcome, control.notes) == ("pass", ("1 try of whom the agent acts for to approve it: refused",))
    story.add(McpFinding(at_ns=story.now(), detail=b"r1 allowed: approved by bob (user 1001)", **told))
    assert whys(story, tmp_path, "separated") == ("fail", ["the recorder told of a self-approval"])


def test_one_that_the_recorder_told_of_as_well_is_told_once(tmp_path: Path) -> None:
    story = Story()
    story.ask(approver=b"alice")
    story.add(McpFinding(at_ns=story.now(), what="self-approval", session="", server=b"github",
                         detail=b"r1 allowed: approved by alice (user 1001)"))  # fmt: skip
    assert whys(story, tmp_path, "separated") == ("fail", ["whom the agent acts for gave it"])


def test_an_approval_for_the_run_is_for_the_same_call_and_is_told(tmp_path: Path) -> None:
    derived: dict[str, Any] = {"reason": b"allowed for the run as r1: fine"}
    for arguments, noted in ((MERGE, True), (OTHER, False)):
        story = Story()
        story.ask(answer="run")
        merged(story)
        story.ask("r2", arguments=arguments, **derived)
        merged(story, "r2", arguments)
        control = story.control(tmp_path, "approved")
        assert (control.outcome, bool(control.notes)) == ("pass", noted)
        # Its process is long gone when it is used again: the pid may be anybody's.
        story.add(ProcessStart(at_ns=story.now(), span="p9", pid=900, parent="p1", how="fork", comm=b"x"))
        story.ask("r3", arguments=arguments, **derived)
        assert story.control(tmp_path, "separated").outcome == ("pass" if noted else "fail")


def let_pass(story: Story) -> None:
    call = story.begin("push")
    story.decide(call, "allow", "push")
    story.answer(call)


def not_judged(story: Story) -> None:
    story.answer(story.begin("delete_all"))


def denied_by_no_rule(story: Story) -> None:
    call = story.begin("search", passed=False)
    story.decide(call, "deny")
    story.answer(call, "denied", ours=True)


def would_deny(story: Story) -> None:
    call = story.begin("search")
    story.decide(call, "would-deny")
    story.answer(call)


def without_a_human(story: Story) -> None:
    call = story.begin("merge", MERGE)
    story.decide(call, "allow", "merge", MERGE)
    story.answer(call)


def about_others(story: Story) -> None:
    call = story.begin("push", passed=False)
    story.decide(call, "deny", "push", b"{}")
    story.answer(call, "denied", ours=True)


def ambiguous(story: Story) -> None:
    request = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","name":"push","arguments":{}}}'
    story.answer(story.begin("push", b"{}", request=request))


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (let_pass, "the rules deny it, and it was not denied"),
        (not_judged, "the rules deny it, and it was not denied"),
        (ambiguous, "the rules deny it, and it was not denied"),
        (denied_by_no_rule, "it says `deny`, and no rule denies it"),
        (would_deny, "it says `would-deny`, and no rule denies it"),
        (without_a_human, "the rules want a human for it, and nobody was asked"),
        (unasked, "the rules want a human for it, and no decision is recorded"),
        (about_others, "its decision is about other arguments"),
    ],
)
def test_decisions_that_contradict_the_rules(tmp_path: Path, fault: Fault, expected: str) -> None:
    story = Story()
    fault(story)
    assert whys(story, tmp_path, "decided") == ("fail", [expected])


def test_in_mode_observe_what_would_be_denied_is_told_and_passes(tmp_path: Path) -> None:
    observe = POLICY.replace('"enforce"', '"observe"')
    story = Story(observe)
    call = story.begin("push")
    story.decide(call, "would-deny", "push")
    story.answer(call)
    assert whys(story, tmp_path, "decided") == ("pass", [])
    story = Story(observe)
    story.answer(story.begin("push"))
    assert whys(story, tmp_path, "decided") == ("fail", ["the rules would deny it, and that is not told"])


def test_a_pinned_tool_is_judged_by_what_was_listed_before_the_call(tmp_path: Path) -> None:
    listing = Story(None)
    listing.tool()
    pin = listing.items[-1].digest  # type: ignore[union-attr]
    policy = POLICY + f'\n[[mcp_pin]]\nserver = "github"\ntools = {{ search = "{pin}" }}\n'
    story = Story(policy)
    story.tool()
    call = story.begin()
    story.answer(call)
    story.tool(description="sends your keys away", change="changed")
    story.denied("search")
    assert whys(story, tmp_path, "decided") == ("pass", [])
    assert digest(b"") != pin
    story.fine("search")
    assert whys(story, tmp_path, "decided") == ("fail", ["the rules deny it, and it was not denied"])
