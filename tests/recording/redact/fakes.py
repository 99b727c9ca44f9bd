"""Fake credentials, put together at run time: none stands in this file as a scanner would look for it."""

LOWER = "abcdefghijklmnopqrstuvwxyz"
HEX = "0123456789abcdef"


def _fill(length: int, alphabet: str = LOWER + "0123456789") -> str:
    return "".join(alphabet[(7 * i + i * i) % len(alphabet)] for i in range(1, length + 1))


def fakes() -> dict[str, str]:
    """One for every provider pattern: kind and prefix -> credential."""
    mixed = _fill(48, LOWER + LOWER.upper() + "0123456789")
    upper32 = _fill(16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
    rests = {
        "openrouter-key": _fill(64, HEX), "langfuse-key": _fill(36, HEX), "aws-key-id": upper32,
        "sendgrid-key": mixed[:22] + "." + mixed[:43], "mailgun-key": _fill(32, HEX), "rubygems-key": _fill(48, HEX),
        "digitalocean-token": _fill(64, HEX), "databricks-token": _fill(32, HEX), "shopify-token": _fill(32, HEX),
        "postman-key": _fill(24, HEX) + "-" + _fill(34, HEX), "pulumi-token": _fill(40, HEX),
        "age-key": _fill(58, LOWER.upper() + "234567"), "jwt": mixed[:20] + ".eyJ" + mixed[:30] + "." + mixed[:43],
    }  # fmt: skip
    from agentwrap.recording.redact.patterns import PROVIDERS

    return {
        f"{provider.kind} {prefix.decode()}": prefix.decode() + rests.get(provider.kind, mixed)
        for provider in PROVIDERS
        for prefix in provider.prefixes
    }
