"""Asking the kernel over a netlink socket and reading what it answers. Knows no message but errors and ends of dumps.

The kernel works a request off inside our send(2): whatever it has to say lies in the socket when send returns (a dump
goes on inside recv). So nothing here ever blocks, and a socket is free for the next request after every call.
"""

import os
import socket
from collections.abc import Callable, Sequence

from agentwrap.gateway.netlink import messages as nl

ROUTE, SOCK_DIAG, NETFILTER = 0, 4, 12

# linux/netlink.h, linux/socket.h
_SOL_NETLINK, _CAP_ACK, _EXT_ACK = 270, 10, 11
_ANSWER_BYTES = 1 << 16

Explain = Callable[[bytes], str]


def open_socket(protocol: int) -> socket.socket:
    """A netlink socket in the network namespace of the calling thread; it stays there wherever it is passed.

    Raises OSError: EPROTONOSUPPORT where the kernel lacks the protocol.
    """
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
    try:
        opened.bind((0, 0))
    except OSError:
        opened.close()
        raise
    return opened


def ask(sock: socket.socket, requests: Sequence[nl.Request], explain: Explain | None = None) -> list[bytes]:
    """Send the requests in one datagram; the bodies of all answers that are neither errors nor acknowledgements.

    Raises OSError for the first request that the kernel refuses, naming it; `explain` gives a name to what lies at
    the place in the request that the kernel minds.
    """
    # Short answers with the place of the mistake: whole requests sent back would fill the buffer.
    sock.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)
    sock.setsockopt(_SOL_NETLINK, _EXT_ACK, 1)
    sent = [nl.message(one[0], one[1] | nl.REQUEST, number, one[2]) for number, one in enumerate(requests)]
    sock.send(b"".join(sent))
    bodies: list[bytes] = []
    refusal: OSError | None = None
    while True:
        try:
            data = sock.recv(_ANSWER_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            break
        for kind, flags, number, body in nl.messages(data):
            if kind == nl.ERROR:
                refused, text, offset = nl.outcome(flags, body)
                if refused and refusal is None and number < len(sent):
                    place = explain(sent[number][offset:]) if explain and offset else ""
                    words = [os.strerror(refused), requests[number][3], place, text]
                    refusal = OSError(refused, ": ".join(filter(None, words)))
            elif kind != nl.DONE:
                bodies.append(body)
    if refusal:
        raise refusal
    return bodies
