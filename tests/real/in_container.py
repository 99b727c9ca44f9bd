"""`in_container.py PROFILE FOLDER -- COMMAND`: the command in a container of that profile, in our network namespace.

The container has our environment, FOLDER, HOME and /etc/resolv.conf; for a lab that wraps agents from outside.
"""

import os
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from containers import Container


def main() -> int:
    profile, folder, _, *command = sys.argv[1:]
    keep = [Path(folder), Path(os.environ["HOME"]), Path("/etc/resolv.conf")]
    if profile == "drop-all":  # its uid is nobody's outside
        os.system(f"chown -R 1000:1000 {shlex.quote(folder)} {shlex.quote(os.environ['HOME'])}")
    inside = Container(profile, keep=keep, share_network=True)
    done = inside.run(command, cwd=Path.cwd(), env=dict(os.environ), timeout=300)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
