import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_texts import PLACES

from agentwrap.policy.paths import PathError, Places, normal, parse_pattern, portable


def fits(pattern: str, path: str) -> bool:
    return parse_pattern(pattern, PLACES).fits(path)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("$CWD/**", "/w/a/b", True),
        ("$CWD/**", "/w", True),
        ("$CWD/**", "/wx", False),
        ("$TMP/*", "/tmp/x", True),
        ("$TMP/*", "/tmp/x/y", False),
        ("$TMP/*", "/tmp", False),
        ("~/.ssh/**", "/home/u/.ssh/id", True),
        ("~/.ssh/**", "/home/u/.sshx", False),
        ("~", "/home/u", True),
        ("**/.git/hooks/**", "/w/.git/hooks/pre-commit", True),
        ("**/.git/hooks/**", "/.git/hooks", True),
        ("**/.git/hooks/**", "/w/.git/hooksx", False),
        ("/a/**/b", "/a/b", True),
        ("/a/**/b", "/a/x/y/b", True),
        ("/a/**/b", "/a/x/bb", False),
        ("/a/**/b/**/c", "/a/b/x/b/c", True),
        ("/a/**/b/**/c", "/a/c/b", False),
        ("/a/*.py", "/a/x.py", True),
        ("/a/*.py", "/a/b/x.py", False),
        ("/a/*.py", "/a/.py", True),
        ("/a/?", "/a/x", True),
        ("/a/?", "/a/xy", False),
        ("/a/[bc]*", "/a/c1", True),
        ("/a/[!b]", "/a/b", False),
        ("/a/[!b]", "/a/c", True),
        ("/a/[[]x]", "/a/[x]", True),
        ("/a/[.-0]", "/a//", False),
        ("/a/x\n*", "/a/x\ny", True),
        ("/**", "/", True),
        ("/**", "/x/y", True),
        ("/A", "/a", False),
        ("//a/./b/", "/a/b", True),
    ],
)
def test_what_fits(pattern: str, path: str, expected: bool) -> None:
    assert fits(pattern, path) is expected


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("", "begins with"),
        ("a/b", "begins with"),
        ("./a", "begins with"),
        ("$HOME/a", "begins with"),
        ("~user/a", "begins with"),
        ("**", "begins with"),
        ("/a/../b", "has no place"),
        ("/a/x**", "stands alone"),
        ("/a/[x", "has no"),
        ("/a/[z-a]", "cannot be read"),
        ("/a\0", "NUL"),
        ("/" + "a" * 5000, "at most"),
    ],
)
def test_patterns_that_are_refused(pattern: str, why: str) -> None:
    with pytest.raises(PathError, match=why):
        parse_pattern(pattern, PLACES)


def test_a_folder_with_a_star_in_its_name_is_meant_as_it_is_written() -> None:
    places = Places("/w/[x]*", "/home/u")
    pattern = parse_pattern("$CWD/a*", places)
    assert pattern.fits("/w/[x]*/ab")
    assert not pattern.fits("/w/xy/ab")
    literal = parse_pattern("$CWD/a", places)
    assert literal.literal
    assert literal.fits("/w/[x]*/a")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a/b", "/w/a/b"),
        ("./a/../b", "/w/b"),
        ("../x", "/x"),
        ("//etc/passwd", "/etc/passwd"),
        ("/a//b/", "/a/b"),
        ("~/x", "/home/u/x"),
        ("$TMP/x", "/tmp/x"),
        ("$CWD", "/w"),
        ("/proc/self/root/etc/passwd", "/etc/passwd"),
        ("/proc/12/root/proc/12/root/w/x", "/w/x"),
        ("/proc/self/task/3/root/w", "/w"),
        ("/proc/self/root", "/"),
        ("/proc/self/rooted", "/proc/self/rooted"),
    ],
)
def test_one_normal_form(path: str, expected: str) -> None:
    assert normal(path, PLACES) == expected


