"""What every test gets: a state folder of its own, and the marks that decide which tests run alone.

`plain_user` runs a command as somebody who is not root, `container` in a real container.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from containers import Container, missing

ROOT = Path(__file__).resolve().parent.parent
NOBODY = 65534

# No test is about how long something takes on a machine that others use as well: neither an example, nor the making of
# the first ten (HealthCheck.too_slow). Every run tries the same examples, so that a change is not refused for what it
# did not touch; others are tried in a hunt (AGENTWRAP_TESTS_HUNT=1), and what that finds is mended.
_PATIENT = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("agentwrap", **_PATIENT, derandomize=True, database=None)
hypothesis.settings.register_profile("hunt", **_PATIENT, derandomize=False, max_examples=1000, print_blob=True)
HUNT = bool(os.environ.get("AGENTWRAP_TESTS_HUNT"))
hypothesis.settings.load_profile("hunt" if HUNT else "agentwrap")
# Hypothesis mixes in literals of whatever modules of ours are loaded: which ones depends on the tests that ran before.
_providers: Any = sys.modules.get("hypothesis.internal.conjecture.providers")
if not HUNT and hasattr(_providers, "_get_local_constants"):
    _providers._get_local_constants = _providers.Constants

# Tests in these folders look at the kernel or at a terminal while time passes: two at once disturb each other.
SERIAL_FOLDERS = {"launching", "tracing", "kernel", "journeys", "real", "containers"}


# Where Python may keep nothing that it compiled (PYTHONDONTWRITEBYTECODE), every worker, part and guest would rewrite
# all of these files anew, for their assertions: half of the time that it takes to find the tests. What tests run is not
# told.
sys.dont_write_bytecode = False

# Started in the background or by nohup, we would hand ignored signals down to every command a test runs.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark `serial` by folder and by the `container` mark, so that no test has to remember it."""
    for item in items:
        folders = set(item.path.relative_to(ROOT / "tests").parts[:-1])
        if item.path.stem.endswith("_confined"):
            item.add_marker("confined")
            continue  # whole programs in networks of their own: nothing of theirs is about time
        if folders & SERIAL_FOLDERS or item.get_closest_marker("container") or item.get_closest_marker("bench"):
            item.add_marker("serial")


@pytest.fixture(autouse=True)
def own_places(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Recordings, undo store and keys of a test lie in a folder of its own, and colours and pagers are off."""
    home = tmp_path_factory.mktemp("home")
    for name in ("STATE", "CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "PAGER", "AGENTWRAP_PAGER", "LESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    yield home
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder of the test's own in which a socket can have a name, wherever pytest's own lie (unix(7): 108 bytes)."""
    made = Path(tempfile.mkdtemp(prefix="agentwrap-", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def become_plain_user() -> None:
    """Drop root for good, in a child before its exec (`preexec_fn`)."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


RunAs = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def plain_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunAs]:
    """Run a command as a plain user: `plain_user(argv, cwd=..., env=...)`; as oneself where one is no root.

    Skips where the plain user cannot reach this Python or this checkout (both lie in root's home, say).
    """
    home, drop = tmp_path_factory.mktemp("plain"), None
    if not os.geteuid():
        # pytest's own folders are closed to others
        home, drop = Path(tempfile.mkdtemp(prefix="agentwrap-plain-", dir="/tmp")), become_plain_user
        os.chown(home, NOBODY, NOBODY)

    def run(
        argv: Sequence[str | os.PathLike[str]],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 300,
    ) -> "subprocess.CompletedProcess[str]":
        environment = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
        environment |= {"HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1", **(env or {})}
        return subprocess.run(
            argv, cwd=cwd or home, env=environment, preexec_fn=drop, capture_output=True, text=True, timeout=timeout
        )

    try:
        probe = run([sys.executable, "-c", "import agentwrap, click, msgspec"])
    except PermissionError:
        pytest.skip(f"a plain user cannot run {sys.executable}")
    if probe.returncode:
        pytest.skip(f"a plain user cannot import agentwrap from here: {probe.stderr.strip().splitlines()[-1:]}")
    yield run
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def container() -> Callable[[str], Container]:
    """A container that has this checkout and this Python: `container("docker")`, a profile of `containers.PROFILES`."""
    if reason := missing():
        pytest.skip(reason)

    def make(profile: str) -> Container:
        # Bound as they are: the overlay shows what lies on the root file system alone, and these may lie elsewhere.
        needed = {ROOT, Path(sys.prefix), Path(sys.base_prefix)} - {Path("/usr"), Path("/")}
        made = Container(profile, keep=sorted(needed))
        probe = made.run([sys.executable, "-c", "import agentwrap, click, msgspec"])
        if probe.returncode:
            pytest.skip(f"this Python does not run in the profile {profile}: {probe.stderr.strip()[-200:]}")
        return made

    return make
