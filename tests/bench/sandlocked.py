"""Runs a command under sandlock, a Python library: `sandlocked.py HOST:PORT COMMAND...`."""

import sys

from sandlock import Sandbox

READABLE = ["/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/proc", "/dev"]

if __name__ == "__main__":
    box = Sandbox(fs_readable=READABLE, fs_writable=["/tmp", "/dev/null"], net_allow=[sys.argv[1]])
    sys.exit(box.run_interactive(sys.argv[2:]))
