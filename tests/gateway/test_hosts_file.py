"""Names of the machine's hosts file, as programs inside find them."""

from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st

from agentwrap.gateway.hosts_file import entries


def test_names_and_aliases_lead_to_their_address() -> None:
    text = b"127.0.0.1 localhost\n192.0.2.1\tA.example  b.example # c.example\n2001:db8::1 a.example\n::1 localhost\n"
    assert list(entries(text)) == [
        ("a.example", ip_address("192.0.2.1")),
        ("b.example", ip_address("192.0.2.1")),
        ("a.example", ip_address("2001:db8::1")),
    ]


def test_odd_lines_are_left_out() -> None:
    text = b"192.0.2.300 a\nnonsense\n192.0.2.1\n192.0.2.1 \xff bad..name good.example\n"
    assert list(entries(text)) == [("good.example", ip_address("192.0.2.1"))]


@given(st.binary(max_size=300))
def test_nothing_breaks_it(text: bytes) -> None:
    for name, address in entries(text):
        assert name
        assert address
