"""The files that a run's programs read our authority's certificate from."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from agentwrap.launching import authority_files
from agentwrap.launching.authority_files import AuthorityFiles


def test_what_was_trusted_stays_trusted_and_ours_comes_behind_it(tmp_path: Path) -> None:
    (tmp_path / "own.pem").write_bytes(b"OWN")  # no newline at its end
    (tmp_path / "node.pem").write_bytes(b"NODE\n")
    given = {b"SSL_CERT_FILE": b"own.pem", b"NODE_EXTRA_CA_CERTS": os.fsencode(tmp_path / "node.pem")}
    files = AuthorityFiles(given, os.fsencode(tmp_path))
    assert not any(os.path.exists(path) for path in files.paths.values())
    files.write(b"CA\n")
    read = {name: Path(os.fsdecode(path)).read_bytes() for name, path in files.paths.items()}
    assert read[b"SSL_CERT_FILE"] == read[b"PIP_CERT"] == b"OWN\nCA\n"
    assert (read[b"NODE_EXTRA_CA_CERTS"], read[b"DENO_CERT"]) == (b"NODE\nCA\n", b"CA\n")
    made = Path(os.fsdecode(files.paths[b"SSL_CERT_FILE"]))
    assert stat.S_IMODE(made.stat().st_mode) == 0o644
    assert stat.S_IMODE(made.parent.stat().st_mode) == 0o755
    files.remove()
    assert not made.parent.exists()
    files.remove()


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    """A folder of certificates cannot be added to."""
    files = AuthorityFiles({b"REQUESTS_CA_BUNDLE": os.fsencode(tmp_path)}, b"/")
    assert b"REQUESTS_CA_BUNDLE" not in files.paths
    files.remove()


def test_without_an_authority_the_files_name_what_was_trusted(tmp_path: Path) -> None:
    (tmp_path / "own.pem").write_bytes(b"OWN\n")
    files = AuthorityFiles({b"SSL_CERT_FILE": b"own.pem"}, os.fsencode(tmp_path))
    files.write(b"")
    assert Path(os.fsdecode(files.paths[b"SSL_CERT_FILE"])).read_bytes() == b"OWN\n"
    files.remove()


def test_what_a_killed_run_left_behind_is_swept_and_what_a_live_one_has_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a place of the test's own: other runs on this machine sweep theirs."""
    monkeypatch.setattr(authority_files, "_PLACE", str(tmp_path))
    monkeypatch.setattr(authority_files, "_NEW_S", 86_400.0)
    live = AuthorityFiles({}, b"/")
    script = "import sys; from agentwrap.launching import authority_files as a; a._PLACE = sys.argv[1]; "
    script += "a.AuthorityFiles({}, b'/').write(b'CA')"
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
    assert len(list(tmp_path.iterdir())) == 2
    AuthorityFiles({}, b"/").remove()
    assert len(list(tmp_path.iterdir())) == 2  # it could be somebody's who is about to lock it
    for folder in tmp_path.iterdir():
        os.utime(folder, (1, 1))
    AuthorityFiles({}, b"/").remove()
    assert [Path(os.fsdecode(live.paths[b"DENO_CERT"])).parent] == list(tmp_path.iterdir())
    live.remove()
    assert list(tmp_path.iterdir()) == []
