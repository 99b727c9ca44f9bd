"""No two rows have the same envelope: values cannot run into each other, NULL is not the empty text."""

from hypothesis import given
from hypothesis import strategies as st

from agentwrap.recording.envelope import envelope, meta_digest

TEXT = st.none() | st.text(max_size=6)
ROW = st.tuples(
    st.integers(0, 99), st.integers(0, 99), st.text(max_size=3), TEXT, st.none() | st.integers(0, 9), TEXT, TEXT,
    st.text(max_size=6), st.lists(st.tuples(st.text(max_size=3), st.integers(0, 3), st.binary(max_size=3)), max_size=2),
)  # fmt: skip


def test_one_by_hand() -> None:
    made = envelope(7, 1000, "gap", "run", None, "ä", None, "{}", [("after", 0, b"\xab")])
    assert made == b"1:7,4:1000,3:gap,3:run,~" + "2:ä,".encode() + b"~2:{},5:after,1:0,2:ab,"
    assert envelope(7, 1000, "gap", "run", None, "ä", None, b"{}", [("after", 0, b"\xab")]) == made


@given(ROW, ROW)
def test_different_rows_have_different_envelopes(one: tuple, other: tuple) -> None:  # type: ignore[type-arg]
    assert (envelope(*one) == envelope(*other)) == (one == other)


@given(st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=4), st.data())
def test_meta_is_covered_whatever_its_order(meta: dict[str, str], data: st.DataObject) -> None:
    shuffled = dict(data.draw(st.permutations(list(meta.items()))))
    assert meta_digest(meta) == meta_digest(shuffled)
    other = data.draw(st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=4))
    assert (meta_digest(meta) == meta_digest(other)) == (meta == other)
