"""Controls about single calls: attributed, decided, ended. On a run where all is well, and on each fault."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_story import COVERED, MS, POLICY, Story, digest

from agentwrap.events import Gap, McpMessage


def whys(story: Story, folder: Path, name: str) -> tuple[str, list[str]]:
    control = story.control(folder, name)
    return control.outcome, [one.why for one in control.exceptions]


@pytest.mark.parametrize("name", ["complete", "attributed", "decided", "outcome"])
def test_a_run_where_all_is_well_passes(tmp_path: Path, name: str) -> None:
    story = Story()
    story.fine()
    story.fine("other")
    story.denied()
    assert whys(story, tmp_path, name) == ("pass", [])


@pytest.mark.parametrize("name", ["attributed", "decided", "outcome"])
def test_without_calls_there_is_nothing_to_test(tmp_path: Path, name: str) -> None:
    assert whys(Story(), tmp_path, name) == ("not-applicable", [])


@pytest.mark.parametrize("name", ["attributed", "decided", "outcome"])
def test_nothing_passes_where_calls_could_have_been_missed(tmp_path: Path, name: str) -> None:
    gap = Gap(at_ns=MS, what="mcp-stdio", cause="unrelayed", could_hide="calls", from_ns=MS)
    for covered, more in (([kind for kind in COVERED if kind != "mcp-http"], []), (COVERED, [gap])):
        story = Story(covered=covered)
        story.add(*more)
        story.fine()
        story.denied()
        assert story.control(tmp_path, name).outcome == "cannot-tell"


def call_of_another(story: Story) -> None:
    story.answer(story.begin(row={"on_behalf_of": b"mallory"}))


def call_without_process(story: Story) -> None:
    story.answer(story.begin(row={"span": "run", "pid": 0}))


def call_of_an_unknown_process(story: Story) -> None:
    story.answer(story.begin(row={"span": "p77"}))


def call_without_row(story: Story) -> None:
    story.answer(story.begin(call_row=False))


def call_of_another_tool(story: Story) -> None:
    story.answer(story.begin(row={"tool": b"merge"}))


def call_of_other_arguments(story: Story) -> None:
    story.answer(story.begin(row={"digest": digest(b"{}")}))


ATTRIBUTION: list[tuple[Callable[[Story], None], list[str]]] = [
    (call_of_another, ["it names another person than the policy"]),
    (call_without_process, ["no process is named"]),
    (call_of_an_unknown_process, ["the process p77 is not in the recording"]),
    (call_without_row, ["a request passed that no call row tells of"]),
    (call_of_another_tool, ["the call row has another tool than the request"]),
    (call_of_other_arguments, ["the call row has another digest of the arguments than the request"]),
]


@pytest.mark.parametrize(("fault", "expected"), ATTRIBUTION)
def test_calls_that_are_not_attributed(tmp_path: Path, fault: Callable[[Story], None], expected: list[str]) -> None:
    story = Story()
    story.fine()
    fault(story)
    assert whys(story, tmp_path, "attributed") == ("fail", expected)


def test_whom_a_row_does_not_name_the_policy_names_or_nobody_does(tmp_path: Path) -> None:
    nobody = POLICY.replace('agent = "release-bot"\non_behalf_of = "alice"\n', "")
    for policy, expected in (
        (POLICY, ("pass", [])),
        (nobody, ("fail", ["no agent is named", "no person is named"])),
        (None, ("fail", ["no agent is named", "no person is named"])),
    ):
        story = Story(policy)
        story.answer(story.begin(row={"agent": b"", "on_behalf_of": b""}))
        assert whys(story, tmp_path, "attributed") == expected


def test_the_person_of_env_is_the_environments(tmp_path: Path) -> None:
    story = Story(POLICY.replace('"alice"', '"env:USER"'))
    story.fine()
    assert whys(story, tmp_path, "attributed") == ("pass", [])


def test_a_policy_that_is_not_in_the_recording_names_nobody(tmp_path: Path) -> None:
    story = Story(POLICY + "# sk-ant-api03-" + "q" * 93 + "AA\n")  # a secret, which the recorder hides
    story.fine()
    assert whys(story, tmp_path, "attributed")[0] == "cannot-tell"


def test_a_call_whose_bytes_were_not_kept_cannot_be_told(tmp_path: Path) -> None:
    story = Story()
    call = story.begin(kept=False)
    story.answer(call, kept=False)
    for name, why in (
        ("attributed", "the request was not kept as it came"),
        ("outcome", "the answer was not kept as it came"),
    ):
        assert whys(story, tmp_path, name) == ("cannot-tell", [why])


def test_members_of_batches_are_calls(tmp_path: Path) -> None:
    story = Story()
    arguments = b'{"q":"x"}'
    member = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"search","arguments":%b}}' % arguments
    story.message(b"[" + member + b"]", up=True, sort="batch")
    story.calls = 6
    items = len(story.items)
    story.begin(arguments=arguments)
    story.items[items:] = [one for one in story.items[items:] if not isinstance(one, McpMessage)]
    story.message(b'[{"jsonrpc":"2.0","id":7,"result":{}}]', up=False, sort="batch")
    story.answer("k7", sent=False)
    assert whys(story, tmp_path, "attributed") == ("pass", [])
    assert whys(story, tmp_path, "outcome") == ("pass", [])


Fault = Callable[[Story], Any]

def denied_and_passed(story: Story) -> None:
    story.decide(story.begin("push"), "deny", "push")


def denied_and_answered(story: Story) -> None:
    call = story.begin("push", passed=False)
    story.decide(call, "deny", "push")
    story.answer(call, "denied")


def denied_with_result(story: Story) -> None:
    call = story.begin("push", passed=False)
    story.decide(call, "deny", "push")
    story.answer(call, "complete", ours=True)


def denied_and_allowed(story: Story) -> None:
    call = story.begin("push", passed=False)
    story.decide(call, "deny", "push")
    story.decide(call, "allow", "push")


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (denied_and_passed, "it was denied, and it went on"),
        (denied_and_answered, "it was denied, and the other side answered"),
        (denied_with_result, "it was denied, and has a result"),
        (denied_and_allowed, "its decisions contradict each other"),
    ],
)
def test_denied_calls_of_which_something_came(tmp_path: Path, fault: Fault, expected: str) -> None:
    story = Story()
    fault(story)
    assert whys(story, tmp_path, "decided") == ("fail", [expected])


OUTCOMES: list[tuple[dict[str, Any] | None, str]] = [
    (None, "it went on, and no outcome is recorded"),
    ({"ending": "unanswered", "sent": False}, "it went on, and nobody knows what came of it"),
    ({"ending": "denied", "ours": True}, "its outcome is `denied`, and it went on"),
    ({"ident": b"99"}, "the answer has another id than the request"),
    ({"ending": "complete", "error": True}, "its outcome is `complete`, and the answer says otherwise"),
]


@pytest.mark.parametrize(("answer", "expected"), OUTCOMES)
def test_calls_without_an_outcome(tmp_path: Path, answer: dict[str, Any] | None, expected: str) -> None:
    story = Story()
    story.fine()
    call = story.begin()
    if answer is not None:
        story.answer(call, **answer)
    assert whys(story, tmp_path, "outcome") == ("fail", [expected])


def test_a_cancelled_call_has_an_outcome_and_an_answer_that_is_missing_cannot_be_told(tmp_path: Path) -> None:
    story = Story()
    story.answer(story.begin(), "cancelled", sent=False)
    assert whys(story, tmp_path, "outcome") == ("pass", [])
    story.answer(story.begin(), sent=False)
    assert whys(story, tmp_path, "outcome") == ("cannot-tell", ["the answer itself is not in the recording"])


def test_a_request_that_its_row_calls_something_else_is_a_call_all_the_same(tmp_path: Path) -> None:
    request = b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"push","arguments":{}}}'
    for sort, message in (("notification", request), ("invalid", request), ("batch", b"[" + request + b"]")):
        story = Story()
        story.fine()
        story.message(message, up=True, sort=sort)
        assert whys(story, tmp_path, "attributed") == ("fail", ["a request passed that no call row tells of"])
        assert whys(story, tmp_path, "decided") == ("fail", ["the rules deny it, and it was not denied"])
        assert whys(story, tmp_path, "outcome")[0] == "fail"
    story = Story()
    story.fine()
    story.message(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}', up=False, sort="notification")
    story.message(request, up=True, sort="invalid", passed=False)
    assert whys(story, tmp_path, "attributed") == ("pass", [])
