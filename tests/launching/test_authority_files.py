"""The files that a run's programs read our authority's certificate from."""

import os
import stat
from pathlib import Path

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
