"""Short ways to write policies and ask them, for tests."""

from collections.abc import Mapping

from agentwrap.errors import AgentwrapError
from agentwrap.policy.decide import decide
from agentwrap.policy.document import load
from agentwrap.policy.paths import Places
from agentwrap.policy.questions import Connect, Question
from agentwrap.policy.rules import Policy

OWN, KEY = "/home/u/.local/state/agentwrap", "/home/u/.config/agentwrap/signing.key"
PLACES = Places("/w", "/home/u", own=(OWN,), secret=(KEY,))
HEAD = 'version = 1\nname = "t"\nmode = "enforce"\n'
OPEN_FILES = '[files.write]\ndefault = "allow"\n'


def policy(body: str, *, mode: str = "enforce", configs: Mapping[str, tuple[str, ...]] | None = None) -> Policy:
    text = HEAD.replace("enforce", mode) + body
    return load(text.encode(), "t.toml", PLACES, configs or {})


def network(*allow: str, deny: tuple[str, ...] = (), default: str = "deny", **more: object) -> Policy:
    lists = "".join(
        f"{key} = [{', '.join(repr(one) for one in entries)}]\n"
        for key, entries in (("allow", allow), ("deny", deny))
        if entries
    )
    return policy(f'[network]\ndefault = "{default}"\n{lists}', **more)  # type: ignore[arg-type]


def verdict(of: Policy, question: Question) -> str:
    return decide(of, question).verdict


def connect(of: Policy, host: str, port: int = 443, **more: object) -> str:
    return verdict(of, Connect(host, port, **more))  # type: ignore[arg-type]


def refusal(text: str | bytes) -> AgentwrapError:
    """The error that a document is refused with."""
    data = text if isinstance(text, bytes) else text.encode()
    try:
        load(data, "t.toml", PLACES, {})
    except AgentwrapError as error:
        return error
    raise AssertionError("the policy was accepted")
