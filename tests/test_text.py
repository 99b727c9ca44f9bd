import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from agentwrap import text

RANGES = ((0, 0x20), (0x7F, 0xA0), (0x200B, 0x2010), (0x202A, 0x202F), (0x2060, 0x2070), (0xFE00, 0xFE10))
FORBIDDEN = {chr(c) for start, end in RANGES for c in range(start, end)}
FORBIDDEN |= set("\u061c\u2028\u2029\ufeff\u00ad\u034f\u3164")

nasty = st.text(st.one_of(st.sampled_from(sorted(FORBIDDEN)), st.characters(), st.characters(categories=["Cs", "Cf"])))


def harmless(shown: str) -> bool:
    shown.encode("utf-8")  # raises for a lone surrogate
    return not any(c in FORBIDDEN or unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown)


@given(nasty)
def test_whatever_text_goes_in_nothing_that_can_lie_comes_out(foreign: str) -> None:
    assert harmless(text.escape(foreign))


@given(st.binary())
def test_whatever_bytes_go_in_nothing_that_can_lie_comes_out(foreign: bytes) -> None:
    assert harmless(text.escape(foreign))


@given(nasty)
def test_escaping_twice_is_escaping_once(foreign: str) -> None:
    assert text.escape(text.escape(foreign)) == text.escape(foreign)


@given(nasty, st.integers(1, 40))
def test_clipped_text_fits_and_is_harmless(foreign: str, columns: int) -> None:
    for clipped in (text.clip(foreign, columns), text.clip_start(foreign, columns)):
        assert text.width(clipped) <= columns
        assert harmless(clipped)


@given(st.text(st.characters(categories=["L", "N", "P"], exclude_characters=text._INVISIBLE)))
def test_ordinary_letters_are_left_alone(honest: str) -> None:
    assert text.escape(honest) == honest


def test_escapes_are_readable_and_tell_bytes_from_characters() -> None:
    assert text.escape("a\n\t\x1b[31m\x7f") == "a\\n\\t\\x1b[31m\\x7f"
    assert text.escape(b"caf\xc3\xa9 \xff") == "café \\xff"
    assert text.escape("\x9b \u202e \U000e0041") == "\\u009b \\u202e \\U000e0041"
    assert text.escape("\udcff\ud800") == "\\xff\\ud800"
    assert text.escape("a\tb", tabs=True) == "a\tb"


def test_columns_count_wide_and_combining_characters() -> None:
    assert text.width("日本") == 4
    assert text.width("e\u0301") == 1
    assert text.clip("日本語", 5) == "日本…"
    assert text.clip("日本語", 6) == "日本語"
    assert text.clip_start("/a/long/path.py", 8) == "…path.py"
    assert text.pad("日", 4) == "日  "


def test_numbers_beyond_all_units_are_told_in_the_largest() -> None:
    for number in (10**400, -(10**400)):
        assert text.size(number).endswith("PB")
        assert text.duration(number).endswith("h")


def test_sizes_durations_and_clocks() -> None:
    assert [text.size(n) for n in (0, 999, 8100, 76_000, 999_600, 1_200_000_000)] == [
        "0B", "999B", "8.1KB", "76KB", "1.0MB", "1.2GB",
    ]  # fmt: skip
    durations = (85_000, 410_000_000, 1_900_000_000, 192 * 10**9, 7500 * 10**9, 273_600 * 10**9)
    assert [text.duration(n) for n in durations] == ["85µs", "410ms", "1.9s", "3m12s", "2h05m", "3d04h"]
    assert text.clock(2_102_999_999) == "2.102"


def test_counts_and_words() -> None:
    assert text.count(1, "file") == "1 file"
    assert text.count(1204, "process", "processes") == "1,204 processes"
    assert text.words(["a", "b", "c"]) == "a, b and c"
    assert text.words([]) == ""


def test_a_pile_of_combining_marks_is_cut() -> None:
    pile = "a" + "\u0301" * 10_000
    assert len(text.clip(pile, 10)) < 100
    assert len(text.clip_start(pile + "bc", 10)) < 100
    assert text.width(text.clip(pile, 10)) <= 10
