"""Secrets in an argument vector, where the option that names them is the argument before. Pure."""

import re

_OPTION = re.compile(
    rb"--?(?:[\w-]*[_-])?(?:pass(?:word|wd|phrase)?|secret|token|api-?_?key|access-?_?key|private-?_?key"
    rb"|auth(?:-?token)?|bearer|credentials?)",
    re.IGNORECASE,
)
_USER = frozenset({b"-u", b"--user", b"--proxy-user", b"-U"})
_HTTP_CLIENTS = frozenset({b"curl", b"http", b"https", b"xh", b"wget"})


def secret_arguments(argv: tuple[bytes, ...]) -> list[tuple[int, int]]:
    """(index, offset): from `offset` to its end, argument `index` is a secret."""
    found: list[tuple[int, int]] = []
    program = argv[0].rsplit(b"/", 1)[-1] if argv else b""
    for index, argument in enumerate(argv):
        option, sign, value = argument.partition(b"=")
        if sign and value and _OPTION.fullmatch(option):
            found.append((index, len(option) + 1))
        if index == 0:
            continue
        before = argv[index - 1]
        if _OPTION.fullmatch(before) and not argument.startswith(b"-"):
            found.append((index, 0))
        elif before in _USER and program in _HTTP_CLIENTS and b":" in argument:
            found.append((index, argument.index(b":") + 1))
        elif before == b"-p" and program == b"sshpass":
            found.append((index, 0))
    return found
