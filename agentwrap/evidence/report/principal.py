"""Who acts, and for whom, by the policy's own text. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from agentwrap.policy.layers import Layer, attribution

_ENV = "env:"


class Principal(msgspec.Struct, frozen=True):
    """`agent`, `on_behalf_of`: as the policies say; empty where they name nobody, None where that cannot be told."""

    agent: str | None = ""
    on_behalf_of: str | None = ""


def principal(layers: Sequence[Layer], environment: Mapping[str, str], *, readable: bool) -> Principal:
    """Read it out of the policies. `environment`: of the run, for `env:NAME`; `readable`: the text could be read."""
    if not readable:
        return Principal(None, None)
    agent, person = attribution(layers)
    if person.startswith(_ENV):
        told = environment.get(person.removeprefix(_ENV), "").strip()
        return Principal(agent, told or None)
    return Principal(agent, person)
