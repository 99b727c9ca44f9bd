"""A server that says what it was started with, repeats lines, and says `bye` at the end of its input."""

import fcntl
import json
import os
import signal
import sys


def kind(number: int) -> str:
    target = os.readlink(f"/proc/self/fd/{number}")
    return target.partition(":")[0] if target[:5] != "/tmp/" else "file"


def opens_again(number: int) -> bool:
    try:
        os.close(os.open(f"/dev/fd/{number}", os.O_WRONLY if number else os.O_RDONLY))
    except OSError:
        return False
    return True


def facts() -> dict[str, object]:
    numbers = sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1]  # the last one is the listing's own
    flags = {n: fcntl.fcntl(n, fcntl.F_GETFL) for n in (0, 1)}
    with open("/proc/self/status") as file:
        signals = {line.split()[0]: line.split()[1] for line in file if line[:3] in ("Sig", "Shd")}
    return {
        "descriptors": {n: kind(n) for n in numbers},
        "flags": flags,
        "sizes": [fcntl.fcntl(n, fcntl.F_GETPIPE_SZ) for n in (0, 1) if kind(n) == "pipe"],
        "opens again": [opens_again(n) for n in (0, 1)],
        "one": os.path.sameopenfile(0, 1),
        "merged": os.path.sameopenfile(1, 2),
        "signals": {name: value for name, value in signals.items() if name != "SigQ:"},
        "environment": dict(os.environ),
        "parent": os.getppid() == int(os.environ.get("CLIENT", "0")),
        "cwd": os.getcwd(),
        "argv": sys.argv[1:],
        "inode": os.fstat(0).st_ino,
        "pid": os.getpid(),
    }


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    print(json.dumps(facts()), flush=True)
    for line in sys.stdin:
        if line == "leave\n":
            break
        print("echo " + line.strip(), flush=True)
    if sys.argv[1:] == ["deaf"]:  # ends its input long before itself
        os.close(0)
        print("deaf", flush=True)
        signal.pause()
    print("bye", flush=True)
    sys.exit(7)


main()
