"""A call in the registers: another one in its place comes out as the kernel would read it, and nothing else changes."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from agentwrap.launching.seccomp import ARCH_I386, ARCH_X86_64
from agentwrap.tracing import registers

# sys/user.h: the places of rdi, rsi, rdx, r10, r8, r9 and, for a 32-bit program, ebx, ecx, edx, esi, edi, ebp
PLACES = {ARCH_X86_64: (14, 13, 12, 7, 9, 8), ARCH_I386: (5, 11, 12, 13, 14, 4)}
NUMBER, RESULT, POINTER = 15, 10, 16
words = st.lists(st.integers(0, (1 << 64) - 1), min_size=27, max_size=27)


def _unpack(content: bytes) -> list[int]:
    return list(struct.unpack("=27Q", content))


@given(before=words, arguments=st.lists(st.integers(0, (1 << 64) - 1), max_size=6), number=st.integers(0, 500))
def test_another_call_has_its_number_and_arguments(before: list[int], arguments: list[int], number: int) -> None:
    for arch, places in PLACES.items():
        after = _unpack(registers.with_call(struct.pack("=27Q", *before), arch, number, arguments))
        mask = (1 << 64) - 1 if arch == ARCH_X86_64 else (1 << 32) - 1
        expected = list(before)
        expected[NUMBER] = number
        for place, argument in zip(places, arguments, strict=False):
            expected[place] = argument & mask
        assert after == expected


@given(before=words, value=st.integers(-4095, 1 << 40))
def test_a_result_is_read_as_it_was_written(before: list[int], value: int) -> None:
    after = registers.with_result(struct.pack("=27Q", *before), value)
    assert registers.result(after) == value
    assert [word for i, word in enumerate(_unpack(after)) if i != RESULT] == before[:RESULT] + before[RESULT + 1 :]


@given(before=words)
def test_once_more_is_the_same_instruction_with_the_same_number(before: list[int]) -> None:
    before[POINTER] = max(before[POINTER], 2)
    after = _unpack(registers.once_more(struct.pack("=27Q", *before)))
    assert (after[RESULT], after[POINTER]) == (before[NUMBER], before[POINTER] - 2)
    assert after[NUMBER] == (1 << 64) - 1  # no call is under way that a signal could begin anew
