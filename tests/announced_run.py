"""The gateway as the guard tier has it: `announced_run.py PATIENCE_S POLICY TCP UDP CALLERS SUPERVISOR`.

The last four are descriptors; PATIENCE_S: so long it waits for an announcement that is late.
"""

import socket
import sys
import time
from pathlib import Path

from agentwrap.gateway import attribution
from agentwrap.gateway.serve import Ports, Settings, run
from agentwrap.policy.document import load
from agentwrap.policy.layers import Layer
from agentwrap.policy.paths import Places

if __name__ == "__main__":
    attribution._ANNOUNCED_S = float(sys.argv[1])
    policy = load(Path(sys.argv[2]).read_bytes(), "policy.toml", Places("/w", "/home/u"), {})
    tcp, udp, callers, supervisor = (socket.socket(fileno=int(one)) for one in sys.argv[3:])
    started = time.monotonic_ns()
    settings = Settings(layers=(Layer("flags", policy),), tier="guard", now=lambda: time.monotonic_ns() - started)
    run(Ports(tcp=tcp, udp4=udp, callers=callers, supervisor=supervisor), settings)
