"""Which hosts' TLS is ended in the gateway, so that model calls can be read: a short list, and what users add. Pure.

Knows names. Refuses to know how they are reached. Nothing here allows a connection: the rules of the network do.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from agentwrap.policy.hosts import HostError, parse_host
from agentwrap.policy.layers import Layer
from agentwrap.policy.names import HostPattern, parse_pattern

DEFAULT = (
    # Providers with an API of their own.
    "api.anthropic.com",
    "api.openai.com",
    "generativelanguage.googleapis.com",
    "api.mistral.ai",
    "api.x.ai",
    "api.deepseek.com",
    "api.cohere.com",
    "api.moonshot.ai",
    "api.z.ai",
    "dashscope.aliyuncs.com",
    "dashscope-intl.aliyuncs.com",
    # What Codex talks to with an account instead of a key; the site of the same name is there as well.
    "chatgpt.com",
    # Hosts of other people's models, with the APIs of the first two.
    "openrouter.ai",
    "api.groq.com",
    "api.together.xyz",
    "api.fireworks.ai",
    "api.cerebras.ai",
    "api.perplexity.ai",
    "router.huggingface.co",
    "api.githubcopilot.com",
    "models.github.ai",
    # One name for each customer.
    "*.openai.azure.com",
    "*.services.ai.azure.com",
)
"""Not on it: what speaks no API that is read here (Bedrock's event streams), and names that cannot be written as one
pattern (one for each region of Vertex). `--intercept` and `model.intercept` add to it."""


class ModelHosts(msgspec.Struct, frozen=True):
    """Whose TLS is ended. `passing` is asked first."""

    intercept: tuple[HostPattern, ...] = ()
    passing: tuple[HostPattern, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.intercept)

    def wants(self, host: str, port: int) -> bool:
        """Whether a TLS connection for `host`, a name or an address as text, is to be read."""
        try:
            known = parse_host(host)
        except HostError:
            return False
        fitting = any(pattern.fits(known, port) for pattern in self.intercept)
        return fitting and not any(pattern.fits(known, port) for pattern in self.passing)


@lru_cache(maxsize=1)
def default_patterns() -> tuple[HostPattern, ...]:
    """The list above, parsed."""
    return patterns(DEFAULT)


def patterns(texts: Iterable[str]) -> tuple[HostPattern, ...]:
    """Patterns as in a policy. Raises HostError."""
    return tuple(pattern for text in texts for pattern in parse_pattern(text, {}))


def model_hosts(
    layers: Sequence[Layer], intercept: Iterable[str] = (), declared: Iterable[str] = (), *, none: bool = False
) -> ModelHosts:
    """What a run reads: the list, `intercept` (from the command line), and what trusted policies add and take away.

    `declared`: hosts of MCP servers, from configurations of the user's; what is no host there is left out.
    `none`: nothing at all. What the command line names is read whatever a policy passes. Raises HostError.
    """
    if none:
        return ModelHosts()
    asked = patterns(intercept)
    heard = [layer.policy.model for layer in layers if layer.trusted or layer.name != "project"]
    added = tuple(pattern for model in heard for rule in model.intercept for pattern in rule.patterns)
    passing = tuple(pattern for model in heard for rule in model.passing for pattern in rule.patterns)
    kept = tuple(one for one in passing if not any(one.covers(named) for named in asked))
    return ModelHosts((*default_patterns(), *_readable(declared), *added, *asked), kept)


def _readable(texts: Iterable[str]) -> Iterable[HostPattern]:
    for text in texts:
        try:
            yield from patterns([text])
        except HostError:
            continue  # nobody connects to that either
