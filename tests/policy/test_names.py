import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.policy.hosts import HostError, parse_host
from agentwrap.policy.names import SHARED_SUFFIXES, HostPattern, parse_pattern


def one(text: str, *, for_deny: bool = False) -> HostPattern:
    (pattern,) = parse_pattern(text, {}, for_deny=for_deny)
    return pattern


def fits(pattern: str, host: str, port: int | None = 443) -> bool:
    return one(pattern).fits(parse_host(host), port)


@pytest.mark.parametrize(
    ("pattern", "host", "port", "expected"),
    [
        ("api.example.com", "API.example.com.", 1, True),
        ("API.example.com.", "api.example.com", 1, True),
        ("api.example.com", "x.api.example.com", 443, False),
        ("api.example.com", "api.example.com.evil.example", 443, False),
        ("*.example.com", "a.example.com", 443, True),
        ("*.example.com", "a.b.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "evilexample.com", 443, False),
        ("*.example.com", "example.com.evil.example", 443, False),
        ("b\u00fccher.example", "xn--bcher-kva.example", 443, True),
        ("a.example:443", "a.example", 443, True),
        ("a.example:443", "a.example", 80, False),
        ("a.example:443", "a.example", None, True),
        ("a.example:8000-8999", "a.example", 8999, True),
        ("a.example:8000-8999", "a.example", 9000, False),
        ("10.2.0.0/16:5432", "10.2.3.4", 5432, True),
        ("10.2.0.0/16:5432", "10.3.3.4", 5432, False),
        ("10.2.0.0/16:5432", "::ffff:10.2.3.4", 5432, True),
        ("192.0.2.7", "192.0.2.7", 9, True),
        ("[2001:db8::1]:80", "2001:db8::1", 80, True),
        ("2001:db8::/32", "2001:db8::9", 80, True),
        ("[2001:db8::/32]:80", "2001:db8::9", 81, False),
        ("host.loopback:11434", "localhost", 11434, True),
        ("host.loopback:11434", "127.0.0.1", 11434, True),
        ("host.loopback:11434", "::1", 11434, True),
        ("host.loopback:11434", "10.0.0.1", 11434, False),
        ("127.0.0.1:80", "127.0.0.1", 80, True),
    ],
)
def test_what_fits(pattern: str, host: str, port: int | None, expected: bool) -> None:
    assert fits(pattern, host, port) is expected


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("*", "every host"),
        ("*.*", "every host"),
        ("*.com", "anybody can have a name"),
        ("*.co.uk", "anybody can have a name"),
        ("*.github.io", "anybody can have a name"),
        ("a.*.example.com", "whole labels"),
        ("ex*mple.com", "whole labels"),
        ("*example.com", "whole labels"),
        ("*.*.example.com", "whole labels"),
        ("*.10.0.0.1", "addresses"),
        ("0.0.0.0/0", "every address"),
        ("::/0", "every address"),
        ("10.0.0.1/8", "host bits"),
        ("010.0.0.1", "odd spelling of 8.0.0.1"),
        ("127.1", "odd spelling of 127.0.0.1"),
        ("::ffff:10.0.0.1", "odd spelling of 10.0.0.1"),
        ("::ffff:10.0.0.0/104", "wraps IPv4"),
        ("localhost:80", "own loopback"),
        ("host.loopback", "needs one port"),
        ("host.loopback:1-9", "needs one port"),
        ("a.example:0", "between 1 and 65535"),
        ("a.example:65536", "between 1 and 65535"),
        ("a.example:9-8", "between 1 and 65535"),
        ("a.example:https", "no port"),
        ("a.example:", "no port"),
        ("[::1]80", "brackets"),
        ("https://a.example", "not a URL"),
        ("user@a.example", "user information"),
        ("config:gem", "no placeholder"),
        ("", "empty"),
    ],
)
def test_what_says_more_than_its_writer_means_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(HostError, match=why):
        parse_pattern(pattern, {})


@pytest.mark.parametrize("suffix", sorted(SHARED_SUFFIXES))
def test_a_star_under_a_shared_suffix_is_refused_and_one_label_deeper_is_not(suffix: str) -> None:
    with pytest.raises(HostError):
        parse_pattern(f"*.{suffix}", {})
    assert fits(f"*.mine.{suffix}", f"a.mine.{suffix}")


def test_a_denial_may_be_as_broad_as_it_likes() -> None:
    assert one("*", for_deny=True).fits(parse_host("192.0.2.1"), 1)
    assert one("*.com", for_deny=True).fits(parse_host("a.com"), 1)
    assert one("0.0.0.0/0", for_deny=True).fits(parse_host("192.0.2.1"), 1)


def test_placeholders_are_what_the_mapping_says() -> None:
    configs = {"pip": ("mirror.example:443", "mirror.example:443", "10.0.0.5:8080")}
    first, second = parse_pattern("config:pip", configs)
    assert first.fits(parse_host("mirror.example"), 443)
    assert second.fits(parse_host("10.0.0.5"), 8080)
    (unknown,) = parse_pattern("config:npm", configs)
    assert unknown.kind == "unresolved"
    assert not unknown.fits(parse_host("mirror.example"), 443)
    assert not unknown.covers(unknown)


@given(st.text(max_size=60))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    try:
        patterns = parse_pattern(text, {})
    except HostError:
        return
    assert all(pattern.covers(pattern) for pattern in patterns if pattern.kind != "unresolved")


LABELS = st.lists(st.sampled_from(["a", "b", "com", "evil", "example"]), min_size=1, max_size=5).map(".".join)


@given(LABELS, LABELS)
def test_a_suffix_is_made_of_whole_labels(suffix: str, name: str) -> None:
    pattern = one(f"*.{suffix}", for_deny=True)
    host, own = parse_host(name).labels, parse_host(suffix).labels
    assert pattern.fits(parse_host(name), 443) is (len(host) > len(own) and host[-len(own) :] == own)


PATTERNS = st.sampled_from(
    ["a.example", "*.example.com", "*.b.example.com", "b.example.com", "b.example.com:443", "10.0.0.0/8",
     "10.1.0.0/16:80", "10.1.0.0/16", "192.0.2.0/24", "a.example:1-500"]
)  # fmt: skip
HOSTS = st.sampled_from(
    ["a.example", "example.com", "x.b.example.com", "b.example.com", "10.1.1.1", "10.2.1.1", "192.0.2.1"]
)


@given(PATTERNS, PATTERNS, HOSTS, st.sampled_from([80, 443, 600]))
def test_what_is_covered_fits(wide: str, narrow: str, host: str, port: int) -> None:
    if one(wide).covers(one(narrow)) and fits(narrow, host, port):
        assert fits(wide, host, port)
