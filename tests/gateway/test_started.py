"""The supervisor's end of the gateway's line."""

import os
import signal
import socket

import msgspec
import pytest

from agentwrap.events import Gap, Item
from agentwrap.gateway.started import StartedGateway
from agentwrap.launching import sidecar
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
    gateway = StartedGateway("wall", socket.socket(), pid=child, channel=ours)
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


def test_one_that_hangs_at_the_end_is_killed_and_told_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecar, "_SILENT_S", 0.0)
    ours, theirs = socket.socketpair()
    child = os.fork()
    if not child:
        ours.close()
        signal.pause()
    theirs.close()
    gateway = StartedGateway("wall", socket.socket(), pid=child, channel=ours)
    told: list[Item] = []
    gateway.attend(told.extend, lambda: True, lambda: 9)
    gateway.close()
    gateway.callers.close()
    assert [one.cause for one in told if isinstance(one, Gap)] == ["gateway-lost"]
    assert gateway.failure
