"""The tree is RFC 6962's, for every count."""

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from agentwrap.recording.merkle import EMPTY_ROOT, Tree


def by_definition(leaves: list[bytes]) -> bytes:
    """RFC 6962 section 2.1, word for word."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    half = 1
    while half * 2 < len(leaves):
        half *= 2
    return sha256(b"\x01" + by_definition(leaves[:half]) + by_definition(leaves[half:])).digest()


def test_every_root_up_to_130_leaves() -> None:
    tree, leaves = Tree(), []
    assert tree.root() == EMPTY_ROOT == by_definition([])
    for number in range(130):
        leaves.append(sha256(b"\x00%d" % number).digest())
        tree.add(leaves[-1])
        assert (tree.count, tree.root()) == (number + 1, by_definition(leaves))


def test_known_answers_of_the_certificate_transparency_reference() -> None:
    """Inputs and roots of the test vectors that come with RFC 6962's reference implementation."""
    inputs = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    roots = {
        1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    }
    tree = Tree()
    for count, text in enumerate(inputs, 1):
        tree.add(sha256(b"\x00" + bytes.fromhex(text)).digest())
        if count in roots:
            assert tree.root().hex() == roots[count]


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=2, max_size=40, unique=True), st.data())
def test_any_other_order_has_another_root(leaves: list[bytes], data: st.DataObject) -> None:
    other = data.draw(st.permutations(leaves))
    roots = []
    for order in (leaves, other):
        tree = Tree()
        for leaf in order:
            tree.add(leaf)
        roots.append(tree.root())
    assert (roots[0] == roots[1]) == (leaves == other)
