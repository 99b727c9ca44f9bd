"""pip and npm under the presets that are made for them: the configured index is reached, and no other host."""

import subprocess
import sys

import pytest
from real import client_programs, sites
from real.confined import TIERS, Place, Ran
from real.programs import need
from wrapping import AGENTWRAP, environment

pytestmark = pytest.mark.parametrize("tier", TIERS)


def under(place: Place, preset: str, tier: str, script: str, **configured: str) -> Ran:
    """A shell script in the folder `work` under a preset, with what tells the package manager its index."""
    recording = str(place.folder / "run.agentlog")
    return place.finish(
        place.net.popen(
            [*AGENTWRAP, "run", "-q", "-o", recording, "--policy", preset, "--tier", tier, "--", "sh", "-c", script],
            env=environment(place.home, **place.trusting(**configured)), cwd=place.work,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        )
    )  # fmt: skip


def the_index_alone(place: Place, ran: Ran) -> None:
    assert ran.out.split() == [b"0", b"refused"], ran.err
    assert {subject for subject, _ in ran.refused()} == {"denied.example"}
    ran.whole()
    place.untouched()


def test_python_packages(place: Place, site: sites.Site, tier: str) -> None:
    client_programs.need_modules("pip")
    sites.pip_index(site, "walledpackage", "VALUE = 42\n")
    pip = f"{sys.executable} -m pip -q --disable-pip-version-check install --retries 0 --timeout 300"
    used = f"{sys.executable} -c \"import sys; sys.path.insert(0, 'here'); import walledpackage\""
    script = (
        f"{pip} --target here walledpackage && {used}; echo $?;"
        f"{pip} --target there --index-url https://denied.example/simple/ walledpackage || echo refused"
    )
    index = {"PIP_INDEX_URL": "https://allowed.example/simple/", "PIP_CERT": str(place.folder / "ca.pem")}
    the_index_alone(place, under(place, "python-packages", tier, script, **index))


def test_node_packages(place: Place, site: sites.Site, tier: str) -> None:
    need("npm", "node")
    sites.npm_registry(site, "https://allowed.example", "walled-package", "module.exports = 42")
    npm = "npm install --no-audit --no-fund --no-update-notifier --fetch-retries=0 --silent"
    script = (
        f"{npm} --prefix here walled-package && node -e \"require('./here/node_modules/walled-package')\"; echo $?;"
        f"{npm} --prefix there --registry=https://denied.example walled-package || echo refused"
    )
    the_index_alone(place, under(place, "node-packages", tier, script, npm_config_registry="https://allowed.example"))
