r"""Lines end with `\n` and with nothing else, however they come in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.mcp.framing import Lines

PIECES = st.lists(st.one_of(st.binary(max_size=12), st.sampled_from([b"\n", b"\r", b"a\n\nb", b"\xe2\x80\xa8"])))


@given(PIECES)
def test_what_comes_out_is_what_came_in(pieces: list[bytes]) -> None:
    lines = Lines(1000)
    out = [line for piece in pieces for line in lines.feed(piece)]
    rest = lines.rest()
    data = b"".join(pieces)
    assert b"".join(out) + rest == data
    assert [line.count(b"\n") for line in out] == [1] * data.count(b"\n")
    assert all(line.endswith(b"\n") for line in out)
    assert b"\n" not in rest
    assert not lines.over


@given(PIECES, st.integers(0, 6))
def test_a_line_over_the_cap_ends_it_wherever_it_is_cut(pieces: list[bytes], cap: int) -> None:
    lines = Lines(cap)
    out = [line for piece in pieces for line in lines.feed(piece)]
    data = b"".join(pieces)
    long = next((number for number, line in enumerate(data.split(b"\n")) if len(line) > cap), None)
    assert lines.over == (long is not None)
    assert out == [line + b"\n" for line in data.split(b"\n")[: -1 if long is None else long]]
    assert lines.begun <= cap


@pytest.mark.parametrize("other", ["\u2028", "\u2029", "\u0085", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
def test_nothing_else_ends_a_line(other: str) -> None:
    line = f'{{"text":"a{other}b"}}\n'.encode()
    assert Lines(100).feed(line) == [line]
