"""Runs a command in a network namespace whose way out is slirp4netns: `slirped.py COMMAND...`. As root."""

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from agentwrap.launching import namespaces


def main() -> int:
    standing, stands = os.pipe()
    going, go = os.pipe()
    child = os.fork()
    if child == 0:
        namespaces.unshare(namespaces.NEWNET)
        os.write(stands, b"s")
        os.read(going, 1)
        os.execvp(sys.argv[1], sys.argv[1:])
    os.read(standing, 1)
    ready, tell = os.pipe()
    slirp = subprocess.Popen(
        ["slirp4netns", "--configure", "--mtu=65520", f"--ready-fd={tell}", str(child), "tap0"],
        pass_fds=[tell], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(tell)
    if not os.read(ready, 1):
        os.kill(child, 9)
        sys.stderr.buffer.write(slirp.communicate()[1])
        return 125
    os.write(go, b"g")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    slirp.kill()
    return status


if __name__ == "__main__":
    sys.exit(main())
