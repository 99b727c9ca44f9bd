"""The first program of a guest: loads the modules, does what it is told, says what came of it, switches off.

`--run COMMAND...` runs one command as root. Otherwise the one word is the name of a function in `variants.py`, whose
results are told as JSON, one on a line. What is said goes to the second serial line; everything else is the console's.
"""

import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import traceback
from pathlib import Path

SERIAL = "/dev/ttyS1"
_libc = ctypes.CDLL(None, use_errno=True)


def load_modules() -> list[str]:
    """init_module(2) for each, in order; the names of those that the kernel did not take."""
    refused = []
    for path in sorted(Path("/modules").glob("*.ko")):
        data = path.read_bytes()
        if _libc.syscall(175, data, ctypes.c_ulong(len(data)), b"") and ctypes.get_errno() != 17:
            refused.append(f"{path.stem}: {os.strerror(ctypes.get_errno())}")
    return refused


def loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, bytearray(struct.pack("16sH22x", b"lo", 1)))


def say(text: str) -> None:
    with open(SERIAL, "a") as line:
        line.write(text + "\n")


def open_line() -> None:
    """Plain users say something, too."""
    os.chmod(SERIAL, 0o666)


def off() -> None:
    """Restart, which ends the emulator (-no-reboot)."""
    os.sync()
    _libc.reboot(0x1234567)


def main(words: list[str]) -> None:
    refused = load_modules()
    loopback()
    open_line()
    if refused:
        sys.stderr.write(f"modules: {refused}\n")
    if words[0] == "--run":
        done = subprocess.run(words[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        say(f"{done.stdout}\nstatus {done.returncode}")
        return
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    from kernels import variants

    for result in getattr(variants, words[0])(*words[1:]):
        say(json.dumps(result))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BaseException:
        traceback.print_exc()
    finally:
        off()
