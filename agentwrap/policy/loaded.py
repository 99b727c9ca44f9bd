"""What a recording says of the policy it was made under: one event out of all layers. Pure."""

import hashlib
from collections.abc import Sequence

from agentwrap.events import PolicyLoaded
from agentwrap.policy.layers import ORDER, Layer, mode_of


def loaded_event(layers: Sequence[Layer], at_ns: int = 0) -> PolicyLoaded:
    """The event for these layers. Raises ValueError for none.

    Its SHA-256 is of the whole text as it was read, before the recorder hides secrets in it.
    """
    ordered = sorted(layers, key=lambda layer: ORDER.index(layer.name))
    if not ordered:
        raise ValueError("no policy to tell")
    text = _bytes("".join(map(_section, ordered)))
    return PolicyLoaded(
        at_ns=at_ns,
        name=_bytes(" + ".join(layer.policy.name for layer in ordered)),
        mode=mode_of(ordered),
        sha256=hashlib.sha256(text).hexdigest(),
        layers=tuple((layer.name.encode(), _bytes(layer.policy.file)) for layer in ordered),
        text=text,
    )


def _section(layer: Layer) -> str:
    trust = "" if layer.trusted else ", not trusted: it only narrows"
    file = layer.policy.file.replace("\n", " ")
    return f"# {layer.name}: {file}{trust}\n{layer.policy.source.rstrip()}\n\n"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
