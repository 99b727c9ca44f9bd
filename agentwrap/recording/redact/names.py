"""Which names promise a secret, and which values are none whatever the name says. Pure."""

import re

MIN_EXACT_BYTES = 8
"""Shorter values are hidden where their name is seen, and not searched for everywhere."""

_SECRET_NAME = re.compile(
    r"(?:^|[^a-z])(?:"
    r"api_?keys?|access_?keys?|secret_?keys?|private_?keys?|signing_?keys?|encryption_?keys?|master_?keys?"
    r"|[a-z]*keys?|[a-z]*tokens?|[a-z]*secrets?|pass(?:wor[dt]s?|wd|phrase|code)?|[a-z]*password|pwd"
    r"|cred(?:ential)?s?|auth|authorization|bearer|cookies?|jwt|pat|dsn|connection_?string|webhook_?url"
    r")(?:$|[^a-z])",
    re.IGNORECASE,
)
_NOT_A_SECRET_NAME = re.compile(
    r"^(?:pwd|oldpwd|path|home|shell|term|lang|ssh_auth_sock|ssh_askpass|git_askpass|sudo_askpass|xauthority)$"
    r"|(?:_|^)(?:file|path|dir|sock|socket|home|url_?file|keyboard|keymap|keyring|keyserver|monkey|turkey|hotkey)s?$"
    r"|max_?(?:new_?)?tokens|token_?(?:limit|count|budget)|tokenizers?_|public_?key|key_?(?:id|name|type|size|algorithm)$"
    r"|_askpass$|auth_?(?:type|method|mode|sock)|tokens?_?per",
    re.IGNORECASE,
)
_TRIVIAL = re.compile(
    rb"(?:true|false|yes|no|on|off|none|null|nil|undefined|default|auto|enabled?|disabled?|required|optional"
    rb"|password|passwd|secret|token|changeme|example|placeholder|redacted|dummy|test(?:ing)?|localhost|root|admin|user"
    rb"|string|str|int|bytes|object|function|\d{1,11}|[*x.]+|(.)\1*)",
    re.IGNORECASE,
)
_PATH = re.compile(rb"(?:~|\.{0,2})/[^\s=]*")
_MIXED = re.compile(rb"(?=[^/]*[a-z])(?=[^/]*[A-Z])(?=[^/]*[0-9])[^/]{20,}")


def secret_name(name: str) -> bool:
    """Whether an environment variable of this name is taken to hold a secret."""
    return _SECRET_NAME.search(name) is not None and _NOT_A_SECRET_NAME.search(name) is None


def trivial(value: bytes) -> bool:
    """Whether a value is so common (`true`, `4096`, a path) that hiding it would hide nothing but meaning."""
    if len(value) < 1 or _TRIVIAL.fullmatch(value):
        return True
    return _PATH.fullmatch(value) is not None and not any(map(_MIXED.match, value.split(b"/")))


def worth_searching(value: bytes) -> bool:
    """Whether a value is long and varied enough to be searched for in everything from now on."""
    return len(value) >= MIN_EXACT_BYTES and len(set(value)) >= 4 and not trivial(value)
