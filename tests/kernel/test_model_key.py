"""The key of a run's authority is in the gateway's memory alone, which an agent of the same user cannot read."""

import os
import sys
from pathlib import Path

import pytest
from wrapping import wrap

GATEWAY = """
import ctypes, os
me, gateway = os.getppid(), 0
while not gateway:
    for one in open(f"/proc/{me}/task/{me}/children").read().split():
        if open(f"/proc/{one}/comm").read() == "aw-gateway\\n": gateway = int(one)
    me = int(open(f"/proc/{me}/stat").read().rpartition(")")[2].split()[1])
"""
TRIES = GATEWAY + """
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, call):
    try: call(); print(name)
    except OSError: pass
for name in ("mem", "maps", "environ", "stack"): attempt(name, lambda: open(f"/proc/{gateway}/{name}", "rb").read(1))
attempt("fd", lambda: os.listdir(f"/proc/{gateway}/fd"))
attempt("map_files", lambda: os.listdir(f"/proc/{gateway}/map_files"))
if libc.ptrace(16, gateway, 0, 0) == 0: print("ptrace")
if libc.syscall(438, os.pidfd_open(gateway), 3, 0) >= 0: print("pidfd_getfd")
class Place(ctypes.Structure): _fields_ = [("at", ctypes.c_void_p), ("size", ctypes.c_size_t)]
buffer = ctypes.create_string_buffer(8)
near, far = Place(ctypes.addressof(buffer), 8), Place(ctypes.addressof(buffer), 8)
if libc.process_vm_readv(gateway, ctypes.byref(near), 1, ctypes.byref(far), 1, 0) > 0: print("process_vm_readv")
"""
FILES = """
import os
names = [os.environ[one] for one in ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")]
folder = os.path.dirname(names[0])
print(oct(os.stat(folder).st_mode & 0o022), all("PRIVATE" not in open(one).read() for one in names))
print(sum(open(f"{folder}/{one}").read().count("PRIVATE") for one in os.listdir(folder)))
print(any("PRIVATE" in value for value in os.environ.values()))
"""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every process: said in docs/security.md")
def test_an_agent_of_the_same_user_cannot_read_the_gateway(tmp_path: Path) -> None:
    ran = wrap(tmp_path, sys.executable, "-c", TRIES)
    assert (ran.status, ran.stdout) == (0, b""), (ran.stdout, ran.stderr)


def test_what_the_agent_is_given_has_no_key(tmp_path: Path) -> None:
    ran = wrap(tmp_path, sys.executable, "-c", FILES)
    assert ran.stdout.split() == [b"0o0", b"True", b"0", b"False"], ran.stderr
