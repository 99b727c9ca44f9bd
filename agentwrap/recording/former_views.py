"""Views as earlier versions of this format had them: a file older than its reader is not tampered with. Pure."""

from hashlib import sha256

FORMER: dict[str, str] = {
    "17196099f8d3e4d4d480dc66f406f6fd5653791b8a3c3fa1f8b17251610f2b0e": "mcp_session",
    "e0b5ffd38a6887bf95f0817789de9dbfbb50ba0a0f4e89db657063ece61c8e07": "dns",
    "0b9f96f408f67de6251a3a79fb66a068f196a8655775209f06895b84ac1fa53d": "connection",
    "1ee54abdcb675cfbd7f2ee106395ee76311e2e65a7338cc1c318b6ee71616b2c": "decision",
}
"""By the SHA-256 of the statement that made it. Nothing of ours reads through views, so a former one does no harm."""


def is_former(name: str, statement: str) -> bool:
    """Whether this statement made the view of that name in an earlier version."""
    return FORMER.get(sha256(statement.encode()).hexdigest()) == name
