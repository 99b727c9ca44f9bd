from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.policy.hosts import Host, HostError, parse_host, special, unwrap


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("API.Example.COM", "api.example.com"),
        ("api.example.com.", "api.example.com"),
        ("b\u00fccher.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        ("\uff45xample\uff0ecom", "example.com"),
        ("a\u3002example", "a.example"),
        ("_dmarc.example", "_dmarc.example"),
        ("127.0.0.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("0x7F.0.0.1", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("10.1.513", "10.1.2.1"),
        ("\uff11\uff12\uff17.0.0.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("0", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "::1"),
        ("[::1]", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::ffff:a00:1", "10.0.0.1"),
        ("::10.0.0.1", "10.0.0.1"),
        ("64:ff9b::a9fe:a9fe", "169.254.169.254"),
        ("2002:7f00:1::", "127.0.0.1"),
        ("2001:0:0:0:0:0:f5ff:fffe", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::1"),
    ],
)
def test_one_normal_form(text: str, normal: str) -> None:
    assert str(parse_host(text)) == normal


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        (".", "empty"),
        ("a..b", "empty"),
        ("a%00.example", "percent"),
        ("fe80::1%eth0", "percent"),
        ("a\0.example", "NUL"),
        ("a\r\nHost: b", "line break"),
        ("good@evil.example", "user information"),
        ("good\\@evil.example", "user information"),
        ("good\\evil.example", "backslash"),
        ("a/b", "slash"),
        ("a b", "space"),
        ("-a.example", "no label"),
        ("a.-", "no label"),
        ("a" * 64 + ".example", "63"),
        (".".join(["abc"] * 80), "253"),
        ("a." * 600, "characters are no host name"),
        ("1.2.3.4.5", "no IPv4"),
        ("1.2.3.256", "no IPv4"),
        ("256.1", "no IPv4"),
        ("0x100000000", "no IPv4"),
        ("08.0.0.1", "no IPv4"),
        ("example.0x", "no IPv4"),
        ("1" * 50, "no IPv4"),
        ("1::2::3", "IPv6"),
        ("[::1", "IPv6"),
        ("xn--zzzzzz99999.example", "decode"),
        ("fa\u00df.example", "U+00DF"),
        ("a\u200db.example", "U+200D"),
        ("\u2100.example", "no label"),
    ],
)
def test_what_has_no_normal_form_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(HostError, match=why.replace("+", r"\+")):
        parse_host(text)


@given(st.one_of(st.text(max_size=80), st.from_regex(r"[0-9a-fxA-FX.:\[\]%-]{0,40}", fullmatch=True)))
def test_any_text_has_one_normal_form_or_none(text: str) -> None:
    try:
        host = parse_host(text)
    except HostError:
        return
    assert parse_host(str(host)) == host
    assert bool(host.name) != (host.address is not None)


@given(st.ip_addresses(v=4), st.sampled_from(["{}", "::ffff:{}", "64:ff9b::{}"]))
def test_wrapping_an_address_changes_nothing(address: IPv4Address, form: str) -> None:
    bare, wrapped = parse_host(str(address)), parse_host(form.format(address))
    assert wrapped == bare
    assert special(wrapped) == special(bare)


@given(st.ip_addresses(v=4))
def test_every_spelling_of_an_ipv4_address_is_that_address(address: IPv4Address) -> None:
    number = int(address)
    a, b, c, d = address.packed
    for text in (f"{number}", f"{number:#x}", f"0{number:o}", f"{a}.{number & 0xFFFFFF}", f"{a:#x}.0{b:o}.{c}.{d}"):
        assert parse_host(text) == parse_host(str(address)), text


@given(st.ip_addresses(v=6))
def test_unwrapping_ends(address: IPv6Address) -> None:
    inner = unwrap(address)
    assert unwrap(inner) == inner


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("192.0.2.1", ""),
        ("2001:db8::1", ""),
        ("example.com", ""),
        ("notlocalhost", ""),
        ("localhost", "loopback"),
        ("a.localhost", "loopback"),
        ("host.loopback", "loopback"),
        ("127.8.9.1", "loopback"),
        ("169.254.169.254", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("metadata.google.internal", "metadata"),
        ("169.254.1.1", "link-local"),
        ("fe80::1", "link-local"),
        ("10.0.0.1", "private"),
        ("100.64.0.1", "private"),
        ("fc00::1", "private"),
        ("224.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("0.1.2.3", "reserved"),
    ],
)
def test_what_nobody_reaches_by_accident(text: str, kind: str) -> None:
    assert special(parse_host(text)) == kind


def test_a_host_is_told_by_its_normal_form() -> None:
    assert str(Host(address=ip_address("::1"))) == "::1"
    assert Host(name="a.b").labels == ("a", "b")
    assert Host(address=ip_address("::1")).labels == ()
