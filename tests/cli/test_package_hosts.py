from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.cli.package_hosts import configured
from agentwrap.errors import AgentwrapError


def hosts(tmp_path: Path, **env: str) -> dict[str, tuple[str, ...]]:
    return configured({"HOME": str(tmp_path), **env}, tmp_path)


def test_variables_and_files_are_read(tmp_path: Path) -> None:
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text(
        "[global]\nindex-url = https://user:secret@one.example/simple\n"
        "extra-index-url = https://two.example:8443/x\n    http://three.example/y\ntimeout = 3\n"
    )
    (tmp_path / ".npmrc").write_text(
        "registry=https://npm.example/\n@mine:registry = http://[2001:db8::1]:4873\n//x/:_authToken=t\n"
    )
    found = hosts(tmp_path, PIP_INDEX_URL="https://zero.example/simple")
    assert found["pip"][:1] == ("zero.example:443",)
    assert {"one.example:443", "two.example:8443", "three.example:80"} <= set(found["pip"])
    assert {"npm.example:443", "[2001:db8::1]:4873"} <= set(found["npm"])
    assert "secret" not in str(found)


def test_what_is_given_is_added(tmp_path: Path) -> None:
    found = configured({"HOME": str(tmp_path)}, tmp_path, ["pip=a.example:443", "pip=a.example:443", "npm=b.example"])
    assert found["pip"][-1] == "a.example:443"
    assert found["npm"][-1] == "b.example"


@pytest.mark.parametrize("word", ["pip", "gem=a.example", "pip=", "=a"])
def test_what_is_given_wrongly_is_told(tmp_path: Path, word: str) -> None:
    with pytest.raises(AgentwrapError, match="--config takes"):
        configured({"HOME": str(tmp_path)}, tmp_path, [word])


@given(st.text(max_size=60))
def test_any_variable_is_a_list_of_hosts(text: str) -> None:
    found = configured({"HOME": "/nonexistent", "PIP_INDEX_URL": text}, Path("/nonexistent"))
    assert all(host.rpartition(":")[2].isdigit() for host in found["pip"])
