"""What is remembered is what would be made anew, and of no more than so many bytes."""

from hypothesis import given
from hypothesis import strategies as st

from agentwrap.models.remembered import Remembered


@given(st.lists(st.binary(max_size=2), max_size=60), st.integers(0, 5))
def test_the_same_as_without(asked: list[bytes], most: int) -> None:
    made: list[bytes] = []

    def make(raw: bytes) -> bytes | None:
        made.append(raw)
        return raw[::-1] or None

    remembered = Remembered(make, most * 520)
    for place, raw in enumerate(asked):
        before = len(made)
        assert remembered.of(raw) == (raw[::-1] or None)
        lately = list(dict.fromkeys(reversed(asked[:place])))[:most]
        assert (len(made) == before) == (raw in lately)


def test_what_is_large_makes_room_for_itself() -> None:
    made: list[int] = []
    remembered = Remembered(lambda raw: made.append(len(raw)), 11_000)
    for size in (1, 2, 9000, 1, 2, 9000, 20_000, 9000):
        remembered.of(bytes(size))
    assert made == [1, 2, 9000, 20_000, 9000]
