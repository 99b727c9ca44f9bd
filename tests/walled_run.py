"""The gateway behind a real wall, without a tracer: `walled_run.py FOLDER OPTIONS -- COMMAND` inside a test's internet.

FOLDER holds `policy.toml` and gets `events` (frames as the supervisor hears them).
"""

import argparse
import os
import select
import socket
import sys
import time
from pathlib import Path

import msgspec

from agentwrap.gateway import connector
from agentwrap.gateway.serve import Ports, Settings, run
from agentwrap.launching import namespaces
from agentwrap.policy.document import load
from agentwrap.policy.layers import Layer
from agentwrap.policy.model_hosts import ModelHosts, patterns
from agentwrap.policy.paths import Places
from agentwrap.tracing.wire import AckWanted, FrameReader, Ready


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--closed", action="store_true")
    parser.add_argument("--refuse-early", action="store_true")
    parser.add_argument("--unattended", action="store_true")
    parser.add_argument("--host-ports", default="")
    parser.add_argument("--answer", default="", help="what a human says to each question")
    parser.add_argument("--ask-timeout", type=float, default=300)
    parser.add_argument("--intercept", action="append", default=[], help="a host whose TLS is ended")
    parser.add_argument("--hasty", action="store_true", help="what is open at the end gets a moment only")
    parser.add_argument("--trust", default="", help="authorities that we trust besides the machine's")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    policy = load((options.folder / "policy.toml").read_bytes(), "policy.toml", Places("/w", "/home/u"), {})
    ports = tuple(int(one) for one in options.host_ports.split(",") if one)
    plan = connector.ConnectorPlan(host_ports=ports, open_addresses=not options.refuse_early)
    made = connector.start(plan)
    if isinstance(made, connector.Refusal):
        sys.exit(f"no wall: {made}")
    ours, supervisor = socket.socketpair()
    announce, callers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    started = time.monotonic_ns()
    gateway = os.fork()
    if gateway == 0:
        ours.close()
        announce.close()
        os.environ["SSL_CERT_FILE"] = options.trust
        _be_patient(hasty=options.hasty)
        held = {
            name: socket.socket(fileno=descriptor)
            for name, descriptor in made.descriptors.items()
            if name in Ports.__struct_fields__
        }
        settings = Settings(
            layers=(Layer("flags", policy),), tier="wall", now=lambda: time.monotonic_ns() - started,
            closed=options.closed, host_ports=frozenset(ports), own4=connector.OWN4, own6=connector.OWN6,
            ask_timeout_s=options.ask_timeout, unattended=options.unattended,
            hosts=ModelHosts(patterns(options.intercept)), run_id="t",
        )  # fmt: skip
        run(Ports(callers=callers, supervisor=supervisor, **held), settings)
        os._exit(0)
    supervisor.close()
    callers.close()
    stands, go = os.pipe()
    program = os.fork()
    if program == 0:
        os.read(stands, 1)  # until the gateway listens
        for kind, flag in (("user", namespaces.NEWUSER), ("net", namespaces.NEWNET), ("mnt", namespaces.NEWNS)):
            namespaces.setns(made.descriptors[kind], flag)
        os.execvp(options.command[0], options.command)
    made.close()
    return supervise(ours, go, program, gateway, options)


def _be_patient(*, hasty: bool) -> None:
    """What clients and servers hear, and what is told of them, must not depend on how long they take for it."""
    from agentwrap.gateway import connection, inspection, lookup, service

    connection._HELLO_S = connection._AGAIN_HELLO_S = inspection.FIRST_FLIGHT_S = lookup.LOOKUP_S = 300.0
    if not hasty:
        service._LAST_LOOKS = int(300 / service._STEP_S)


def supervise(ours: socket.socket, go: int, program: int, gateway: int, options: argparse.Namespace) -> int:
    reader, encode = FrameReader(), msgspec.msgpack.Encoder().encode
    poll = select.poll()
    ended = os.pidfd_open(program)
    poll.register(ours, select.POLLIN)
    poll.register(ended, select.POLLIN)
    status = 0
    with (options.folder / "events").open("wb") as file:
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == ended:
                    poll.unregister(ended)
                    status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
                    ours.send(b"Q\n")
                    continue
                data = ours.recv(1 << 20)
                if not data:
                    return status if os.waitstatus_to_exitcode(os.waitpid(gateway, 0)[1]) == 0 else 120
                for items in reader.feed(data):
                    for item in items:
                        if isinstance(item, Ready):
                            (options.folder / "run-ca.pem").write_bytes(item.ca_pem)
                            os.write(go, b"g")
                        elif isinstance(item, AckWanted):
                            file.flush()
                            ours.send(b"A%d\n" % item.number)
                        elif type(item).__name__ == "AskWaiting" and options.answer:
                            ours.send(f"Y{item.ask} {options.answer}\n".encode())
                    file.write(len(frame := encode(items)).to_bytes(4, "big") + frame)


if __name__ == "__main__":
    sys.exit(main())
