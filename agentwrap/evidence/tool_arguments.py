"""What the arguments of a tool call name: commands a shell is to run, files, a patch; and one line that tells them.

Tools are the agents' own, so this goes by the names of arguments, which differ little between agents. Arguments are
JSON as a model wrote it, free text, or either of them cut off; whatever comes is read as far as it can be. Pure.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

COMMANDS = ("command", "cmd", "commands", "script")
PATHS = ("file_path", "path", "notebook_path", "filename", "file", "target_file", "filepath", "paths", "file_paths")
_TOLD = (*COMMANDS, *PATHS[:-2], "pattern", "url", "query", "description", "prompt")
_PATCHES = ("input", "patch", "diff")
# Arguments that hold what is to be written: of two calls that name a file, the one that has them changed it.
_WRITTEN = {
    *_PATCHES, "content", "contents", "new_string", "new_str", "newText", "edits", "changes", "new_source", "file_text",
    "insert_text", "replacement", "code_edit", "text", "data", "instructions",
}  # fmt: skip
# The envelope of the `apply_patch` tool.
_PATCHED = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+?)\s*$|^\*\*\* Move to: (.+?)\s*$", re.MULTILINE)
_LETTERS = {"Add": "A", "Update": "M", "Delete": "D"}
# A member of a JSON object that was cut off: its name, and its value as far as it came.
_MEMBER = re.compile(rf'"({"|".join({*_TOLD, *_PATCHES})})"\s*:\s*"((?:[^"\\]|\\.)*)', re.DOTALL)
_MOST_PATHS = 200
_LONGEST_TEXT = 1 << 16


class Named(msgspec.Struct, frozen=True):
    """`commands`: texts for a shell, or argument lists joined; `paths`: as written; `text`: everything that is text.

    `writes`: they hold what a file is to be. `free`: they are text such as code, in which commands and paths may stand.
    """

    commands: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    brief: str = ""
    text: str = ""
    writes: bool = False
    free: bool = False


def read(arguments: str) -> Named:
    """Take arguments apart. Never raises."""
    fields = _fields(arguments)
    if fields is None:
        # In code, a patch is a string with escapes.
        code = arguments.replace("\\n", "\n").replace('\\"', '"')
        patch = arguments.lstrip().startswith("*** ")
        brief = (patch_brief(arguments) if patch else "") or arguments.strip()
        return Named((), tuple(_patched(code)), brief, code, writes="*** " in arguments, free=not patch)
    commands = [joined for key in COMMANDS if (joined := _command(fields.get(key)))]
    paths = [path for key in PATHS for path in _texts(fields.get(key))]
    for text in (*commands, *(fields.get(key) for key in _PATCHES)):
        paths += _patched(text) if isinstance(text, str) else []
    told = "\n".join(_all_texts(fields, [_LONGEST_TEXT]))
    brief = _brief(fields, arguments)
    writes = not _WRITTEN.isdisjoint(fields)
    return Named(tuple(commands), tuple(paths[:_MOST_PATHS]), brief, told, writes)


def patch_brief(text: str) -> str:
    """`M hello.py, A new.py` of a patch, nothing for other text."""
    told = [f"{_LETTERS[found[1]]} {found[2]}" for found in _PATCHED.finditer(text) if found[1]]
    return ", ".join(told[:20]) + (", …" if len(told) > 20 else "")


def _fields(arguments: str) -> dict[str, Any] | None:
    """The members, of a text that was cut off the known ones that are left; None where it is no JSON object."""
    try:
        read_ = msgspec.json.decode(arguments.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        if not arguments.lstrip().startswith("{"):
            return None
        return {found[1]: _unescaped(found[2]) for found in _MEMBER.finditer(arguments)} or None
    if isinstance(read_, str):
        return {_PATCHES[0]: read_}
    return read_ if isinstance(read_, dict) else None


def _unescaped(text: str) -> str:
    try:
        return msgspec.json.decode(f'"{text}"'.encode("utf-8", "surrogateescape"), type=str)
    except (msgspec.DecodeError, UnicodeError):
        return text


def _command(value: Any) -> str:
    """A command as one text: `["bash", "-lc", "ls"]` is what that shell runs."""
    if isinstance(value, str):
        return value
    words = _texts(value)
    shell = len(words) == 3 and words[0].rsplit("/", 1)[-1] in SHELLS and words[1].startswith("-")
    return words[2] if shell else " ".join(words)


SHELLS = ("sh", "bash", "zsh", "dash", "ksh", "fish")


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value] if value else []
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _all_texts(value: Any, room: list[int], deep: int = 0) -> Iterator[str]:
    """Every text in a JSON value, up to a total length."""
    if isinstance(value, str):
        if room[0] > 0:
            yield value[: room[0]]
        room[0] -= len(value)
    elif deep < 8 and isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _all_texts(item, room, deep + 1)


def _patched(text: str) -> list[str]:
    """The files that a patch in `text` names."""
    if "*** " not in text:
        return []
    return [found[2] or found[3] for found in _PATCHED.finditer(text)][:_MOST_PATHS]


def _brief(fields: dict[str, Any], arguments: str) -> str:
    """The argument that says most; all of them as JSON where none is known."""
    for key in _TOLD:
        if told := _command(fields.get(key)) if key in COMMANDS else " ".join(_texts(fields.get(key))):
            place = fields.get("path") if key == "pattern" else fields.get("pattern") if key == "path" else None
            if isinstance(place, str) and place:
                return f"{told}  in {place}" if key == "pattern" else f"{place}  in {told}"
            return told
    for key in _PATCHES:
        if isinstance(fields.get(key), str):
            return patch_brief(fields[key]) or fields[key]
    try:
        return msgspec.json.encode(fields).decode() if fields else ""
    except (UnicodeError, TypeError, ValueError):
        return arguments
