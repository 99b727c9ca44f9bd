"""What the gateway and the relay tell waits for a recorder that redacts many MB: none of it is dropped for that."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agentwrap.events import Gap, Item
from agentwrap.launching.options import RunOptions
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
