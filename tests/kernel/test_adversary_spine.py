"""Crowds, depth, other ABIs, privileges, tracers and sandboxes inside: what an agent may do."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rows import MODES, TRACED, Rows, mode_name, raw
from wrapping import command, environment, is_root, program, wrap

# -- crowds and depth

CROWD = r"""
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int n = atoi(argv[1]), live = 0, status;
    for (int i = 0; i < n; i++) {
        pid_t p = fork();
        if (p < 0) return 3;
        if (!p) { if (argc > 2) pause(); _exit(i % 7); }
        live++;
        if (argc > 2) continue;
        if (waitpid(p, &status, 0) != p || WEXITSTATUS(status) != i % 7) return 4;
    }
    if (argc > 2) { signal(SIGTERM, SIG_IGN); kill(0, SIGTERM); }
    while (wait(&status) > 0) if (WTERMSIG(status) != SIGTERM) return 5;
    return 0;
}
"""


@pytest.mark.parametrize("options", TRACED, ids=mode_name)
def test_a_storm_of_a_thousand_children_at_once(tmp_path: Path, options: tuple[str, ...]) -> None:
    run = wrap(tmp_path, "setsid", "-w", program(tmp_path, "crowd", CROWD), "1000", "all", options=options)
    assert run.status == 0, run.stderr
    rows = Rows(run.recording)
    (parent,) = rows.named(b"1000")
    children = [span for span in rows.spans().values() if span["parent"] == parent["span"]]
    assert len(children) == len({child["pid"] for child in children}) == 1000
    assert {child["exit"]["signal"] for child in children} == {signal.SIGTERM}


def test_ten_thousand_very_short_processes(tmp_path: Path) -> None:
    run = wrap(tmp_path, program(tmp_path, "crowd", CROWD), "10000", timeout_s=300)
    assert run.status == 0, run.stderr
    rows = Rows(run.recording)
    children = [span for span in rows.spans().values() if span["how"] == "fork"]
    assert len(children) == 10_000
    assert [child["exit"].get("status", 0) for child in children] == [i % 7 for i in range(10_000)]
    assert rows.of("gap") == []


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_a_tree_two_hundred_deep(tmp_path: Path, options: tuple[str, ...]) -> None:
    source = r"""
    #include <stdlib.h>
    #include <sys/stat.h>
    #include <sys/wait.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        int n = atoi(argv[1]), status; char name[20];
        for (; n; n--) { pid_t p = fork(); if (p) { waitpid(p, &status, 0); _exit(WEXITSTATUS(status)); } }
        return mkdir("deepest", 0755) ? 1 : 42;
    }
    """
    run = wrap(tmp_path, program(tmp_path, "deep", source), "200", options=options)
    assert run.status == 42
    rows = Rows(run.recording, tmp_path / "work")
    (made,) = rows.of("file.directory")
    spans = rows.spans()
    depth, at = 0, spans[made.span]
    while at["parent"] != "run":
        depth, at = depth + 1, spans[at["parent"]]
    assert depth == 200


def test_a_crowd_of_threads_writing_at_once(tmp_path: Path) -> None:
    script = (
        "import os, threading\n"
        "def work(i):\n"
        "    for j in range(20):\n"
        "        open(f'{i}-{j}', 'w').write(f'{i} {j}')\n"
        "        os.rename(f'{i}-{j}', f'{i}={j}')\n"
        "ts = [threading.Thread(target=work, args=(i,)) for i in range(50)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]\n"
    )
    run = wrap(tmp_path, sys.executable, "-c", script)
    assert run.status == 0, run.stderr
    rows = Rows(run.recording, tmp_path / "work")
    # One that was looked at before its rename is told by both names.
    told, renamed = set(rows.files()), {word for word in rows.files() if word.startswith("rename ")}
    early = {f"create {word.split()[1]} '{word.split()[1].replace('-', ' ')}'" for word in renamed}
    late = {
        f"create {i}={j} '{i} {j}'" for i in range(50) for j in range(20) if f"rename {i}-{j} {i}={j}" not in renamed
    }
    assert told == renamed | early | late
    assert len(renamed) + len(late) == 1000
    assert rows.spans()["p1"]["exit"]["threads"] == 51


# -- other ABIs


def _elf32(code: bytes, data: bytes, base: int = 0x08048000) -> bytes:
    """A static i386 program: one segment, all rights. elf(5)."""
    size = 52 + 32 + len(code) + len(data)
    header = b"\x7fELF\x01\x01\x01" + bytes(9)
    header += struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, base + 84, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    return header + struct.pack("<8I", 1, 0, base, base, size, size, 7, 4096) + code + data


class Assembler:
    """Calls by int 0x80: enough of i386 to make some."""

    def __init__(self) -> None:
        self._calls: list[tuple[object, ...]] = []
        self._data = b""

    def put(self, value: bytes) -> tuple[str, int]:
        """Data; what stands for its address."""
        self._data += bytes(-len(self._data) % 4)
        at = len(self._data)
        self._data += value
        return "data", at

    def call(self, number: int, *arguments: object) -> None:
        self._calls.append((number, *arguments))

    def image(self, base: int = 0x08048000) -> bytes:
        lengths = sum(5 * len(call) + 2 for call in self._calls)
        data_at = base + 84 + lengths

        def value(argument: object) -> int:
            return data_at + argument[1] if isinstance(argument, tuple) else int(argument)  # type: ignore[call-overload]

        code = b""
        for number, *arguments in self._calls:
            # mov ebx, ecx, edx, esi, edi; mov eax; int 0x80
            for opcode, argument in zip((0xBB, 0xB9, 0xBA, 0xBE, 0xBF), arguments, strict=False):
                code += bytes([opcode]) + struct.pack("<I", value(argument) & 0xFFFFFFFF)
            code += b"\xb8" + struct.pack("<I", number) + b"\xcd\x80"
        data = self._data
        for call in self._calls:
            for argument in call:
                if isinstance(argument, tuple) and len(argument) == 3:  # a word that is itself an address
                    at, target = argument[1], argument[2]
                    data = data[:at] + struct.pack("<I", data_at + target) + data[at + 4 :]
        assert len(code) == lengths
        return _elf32(code, data, base)


def _thirty_two(port: int) -> bytes:
    """mkdir, openat + write, rename, connect by socketcall and by its own call, sendto by socketcall, exit(5)."""
    program = Assembler()
    program.call(39, program.put(b"made32\0"), 0o755)
    program.call(295, -100, program.put(b"f\0"), os.O_WRONLY | os.O_TRUNC, 0)  # the first free descriptor: 3
    program.call(4, 3, program.put(b"new\n"), 4)
    program.call(38, program.put(b"g\0"), program.put(b"h\0"))
    address = program.put(
        struct.pack("<H", socket.AF_INET) + struct.pack("!H", port) + bytes([127, 0, 0, 1]) + bytes(8)
    )
    program.call(102, 1, program.put(struct.pack("<3I", socket.AF_INET, socket.SOCK_STREAM, 0)))  # socket: 4
    connect = program.put(struct.pack("<3I", 4, 0, 16))
    program.call(102, 3, ("data", connect[1]), ("data", connect[1] + 4, address[1]))
    program.call(362, 4, address, 16)
    program.call(102, 1, program.put(struct.pack("<3I", socket.AF_INET, socket.SOCK_DGRAM, 0)))  # 5
    text = program.put(b"x")
    send = program.put(struct.pack("<6I", 5, 0, 1, 0, 0, 16))
    program.call(102, 11, ("data", send[1]), ("data", send[1] + 4, text[1]), ("data", send[1] + 16, address[1]))
    program.call(1, 5)
    return program.image()


def _runs_32_bit(path: Path) -> bool:
    try:
        return subprocess.run([path], cwd=path.parent).returncode == 5
    except OSError:
        return False


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_a_32_bit_program(tmp_path: Path, options: tuple[str, ...]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        binary = tmp_path / "i386"
        binary.write_bytes(_thirty_two(port))
        binary.chmod(0o755)
        if not _runs_32_bit(binary):
            pytest.skip("this kernel runs no 32-bit programs")
        work = tmp_path / "work"
        work.mkdir()
        (work / "f").write_text("old\n")
        (work / "g").write_text("other\n")
        for name in "fg":
            os.utime(work / name, ns=(10**18, 10**18))
        run = wrap(tmp_path, str(binary), "word", options=options)
    assert run.status == 5
    rows = Rows(run.recording, work)
    assert rows.files() == ["mkdir made32", "rename g h", "modify f 'old\\n' -> 'new\\n'"]
    assert [(e.data["host"], e.data["port"]) for e in rows.of("net.connect")] == [("127.0.0.1", port)] * 2
    assert [(e.data["host"], e.data["port"]) for e in rows.of("net.send")] == [("127.0.0.1", port)]
    (told,) = rows.of("process.exec")
    assert (raw(told.data["path"]), told.data["argv"][1]) == (bytes(binary), "word")
    assert [gap.data["cause"] for gap in rows.of("gap") if gap.data["cause"] != "no-ptrace"] == []


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_calls_of_another_abi_from_a_64_bit_program(tmp_path: Path, options: tuple[str, ...]) -> None:
    """int 0x80 is seen by the other table; x32 numbers are no calls at all."""
    source = r"""
    #include <errno.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    int main(void) {
        char *low = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
        long result;
        strcpy(low, "by32");
        asm volatile("int $0x80" : "=a"(result) : "a"(39), "b"(low), "c"(0755) : "memory");
        if (result) return 2;
        if (syscall(0x40000000 | SYS_mkdir, "x32", 0755) != -1 || errno != ENOSYS) return 3;
        if (syscall(-1) != -1 || errno != ENOSYS) return 4;
        if (syscall(0x7fffffff) != -1 || errno != ENOSYS) return 5;
        return mkdir("by64", 0755);
    }
    """
    run = wrap(tmp_path, program(tmp_path, "abi", source), options=options)
    if run.status == 2:
        pytest.skip("this kernel has no int 0x80")
    assert run.status == 0
    assert Rows(run.recording, tmp_path / "work").files() == ["mkdir by32", "mkdir by64"]


# -- privileges

WHO = '#include <stdio.h>\n#include <unistd.h>\nint main(void) { printf("%d %d\\n", getuid(), geteuid()); return 0; }\n'


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody can reach; pytest's own are closed."""
    folder = Path(tempfile.mkdtemp(prefix="agentwrap-open-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(not is_root(), reason="only root makes a program of root's")
@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_a_set_id_program_gains_nothing_for_a_plain_user_and_that_is_told(
    open_folder: Path,
    plain_user,  # type: ignore[no-untyped-def]
    options: tuple[str, ...],
) -> None:
    binary = Path(program(open_folder, "who", WHO))
    binary.chmod(0o4755)
    if not plain_user([str(binary)]).stdout.endswith(" 0\n"):
        pytest.skip("set-id programs do not work in /tmp here")
    home = Path(plain_user(["pwd"]).stdout.strip())
    done = plain_user(command(home / "run.agentlog", str(binary), options=options))
    assert (done.returncode, done.stdout) == (0, "65534 65534\n"), done.stderr
    rows = Rows(home / "run.agentlog")
    (denied,) = rows.of("process.denied")
    assert (denied.data["what"], raw(denied.data["detail"])) == ("setuid", bytes(binary))
    (told,) = rows.of("process.exec")
    assert told.data["setuid"] is True
    assert told.data["euid"] == 65534 or not told.data.get("confirmed", True)


@pytest.mark.skipif(not is_root(), reason="needs a program of somebody else's")
@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_a_set_id_program_works_for_root(open_folder: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    binary = Path(program(open_folder, "who", WHO))
    os.chown(binary, 65534, 65534)
    binary.chmod(0o4755)
    run = wrap(tmp_path, str(binary), options=options)
    assert run.stdout == b"0 65534\n"
    rows = Rows(run.recording)
    assert rows.of("process.denied") == []
    (told,) = rows.of("process.exec")
    assert told.data["setuid"] is True
    assert (told.data["uid"], told.data["euid"]) == (0, 65534) or not told.data.get("confirmed", True)


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_a_known_set_id_program_as_a_plain_user(plain_user, options: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
    su = shutil.which("su", path="/usr/bin:/bin")
    if su is None or not os.stat(su).st_mode & 0o4000:
        pytest.skip("no set-id su")
    home = Path(plain_user(["pwd"]).stdout.strip())
    done = plain_user(command(home / "run.agentlog", su, "--help", options=options))
    assert done.returncode == 0, done.stderr
    assert [e.data["what"] for e in Rows(home / "run.agentlog").of("process.denied")] == ["setuid"]


# -- tracers and sandboxes inside


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_strace_inside(tmp_path: Path, options: tuple[str, ...]) -> None:
    run = wrap(tmp_path, "strace", "-f", "-e", "trace=mkdir", "-o", "out", "mkdir", "made", options=options)
    rows = Rows(run.recording, tmp_path / "work")
    assert rows.of("process.reach")
    if options == ("--debuggable",):
        assert run.status == 0, run.stderr
        assert 'mkdir("made"' in (tmp_path / "work/out").read_text()
        assert "mkdir made" in rows.files()
        assert rows.of("process.denied") == []
    else:
        assert run.status != 0
        assert b"ermitted" in run.stderr
        # Once a process: strace tries with some of its own first.
        assert {event.data["what"] for event in rows.of("process.denied")} == {"ptrace"}


@pytest.mark.skipif(not shutil.which("gdb"), reason="gdb is not installed")
@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_gdb_inside(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "home").mkdir()
    binary = program(tmp_path, "prog", '#include <sys/stat.h>\nint main(void) { return mkdir("made", 0755); }\n')
    script = ["gdb", "-nx", "-batch", "-ex", "set startup-with-shell off", "-ex", "break mkdir", "-ex", "run"]
    script += ["-ex", "backtrace", "-ex", "continue", binary]
    run = wrap(tmp_path, *script, options=options, env={"HOME": str(tmp_path / "home"), "DEBUGINFOD_URLS": ""})
    rows = Rows(run.recording, tmp_path / "work")
    if options == ("--debuggable",):
        assert b"in main" in run.stdout, run.stdout + run.stderr
        assert "mkdir made" in rows.files()
    else:
        assert b"ermitted" in run.stdout + run.stderr
        assert [event.data["what"] for event in rows.of("process.denied")] == ["ptrace"]
        assert "mkdir made" not in rows.files()


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_namespaces_inside(tmp_path: Path, options: tuple[str, ...]) -> None:
    words = ["unshare", "-Urnmpf", "--mount-proc", "sh", "-c", "echo $$; mkdir made; (mkdir inner)"]
    if subprocess.run([*words[:-3], "true"], capture_output=True).returncode:
        pytest.skip("user namespaces are not allowed here")
    run = wrap(tmp_path, *words, options=options)
    assert (run.status, run.stdout) == (0, b"1\n"), run.stderr
    rows = Rows(run.recording, tmp_path / "work")
    assert rows.files() == ["mkdir made", "mkdir inner"]
    flags = {flag for event in rows.of("process.isolation") for flag in event.data.get("flags", ())}
    assert {"user", "net", "mount", "pid"} <= flags
    (shell,) = [span for span in rows.named(b"sh") if span["argv"][-1][0] == b"sh"]
    assert shell["pid"] > 1


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_a_sandbox_with_a_filter_of_its_own(tmp_path: Path, options: tuple[str, ...]) -> None:
    """An inner filter that refuses mkdir counts; one with a listener of its own is refused and told."""
    source = r"""
    #include <errno.h>
    #include <linux/filter.h>
    #include <linux/seccomp.h>
    #include <stddef.h>
    #include <sys/prctl.h>
    #include <sys/syscall.h>
    #include <sys/stat.h>
    #include <unistd.h>
    int main(void) {
        struct sock_filter code[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mkdir, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EROFS),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        struct sock_fprog program = {4, code};
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program) >= 0) return 2;
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) return 3;
        if (mkdir("refused", 0755) != -1 || errno != EROFS) return 4;
        if (rmdir("absent") != -1 || errno != ENOENT) return 5;
        return syscall(SYS_mkdirat, -100, "made", 0755);
    }
    """
    run = wrap(tmp_path, program(tmp_path, "inner", source), options=options)
    assert run.status == 0
    rows = Rows(run.recording, tmp_path / "work")
    assert rows.files() == ["mkdir made"]
    assert [event.data["what"] for event in rows.of("process.denied")] == ["seccomp-listener"]


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_agentwrap_inside_agentwrap_says_what_is_the_matter(tmp_path: Path, options: tuple[str, ...]) -> None:
    inner = command(tmp_path / "inner.agentlog", "mkdir", "made")
    run = wrap(tmp_path, *inner, options=options)
    rows = Rows(run.recording, tmp_path / "work")
    if run.status == 0:
        assert "mkdir made" in Rows(tmp_path / "inner.agentlog", tmp_path / "work").files()
        assert "mkdir made" in rows.files()
    else:
        assert run.status == 125
        assert run.stderr.startswith(b"error: ")
        assert b"hint: " in run.stderr
        assert not (tmp_path / "inner.agentlog").exists()
        assert rows.of("process.denied")


# -- against the wrapper itself


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_a_plain_users_agent_cannot_reach_the_tracer(plain_user, options: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
    """Its memory, its descriptors: closed, so that a recording cannot be changed through them."""
    script = (
        "import os, sys\n"
        "up = os.getppid()\n"
        "for what in (f'/proc/{up}/mem', f'/proc/{up}/environ', f'/proc/{up}/maps'):\n"
        "    try: open(what, 'rb').read(1)\n"
        "    except OSError: continue\n"
        "    sys.exit(what)\n"
        "try: os.listdir(f'/proc/{up}/fd'); sys.exit('fd')\n"
        "except PermissionError: print('closed')\n"
    )
    home = Path(plain_user(["pwd"]).stdout.strip())
    done = plain_user(command(home / "run.agentlog", sys.executable, "-c", script, options=options))
    assert (done.returncode, done.stdout) == (0, "closed\n"), done.stderr


def test_many_signals_to_one_process_do_not_starve_others(tmp_path: Path) -> None:
    script = (
        "import os, signal, threading\n"
        "signal.signal(signal.SIGUSR1, lambda *_: None)\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    up = os.getppid()\n"
        "    for _ in range(3000): os.kill(up, signal.SIGUSR1)\n"
        "    os._exit(0)\n"
        "for i in range(200):\n"
        "    os.close(os.open(f'f{i}', os.O_CREAT | os.O_WRONLY))\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
    )
    run = wrap(tmp_path, sys.executable, "-c", script)
    assert run.status == 0, run.stderr
    assert len(Rows(run.recording, tmp_path / "work").files("f")) == 200


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_killing_everything_the_agent_can_is_its_own_end_alone(tmp_path: Path, options: tuple[str, ...]) -> None:
    """kill -9 of its own group: the run ends by that signal and the recording is whole."""
    done = subprocess.run(
        command(tmp_path / "run.agentlog", "setsid", "-w", "sh", "-c", "mkdir made; kill -9 0", options=options),
        cwd=tmp_path,
        env=environment(tmp_path),
    )
    assert done.returncode in (-9, 137)
    rows = Rows(tmp_path / "run.agentlog", tmp_path)
    assert rows.files() == ["mkdir made"]
    assert len(rows.of("run.end")) == 1


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_a_plain_users_process_that_closes_its_memory_is_a_gap(
    plain_user,  # type: ignore[no-untyped-def]
    open_folder: Path,
    options: tuple[str, ...],
) -> None:
    """PR_SET_DUMPABLE 0, as ssh-agent and gpg do: its paths and addresses cannot be read, which is told once each."""
    source = r"""
    #include <arpa/inet.h>
    #include <sys/prctl.h>
    #include <sys/stat.h>
    #include <sys/socket.h>
    #include <unistd.h>
    int main(void) {
        struct sockaddr_in to = {AF_INET, htons(9), {htonl(INADDR_LOOPBACK)}};
        if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)) return 2;
        for (int i = 0; i < 3; i++) {
            if (mkdir("unseen", 0755) || rmdir("unseen")) return 3;
            if (connect(socket(AF_INET, SOCK_DGRAM, 0), (void *)&to, sizeof to)) return 4;
        }
        return 0;
    }
    """
    binary = program(open_folder, "closed", source)
    home = Path(plain_user(["pwd"]).stdout.strip())
    done = plain_user(command(home / "run.agentlog", binary, options=options))
    assert done.returncode == 0, done.stderr
    rows = Rows(home / "run.agentlog", home)
    gaps = [(gap.data["what"], gap.data["cause"]) for gap in rows.of("gap") if gap.data["cause"] != "no-ptrace"]
    assert sorted(gaps) == [("connect", "not-dumpable"), ("file-write", "not-dumpable")]
    assert rows.files() == []


@pytest.mark.parametrize("options", TRACED, ids=mode_name)
def test_a_program_that_may_be_run_but_not_read_is_a_gap(
    plain_user,  # type: ignore[no-untyped-def]
    open_folder: Path,
    options: tuple[str, ...],
) -> None:
    """Mode 0111: the kernel closes such a process to its own user (execve(2))."""
    binary = Path(program(open_folder, "unreadable", "int main(void) { return 7; }\n"))
    binary.chmod(0o111)
    home = Path(plain_user(["pwd"]).stdout.strip())
    done = plain_user(command(home / "run.agentlog", binary.name, options=options), env={"PATH": str(open_folder)})
    assert done.returncode == 7, done.stderr
    rows = Rows(home / "run.agentlog", home)
    assert ("exec", "not-dumpable") in [(gap.data["what"], gap.data["cause"]) for gap in rows.of("gap")]
    assert rows.spans()["p1"]["exit"]["status"] == 7


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_signals_to_the_tracer_do_nothing(tmp_path: Path, options: tuple[str, ...]) -> None:
    signals = "HUP INT QUIT TERM USR1 USR2 ALRM PIPE TSTP TTIN TTOU CONT 64"
    script = f"for s in {signals}; do kill -$s $PPID || exit 3; done; mkdir made"
    run = wrap(tmp_path, "bash", "-c", script, options=options)
    assert (run.status, run.stderr) == (0, b"")
    assert Rows(run.recording, tmp_path / "work").files() == ["mkdir made"]


@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_a_stopped_tracer_goes_on(tmp_path: Path, options: tuple[str, ...]) -> None:
    run = wrap(tmp_path, "bash", "-c", "kill -STOP $PPID; mkdir made; kill -STOP $PPID", options=options, timeout_s=300)
    assert run.status == 0
    assert Rows(run.recording, tmp_path / "work").files() == ["mkdir made"]


@pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
@pytest.mark.parametrize("options", MODES, ids=mode_name)
def test_a_sandbox_in_a_sandbox(tmp_path: Path, options: tuple[str, ...]) -> None:
    work = tmp_path / "work"
    work.mkdir()
    outer = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", str(work), str(work)]
    inner = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--bind", str(work), "/mnt", "--unshare-pid"]
    inner += ["sh", "-c", "echo inner > /mnt/inner"]
    words = [*outer, "--unshare-user", "--unshare-pid", *inner]
    bare = subprocess.run(words, capture_output=True, text=True)
    if bare.returncode:
        pytest.skip(f"a sandbox in a sandbox does not work here: {bare.stderr.strip()}")
    (work / "inner").unlink()
    run = wrap(tmp_path, *words, options=options)
    assert run.status == 0, run.stderr
    rows = Rows(run.recording, work)
    edits = [event for event in rows.joined(rows.of("file.edit")) if event.data["path"].endswith("/inner")]
    assert [raw(event.data["path"]) for event in edits] == [b"/mnt/inner"]  # the name it has there: here, another
    assert [rows.word(event) for event in edits] == [
        "create /mnt/inner 'inner\\n'"
    ]
