"""The filter's assembler against a small interpreter of classic BPF, over arbitrary calls. And the kernel takes it."""

import ctypes
import errno
import os
import struct
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentwrap.launching import seccomp
from agentwrap.launching.seccomp import (
    ARCH_I386,
    ARCH_X86_64,
    RET_ALLOW,
    RET_ERRNO,
    RET_KILL_PROCESS,
    RET_TRACE,
    RET_USER_NOTIF,
    Abi,
    Always,
    ArgumentHas,
    ArgumentIn,
    ArgumentNonzero,
    OddSocket,
    Refuse,
    Rule,
    assemble,
)
from agentwrap.tracing.syscalls import watched

_JUMPS: dict[int, Callable[[int, int], bool]] = {
    0x15: lambda a, k: a == k,
    0x35: lambda a, k: a >= k,
    0x45: lambda a, k: bool(a & k),
}
PROGRAMS = {
    (reads, exec_calls): (
        watched.abis(reads=reads, exec_calls=exec_calls),
        assemble(watched.abis(reads=reads, exec_calls=exec_calls), RET_USER_NOTIF),
    )
    for reads in (False, True)
    for exec_calls in (False, True)
}


def interpret(program: bytes, number: int, arch: int, arguments: tuple[int, ...]) -> int:
    """What the kernel's interpreter returns for a call (Documentation/networking/filter.rst; seccomp(2))."""
    data = struct.pack("=iIQ6Q", struct.unpack("=i", struct.pack("=I", number))[0], arch, 0, *arguments)
    code = list(struct.iter_unpack("=HBBI", program))
    at = accumulator = 0
    while True:
        operation, jump_true, jump_false, k = code[at]
        at += 1
        if operation == 0x20:  # BPF_LD | BPF_W | BPF_ABS
            assert k % 4 == 0
            (accumulator,) = struct.unpack_from("=I", data, k)
        elif operation == 0x05:  # BPF_JMP | BPF_JA
            at += k
        elif operation == 0x06:  # BPF_RET | BPF_K
            return int(k)
        else:
            at += jump_true if _JUMPS[operation](accumulator, k) else jump_false


def expected(abis: tuple[Abi, ...], number: int, arch: int, arguments: tuple[int, ...]) -> int:
    """The same by the meaning of the rules, with no filter in between."""
    for abi in abis:
        if abi.audit_arch == arch:
            if arch == ARCH_X86_64 and number & seccomp.X32_BIT and number != 0xFFFFFFFF:
                return RET_ERRNO | errno.ENOSYS
            rule = abi.rules.get(number)
            word = 0 if rule is None else seccomp.answer(rule, arguments)
            return RET_USER_NOTIF if word == -1 else RET_ERRNO | word if word else RET_ALLOW
    return RET_KILL_PROCESS


numbers = st.one_of(
    st.integers(0, 470), st.integers(0, 2**32 - 1), st.integers(0, 470).map(lambda n: n | seccomp.X32_BIT)
)
arguments = st.tuples(
    *[st.one_of(st.sampled_from([0, 1, 2, 3, 8, 1 << 32, (1 << 64) - 1]), st.integers(0, 2**64 - 1))] * 6
)


@given(
    which=st.sampled_from(sorted(PROGRAMS)),
    number=numbers,
    arch=st.sampled_from([ARCH_X86_64, ARCH_I386, 0xC00000B7, 0]),
    args=arguments,
)
@example(which=(False, False), number=0xFFFFFFFF, arch=ARCH_X86_64, args=(0,) * 6)
def test_the_filter_says_what_the_rules_say(
    which: tuple[bool, bool], number: int, arch: int, args: tuple[int, ...]
) -> None:
    abis, program = PROGRAMS[which]
    assert interpret(program, number, arch, args) == expected(abis, number, arch, args)


@pytest.mark.parametrize("which", sorted(PROGRAMS))
def test_every_number_with_telling_arguments(which: tuple[bool, bool]) -> None:
    abis, program = PROGRAMS[which]
    telling = [(0,) * 6, (1,) * 6, ((1 << 64) - 1,) * 6, (1 << 32,) * 6, (0, 8, 0o101, 0, 1 << 33, 0)]
    for abi in abis:
        for number in range(480):
            for args in telling:
                assert interpret(program, number, abi.audit_arch, args) == expected(abis, number, abi.audit_arch, args)


rules: st.SearchStrategy[Rule] = st.one_of(
    st.just(Always()),
    st.builds(Refuse, st.integers(1, 133)),
    st.builds(ArgumentHas, st.integers(0, 5), st.integers(1, 2**32 - 1)),
    st.builds(ArgumentNonzero, st.integers(0, 5)),
    st.builds(ArgumentIn, st.integers(0, 5), st.lists(st.integers(0, 300), min_size=1, max_size=40).map(tuple)),
    st.builds(
        OddSocket,
        st.lists(st.integers(0, 300), max_size=20).map(tuple),
        st.lists(st.integers(0, 300), max_size=20).map(tuple),
    ),
)


@given(
    table=st.dictionaries(st.integers(0, 2000), rules, max_size=60),
    number=st.integers(0, 2000),
    args=st.tuples(*[st.integers(0, 300)] * 6),
)
def test_any_table_of_rules(table: dict[int, Rule], number: int, args: tuple[int, ...]) -> None:
    abis = (Abi(ARCH_X86_64, table),)
    for asked in (number, *table):
        program = assemble(abis, RET_USER_NOTIF)
        assert interpret(program, asked, ARCH_X86_64, args) == expected(abis, asked, ARCH_X86_64, args)


@pytest.mark.parametrize("action", [RET_USER_NOTIF, RET_TRACE])
def test_the_filter_of_a_policy_says_what_its_rules_say(action: int) -> None:
    judged = watched.abis(judged=watched.Judged(*[True] * len(watched.Judged._fields)))
    program = assemble(judged, action)
    telling = [(family, request, 3, 0, 0, 0) for family in (0, 1, 2, 40, 8) for request in (0, 0x5412, 0x541C)]
    for abi in judged:
        for number in range(480):
            for args in telling:
                word = expected(judged, number, abi.audit_arch, args)
                assert interpret(program, number, abi.audit_arch, args) == (action if word == RET_USER_NOTIF else word)


def test_a_filter_too_long_for_the_kernel_is_refused_here() -> None:
    with pytest.raises(ValueError, match="filter of"):
        assemble((Abi(ARCH_X86_64, {number: ArgumentNonzero(0) for number in range(700)}),), RET_USER_NOTIF)


@pytest.mark.parametrize("action", [RET_TRACE, RET_ALLOW, RET_USER_NOTIF])
def test_the_kernel_takes_every_filter(action: int) -> None:
    class Program(ctypes.Structure):
        _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    libc = ctypes.CDLL(None, use_errno=True)
    for reads, exec_calls in PROGRAMS:
        code = assemble(watched.abis(reads=reads, exec_calls=exec_calls), action)
        pid = os.fork()
        if pid == 0:
            libc.prctl(38, 1, 0, 0, 0)
            # seccomp(SECCOMP_SET_MODE_FILTER)
            result = libc.syscall(317, 1, 0, ctypes.byref(Program(len(code) // 8, code)))
            os._exit(ctypes.get_errno() if result else 0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status == errno.ENOSYS:
            pytest.skip("this kernel has no seccomp")
        assert status == 0
