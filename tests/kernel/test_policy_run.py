"""Policies from the command line, on the real kernel: what options close, what is told, what a suggestion is worth."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import far_side
import pytest
from internet import Internet
from wrapping import AGENTWRAP, environment, events

NAMES = {"api.example": ["192.0.2.1"], "telemetry.example": ["192.0.2.2"]}
TIERS = ("wall", "guard")
# Names are asked of the resolver: what stands in the hosts file is known from the start.
FETCH = """
import socket, sys
for where in sys.argv[1:]:
    host, port = where.split(":")
    try:
        with socket.create_connection((host, int(port)), 300) as s:
            s.sendall(b"GET / HTTP/1.1\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n" % host.encode())
            print(where, s.recv(12).decode())
    except OSError as error:
        print(where, type(error).__name__)
"""


class World:
    """Two servers outside, a name server, and a home of the test's own."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)
        self.folder, self.home, self.work = folder, folder / "home", folder / "work"
        for made in (self.home, self.work):
            made.mkdir()
        self.net = Internet(folder, NAMES)
        (folder / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
        self.servers = [
            far_side.Names(self.net.datagrams("127.0.0.1", 53), NAMES),
            far_side.http(self.net.listen("192.0.2.1", 80), "api"),
            far_side.http(self.net.listen("192.0.2.2", 80), "telemetry"),
        ]

    def agentwrap(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return self.net.run(
            [*AGENTWRAP, *arguments], env=environment(self.home), cwd=self.work, capture_output=True, text=True,
            timeout=300,
        )  # type: ignore[return-value] # fmt: skip

    def fetch(self, name: str, *options: str, where: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
        return self.agentwrap("-o", str(self.recording(name)), *options, "--", sys.executable, "-c", FETCH, *where)

    def recording(self, name: str) -> Path:
        return self.folder / f"{name}.agentlog"

    def close(self) -> None:
        for server in self.servers:
            server.close()
        self.net.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


BOTH = ("api.example:80", "telemetry.example:80")


@pytest.mark.parametrize("tier", TIERS)
def test_what_an_option_allows_is_reached_and_the_rest_is_denied_and_told(world: World, tier: str) -> None:
    options = ("--tier", tier, "--allow", "api.example:80", "--allow", "idle.example")
    done = world.fetch("one", *options, where=BOTH)
    assert done.stdout.split("\n")[:2] == ["api.example:80 HTTP/1.1 200", "telemetry.example:80 gaierror"]
    assert done.returncode == 0
    first, last, idle = done.stderr.strip().split("\n")
    assert first.endswith(f"policy command line (enforce), network ({tier})")
    assert " 1 host connected to, " in last
    assert last.endswith("2 denied: agentwrap show --denied")
    assert idle == "agentwrap no use was seen of network.allow `idle.example` (command line:9)"
    shown = world.agentwrap("show", str(world.recording("one")), "--denied").stdout
    assert f"deny  lookup telemetry.example  2 times  ({tier})\n        who     python" in shown
    assert "        change  add `--allow telemetry.example:443` to the command line" in shown
    failed = world.fetch("two", *options, "-q", "--fail-on-deny", where=BOTH)
    assert (failed.returncode, failed.stderr) == (123, "")
    fine = world.fetch("three", *options, "-q", "--fail-on-deny", where=BOTH[:1])
    assert (fine.returncode, fine.stdout) == (0, "api.example:80 HTTP/1.1 200\n")


@pytest.mark.parametrize("tier", TIERS)
def test_a_suggestion_from_an_observed_run_lets_it_pass_without_a_denial(world: World, tier: str) -> None:
    seen = world.fetch("seen", "-q", "--network", "gateway", "--tier", tier, where=BOTH)
    assert seen.stdout == "api.example:80 HTTP/1.1 200\ntelemetry.example:80 HTTP/1.1 200\n"
    policy = world.work / "mine.toml"
    made = world.agentwrap("policy", "suggest", str(world.recording("seen")), "-o", str(policy))
    assert "has 0 violations" in made.stderr
    allowed = [line.split('"')[1] for line in policy.read_text().split("\n") if ".example" in line and '"' in line]
    assert allowed == ["api.example:80", "telemetry.example:80"]
    again = world.fetch("again", "-q", "--policy", str(policy), "--fail-on-deny", "--tier", tier, where=BOTH)
    assert (again.returncode, again.stdout) == (0, seen.stdout)
    narrow = policy.read_text().replace('"telemetry.example:80"', '"other.example:80"')
    (world.work / "narrow.toml").write_text(narrow)
    refused = world.fetch("less", "-q", "--policy", "narrow.toml", "--fail-on-deny", "--tier", tier, where=BOTH)
    assert (refused.returncode, refused.stdout.split("\n")[1]) == (123, "telemetry.example:80 gaierror")
    judged = [world.agentwrap("check", str(world.recording("seen")), "--policy", file).returncode
              for file in ("mine.toml", "narrow.toml")]  # fmt: skip
    assert judged == [0, 1]


def test_a_published_port_alone_closes_nothing(world: World) -> None:
    done = world.fetch("published", "-q", "-p", "8099:3000", where=BOTH)
    assert done.stdout == "api.example:80 HTTP/1.1 200\ntelemetry.example:80 HTTP/1.1 200\n"


def test_in_mode_observe_a_denial_is_told_and_passes(world: World) -> None:
    done = world.fetch("told", "--policy", "observe", "--deny", "telemetry.example", "--fail-on-deny", where=BOTH)
    assert done.stdout == "api.example:80 HTTP/1.1 200\ntelemetry.example:80 HTTP/1.1 200\n"
    assert done.returncode == 0
    assert "would have been denied: agentwrap show --denied" in done.stderr


def test_the_recording_holds_the_policy_with_its_hash_and_layers(world: World) -> None:
    (world.work / "agentwrap.toml").write_text('version = 1\nname = "proj"\nmode = "observe"\n')
    (world.work / "ci.toml").write_text('version = 1\nname = "ci"\nmode = "observe"\n')
    assert world.fetch("held", "-q", "--policy", "ci.toml").returncode == 0
    (row,) = events(world.recording("held"), "policy")
    assert row.subject == "ci + proj"
    assert row.data["layers"] == [["flags", "ci.toml"], ["project", str(world.work / "agentwrap.toml")]]
    assert "# project: " in row.data["text"]
    assert len(row.data["sha256"]) == 64


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--policy", "broken.toml"], "broken.toml:4: there is no key `netwrok`"),
        (["--policy", "gone.toml"], "there is no policy `gone.toml`"),
        (["--policy", "latin.toml"], "is not UTF-8"),
        (["--policy", "loop.toml"], "Too many levels of symbolic links"),
        (["--policy", "locked-down", "--network", "host"], "the policy closes the network"),
        (["--allow", "*"], "is every host"),
        (["-p", "99999"], "is no pair of ports"),
        (["--network", "host", "-p", "8080"], "there is nothing to publish"),
    ],
)
def test_a_policy_that_cannot_hold_starts_nothing(world: World, options: list[str], told: str) -> None:
    (world.work / "broken.toml").write_text('version = 1\nname = "b"\nmode = "enforce"\n[netwrok]\n')
    (world.work / "latin.toml").write_bytes(b'version = 1\nname = "\xe9"\n')
    (world.work / "loop.toml").symlink_to("loop.toml")
    done = world.agentwrap("run", "-o", str(world.recording("no")), *options, "--", "touch", "started")
    assert done.returncode == 125
    assert told in done.stderr
    assert not (world.work / "started").exists()


def test_a_strength_that_a_policy_requires_and_the_machine_does_not_give_starts_nothing(world: World) -> None:
    text = 'version = 1\nname = "strict"\nmode = "enforce"\nrequire = ["wall"]\n[files.write]\ndefault = "allow"\n'
    (world.work / "strict.toml").write_text(text)
    options = ["-q", "-o", str(world.recording("strict")), "--policy", "strict.toml"]
    refused = world.agentwrap(*options, "--tier", "guard", "--", "touch", "started")
    assert (refused.returncode, (world.work / "started").exists()) == (3, False)
    assert "connect: covered by guard, wall is required" in refused.stderr
    assert world.agentwrap(*options, "--tier", "wall", "--", "touch", "started").returncode == 0


def test_a_list_of_trusted_policies_that_others_could_have_written_starts_nothing(world: World) -> None:
    (world.work / "agentwrap.toml").write_text('version = 1\nname = "proj"\nmode = "observe"\n')
    assert world.agentwrap("policy", "trust", "agentwrap.toml").returncode == 0
    (world.home / ".local/state/agentwrap/trusted").chmod(0o666)
    done = world.agentwrap("-q", "--", "touch", "started")
    assert (done.returncode, (world.work / "started").exists()) == (125, False)
    assert "others than you can write it" in done.stderr


def test_files_are_closed_by_options_and_nothing_of_ours_is_open(world: World) -> None:
    script = """
import json, os, sys
def tried(path):
    try:
        with open(path, "w") as file:
            file.write("x")
        return "written"
    except OSError as error:
        return error.strerror
print(json.dumps([tried(path) for path in sys.argv[1:]]))
"""
    os.mkdir(world.work / "inner")
    paths = [world.work / "mine", world.work / "inner/closed", world.folder / "elsewhere", world.recording("files"),
             world.home / ".local/state/agentwrap/trusted"]  # fmt: skip
    done = world.agentwrap(
        "-q", "-o", str(world.recording("files")), "--rw", ".", "--ro", "inner", "--", sys.executable, "-c", script,
        *map(str, paths),
    )  # fmt: skip
    first, *others = json.loads(done.stdout)
    assert first == "written"
    assert "written" not in others
    assert not (world.folder / "elsewhere").exists()


@pytest.mark.parametrize("options", [(), ("--debuggable",)], ids=["ptrace", "notify"])
@pytest.mark.parametrize("how", [(), ("setsid", "-f", "-w")], ids=["child", "daemon"])
def test_trust_is_not_given_from_inside_a_run(world: World, options: tuple[str, ...], how: tuple[str, ...]) -> None:
    (world.work / "agentwrap.toml").write_text('version = 1\nname = "proj"\nmode = "observe"\n')
    done = world.agentwrap("-q", *options, "--", *how, *AGENTWRAP, "policy", "trust", "agentwrap.toml")
    assert done.returncode == 2
    assert "trust is not given from inside a run" in done.stderr
    assert world.agentwrap("policy", "trust", "agentwrap.toml").returncode == 0


def test_a_program_behind_links_is_judged_by_where_they_lead_live_and_afterwards(world: World) -> None:
    (world.work / "real").mkdir()
    script = world.work / "real/tool.sh"
    script.write_text("#!/bin/sh\necho done\n")
    script.chmod(0o755)
    (world.work / "bin").symlink_to("real")
    (world.work / "tool").symlink_to(world.work / "bin/tool.sh")
    assert world.agentwrap("-q", "-o", str(world.recording("seen")), "--", "./tool").stdout == "done\n"
    told = [row.data for row in events(world.recording("seen"), "process.exec")]
    assert (told[-1]["path"], told[-1]["resolved"]) == (f"{world.work}/./tool", str(script))
    world.agentwrap("policy", "suggest", str(world.recording("seen")), "-o", "mine.toml")
    again = world.agentwrap("-q", "-o", str(world.recording("again")), "--policy", "mine.toml", "--", "./tool")
    assert (again.returncode, again.stdout) == (0, "done\n")
    assert events(world.recording("again"), "act.denied") == []
    (world.work / "mine.toml").write_text((world.work / "mine.toml").read_text().replace("tool.sh", "other.sh"))
    refused = world.agentwrap("-q", "--policy", "mine.toml", "--", "./tool")
    assert (refused.returncode, refused.stdout) == (126, "")
