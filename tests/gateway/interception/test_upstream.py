"""Whom we trust: the machine's authorities and those of our own environment, each read once."""

from pathlib import Path
from typing import Any

import pytest

from agentwrap.gateway.interception import upstream
from agentwrap.gateway.interception.authority import Authority

ONE, TWO, THREE = (Authority(name).pem for name in ("one", "two", "three"))


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "system.pem"
    file.write_bytes(ONE + TWO)
    monkeypatch.setattr(upstream, "SYSTEM_BUNDLES", (str(file),))
    return file


def _trusted(environment: dict[str, Path]) -> list[str]:
    context = upstream.client_context({name: str(path) for name, path in environment.items()})
    subjects: list[Any] = [one["subject"] for one in context.get_ca_certs()]
    names = [dict(pair for pairs in subject for pair in pairs)["commonName"] for subject in subjects]
    return sorted(name.rpartition(" ")[2] for name in names)


@pytest.mark.parametrize(
    ("content", "trusted"),
    [
        (ONE + TWO + THREE, ["one", "three", "two"]),
        (THREE + ONE + TWO, ["one", "three", "two"]),
        (ONE + THREE, ["one", "three", "two"]),
        (ONE, ["one", "two"]),
        (b"", ["one", "two"]),
        # Broken before what the machine's own file has as well: that is trusted all the same.
        (b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n" + ONE + TWO, ["one", "two"]),
    ],
)
def test_all_of_ours_and_all_of_the_machine_s(
    system: Path, tmp_path: Path, content: bytes, trusted: list[str]
) -> None:
    assert system.exists()
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(content)
    assert _trusted({"SSL_CERT_FILE": bundle}) == trusted
    assert _trusted({"SSL_CERT_FILE": bundle, "NODE_EXTRA_CA_CERTS": bundle}) == trusted


def test_two_of_ours_beside_the_machine_s(system: Path, tmp_path: Path) -> None:
    three = tmp_path / "three.pem"
    three.write_bytes(THREE)
    assert _trusted({"SSL_CERT_FILE": system, "NODE_EXTRA_CA_CERTS": three}) == ["one", "three", "two"]


def test_what_is_not_there_takes_nothing_away(system: Path, tmp_path: Path) -> None:
    assert _trusted({"SSL_CERT_FILE": tmp_path / "none", "NODE_EXTRA_CA_CERTS": tmp_path}) == ["one", "two"]
    assert system.exists()


def test_a_bundle_with_more_is_read_alone(system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(system.read_bytes() + THREE)
    read: list[str | None] = []

    def load(_context: object, *, cafile: str | None = None, capath: str | None = None) -> bool:
        read.append(cafile or capath)
        return True

    monkeypatch.setattr(upstream, "_load", load)
    upstream.client_context({"SSL_CERT_FILE": str(bundle)})
    assert read == [str(bundle)]
