"""Real agents under a policy that names only their model: they finish, and whatever else they try is refused and told.

By the real names of the hosts, over TLS, as root, as a plain user and in job containers, in whatever tier there is.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import containers
import pytest
from real import run_agents

CERTIFICATES = {
    "claude": ("--tls", "--ca", "node_extra"),
    "codex": ("--tls", "--ca", "ssl_cert_file+codex"),
    "pi": ("--tls", "--ca", "node_extra"),
    "mini": ("--tls", "--ca", "ssl_cert_file+requests"),
}
MODEL = {"claude": "api.anthropic.com", "codex": "api.openai.com", "pi": "api.openai.com", "mini": "api.openai.com"}
PRESETS = {"claude": "claude-code", "codex": "codex"}
# What each of them tries besides.
OTHERS = {"codex": {"chatgpt.com", "github.com"}, "mini": {"raw.githubusercontent.com"}}
TIERS = {"root": "wall", "plain": "wall", "podman": "wall"}
CASES = [
    *((agent, user) for agent in CERTIFICATES for user in ("root", "plain", "docker")),
    *(("claude", profile) for profile in ("podman", "drop-all", "no-ptrace")),
]
# The world that answers lives on loopback: every name leads there.
POLICY = """\
version = 1
name = "model-only"
mode = "enforce"

[network]
default = "deny"
allow = ["{host}:443", "host.loopback:443"]

[files.write]
default = "allow"
"""


@pytest.fixture
def policies() -> Iterator[Path]:
    """A folder that everybody may read; the lab hides /tmp."""
    folder = Path(tempfile.mkdtemp(prefix="agentwrap-policies-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def can_run(agent: str, user: str) -> None:
    reason = run_agents.missing(agent, "plain" if user in ("plain", "drop-all") else "root")
    if reason or (user in containers.PROFILES and (reason := containers.missing())):
        pytest.skip(reason)


@pytest.mark.parametrize(("agent", "user"), CASES)
def test_an_agent_finishes_with_its_model_alone(agent: str, user: str, policies: Path) -> None:
    can_run(agent, user)
    policy = policies / "model-only.toml"
    policy.write_text(POLICY.format(host=MODEL[agent]))
    policy.chmod(0o644)
    run = run_agents.run(agent, user, "--policy", str(policy), more=CERTIFICATES[agent], label="-confined")
    assert run.result["rc"] == 0
    assert run.result["calls"]
    # Codex runs commands in a sandbox of its own, which has no namespaces in a container, wrapped or not.
    works = (agent, user) != ("codex", "docker")
    assert (run.result["shell_ok"], run.result["edit_ok"]) == (works, works)
    rows = run_agents.events(run.recording)
    held = [row.data for row in rows if row.kind == "coverage" and row.data["what"] in ("connect", "dns", "udp")]
    tiers = {one["tier"] for one in held}
    assert tiers == {TIERS.get(user, "guard")}
    asked = [row for row in rows if row.kind == "dns.query"]
    assert {row.subject for row in asked if row.verdict == "allow"} == {MODEL[agent]}
    assert {row.subject for row in asked if row.verdict == "deny"} >= OTHERS.get(agent, set())
    spans = {row.span for row in rows if row.kind == "process.start"}
    assert {row.span for row in asked} <= spans
    # The names that the world was asked for came through us, and no other did.
    assert set(run.result["dns"]) == {MODEL[agent]}
    if user != "no-ptrace":
        # Where nobody may take a program's sockets, its threads could slip one under a call that has to be let go.
        known = {"shared-descriptors"} if user in ("docker", "drop-all") else set()
        assert {row.data["cause"] for row in rows if row.kind == "gap"} <= known


@pytest.mark.parametrize("agent", list(CERTIFICATES))
def test_a_suggested_policy_fits_the_run_it_comes_from(agent: str, policies: Path) -> None:
    can_run(agent, "root")
    watched = run_agents.run(
        agent, "root", "--network", "gateway", "--reads", more=CERTIFICATES[agent], label="-watched"
    )
    assert watched.result["rc"] == 0
    agentwrap = [sys.executable, "-m", "agentwrap"]
    suggested = policies / "suggested.toml"
    words = [*agentwrap, "policy", "suggest", str(watched.recording), "-o", str(suggested)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    suggested.chmod(0o644)
    again = run_agents.run(agent, "root", "--policy", str(suggested), more=CERTIFICATES[agent], label="-suggested")
    assert (again.result["rc"], again.result["shell_ok"], again.result["edit_ok"]) == (0, True, True)
    denied = [row for row in run_agents.events(again.recording) if row.verdict == "deny"]
    assert [(row.kind, row.subject, row.data.get("rule")) for row in denied] == []


@pytest.mark.parametrize("agent", list(PRESETS))
def test_an_agent_works_under_its_preset(agent: str) -> None:
    can_run(agent, "root")
    # In the world that answers, every name leads to loopback.
    allowed = [word for host in (f"{MODEL[agent]}:443", "host.loopback:443") for word in ("--allow", host)]
    run = run_agents.run(agent, "root", "--policy", PRESETS[agent], *allowed, more=CERTIFICATES[agent], label="-preset")
    assert (run.result["rc"], run.result["shell_ok"], run.result["edit_ok"]) == (0, True, True)
    rows = run_agents.events(run.recording)
    assert [(row.kind, row.subject) for row in rows if row.verdict == "deny" and row.kind != "dns.query"] == []
    assert [row.data["cause"] for row in rows if row.kind == "gap"] == []
