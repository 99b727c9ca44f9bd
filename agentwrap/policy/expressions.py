"""Whether trying a regular expression on a text that an agent chose may take for ever.

Python's re tries alternatives one after the other: where something that repeats without end is repeated without end,
`(a+)+`, their number doubles with every character. Knows the syntax of groups and repetitions, and no more of it.
"""

_ENDLESS = ("*", "+")


def endless_within_endless(pattern: str) -> bool:
    """Whether a group that is repeated without end holds such a repetition itself. For patterns that re accepts.

    Possessive repetitions and atomic groups (`a++`, `(?>a+)`) are never tried again, and do not count.
    """
    open_groups: list[tuple[bool, bool]] = [(False, False)]  # (is atomic, holds an endless repetition)
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "\\":
            at += 2
        elif character == "[":
            at = _after_class(pattern, at)
        elif character == "(":
            open_groups.append((pattern.startswith("(?>", at), False))
            at += 1
            continue
        elif character == ")" and len(open_groups) > 1:
            at += 1
            atomic, holds = open_groups.pop()
            holds = holds and not atomic
            endless, at = _repetition(pattern, at)
            if endless and holds:
                return True
            _note(open_groups, holds or endless)
            continue
        else:
            at += 1
        endless, at = _repetition(pattern, at)
        _note(open_groups, endless)
    return False


def _note(open_groups: list[tuple[bool, bool]], endless: bool) -> None:
    if endless:
        open_groups[-1] = (open_groups[-1][0], True)


def _after_class(pattern: str, at: int) -> int:
    """Where a `[...]` that begins at `at` is over."""
    at += 1
    at += pattern.startswith("^", at)
    at += pattern.startswith("]", at)
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at + 1


def _repetition(pattern: str, at: int) -> tuple[bool, int]:
    """Whether an endless repetition, that may be tried again, stands at `at`; and what follows a repetition."""
    endless = pattern.startswith(_ENDLESS, at)
    end = at + 1
    if not endless and pattern.startswith("{", at):
        end = pattern.find("}", at) + 1
        bounds = pattern[at + 1 : end - 1].split(",")
        if not end or not all(bound.isdecimal() or not bound for bound in bounds) or bounds == [""]:
            return False, at  # a brace that stands for itself
        endless = len(bounds) == 2 and not bounds[1]
    elif not endless:
        return False, at + pattern.startswith("?", at)
    if pattern.startswith("+", end):
        return False, end + 1
    return endless, end + pattern.startswith("?", end)
