"""The machines for people who have Vagrant: none is started here, but what can be wrong without is tried."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

VAGRANT = Path(__file__).resolve().parent.parent.parent / "vagrant"
SCRIPTS = ("provision.sh", "run-tests")

# Enough of Vagrant to let a Vagrantfile run: whatever is asked of it is noted, blocks are called.
STUB = """
class Noted
  def method_missing(name, *words, **named)
    puts "#{name} #{words.map(&:inspect).join(' ')} #{named.inspect}" unless words.empty?
    yield Noted.new if block_given?
    Noted.new
  end
  def respond_to_missing?(*) = true
end
module Vagrant
  def self.configure(version) = yield(Noted.new)
end
load ARGV[0]
"""


@pytest.fixture(scope="module")
def noted() -> list[str]:
    if not shutil.which("ruby"):
        pytest.skip("no ruby here")
    done = subprocess.run(["ruby", "-w", "-e", STUB, VAGRANT / "Vagrantfile"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_the_vagrantfile_runs_and_defines_the_machines(noted: list[str]) -> None:
    machines = [line.split('"')[1] for line in noted if line.startswith("define ")]
    assert machines == ["ubuntu", "old", "strict", "current"]
    told = re.findall(r"^\| `(\w+)` \|", (VAGRANT / "README.md").read_text(), re.MULTILINE)
    assert told == machines


def test_every_profile_is_known_to_the_script_that_prepares_it(noted: list[str]) -> None:
    profiles = {
        word for line in noted if line.startswith("provision ") for word in re.findall(r':args=>\["([^"]+)"\]', line)
    }
    cases = set(re.findall(r"^  ([\w.-]+)\)", (VAGRANT / "provision.sh").read_text(), re.MULTILINE))
    assert profiles == cases
    assert len(profiles) == 5


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_scripts_can_be_read_by_the_shell(script: str) -> None:
    assert subprocess.run(["bash", "-n", VAGRANT / script], capture_output=True, text=True).stderr == ""
    assert (VAGRANT / script).stat().st_mode & 0o111
