"""The supervisor's end of the gateway's line."""

import os
import socket

import msgspec

from agentwrap.events import Gap, Item
from agentwrap.gateway.started import StartedGateway
from agentwrap.tracing.wire import HEADER, Message, Ready


def frame(*messages: Message) -> bytes:
    data = msgspec.msgpack.encode(list(messages))
    return HEADER.pack(len(data)) + data


def test_what_comes_together_with_the_first_word_is_told_too() -> None:
    ours, theirs = socket.socketpair()
    gaps = [Gap(at_ns=n, what="model", cause="gateway-lost", could_hide="something", from_ns=n) for n in range(3)]
    last = frame(gaps[2])
    child = os.fork()
    if not child:
        os._exit(0)
    gateway = StartedGateway("wall", child, ours, socket.socket())
    theirs.sendall(frame(Ready(ca_pem=b"pem"), gaps[0]) + frame(gaps[1]) + last[:5])
    gateway.wait_until_ready()
    assert gateway.ca_pem == b"pem"
    told: list[Item] = []
    gateway.attend(told.extend, lambda: True, lambda: 9)
    theirs.sendall(last[5:])
    theirs.close()
    gateway.close()
    gateway.callers.close()
    assert told[:3] == gaps
