"""What an edit changed: a unified diff for text, sizes and hashes for the rest.

Knows line comparison and how a state of a file is described. Never holds more than the two contents of one edit. Two
large contents that differ nearly everywhere are told as one replaced block instead of being compared for minutes.
"""

from collections.abc import Iterator
from typing import Any

from agentwrap import text
from agentwrap.rows import number
from agentwrap.views.source import Source, foreign_text
from agentwrap.views.styled import Line, line

CONTEXT_LINES = 3
# Beyond this many pairs of lines in the differing middle, it is shown as replaced (about half a second of comparing).
MAX_PAIRS = 4_000_000
# Contents past this size are not compared for the `+3 -1` of a list.
MAX_COUNTED_BYTES = 1 << 20
_BINARY_PROBE_BYTES = 8000

Opcode = tuple[str, int, int, int, int]


def is_text(content: bytes) -> bool:
    """Whether content is shown as lines: no NUL in its first 8,000 bytes (as git decides it)."""
    return b"\0" not in content[:_BINARY_PROBE_BYTES]


def opcodes(before: list[bytes], after: list[bytes]) -> list[Opcode]:
    """What turns `before` into `after`, as difflib's opcodes; equal starts and ends are cut off first."""
    head = 0
    shorter = min(len(before), len(after))
    while head < shorter and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < shorter - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    found: list[Opcode] = [("equal", 0, head, 0, head)] if head else []
    if old and new and len(old) * len(new) <= MAX_PAIRS:
        from difflib import SequenceMatcher

        for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            found.append((tag, i1 + head, i2 + head, j1 + head, j2 + head))
    elif old or new:
        tag = "replace" if old and new else "delete" if old else "insert"
        found.append((tag, head, head + len(old), head, head + len(new)))
    if tail:
        found.append(("equal", len(before) - tail, len(before), len(after) - tail, len(after)))
    return found


def counts(before: bytes, after: bytes) -> tuple[int, int] | None:
    """(added, removed) lines, as the unified diff has them; None for content that is not compared."""
    if len(before) > MAX_COUNTED_BYTES or len(after) > MAX_COUNTED_BYTES or not (is_text(before) and is_text(after)):
        return None
    added = removed = 0
    for tag, i1, i2, j1, j2 in opcodes(_lines(before), _lines(after)):
        if tag != "equal":
            removed += i2 - i1
            added += j2 - j1
    return added, removed


def _lines(content: bytes) -> list[bytes]:
    r"""Lines with their ends; only `\n` ends one (splitlines would also cut at \r, \v and \x1c)."""
    found = content.split(b"\n")
    last = found.pop()
    return [part + b"\n" for part in found] + ([last] if last else [])


def unified(before: bytes | None, after: bytes | None, path: str | bytes) -> Iterator[Line]:
    """A unified diff; None stands for a file that is not there. Lines are escaped, tabs stay."""
    name = text.escape(path).lstrip("/")
    yield line(("--- " + (f"a/{name}" if before is not None else "/dev/null"), "title"))
    yield line(("+++ " + (f"b/{name}" if after is not None else "/dev/null"), "title"))
    old, new = _lines(before or b""), _lines(after or b"")
    for group in _hunks(opcodes(old, new)):
        i1, i2, j1, j2 = group[0][1], group[-1][2], group[0][3], group[-1][4]
        yield line((f"@@ -{_range(i1, i2)} +{_range(j1, j2)} @@", "hunk"))
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                for content in old[a1:a2]:
                    yield from _content(" ", content)
                continue
            for content in old[a1:a2]:
                yield from _content("-", content)
            for content in new[b1:b2]:
                yield from _content("+", content)


def _content(sign: str, content: bytes) -> Iterator[Line]:
    shown = sign + text.escape(content.removesuffix(b"\n"), tabs=True)
    yield line((shown, "add" if sign == "+" else "remove" if sign == "-" else ""))
    if not content.endswith(b"\n"):
        yield line(("\\ No newline at end of file", "dim"))


def _range(start: int, stop: int) -> str:
    length = stop - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


