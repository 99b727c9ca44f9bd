import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from agentwrap.approvals import folder
from agentwrap.errors import AgentwrapError

LONG = "x" * 120  # alone longer than sun_path


def closed_folder(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return path


def test_the_runtime_folder_is_taken_if_it_is_ours_alone(tmp_path: Path) -> None:
    runtime, state = closed_folder(tmp_path / "runtime"), tmp_path / "state"
    made = folder.prepare({"XDG_RUNTIME_DIR": str(runtime)}, state)
    assert made == runtime / "agentwrap"
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert not state.exists()


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_runtime_folder_that_others_can_write_is_not_taken(tmp_path: Path, mode: int) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    runtime.chmod(mode)
    assert runtime / "agentwrap" not in folder.places({"XDG_RUNTIME_DIR": str(runtime)}, tmp_path / "state")


def test_another_users_runtime_folder_is_not_taken(tmp_path: Path) -> None:
    """Under sudo, XDG_RUNTIME_DIR may still be the caller's."""
    if os.geteuid():
        pytest.skip("only root can give a folder away")
    theirs = closed_folder(tmp_path / "theirs")
    os.chown(theirs, 65534, 65534)
    assert theirs / "agentwrap" not in folder.places({"XDG_RUNTIME_DIR": str(theirs)}, tmp_path / "state")
    assert list(folder.sockets(theirs)) == []


def test_without_a_runtime_folder_the_state_folder_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 2**31)  # nobody has a folder in /run/user
    assert folder.places({}, tmp_path) == [tmp_path / "run"]
    assert folder.places({"XDG_RUNTIME_DIR": "relative"}, tmp_path) == [tmp_path / "run"]


def test_a_link_in_the_place_of_our_folder_is_not_followed(tmp_path: Path) -> None:
    runtime, elsewhere, state = closed_folder(tmp_path / "r"), closed_folder(tmp_path / "e"), tmp_path / "state"
    (runtime / "agentwrap").symlink_to(elsewhere)
    assert folder.prepare({"XDG_RUNTIME_DIR": str(runtime)}, state) != runtime / "agentwrap"
    assert list(elsewhere.iterdir()) == []


def test_without_any_folder_the_reasons_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "places", lambda _env, _state: [tmp_path / "file" / "run"])
    (tmp_path / "file").write_text("")
    with pytest.raises(AgentwrapError) as caught:
        folder.prepare({}, tmp_path)
    assert "Not a directory" in caught.value.evidence


def test_a_socket_may_lie_deeper_than_an_address_is_long(tmp_path: Path) -> None:
    path = tmp_path / LONG / LONG / "3f2a"
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o700)
    with folder.listen(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert list(folder.sockets(path.parent)) == [path]
        connection = folder.connect(path)
        assert connection is not None
        with connection:
            assert folder.peer(connection) == (os.getpid(), os.getuid())


def test_a_socket_of_a_dead_run_is_removed_by_who_finds_it(tmp_path: Path) -> None:
    path = closed_folder(tmp_path / "run") / "3f2a"
    folder.listen(path).close()
    assert list(folder.sockets(path.parent)) == [path]
    assert folder.connect(path) is None
    assert list(folder.sockets(path.parent)) == []
    assert folder.connect(path) is None
    assert folder.connect(tmp_path / "no" / "such") is None


def test_what_is_no_socket_is_left_alone(short_path: Path) -> None:
    run = closed_folder(short_path / "run")
    (run / "note").write_text("kept")
    (run / "link").symlink_to(run / "note")
    with socket.socket(socket.AF_UNIX) as unready:
        unready.bind(str(run / ".3f2a.77"))
        assert list(folder.sockets(run)) == []
    assert (run / "note").read_text() == "kept"


def test_a_folder_that_is_not_ours_has_no_runs(tmp_path: Path) -> None:
    run = closed_folder(tmp_path / "run")
    with folder.listen(run / "3f2a"):
        run.chmod(0o777)
        assert list(folder.sockets(run)) == []
    assert list(folder.sockets(tmp_path / "none")) == []


def test_the_other_runs_are_known_by_who_listens(tmp_path: Path) -> None:
    run = closed_folder(tmp_path / "run")
    code = (
        "import sys; from pathlib import Path; from agentwrap.approvals import folder\n"
        "kept = folder.listen(Path(sys.argv[1])); print('ready', flush=True); sys.stdin.read()"
    )
    with (
        folder.listen(run / "aaaa"),
        subprocess.Popen(
            [sys.executable, "-c", code, run / "bbbb"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other,
    ):
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        assert folder.supervisors(run, but=run / "aaaa") == {other.pid}
        assert folder.supervisors(run, but=run / "bbbb") == {os.getpid()}
        other.kill()
        other.wait()
        assert folder.supervisors(run, but=run / "aaaa") == set()
