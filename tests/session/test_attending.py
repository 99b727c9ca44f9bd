"""What the gateway and the relay tell waits for a recorder that redacts many MB: none of it is dropped for that."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentwrap.approvals import desk
from agentwrap.events import Gap, Item
from agentwrap.launching.options import RunOptions
from agentwrap.session import asking
from agentwrap.session.conductor import Session

GAP = Gap(at_ns=0, what="model", cause="x", could_hide="y", from_ns=0)


class _Heard:
    """Stands for a gateway, or a relay, that says one thing as soon as it is heard."""

    traffic: Any = None

    def attend(self, put: Any, _flush: Any, _now: Any) -> None:
        put([GAP])


def test_who_hears_gateway_and_relay_is_patient() -> None:
    told: list[tuple[list[Item], bool]] = []
    pump = SimpleNamespace(put=lambda items, *, patient=False: told.append((items, patient)), flush=lambda: True)
    session = SimpleNamespace(
        _around=SimpleNamespace(relay=_Heard(), gateway=_Heard()), _pump=pump, _now=lambda: 1,
        options=RunOptions((b"true",), {}, Path("out"), "r", undo=None),
        _own=SimpleNamespace(see=lambda _items: None), _open_desk=lambda: None,
    )  # fmt: skip
    Session._attend(session)  # type: ignore[arg-type]
    assert told == [([GAP], True)] * 2


class _Slow:
    """Stands for a recorder that is at its work for as many looks, and then has written, or has failed."""

    def __init__(self, looks: int, failure: str = "") -> None:
        self.looks, self.failure = looks, failure

    def put(self, _items: list[Item]) -> None:
        pass

    def flush(self, _timeout_s: float = 1.0) -> bool:
        self.looks -= 1
        return self.looks < 0 and not self.failure


def test_an_answer_is_not_refused_for_a_slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    opened: dict[str, Any] = {}
    monkeypatch.setattr(desk, "open_desk", lambda *_, **more: opened.update(more))
    options = RunOptions((b"true",), {}, Path("out"), "r", undo=None)
    slow, broken = _Slow(3), _Slow(3, "the disk is full")
    for pump in (slow, broken):
        asking.open_desk(options, 1, pump, None, lambda: 1, lambda _line: None)  # type: ignore[arg-type]
        if pump.failure:
            with pytest.raises(OSError, match="the disk is full"):
                opened["record"]([GAP])
        else:
            opened["record"]([GAP])
    assert (slow.looks, broken.looks) == (-1, 2)