def _hunks(found: list[Opcode]) -> Iterator[list[Opcode]]:
    """Opcodes by hunk, equal parts cut to the context (difflib.get_grouped_opcodes, for opcodes made here)."""
    group: list[Opcode] = []
    for index, (tag, start1, i2, start2, j2) in enumerate(found):
        i1, j1 = start1, start2
        if tag == "equal":
            if index == 0:
                i1, j1 = max(i1, i2 - CONTEXT_LINES), max(j1, j2 - CONTEXT_LINES)
            last = index == len(found) - 1
            if last or i2 - i1 > 2 * CONTEXT_LINES:
                if group:
                    group.append((tag, i1, min(i2, i1 + CONTEXT_LINES), j1, min(j2, j1 + CONTEXT_LINES)))
                    yield group
                    group = []
                if last:
                    return
                i1, j1 = max(i1, i2 - CONTEXT_LINES), max(j1, j2 - CONTEXT_LINES)
        group.append((tag, i1, i2, j1, j2))
    if group:
        yield group


def content_of(source: Source, state: dict[str, Any]) -> bytes | None:
    """The stored content of a regular file's state, or None where it was not kept."""
    if state.get("type", "file") != "file" or state.get("omitted"):
        return None
    digest = state.get("sha256")
    if isinstance(digest, str):
        try:
            return source.blob(digest)
        except ValueError:  # not a hash: a file made by hand
            return None
    return b"" if number(state.get("size")) == 0 and "keyed" not in state else None


def is_absent(state: dict[str, Any]) -> bool:
    """Whether the state says that there was no such file."""
    return state.get("type") == "absent"


def describe(state: dict[str, Any]) -> str:
    """A state in words: `absent`, `12KB sha256 ab12cd34ef56`, `symlink to x`, with why no content is there."""
    kind = state.get("type", "file")
    if kind == "absent":
        return "absent"
    if kind == "symlink":
        return f"symlink to {text.escape(foreign_text(state.get('target')))}"
    if kind != "file":
        return text.escape(str(kind))
    words = [text.size(number(state.get("size")))]
    digest = state.get("sha256") or state.get("raw_sha256")
    if isinstance(digest, str):
        words.append(f"sha256 {text.escape(digest[:12])}")
    if state.get("omitted"):
        words.append(f"(content {_OMITTED.get(str(state['omitted']), 'not kept')})")
    return " ".join(words)


_OMITTED = {
    "over-cap": "over the cap, not kept",
    "unreadable": "could not be read",
    "not-kept": "not kept",
    "special": "not a regular file",
}


def of_edit(source: Source, data: dict[str, Any], name: str) -> Iterator[Line]:
    """The lines under the heading of one file.edit row; `name` is the path the diff is said to be of."""
    before, after = data.get("before"), data.get("after")
    if not isinstance(before, dict) or not isinstance(after, dict):
        yield line(("the states of this edit cannot be read", "gap"))
        return
    old = None if is_absent(before) else content_of(source, before)
    new = None if is_absent(after) else content_of(source, after)
    known = (old is not None or is_absent(before)) and (new is not None or is_absent(after))
    if known and not (is_absent(before) and is_absent(after)) and is_text(old or b"") and is_text(new or b""):
        if old == new and before.get("redacted") and after.get("redacted"):
            yield line(("what changed is redacted", "dim"))
            return
        yield from unified(old, new, name)
        return
    binary = "binary: " if known and not (is_text(old or b"") and is_text(new or b"")) else ""
    yield line((f"{binary}{describe(before)} -> {describe(after)}", "dim"))


def counts_of_edit(source: Source, data: dict[str, Any]) -> tuple[int, int] | None:
    """(added, removed) lines of one file.edit row, or None where they cannot be told."""
    contents: list[bytes] = []
    for state in (data.get("before"), data.get("after")):
        if not isinstance(state, dict):
            return None
        if is_absent(state):
            contents.append(b"")
            continue
        if number(state.get("size")) > MAX_COUNTED_BYTES:
            return None
        content = content_of(source, state)
        if content is None:
            return None
        contents.append(content)
    return counts(contents[0], contents[1])
