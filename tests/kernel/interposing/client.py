"""Starts a server in every way that clients do; one JSON object on standard output: what each of them saw.

`client.py SERVER.py FOLDER [NAME...]`: FOLDER has the launcher scripts and the compiled clients.
"""

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

SERVER, FOLDER = sys.argv[1], Path(sys.argv[2])
WORDS = ["python3", SERVER]
os.environ["CLIENT"] = str(os.getpid())


def talk(process: "subprocess.Popen[bytes]", to: Any, back: Any) -> dict[str, Any]:
    first = json.loads(back.readline())
    to.write(b"hello\n")
    to.flush()
    answer = back.readline()
    to.close()
    rest = back.read()
    status = process.wait()
    return first | {"said": (answer + rest).decode(), "status": status, "same_pid": first["pid"] == process.pid}


def piped(words: list[str], **keywords: Any) -> dict[str, Any]:
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **keywords)
    return talk(process, process.stdin, process.stdout)


def one_socket(words: list[str]) -> dict[str, Any]:
    here, there = socket.socketpair()
    with here:
        process = subprocess.Popen(words, stdin=there, stdout=there)
        there.close()
        back, to = here.makefile("rb"), here.makefile("wb")
        first = json.loads(back.readline())
        to.write(b"hello\n")
        to.flush()
        answer = back.readline()
        here.shutdown(socket.SHUT_WR)
        rest = back.read()
        status = process.wait()
        return first | {"said": (answer + rest).decode(), "status": status, "same_pid": first["pid"] == process.pid}


def two_sockets(words: list[str]) -> dict[str, Any]:
    to, server_in = socket.socketpair()
    back, server_out = socket.socketpair()
    with to, back:
        process = subprocess.Popen(words, stdin=server_in, stdout=server_out)
        server_in.close()
        server_out.close()
        writing, reading = to.makefile("wb"), back.makefile("rb")

        class Closing:
            write, flush = writing.write, writing.flush

            def close(self) -> None:
                writing.close()
                to.shutdown(socket.SHUT_WR)

        return talk(process, Closing(), reading)


def mixed(words: list[str]) -> dict[str, Any]:
    """A socket to the server, a pipe back, as asyncio starts programs."""
    here, there = socket.socketpair()
    with here:
        process = subprocess.Popen(words, stdin=there, stdout=subprocess.PIPE)
        there.close()
        to = here.makefile("wb")

        class Closing:
            write, flush = to.write, to.flush

            def close(self) -> None:
                to.close()
                here.close()

        return talk(process, Closing(), process.stdout)


def odd_pipes(words: list[str]) -> dict[str, Any]:
    """Larger ones, and one that does not block at the server's end."""
    (server_in, to), (back, server_out) = os.pipe(), os.pipe()
    fcntl.fcntl(to, fcntl.F_SETPIPE_SZ, 1 << 17)
    fcntl.fcntl(back, fcntl.F_SETPIPE_SZ, 1 << 16 >> 1)
    os.set_blocking(server_out, False)
    process = subprocess.Popen(words, stdin=server_in, stdout=server_out)
    os.close(server_in)
    os.close(server_out)
    return talk(process, open(to, "wb"), open(back, "rb"))


def to_a_file(words: list[str]) -> dict[str, Any]:
    """No session: nothing is touched."""
    path = FOLDER / f"out-{os.getuid()}"
    with open(path, "wb") as file:
        status = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=file, check=False).returncode
    first, _, rest = path.read_text().partition("\n")
    return json.loads(first) | {"said": rest, "status": status}


def killed(words: list[str]) -> dict[str, Any]:
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    rest = process.stdout.read()
    broken = False
    try:
        for _ in range(3):
            process.stdin.write(b"x\n" * 40_000)
            process.stdin.flush()
    except BrokenPipeError:
        broken = True
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    return first | {"said": rest.decode(), "status": process.wait(), "broken": broken}


def deaf(words: list[str]) -> dict[str, Any]:
    """The server closes its input: whoever writes is told."""
    process = subprocess.Popen([*words, "deaf"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    process.stdin.write(b"leave\n")
    process.stdin.flush()
    said = process.stdout.readline()
    broken = False
    try:
        while True:
            os.write(process.stdin.fileno(), b"x\n")
    except BrokenPipeError:
        broken = True
    process.kill()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    return first | {"said": said.decode(), "status": process.wait(), "broken": broken}


def other(*client: str) -> Callable[[list[str]], dict[str, Any]]:
    """A client in another language: it prints the server's first line, what it said then, and its status."""

    def run(words: list[str]) -> dict[str, Any]:
        done = subprocess.run([*client, *words], stdout=subprocess.PIPE, check=True)
        first, _, rest = done.stdout.decode().partition("\n")
        found = json.loads(first)
        return found | {"said": rest, "parent": ""}

    return run


def first_instruction(_words: list[str]) -> dict[str, Any]:
    """What a program finds in its registers and below its stack, without address randomisation."""
    process = subprocess.Popen(
        ["setarch", "-R", str(FOLDER / "first")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}
    )
    return {"found": process.communicate()[0].hex(), "status": process.returncode}


WAYS: dict[str, Callable[[list[str]], dict[str, Any]]] = {
    "piped": piped,
    "merged": lambda words: piped(words, stderr=subprocess.STDOUT),
    "one socket": one_socket,
    "two sockets": two_sockets,
    "mixed": mixed,
    "odd pipes": odd_pipes,
    "to a file": to_a_file,
    "killed": killed,
    "deaf": deaf,
    "sh": lambda words: piped(["sh", "-c", f"{' '.join(words)}; exit $?"]),
    "sh exec": lambda words: piped(["sh", "-c", f"exec {' '.join(words)}"]),
    "env": lambda words: piped(["env", "MORE=1", *words]),
    "launcher": lambda words: piped([str(FOLDER / "launcher"), "package", words[1]]),
    "ignoring": lambda words: piped(["sh", "-c", f"trap '' HUP USR1; exec {' '.join(words)}"]),
    "vfork": other(str(FOLDER / "spawn"), "vfork"),
    "spawn": other(str(FOLDER / "spawn"), "spawn"),
    "thread": other(str(FOLDER / "spawn"), "thread"),
    "node": other("node", str(Path(__file__).parent / "client.js")),
    "first instruction": first_instruction,
    "go": other(str(FOLDER / "goclient")),
}

if __name__ == "__main__":
    print(json.dumps({name: WAYS[name](WORDS) for name in sys.argv[3:]}))
