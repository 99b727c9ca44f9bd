"""Which policies hold: found where they should be, read once, trusted by content and place."""

import os
from pathlib import Path

import pytest

from agentwrap.approvals.oneself import account
from agentwrap.cli import policy_files, presets, trust
from agentwrap.cli.layers import Wish, gather, run_places
from agentwrap.cli.policy_files import project_file
from agentwrap.errors import AgentwrapError
from agentwrap.policy.decide import decide
from agentwrap.policy.flags import Given
from agentwrap.policy.layers import Layer, attribution, decide_layers
from agentwrap.policy.loaded import loaded_event
from agentwrap.policy.questions import Connect, Read, Unix, Write

HEAD = 'version = 1\nname = "{name}"\nmode = "enforce"\n'


def text(name: str, body: str) -> str:
    return HEAD.format(name=name) + body


NETWORK = '[network]\nallow = ["{host}"]\n[files.write]\ndefault = "allow"\n'


class Here:
    """A home, a project under version control and a system folder, all of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project, self.system = folder / "home", folder / "project", folder / "etc/policy.toml"
        (self.project / ".git").mkdir(parents=True)
        (self.project / "sub").mkdir()
        self.env = {"HOME": str(self.home)}

    def write(self, path: Path, name: str, host: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text(name, NETWORK.format(host=host)))
        return path

    def gather(self, **wish: object) -> tuple[Layer, ...]:
        return gather(self.env, self.env, self.project / "sub", Wish(**wish))  # type: ignore[arg-type]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    made = Here(tmp_path)
    monkeypatch.setattr(policy_files, "SYSTEM", made.system)
    monkeypatch.chdir(made.project)
    return made


def names(found: tuple[Layer, ...]) -> list[tuple[str, str, bool]]:
    return [(layer.name, layer.policy.name, layer.trusted) for layer in found]


def test_nothing_said_is_no_layer(here: Here) -> None:
    assert here.gather() == ()


def test_all_layers_are_found_in_their_order(here: Here) -> None:
    here.write(here.home / ".config/agentwrap/policy.toml", "mine", "u.example")
    here.write(here.system, "site", "s.example")
    here.write(here.project / "agentwrap.toml", "proj", "p.example")
    given = here.write(here.project / "ci.toml", "ci", "c.example")
    found = here.gather(policy=str(given), given=Given(allow=("f.example",)))
    assert names(found) == [
        ("flags", "command line", True), ("flags", "ci", True), ("project", "proj", False), ("user", "mine", True),
        ("system", "site", True),
    ]  # fmt: skip
    assert [host for host in "fcpus" if decide_layers(found, Connect(f"{host}.example", 443)).verdict == "allow"] == []
    assert [layer.decode() for layer, _ in loaded_event(found).layers] == [one[0] for one in names(found)]


def test_a_project_widens_once_it_is_trusted_as_it_is_and_where_it_is(here: Here, tmp_path: Path) -> None:
    user = here.write(here.home / ".config/agentwrap/policy.toml", "mine", "u.example")
    project = here.write(here.project / "agentwrap.toml", "proj", "p.example")

    def reaches() -> list[str]:
        found = here.gather()
        return [h for h in ("u", "p") if decide_layers(found, Connect(f"{h}.example", 443)).verdict == "allow"]

    assert reaches() == []
    assert trust.trust(here.env, project, project.read_bytes())
    assert not trust.trust(here.env, project, project.read_bytes())
    assert reaches() == ["u", "p"]
    project.write_text(project.read_text() + "# \n")
    assert reaches() == []
    assert trust.trust(here.env, project, project.read_bytes())
    copy = tmp_path / "copy.toml"
    copy.write_bytes(project.read_bytes())
    assert not trust.is_trusted(here.env, copy, copy.read_bytes())
    assert trust.untrust(here.env, project)
    assert not trust.untrust(here.env, project)
    assert reaches() == []
    assert user.exists()


def test_the_projects_policy_is_that_of_its_root(here: Here, tmp_path: Path) -> None:
    assert project_file(here.project / "sub") is None
    here.write(here.project / "sub/agentwrap.toml", "nested", "n.example")
    assert project_file(here.project / "sub") is None
    root = here.write(here.project / "agentwrap.toml", "proj", "p.example")
    assert project_file(here.project / "sub") == root
    bare = tmp_path / "bare/deep"
    bare.mkdir(parents=True)
    here.write(tmp_path / "bare/agentwrap.toml", "above", "a.example")
    assert project_file(bare) is None


def test_a_project_file_named_on_the_command_line_counts_once(here: Here) -> None:
    here.write(here.project / "agentwrap.toml", "proj", "p.example")
    assert names(here.gather(policy="agentwrap.toml")) == [("flags", "proj", True)]


def test_a_preset_is_meant_by_its_bare_name_whatever_lies_here(here: Here) -> None:
    here.write(here.project / "locked-down", "evil", "evil.example")
    (found,) = here.gather(policy="locked-down")
    assert found.policy.name == "locked-down"
    (found,) = here.gather(policy="./locked-down")
    assert found.policy.name == "evil"
    assert set(presets.names()) == {path.stem for path in (Path(__file__).parents[2] / "policies").glob("*.toml")}


def test_what_is_no_policy_stops_everything(here: Here) -> None:
    with pytest.raises(AgentwrapError, match="there is no policy `nope`") as raised:
        here.gather(policy="nope")
    assert "locked-down" in raised.value.evidence
    file = here.project / "agentwrap.toml"
    file.write_text("version = 2\n")
    with pytest.raises(AgentwrapError, match="the policy is refused"):
        here.gather()
    file.unlink()
    file.symlink_to("agentwrap.toml")
    with pytest.raises(AgentwrapError, match="the policy cannot be read"):
        here.gather()


def test_our_files_are_the_recording_the_policies_the_trust_and_the_sockets(here: Here) -> None:
    link = here.project / "ci.toml"
    target = here.write(here.project / "real.toml", "ci", "c.example")
    link.symlink_to(target)
    (found,) = here.gather(policy="ci.toml", own=(str(here.project / "out.agentlog"),))
    for path in (
        link, target, here.project / "out.agentlog", here.home / ".local/state/agentwrap/trusted",
        here.home / ".config/agentwrap/policy.toml", f"/run/user/{os.geteuid()}/agentwrap/x",
    ):  # fmt: skip
        assert decide(found.policy, Write(str(path))).rule.where == "built-in.own-files", path
    assert decide(found.policy, Read(str(here.home / ".config/agentwrap/signing.key"))).verdict == "deny"
    assert decide(found.policy, Unix(f"/run/user/{os.geteuid()}/agentwrap/run")).verdict == "deny"
    assert decide(found.policy, Write(str(here.project / "src.py"))).verdict == "allow"


def test_sockets_that_the_environment_names_are_ways_out(here: Here) -> None:
    agents = {
        "HOME": "/h", "SSH_AUTH_SOCK": "/tmp/x/agent.1", "DOCKER_HOST": "unix:///var/d.sock",
        "DBUS_SESSION_BUS_ADDRESS": "unix:path=/tmp/bus,guid=1;unix:abstract=/tmp/y", "TMUX": "/tmp/t/default,1,0",
        "CONTAINER_HOST": "tcp://192.0.2.1:1",
    }  # fmt: skip
    found = run_places(here.env, agents, here.project, [])
    assert found.sockets == ("/tmp/x/agent.1", "/tmp/bus", "/var/d.sock", "/tmp/t/default")
    assert found.home == "/h"


@pytest.mark.parametrize("change", ["mode", "link"])
def test_a_list_that_others_could_have_written_is_not_relied_on(here: Here, change: str) -> None:
    project = here.write(here.project / "agentwrap.toml", "proj", "p.example")
    trust.trust(here.env, project, project.read_bytes())
    file = here.home / ".local/state/agentwrap/trusted"
    assert file.stat().st_mode & 0o777 == 0o600
    if change == "mode":
        file.chmod(0o666)
    else:
        file.rename(file.with_name("elsewhere"))
        file.symlink_to("elsewhere")
    with pytest.raises(AgentwrapError, match="cannot be relied on"):
        here.gather()


def test_a_path_with_a_line_break_is_not_trusted(here: Here) -> None:
    odd = here.write(here.project / "a\nb.toml", "odd", "o.example")
    with pytest.raises(AgentwrapError, match="line break"):
        trust.trust(here.env, odd, odd.read_bytes())


ACTING = 'agent = "bot"\non_behalf_of = "env:{variable}"\n'


def test_for_whom_the_agent_acts_is_found_when_the_policy_begins_to_hold(here: Here) -> None:
    path = here.home / ".config/agentwrap/policy.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text("u", ACTING.format(variable="WHO")))
    here.env["WHO"] = " dana "
    assert attribution(here.gather()) == ("bot", "dana")
    del here.env["WHO"]
    with pytest.raises(AgentwrapError) as raised:
        here.gather()
    assert "WHO is not set" in raised.value.message
    path.write_text(text("u", ACTING.format(variable="USER")))
    assert attribution(here.gather()) == ("bot", account(os.geteuid()))


def test_a_project_that_nobody_trusts_names_nobody(here: Here) -> None:
    file = here.project / "agentwrap.toml"
    file.write_text(text("p", ACTING.format(variable="WHO")))
    assert attribution(here.gather()) == ("", "")
    here.env["WHO"] = "dana"
    trust.trust(here.env, file, file.read_bytes())
    assert attribution(here.gather()) == ("bot", "dana")
