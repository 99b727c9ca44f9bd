"""Whether an approver answers for whom the agent acts: by name, as far as names tell.

A name is what the approver says, so it can be a lie; the user id that is recorded beside it is the kernel's word. Who
may not approve must not have the account from which approving is possible.
"""

import pwd
from collections.abc import Iterable
from unicodedata import normalize


def account(uid: int) -> str:
    """The name of a user, empty where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return ""


def is_oneself(approver: str, uid: int, names: Iterable[str]) -> bool:
    """Whether `approver` (of `uid`) is one of `names`: the agent, or whom it acts for.

    Without a name of their own they are who their account is called. Capital letters, and forms of a letter that are
    the same to a reader (Unicode NFKC), do not matter.
    """
    said = _folded(approver) or _folded(account(uid))
    return bool(said) and said in {folded for name in names if (folded := _folded(name))}


def _folded(name: str) -> str:
    return normalize("NFKC", name).casefold().strip()
