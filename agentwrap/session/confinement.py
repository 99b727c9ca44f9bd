"""Doctor's probe of a whole wall: the namespaces of a run are made, entered, and one connection is tried in them.

Does what a run does, with the run's own connector. Nothing leaves the machine: the address that is dialled is one for
documentation (RFC 5737), the namespace has no way out, and the connection has to arrive at our own listener.
"""

import os
import select
import socket
import struct
from typing import TYPE_CHECKING

from agentwrap.launching import namespaces
from agentwrap.launching.doctor_calls import Refused, attempt, forked
from agentwrap.launching.probes import Probe

if TYPE_CHECKING:
    from agentwrap.gateway.connector import Connector

_DIALLED = ("192.0.2.1", 443)
_TIMEOUT_S = 60.0  # for packets that nobody answers: every other refusal is told at once


def wall() -> Probe:
    """User, network and mount namespaces, twice nested; addresses, packet rules, a connection that is caught."""
    from agentwrap.gateway import started
    from agentwrap.gateway.connector import Refusal

    try:
        return Probe("wall", True, attempt(_stand, timeout_s=3 * _TIMEOUT_S))
    except Refused as refused:
        step, _, detail = refused.words.partition(": ")
        fix = started.fix(Refusal(step, refused.number, detail))
        words = refused.words if refused.name == refused.words else f"{step}: {refused.name}"
        return Probe("wall", False, words, f"only needed for the wall: {fix}")


def _stand() -> str:
    from agentwrap.gateway import connector

    made = connector.start(connector.ConnectorPlan())
    if isinstance(made, connector.Refusal):
        raise Refused(made.errno, f"{made.step}: {made.detail}")
    with socket.socket(fileno=made.descriptors.pop("tcp")) as listener:
        child = _inside(made)
        ready, _, _ = select.select([listener.fileno(), child], [], [], _TIMEOUT_S)
        os.close(child)
        if listener.fileno() not in ready:
            raise Refused(0, "packet rules: a connection did not arrive at the gateway")
        connection, _ = listener.accept()
        with connection:
            arrived = connection.getsockname()[:2]
    if (arrived[0].removeprefix("::ffff:"), arrived[1]) != _DIALLED:
        raise Refused(0, f"packet rules: a connection to {_DIALLED[0]} arrived as one to {arrived[0]}")
    return "namespaces stand, twice nested, and a connection is caught"


def _inside(made: "Connector") -> int:
    """A child enters, as the command of a run does, and dials. Raises Refused with the step that failed.

    Returns a pipe that ends when the child's dialling has failed.
    """
    reading, writing = os.pipe()
    uid, gid = os.geteuid(), os.getegid()

    def enter() -> None:
        step = "entering"
        try:
            namespaces.setns(made.descriptors["user"], namespaces.NEWUSER)
            namespaces.setns(made.descriptors["net"], namespaces.NEWNET)
            namespaces.setns(made.descriptors["mnt"], namespaces.NEWNS)
            step = "second user namespace"
            namespaces.unshare(namespaces.NEWUSER | namespaces.NEWNS)
            step = "id map"
            if uid:
                namespaces.map_own_id(uid, gid)
            else:
                made.maps.send(b"%d" % os.getpid())
                if refused := int(made.maps.recv(16) or b"5"):
                    raise OSError(refused, os.strerror(refused))
        except OSError as error:
            os.write(writing, struct.pack("=i", error.errno or 5) + f"{step}: {error}".encode())
            return
        os.write(writing, struct.pack("=i", 0))
        socket.create_connection(_DIALLED, timeout=_TIMEOUT_S).recv(1)

    forked(enter)
    os.close(writing)
    said = os.read(reading, 4096)
    (number,) = struct.unpack("=i", said[:4] or b"\5\0\0\0")
    if number:
        raise Refused(number, said[4:].decode(errors="replace") or "entering: no answer")
    return reading
