import hashlib

import pytest
from policy_texts import HEAD, network, policy

from agentwrap.policy.layers import Layer
from agentwrap.policy.loaded import loaded_event


def test_all_layers_are_one_text_and_its_hash() -> None:
    project, user = network("a.example"), policy("", mode="observe")
    event = loaded_event([Layer("user", user), Layer("project", project, trusted=False)], at_ns=7)
    assert (event.at_ns, event.name, event.mode) == (7, b"t + t", "enforce")
    assert event.layers == ((b"project", b"t.toml"), (b"user", b"t.toml"))
    assert event.sha256 == hashlib.sha256(event.text).hexdigest()
    head = event.text.decode().split("\n")
    assert head[0] == "# project: t.toml, not trusted: it only narrows"
    assert head[1:4] == HEAD.split("\n")[:3]
    assert "# user: t.toml\n" in event.text.decode()


def test_no_layer_is_no_event() -> None:
    with pytest.raises(ValueError, match="no policy"):
        loaded_event([])
