"""Foreign bytes in the JSON of an event: valid UTF-8 is a string, anything else is `{"b64": ...}`. Pure."""

import base64
from typing import Any


def to_json(value: bytes) -> str | dict[str, str]:
    """What `data` holds for a `bytes` field."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def to_bytes(value: Any) -> bytes:
    """The bytes back from `data`; nothing for a field that was left out. Raises ValueError for other shapes."""
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if value is None:
        return b""
    if isinstance(value, dict) and isinstance(value.get("b64"), str):
        return base64.b64decode(value["b64"], validate=True)
    raise ValueError("neither text nor {'b64': ...}")


def to_subject(value: bytes, limit_bytes: int = 16384) -> str:
    """The `subject` column: readable text, clipped, without NUL (tools that print C strings would stop there)."""
    if len(value) > limit_bytes:
        value = value[:limit_bytes] + b" ..."
    text = value.decode(errors="backslashreplace")
    return text.replace("\0", "\\x00") if "\0" in text else text
