"""Which requirements of other people's frameworks a control gives evidence for: the table beside this module.

Never says that anything meets a requirement: one recording cannot show that.
"""

import tomllib
from functools import cache
from pathlib import Path

import msgspec

WORDS = "evidence for"


class Framework(msgspec.Struct, frozen=True):
    """A framework. `controls`: identifiers of its requirements by the id of our control."""

    name: str
    href: str
    controls: dict[str, tuple[str, ...]]


@cache
def frameworks() -> dict[str, Framework]:
    """Every framework by its key."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return msgspec.convert(table, dict[str, Framework])


def evidence_for(control: str) -> tuple[tuple[Framework, tuple[str, ...]], ...]:
    """The frameworks in which a control has requirements, with these."""
    return tuple((one, one.controls[control]) for one in frameworks().values() if control in one.controls)
