from ipaddress import IPv4Address, IPv6Address

from hypothesis import given
from hypothesis import strategies as st

from agentwrap.gateway import known_names
from agentwrap.gateway.known_names import PER_ADDRESS_MAX, PER_NAME_MAX, KnownNames
from agentwrap.policy.hosts import Address

ONE, TWO, SIX = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2"), IPv6Address("2001:db8::1")


def test_both_ways_the_newest_first() -> None:
    known = KnownNames()
    known.learn("a.example", [ONE, SIX])
    known.learn("b.example", [ONE])
    assert known.names_of(ONE) == ("b.example", "a.example")
    assert known.names_of(SIX) == ("a.example",)
    known.learn("a.example", [TWO, ONE])
    assert known.names_of(ONE) == ("a.example", "b.example")
    assert known.addresses_of("a.example") == (TWO, ONE, SIX)
    assert known.names_of(TWO) == ("a.example",)


def test_what_nobody_asked_for_has_no_name() -> None:
    known = KnownNames()
    assert known.names_of(ONE) == ()
    assert known.addresses_of("a.example") == ()
    known.learn("a.example", [])
    assert known.addresses_of("a.example") == ()
    assert known.names_of(ONE) == ()


def test_an_answer_may_say_one_thing_twice() -> None:
    known = KnownNames()
    known.learn("a.example", [ONE, ONE])
    assert known.addresses_of("a.example") == (ONE,)


def test_the_oldest_name_goes_first() -> None:
    known = KnownNames(names_max=2)
    for name in ("a", "b", "a", "c"):
        known.learn(name, [ONE])
    assert known.names_of(ONE) == ("c", "a")
    assert known.addresses_of("b") == ()
    assert len(known) == 2


def test_an_address_of_many_names_and_a_name_of_many_addresses() -> None:
    known = KnownNames()
    for number in range(PER_ADDRESS_MAX + 3):
        known.learn(f"n{number}", [ONE])
    names = known.names_of(ONE)
    assert len(names) == PER_ADDRESS_MAX
    assert names[0] == f"n{PER_ADDRESS_MAX + 2}"
    assert known.addresses_of("n0") == ()
    many = [IPv4Address(0x0A000000 + number) for number in range(PER_NAME_MAX + 3)]
    known.learn("many", many)
    assert known.addresses_of("many") == tuple(many[:PER_NAME_MAX])
    assert known.names_of(many[-1]) == ()


addresses = st.lists(st.integers(1, 6).map(IPv4Address), max_size=4)
lessons = st.lists(st.tuples(st.sampled_from("abcdef"), addresses), max_size=30)


@given(lessons)
def test_both_sides_agree_and_stay_small(taught: list[tuple[str, list[Address]]]) -> None:
    bounds = known_names.PER_NAME_MAX, known_names.PER_ADDRESS_MAX
    known_names.PER_NAME_MAX, known_names.PER_ADDRESS_MAX = 3, 2
    try:
        known = KnownNames(names_max=4)
        for name, given_addresses in taught:
            known.learn(name, given_addresses)
            if given_addresses:
                assert known.addresses_of(name)[0] == given_addresses[0]
                assert known.names_of(given_addresses[0])[0] == name
        assert len(known) <= 4
        pairs = {(name, address) for name in "abcdef" for address in known.addresses_of(name)}
        every = map(IPv4Address, range(1, 7))
        assert pairs == {(name, address) for address in every for name in known.names_of(address)}
        assert all(len(known.addresses_of(name)) <= 3 for name in "abcdef")
        assert all(len(known.names_of(IPv4Address(number))) <= 2 for number in range(1, 7))
    finally:
        known_names.PER_NAME_MAX, known_names.PER_ADDRESS_MAX = bounds
