"""The choke point: every text that reaches a screen or a pager goes through here.

Knows which characters can lie to a reader (control characters, bidirectional overrides, invisible and zero-width
characters, lone surrogates, line separators) and how many columns the honest ones take. Refuses to know about colour,
terminals and events. Everything an agent chose is foreign: rich and click pass ESC and bidi overrides straight through,
so nothing may be shown around this module.
"""

from collections.abc import Iterable

# Printable for Python's tables and still without a visible mark of their own: fillers, joiners, variation selectors,
# Khmer inherent vowels, tags. (Unicode's Default_Ignorable_Code_Point without what `str.isprintable` refuses already.)
_INVISIBLE = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"
    + "".join(map(chr, range(0x180B, 0x1810)))
    + "".join(map(chr, range(0xFE00, 0xFE10)))
    + "".join(map(chr, range(0xE0100, 0xE01F0)))
)
_NAMED = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
# Characters looked at per column: more combining marks than this on one letter are nobody's language.
_MARKS = 8
_IDEOGRAPHIC_SPACE = "\u3000"
_MOST = 1 << 80


def _visible(character: str, keep: str) -> str:
    if character in keep or character == _IDEOGRAPHIC_SPACE:
        return character
    if character.isprintable() and character not in _INVISIBLE:
        return character
    if character in _NAMED:
        return _NAMED[character]
    point = ord(character)
    if 0xDC80 <= point <= 0xDCFF:  # a byte kept by surrogateescape (PEP 383)
        return f"\\x{point - 0xDC00:02x}"
    if point < 0x80:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def escape(text: str | bytes, *, tabs: bool = False) -> str:
    r"""One line of safe text: what cannot be seen, or would move the cursor, becomes a visible escape.

    Bytes are read as UTF-8; a byte that is not is shown as `\xff`, a character as `\n`, `\x1b` or `\u202e`. Safe text
    comes back unchanged, so escaping twice is escaping once (a backslash is therefore not doubled). `tabs` keeps tabs,
    for the lines of a file's content. The result has no C0 or C1 control, no bidi or zero-width character, no lone
    surrogate, no line or paragraph separator, whatever goes in.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    if text.isprintable() and (text.isascii() or _INVISIBLE.isdisjoint(text)):
        return text
    keep = "\t" if tabs else ""
    return "".join([_visible(character, keep) for character in text])


def width(text: str) -> int:
    """Columns that already escaped text takes on a terminal: 2 for wide characters, 0 for combining marks."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    columns = 0
    for character in text:
        if character < "\u0300":
            columns += 1
        elif category(character) not in ("Mn", "Me"):
            columns += 2 if east_asian_width(character) in "WF" else 1
    return columns


def _prefix(text: str, columns: int) -> str:
    """The longest start of `text` that fits in `columns`."""
    if text.isascii():
        return text[:columns]
    used = 0
    for index, character in enumerate(text):
        used += width(character)
        if used > columns:
            return text[:index]
    return text


def clip(text: str, columns: int) -> str:
    """`text`, escaped and cut to `columns` with an ellipsis where it does not fit (at least one column)."""
    text = escape(text)
    if len(text) <= columns // 2 or (len(text) <= columns * _MARKS and width(text) <= columns):
        return text
    return _prefix(text[: columns * _MARKS], max(columns, 1) - 1) + "…"


def clip_start(text: str, columns: int) -> str:
    """As `clip`, keeping the end: of a path the last parts say most."""
    text = escape(text)
    if len(text) <= columns * _MARKS and width(text) <= columns:
        return text
    room = max(columns, 1) - 1
    tail = text[-room:] if room else ""
    while width(tail) > room:
        tail = tail[1:]
    from unicodedata import combining

    while tail and combining(tail[0]):  # never begin with a mark that belongs to what was cut
        tail = tail[1:]
    return "…" + tail


def pad(text: str, columns: int) -> str:
    """`text` with spaces to its right up to `columns` (never cut)."""
    return text + " " * (columns - width(text))


def _within(number: int) -> int:
    """What a float holds: a file made by hand may have any number."""
    return max(-_MOST, min(number, _MOST))


def size(n_bytes: int) -> str:
    """`812B`, `8.1KB`, `76KB`, `1.2GB`: decimal units."""
    if abs(n_bytes) < 1000:
        return f"{n_bytes}B"
    amount = float(_within(n_bytes))
    for unit in ("KB", "MB", "GB", "TB", "PB"):
        amount /= 1000
        if abs(amount) < 9.95:
            return f"{amount:.1f}{unit}"
        if abs(amount) < 999.5:
            return f"{amount:.0f}{unit}"
    return f"{amount:.0f}PB"


def duration(elapsed_ns: int) -> str:
    """`85µs`, `410ms`, `1.9s`, `3m12s`, `2h05m`, `3d04h`."""
    if elapsed_ns < 0:
        return "-" + duration(-elapsed_ns)
    elapsed_ns = _within(elapsed_ns)
    if elapsed_ns < 999_500:
        return f"{round(elapsed_ns / 1000)}µs"
    if elapsed_ns < 999_500_000:
        return f"{round(elapsed_ns / 1_000_000)}ms"
    if elapsed_ns < 59_950_000_000:
        return f"{elapsed_ns / 1e9:.1f}s"
    seconds = round(elapsed_ns / 1e9)
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    minutes = seconds // 60
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    return f"{minutes // 1440}d{minutes % 1440 // 60:02d}h"


def clock(at_ns: int) -> str:
    """Seconds since the start of the run with three decimals: `2.102`."""
    milliseconds = at_ns // 1_000_000
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d}"


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 file`, `2 files`, `1,204 processes`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def words(items: Iterable[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    listed = list(items)
    if len(listed) < 2:
        return "".join(listed)
    return f"{', '.join(listed[:-1])} {last} {listed[-1]}"
