"""Real agents, wrapped, as root and as a plain user: what each ran, changed, asked and was told is in its recording."""

import pytest
from real import mcp_traffic, model_traffic, run_agents
from wrapping import events

# Besides those of `run_agents`, which speak plain HTTP: TLS, and the other wires of agents that have several.
WIRES = [
    ("claude+tls", "root"), ("claude+tls", "plain"), ("codex+tls", "root"), ("codex+tls", "plain"),
    ("pi/anthropic", "root"), ("pi/responses+tls", "root"), ("mini/anthropic", "root"),
]  # fmt: skip


@pytest.mark.parametrize("user", ["root", "plain"])
@pytest.mark.parametrize("case", run_agents.CASES)
def test_an_agent_and_its_recording(case: str, user: str) -> None:
    if reason := run_agents.missing(case, user):
        pytest.skip(reason)
    done = model_traffic.run(case, user)
    assert [*run_agents.faults(done), *model_traffic.faults(done)] == []


@pytest.mark.parametrize(("case", "user"), WIRES)
def test_its_model_traffic_over_other_wires(case: str, user: str) -> None:
    if reason := run_agents.missing(case.partition("+")[0].partition("/")[0], user):
        pytest.skip(reason)
    assert list(model_traffic.faults(model_traffic.run(case, user))) == []


# The third calls tools by a program that its model writes. A container as Docker makes it reads no TLS.
@pytest.mark.parametrize("user", ["root", "plain", "docker"])
@pytest.mark.parametrize("case", mcp_traffic.CASES)
def test_its_calls_of_mcp_servers(case: str, user: str) -> None:
    if reason := run_agents.missing(case.partition("/")[0], "plain" if user == "plain" else "root"):
        pytest.skip(reason)
    assert list(mcp_traffic.faults(mcp_traffic.run(case, user))) == []


@pytest.mark.parametrize("case", ["claude:mcp", "codex:mcp"])
def test_a_denied_call_reaches_no_server_and_the_model_is_told(case: str) -> None:
    if reason := run_agents.missing(case, "root"):
        pytest.skip(reason)
    ran = mcp_traffic.run(case, "root", mcp_traffic.policy("deny"), label="denied")
    assert list(mcp_traffic.faults(ran, served=False)) == []
    told = [row.data["text"] for row in events(ran.recording, "tool.result") if "agentwrap denied" in str(row.data)]
    assert len(told) == 1
    assert "a person looks at what servers write" in told[0]


@pytest.mark.parametrize("case", ["claude:mcp", "codex:mcp"])
def test_a_held_call_is_approved_from_another_terminal(case: str) -> None:
    if reason := run_agents.missing(case, "root"):
        pytest.skip(reason)
    approver = mcp_traffic.Approver(case, "root", "held")
    approver.start()
    try:
        ran = mcp_traffic.run(case, "root", mcp_traffic.policy("approve"), "--ask-timeout=300", label="held")
    finally:
        approver.stop()
    assert len(approver.said) == 2, approver.said
    assert list(mcp_traffic.faults(ran)) == []
    answers = [(row.data["answer"], row.data["approver"]) for row in events(ran.recording, "ask.answered")]
    assert answers == [("once", "mary")]
