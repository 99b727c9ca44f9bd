"""Keys: made once, private to their owner, and refused with a reason when they are none."""

import base64
from pathlib import Path

import pytest

from agentwrap.errors import AgentwrapError
from agentwrap.recording import keys


def test_a_pair_signs_and_is_never_replaced(tmp_path: Path) -> None:
    private, public = tmp_path / "config" / "signing.key", tmp_path / "config" / "signing.pub"
    made = keys.generate(private, public)
    assert (private.stat().st_mode & 0o777, private.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    signer = keys.load_signer(private)
    assert signer.public == made == keys.load_public(public)
    assert keys.holds(made, signer.sign(b"text"), b"text")
    assert not keys.holds(made, signer.sign(b"text"), b"texT")
    assert not keys.holds(made, b"short", b"text")
    before = private.read_bytes()
    with pytest.raises(AgentwrapError) as caught:
        keys.generate(private, public)
    assert caught.value.kind == "exists"
    assert private.read_bytes() == before


def test_a_known_signature() -> None:
    """RFC 8032 section 7.1, test 1."""
    seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    signer = keys.Signer(seed)
    assert signer.public.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert signer.sign(b"").hex().startswith("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155")


@pytest.mark.parametrize(
    "text",
    ["", "x", "agentwrap-ed25519 ", "agentwrap-ed25519 AAAA", "agentwrap-ed25519-private " + "A" * 43 + "=", "\0" * 99],
)
def test_what_is_no_public_key_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "k").write_text(text)
    with pytest.raises(AgentwrapError) as caught:
        keys.load_public(tmp_path / "k")
    assert caught.value.kind == "usage"


def test_a_private_key_is_no_public_one(tmp_path: Path) -> None:
    (tmp_path / "k").write_text(keys.public_text(bytes(32)))
    assert keys.load_public(tmp_path / "k") == bytes(32)
    with pytest.raises(AgentwrapError):
        keys.load_signer(tmp_path / "k")
    assert base64.b64decode(keys.public_text(bytes(32)).split()[1]) == bytes(32)


def test_a_missing_key_and_an_unwritable_folder(tmp_path: Path) -> None:
    with pytest.raises(AgentwrapError) as caught:
        keys.load_public(tmp_path / "none")
    assert caught.value.kind == "not-found"
    (tmp_path / "file").write_text("")
    with pytest.raises(AgentwrapError) as caught:
        keys.generate(tmp_path / "file" / "k", tmp_path / "file" / "p")
    assert caught.value.kind == "output"
