"""The layout of netlink, read back; lengths that lie are an error and never a loop."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.gateway.netlink import messages as nl
from agentwrap.gateway.netlink import nftables as nft


@given(st.dictionaries(st.integers(1, 0x3FFF), st.binary(max_size=40)))
def test_attributes_are_read_as_they_were_written(wanted: dict[int, bytes]) -> None:
    data = b"".join(nl.attribute(kind, value) for kind, value in wanted.items())
    assert len(data) % 4 == 0
    assert nl.attributes(data) == wanted
    assert nl.attributes(nl.attributes(nl.nested(5, data))[5]) == wanted


@given(st.lists(st.tuples(st.integers(0, 65535), st.integers(0, 65535), st.integers(0, 2**32 - 1), st.binary())))
def test_messages_are_read_as_they_were_written(wanted: list[tuple[int, int, int, bytes]]) -> None:
    data = b"".join(
        nl.message(kind, flags, number, body) + bytes(-len(body) % 4) for kind, flags, number, body in wanted
    )
    assert list(nl.messages(data)) == wanted


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (nl.attributes, lambda raw: list(nl.messages(raw)), lambda raw: nl.outcome(0x200, raw)):
        try:
            read(data)
        except ValueError:
            pass


@pytest.mark.parametrize("data", [b"\3\0\1\0", b"\xff\0\1\0", b"\0\0\0\0"])
def test_an_attribute_whose_length_lies_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="netlink attribute"):
        nl.attributes(data)


def test_an_attribute_does_not_take_more_than_its_length_can_say() -> None:
    with pytest.raises(Exception, match="format"):
        nl.attribute(1, bytes(65532))


@given(st.binary(max_size=60))
def test_any_place_in_a_rule_has_a_name_or_none(data: bytes) -> None:
    assert isinstance(nft.expression_named(data), str)


def test_an_expression_is_named() -> None:
    assert nft.expression_named(nft.has_socket() + nft.accept()) == "socket"
