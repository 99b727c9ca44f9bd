"""The forms in which a known secret can appear: as it is, in JSON, in a URL, in base64. Pure."""

import json
from urllib.parse import quote, quote_plus

from agentwrap.recording.redact.base64_text import cores

MIN_FORM_BYTES = 7
"""The scanner finds literals by one of their aligned groups of four bytes; that needs seven bytes at least."""


def plain_forms(secret: bytes) -> set[bytes]:
    """The secret, escaped for JSON (up to three times, with more escapes than JSON asks for), and for URLs."""
    forms = {secret}
    try:
        text = secret.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None:
        for ascii_only in (True, False):
            once = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
            twice = json.dumps(once)[1:-1]
            thrice = json.dumps(twice)[1:-1]  # a text in the arguments of a tool, in a request
            odd = (once.replace("/", "\\/"), once.replace("\\u00", "\\U00"))
            forms |= {form.encode() for form in (once, twice, thrice, *odd)}
        # Encoders that also escape what JSON does not ask them to (HTML-safe JSON: < > & ' as \u00xx).
        html = "".join(f"\\u{ord(c):04x}" if c in "<>&'" else json.dumps(c)[1:-1] for c in text)
        forms.add(html.encode())
    for safe in ("", "/", "/!*'()~", "~"):
        for quoted in (quote(secret, safe=safe), quote_plus(secret, safe=safe)):
            forms.add(quoted.encode())
            forms.add(_lower_hex(quoted).encode())
    return forms


def _lower_hex(quoted: str) -> str:
    pieces = quoted.split("%")
    return pieces[0] + "".join("%" + piece[:2].lower() + piece[2:] for piece in pieces[1:])


def base64_forms(secret: bytes) -> set[bytes]:
    """What base64 text is sure to hold of the secret."""
    return {form for form in cores(secret) if len(form) >= MIN_FORM_BYTES}
