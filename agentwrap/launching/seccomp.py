"""Classic BPF for seccomp: from a table of rules per ABI to the bytes that seccomp(2) takes.

Pure. Knows instruction encoding and the layout of `struct seccomp_data`; knows nothing of which calls matter
(`tracing.syscalls.watched` does) nor of how a filter is installed (`launching.child` does).
"""

import struct
from collections.abc import Mapping, Sequence

import msgspec

# linux/seccomp.h
RET_KILL_PROCESS = 0x80000000
RET_ERRNO = 0x00050000
RET_USER_NOTIF = 0x7FC00000
RET_TRACE = 0x7FF00000
RET_ALLOW = 0x7FFF0000

# linux/audit.h
ARCH_X86_64 = 0xC000003E
ARCH_I386 = 0x40000003
X32_BIT = 0x40000000

_LD, _JEQ, _JGE, _JSET, _JA, _RET = 0x20, 0x15, 0x35, 0x45, 0x05, 0x06
_OFFSET_NR, _OFFSET_ARCH = 0, 4
ENOSYS = 38


class Always(msgspec.Struct, frozen=True):
    """The call is reported whatever its arguments."""


class Refuse(msgspec.Struct, frozen=True):
    """The call fails with this errno; nobody is asked."""

    errno: int


class ArgumentHas(msgspec.Struct, frozen=True):
    """Reported when the low half of argument `index` has any bit of `mask`."""

    index: int
    mask: int


class ArgumentNonzero(msgspec.Struct, frozen=True):
    """Reported when argument `index` (64 bits) is not zero."""

    index: int


class ArgumentIn(msgspec.Struct, frozen=True):
    """Reported when the low half of argument `index` is one of `values`."""

    index: int
    values: tuple[int, ...]


class OddSocket(msgspec.Struct, frozen=True):
    """socket(2) is reported unless the family is one of `families`, or of `cooked` and the kind is not SOCK_RAW."""

    families: tuple[int, ...]
    cooked: tuple[int, ...]


Rule = Always | Refuse | ArgumentHas | ArgumentNonzero | ArgumentIn | OddSocket


class Abi(msgspec.Struct, frozen=True):
    """Rules of one audit architecture, by system call number."""

    audit_arch: int
    rules: Mapping[int, Rule]


def _op(code: int, k: int, jump_true: int = 0, jump_false: int = 0) -> bytes:
    # struct sock_filter { u16 code; u8 jt; u8 jf; u32 k; }
    return struct.pack("=HBBI", code, jump_true, jump_false, k & 0xFFFFFFFF)


def _low(index: int) -> int:
    return 16 + 8 * index


def _rule_body(rule: Rule, action: int) -> list[bytes]:
    """Instructions after the number has matched; each path ends in a RET."""
    match rule:
        case Always():
            return [_op(_RET, action)]
        case Refuse(errno):
            return [_op(_RET, RET_ERRNO | errno)]
        case ArgumentHas(index, mask):
            return [_op(_LD, _low(index)), _op(_JSET, mask, 0, 1), _op(_RET, action), _op(_RET, RET_ALLOW)]
        case ArgumentNonzero(index):
            return [
                _op(_LD, _low(index)),
                _op(_JEQ, 0, 0, 2),
                _op(_LD, _low(index) + 4),
                _op(_JEQ, 0, 1, 0),
                _op(_RET, action),
                _op(_RET, RET_ALLOW),
            ]
        case ArgumentIn(index, values):
            tests = [_op(_JEQ, value, len(values) - i, 0) for i, value in enumerate(values)]
            return [_op(_LD, _low(index)), *tests, _op(_RET, RET_ALLOW), _op(_RET, action)]
        case OddSocket(families, cooked):
            return _odd_socket(families, cooked, action)


def _odd_socket(families: tuple[int, ...], cooked: tuple[int, ...], action: int) -> list[bytes]:
    """SOCK_RAW (3) is the one kind with the lowest two bits set; flags of socket(2) lie higher."""
    ask_kind, allow = len(cooked) + len(families) + 2, len(cooked) + len(families) + 6
    tests = [(family, ask_kind) for family in cooked] + [(family, allow) for family in families]
    jumps = [_op(_JEQ, family, target - at - 2, 0) for at, (family, target) in enumerate(tests)]
    kind = [_op(_LD, _low(1)), _op(_JSET, 1, 0, 2), _op(_JSET, 2, 0, 1), _op(_RET, action), _op(_RET, RET_ALLOW)]
    return [_op(_LD, _low(0)), *jumps, _op(_RET, action), *kind]


def _abi_body(abi: Abi, action: int) -> list[bytes]:
    out = [_op(_LD, _OFFSET_NR)]
    if abi.audit_arch == ARCH_X86_64:
        # x32 shares the audit architecture and sets bit 30 of the number; no distribution runs it, so nothing is lost.
        # -1 is a call that a tracer has refused with an answer of its own, which must stay (seccomp(2)).
        out += [_op(_JEQ, 0xFFFFFFFF, 2, 0), _op(_JGE, X32_BIT, 0, 1), _op(_RET, RET_ERRNO | ENOSYS)]
    for number, rule in abi.rules.items():
        body = _rule_body(rule, action)
        out += [_op(_JEQ, number, 0, len(body)), *body]
    out.append(_op(_RET, RET_ALLOW))
    return out


def answer(rule: Rule, arguments: Sequence[int]) -> int:
    """What a filter made of `rule` would say, for those who stop at every call: 0 let go, -1 report, else an errno."""
    match rule:
        case Always():
            return -1
        case Refuse(errno):
            return errno
        case ArgumentHas(index, mask):
            return -1 if arguments[index] & mask & 0xFFFFFFFF else 0
        case ArgumentNonzero(index):
            return -1 if arguments[index] else 0
        case ArgumentIn(index, values):
            return -1 if arguments[index] & 0xFFFFFFFF in values else 0
        case OddSocket(families, cooked):
            family, raw = arguments[0] & 0xFFFFFFFF, arguments[1] & 3 == 3
            return 0 if family in families or (family in cooked and not raw) else -1


def assemble(abis: Sequence[Abi], action: int) -> bytes:
    """The filter program: `action` for a reported call, kill for an ABI that is not in `abis` (seccomp(2)).

    Returns the array of `struct sock_filter`, 8 bytes an instruction. Raises ValueError past BPF_MAXINSNS (4096).
    """
    out = [_op(_LD, _OFFSET_ARCH)]
    for abi in abis:
        body = _abi_body(abi, action)
        # Conditional jumps reach 255 instructions only: skip over the body with an unconditional one.
        out += [_op(_JEQ, abi.audit_arch, 1, 0), _op(_JA, len(body)), *body]
    out.append(_op(_RET, RET_KILL_PROCESS))
    if len(out) > 4096:
        raise ValueError(f"filter of {len(out)} instructions")
    return b"".join(out)
