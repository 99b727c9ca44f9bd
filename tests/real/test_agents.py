"""Real agents, wrapped, as root and as a plain user: what each ran, changed, asked and was told is in its recording."""

import pytest
from real import model_traffic, run_agents

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
