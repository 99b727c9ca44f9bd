"""Real agents, wrapped, as root and as a plain user: what each ran and changed is in its recording, and no noise."""

import pytest
from real import run_agents


@pytest.mark.parametrize("user", ["root", "plain"])
@pytest.mark.parametrize("case", run_agents.CASES)
def test_an_agent_and_its_recording(case: str, user: str) -> None:
    if reason := run_agents.missing(case, user):
        pytest.skip(reason)
    assert list(run_agents.faults(run_agents.run(case, user))) == []
