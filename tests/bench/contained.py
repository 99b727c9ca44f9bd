"""Start-up inside of a container with Docker's own profile, where nothing but the guard is to be had.

`contained.py out PROGRAM...` starts the container (in this network namespace, which has to be the bench's own) and
prints what `contained.py in PROGRAM...` measured inside of it: JSON, seconds by way and command. PROGRAM is agentwrap.
"""

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

from place import DENIED_HOST, FAR, HOST, WEB_PORT  # noqa: E402

CURL = ("curl", "-sf", "-o", "/dev/null", "-m")
COMMANDS = {"true": ["true"], "curl": [*CURL, "300", f"http://{HOST}:{WEB_PORT}/"]}
DENIED = [*CURL, "20", f"http://{DENIED_HOST}:{WEB_PORT}/"]


def outside(program: list[str]) -> int:
    from containers import Container

    needed = {TESTS.parent, Path(sys.prefix), Path(sys.base_prefix)} - {Path("/usr"), Path("/")}
    place = Container("docker", keep=sorted(needed), share_network=True)
    names = "".join(f"{address} {name}\\n" for name, address in FAR.items())
    inside = shlex.join([sys.executable, __file__, "in", *program])
    script = f"printf '{names}' >> /etc/hosts; echo 'hosts: files dns' > /etc/nsswitch.conf; exec {inside}"
    done = place.run(["sh", "-c", script])
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


def inside(program: list[str]) -> int:
    guard = [*program, "run", "-q", "-o", "/tmp/run.agentlog", "--allow", f"{HOST}:{WEB_PORT}", "--"]
    if subprocess.run([*guard, *DENIED], stdin=subprocess.DEVNULL, check=False).returncode == 0:
        raise RuntimeError(f"{DENIED_HOST} was reached")
    took: dict[str, dict[str, float]] = {"bare": {}, "guard": {}}
    for way, prefix in (("bare", []), ("guard", guard)):
        for name, command in COMMANDS.items():
            Path("/tmp/run.agentlog").unlink(missing_ok=True)
            began = time.perf_counter()
            subprocess.run([*prefix, *command], stdin=subprocess.DEVNULL, check=True)
            took[way][name] = time.perf_counter() - began
    print(json.dumps(took))
    return 0


if __name__ == "__main__":
    sys.exit((outside if sys.argv[1] == "out" else inside)(sys.argv[2:]))
