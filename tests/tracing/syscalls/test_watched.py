"""The tables of numbers against the kernel's own headers, where they are installed; and that no ABI is forgotten."""

import re
from pathlib import Path

import pytest

from agentwrap.launching.seccomp import ARCH_I386, ARCH_X86_64, Always, ArgumentHas, Refuse, answer
from agentwrap.tracing.syscalls import watched
from agentwrap.tracing.syscalls.tables import i386, x86_64

HEADERS = [Path("/usr/include/x86_64-linux-gnu/asm"), Path("/usr/include/asm")]
TABLES = {"unistd_64.h": x86_64.NUMBERS, "unistd_32.h": i386.NUMBERS}


def _header(name: str) -> dict[str, int]:
    for folder in HEADERS:
        if (folder / name).exists():
            found = re.findall(r"#define __NR_(\w+)\s+(\d+)", (folder / name).read_text())
            return {call: int(number) for call, number in found}
    pytest.skip("the kernel's headers are not installed (linux-libc-dev)")


@pytest.mark.parametrize("name", TABLES)
def test_numbers_are_the_kernels(name: str) -> None:
    header, table = _header(name), TABLES[name]
    # A call newer than the installed headers cannot be compared.
    assert {call: number for call, number in table.items() if header.get(call, number) != number} == {}
    assert len(set(table.values())) == len(table)
    assert len([call for call in table if call in header]) > 50


@pytest.mark.parametrize("name", TABLES)
def test_what_is_watched_in_one_abi_is_watched_in_the_other(name: str) -> None:
    header, table = _header(name), TABLES[name]
    everywhere = {call for other in TABLES.values() for call in other}
    assert {call for call in everywhere if call in header and call not in table} == set()


CHANGES_FILES = """
creat link linkat mkdir mkdirat mknod mknodat open openat openat2 rename renameat renameat2 rmdir symlink symlinkat
truncate unlink unlinkat chmod fchmod fchmodat fchmodat2 chown fchown fchownat lchown setxattr lsetxattr fsetxattr
removexattr lremovexattr fremovexattr setxattrat removexattrat file_setattr truncate64 chown32 fchown32 lchown32
""".split()


@pytest.mark.parametrize("name", TABLES)
def test_no_call_that_changes_names_or_contents_is_forgotten(name: str) -> None:
    """The calls with a path that change something, by their man pages. Times (utime) are no content."""
    header, table = _header(name), TABLES[name]
    assert [call for call in CHANGES_FILES if call in header and call not in table] == []


@pytest.mark.parametrize("arch", [ARCH_X86_64, ARCH_I386])
def test_every_rule_has_a_name_and_the_important_ones_are_there(arch: int) -> None:
    names = watched.names()
    (abi,) = [abi for abi in watched.abis() if abi.audit_arch == arch]
    rules = {names[arch, number]: rule for number, rule in abi.rules.items()}
    assert rules["unlinkat"] == Always()
    assert rules["clone3"] == Refuse(38)
    assert rules["openat"] == ArgumentHas(2, watched.WRITING_OPEN)
    assert {rules[f"io_uring_{name}"] for name in ("setup", "enter", "register")} == {Always()}
    assert "execve" not in rules


def test_reads_and_execs_are_reported_only_where_asked_for() -> None:
    plain, full = watched.abis()[0], watched.abis(reads=True, exec_calls=True)[0]
    assert full.rules[x86_64.NUMBERS["openat"]] == Always()
    assert set(full.rules) - set(plain.rules) == {x86_64.NUMBERS["execve"], x86_64.NUMBERS["execveat"]}


def test_the_guard_adds_rules_and_changes_none_but_those_of_sockets() -> None:
    names = watched.names()
    for plain, guard in zip(watched.abis(), watched.abis(guard=True), strict=True):
        rules = {names[plain.audit_arch, number]: rule for number, rule in plain.rules.items()}
        guarded = {names[plain.audit_arch, number]: rule for number, rule in guard.rules.items()}
        changed = {name for name in guarded if guarded[name] != rules.get(name)}
        assert changed >= {"socket", "recvfrom", "recvmsg", "recvmmsg", "getpeername"}
        assert changed - {"socket", "recvfrom", "recvmsg", "recvmmsg", "getpeername"} <= {
            "recvmmsg_time64",
            "socketcall",
            "clone",  # who shares descriptors
        }
        assert set(rules) <= set(guarded)


def test_what_a_policy_asks_about_is_reported_besides() -> None:
    names = watched.names()
    judged = {
        watched.Judged(reads=True): {"open", "openat"},
        watched.Judged(execs=True): {"execve", "execveat"},
        watched.Judged(families=True): {"socket", "socketpair", "socketcall"},
        watched.Judged(signals=True): {"kill", "tkill", "tgkill"}
        | {"rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal"},
        watched.Judged(reach=True): {"process_vm_readv"},
        watched.Judged(terminal=True): {"ioctl"},
    }
    for asked, expected in judged.items():
        for plain, more in zip(watched.abis(), watched.abis(judged=asked), strict=True):
            changed = {number for number, rule in more.rules.items() if plain.rules.get(number) != rule}
            found = {names[more.audit_arch, number] for number in changed}
            assert found | {"socketcall"} == expected | {"socketcall"}
            assert ("socketcall" in found) == (asked.families and more.audit_arch == ARCH_I386)


def test_only_four_families_of_sockets_pass_without_being_asked_about() -> None:
    rule = watched.abis(judged=watched.Judged(families=True))[0].rules[x86_64.NUMBERS["socket"]]
    stream, raw, flags = 1, 3, 0o2004000
    assert [family for family in range(64) if answer(rule, (family, stream | flags)) == 0] == [1, 2, 10, 16]
    assert [family for family in range(64) if answer(rule, (family, raw | flags)) == 0] == [1, 16]
    assert answer(rule, (40 | 1 << 32, stream)) == -1


def test_input_for_a_terminal_is_reported_and_nothing_else_of_terminals() -> None:
    rule = watched.abis(judged=watched.Judged(terminal=True))[0].rules[x86_64.NUMBERS["ioctl"]]
    assert [request for request in range(0x5400, 0x5480) if answer(rule, (0, request))] == [0x5412, 0x541C]
    assert answer(rule, (0, 0x5412 | 1 << 32)) == -1


def test_calls_told_to_begin_anew_are_reported_ones() -> None:
    abis = watched.abis(guard=True, capture=True, judged=watched.Judged(*[True] * len(watched.Judged._fields)))
    reported = {watched.names()[abi.audit_arch, number] for abi in abis for number in abi.rules}
    assert reported >= watched.NEVER_SLEEP
    assert not watched.NEVER_SLEEP & {"open", "openat", "openat2", "creat", "connect", "sendto", "sendmsg", "sendmmsg"}


def test_stopping_at_every_call_applies_the_same_rules() -> None:
    rules = watched.by_call(reads=False)
    for abi in watched.abis():
        assert {number: rule for (arch, number), rule in rules.items() if arch == abi.audit_arch} == abi.rules


def test_leading_connections_to_a_gateway_adds_calls_and_changes_none_but_one() -> None:
    """socketcall(2) of i386 says more; the rest of what is reported stays as it is."""
    for plain, leading in zip(watched.abis(), watched.abis(capture=True), strict=True):
        names = {number: name for (arch, number), name in watched.names().items() if arch == plain.audit_arch}
        differing = {names[n] for n in leading.rules if leading.rules[n] != plain.rules.get(n)}
        assert differing - {"socketcall"} == {"getpeername", "landlock_create_ruleset"}
        assert plain.rules.keys() <= leading.rules.keys()
