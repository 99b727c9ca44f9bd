"""Foreign JSON values, taken as what they should be and as nothing where they are not. Pure."""

from typing import Any

WORD_BYTES = 256


def text(value: object) -> bytes:
    """A string's UTF-8, nothing for anything else. Halves of characters that met are joined (RFC 8259, 7)."""
    if not isinstance(value, str):
        return b""
    try:
        return value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def word(value: object) -> bytes:
    """A name or an id: a short string, clipped."""
    return text(value[:WORD_BYTES])[:WORD_BYTES] if isinstance(value, str) else b""


def number(value: object) -> int | None:
    """A count, None for anything else."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None


def mapping(value: object) -> dict[str, Any]:
    """An object's members, none for anything else."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> list[Any]:
    """An array's elements, none for anything else."""
    return value if isinstance(value, list) else []