@pytest.mark.parametrize(
    "path", ["", "/a\0b", "/proc/self/fd/3", "/proc/7/cwd/x", "/proc/self/cwd", "/dev/fd/1", "/dev/stdout",
             "/" + "a" * 70000]
)  # fmt: skip
def test_names_that_do_not_say_where_they_lead(path: str) -> None:
    with pytest.raises(PathError):
        normal(path, PLACES)


NAMES = st.text(st.sampled_from("ab.*?[]!-^\\|&~ \n\u00e9"), min_size=1, max_size=6).filter(
    lambda name: name not in (".", "..")
)
PATHS = st.lists(NAMES, min_size=1, max_size=6).map(lambda parts: "/" + "/".join(parts))


@given(PATHS)
def test_a_path_made_a_pattern_fits_itself_and_nothing_else(path: str) -> None:
    for places in (PLACES, Places("/" + path.split("/")[1], "/home/u")):
        pattern = parse_pattern(portable(path, places), places)
        assert pattern.fits(path)
        assert not pattern.fits(path + "x")
        assert not pattern.fits(path + "/x")


def slow_fits(pattern: list[str], path: list[str]) -> bool:
    """The meaning of `**`, spelled out."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(slow_fits(pattern[1:], path[at:]) for at in range(len(path) + 1))
    segment = re.escape(pattern[0]).replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    return bool(path) and re.fullmatch(segment, path[0]) is not None and slow_fits(pattern[1:], path[1:])


@given(
    st.lists(st.sampled_from(["**", "a", "b", "*", "a*", "*b", "a*b*", "?"]), min_size=1, max_size=7),
    st.lists(st.sampled_from(["a", "b", "ab", "aab", "abb"]), max_size=7),
)
def test_globs_mean_what_their_definition_says(pattern: list[str], path: list[str]) -> None:
    text = "/" + "/".join(pattern)
    assert fits(text, "/" + "/".join(path)) is slow_fits(pattern, path)


@given(st.text(max_size=40))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    try:
        pattern = parse_pattern(text, PLACES)
    except PathError:
        return
    assert pattern.covers(pattern)
    pattern.fits("/w/x")


@pytest.mark.parametrize(
    "wide", ["$CWD/**", "$TMP/**", "/a/**", "/a/b/*", "/a/b/c", "**/c", "$CWD/x", "/a/*/c", "~/x/**"]
)
def test_what_is_covered_fits(wide: str) -> None:
    for narrow in ("$CWD/**", "/a/b/**", "/a/b/c", "/a/b/*", "$CWD/x", "$CWD/y/**", "~/x/y"):
        if parse_pattern(wide, PLACES).covers(parse_pattern(narrow, PLACES)):
            for path in ("/w/x", "/w/y/z", "/a/b/c", "/a/b/d", "/a/b", "/tmp/x", "/home/u/x/y"):
                assert fits(wide, path) or not fits(narrow, path)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("**/.git/hooks/**", "/w/.git", True),
        ("**/.git/hooks/**", "/w", False),
        ("**/.git/hooks/**", "/", False),
        ("/a/b*/c", "/a", True),
        ("/a/b*/c", "/a/bx", True),
        ("/a/b*/c", "/a/x", False),
        ("/a/b", "/a", True),
        ("/a/b", "/a/b", False),
        ("/a/b", "/", True),
        ("/a/bc", "/a/b", False),
    ],
)
def test_what_may_lie_below(pattern: str, path: str, expected: bool) -> None:
    assert parse_pattern(pattern, PLACES).may_lie_below(path) is expected


def test_what_one_place_covers_by_chance_is_not_covered() -> None:
    places = Places("/tmp/project", "/home/u")
    assert not parse_pattern("$TMP/**", places).covers(parse_pattern("$CWD/**", places))


@pytest.mark.parametrize(
    "pattern", ["/**/a/**/a/**/a/**/a/**/b", "/**/" + "a*" * 30 + "b", "/" + "**/a*a*a*b/" * 4 + "c"]
)
def test_no_pattern_takes_long_on_any_path(pattern: str) -> None:
    compiled = parse_pattern(pattern, PLACES)
    assert not compiled.fits("/a" * 2000)
    assert not compiled.fits("/" + "a" * 4000)
