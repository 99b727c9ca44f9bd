"""Checkpoint notes: any foreign text is a note in its one canonical form, or a ValueError."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.recording import keys, note

NOTE = note.Note("agentwrap/ab12", 3, bytes(range(32)), 17, bytes(32), close=True)


def test_the_text_is_a_c2sp_checkpoint() -> None:
    lines = NOTE.text().split("\n")
    assert lines[:3] == ["agentwrap/ab12", "3", base64.b64encode(bytes(range(32))).decode()]
    assert lines[3:] == ["at 17", "meta " + base64.b64encode(bytes(32)).decode(), "close", ""]


def test_a_signed_note_comes_back() -> None:
    signer = keys.Signer(bytes(32))
    signature = note.key_id(NOTE.origin, signer.public) + signer.sign(NOTE.body().encode())
    signed = note.Note("agentwrap/ab12", 3, bytes(range(32)), 17, bytes(32), True, ((NOTE.origin, signature),))
    assert note.parse(signed.text()) == signed
    assert keys.holds(signer.public, signature[4:], note.parse(signed.text()).body().encode())
    assert signed.text().endswith(f"\n\n\u2014 agentwrap/ab12 {base64.b64encode(signature).decode()}\n")


def test_the_hint_of_a_key_is_the_one_of_the_signed_note_specification() -> None:
    """The example key of golang.org/x/mod/sumdb/note, which C2SP signed-note took over: PeterNeumann+c74f20a3."""
    public = base64.b64decode("ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW")
    assert public[0] == 1
    assert note.key_id("PeterNeumann", public[1:]).hex() == "c74f20a3"


@pytest.mark.parametrize(
    "change",
    [
        ("3\n", "03\n"), ("3\n", "+3\n"), ("3\n", " 3\n"), ("at 17", "at 017"), ("close\n", "closed\n"),
        ("close\n", "close\nmore\n"), ("close\n", "close"), ("meta ", "Meta "), ("AAEC", "AAE"),
        ("\n", "\r\n"), ("\n", ""),
    ],
)  # fmt: skip
def test_there_is_one_way_to_write_a_note(change: tuple[str, str]) -> None:
    changed = NOTE.text().replace(*change)
    assert changed != NOTE.text()
    with pytest.raises(ValueError, match="note"):
        note.parse(changed)


@given(st.text() | st.text("agentwrp/\n 0123456789=+—A").map(lambda s: NOTE.text()[: len(s)] + s))
def test_any_text_is_a_note_or_a_value_error(text: str) -> None:
    try:
        parsed = note.parse(text)
    except ValueError:
        return
    assert parsed.text() == text
