"""The redactor of one run: knows its secrets, learns more on the way, and puts marks in their place.

A mark is `«redacted:KIND:xxxxxxxx»`; the tail is an HMAC of the secret under the run key, which is never stored: the
same secret looks the same everywhere in a recording, and cannot be guessed from it.
"""

import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from urllib.parse import unquote_to_bytes

import msgspec

from agentwrap.errors import AgentwrapError
from agentwrap.recording.redact import contexts, http
from agentwrap.recording.redact.arguments import secret_arguments
from agentwrap.recording.redact.exact import ExactSet
from agentwrap.recording.redact.forms import MIN_FORM_BYTES
from agentwrap.recording.redact.names import secret_name, trivial, worth_searching
from agentwrap.recording.redact.patterns import TokenScanner
from agentwrap.recording.redact.scattered import find_scattered

_MAX_LEARNED = 512
"""Secrets learned from what is recorded: an agent must not be able to slow the recorder down with fakes."""

_TAIL_BYTES = 1024
_MAX_KNOWN = 4096
_MAX_NAMES = 4096
_SHORT_BYTES, _MAX_HARMLESS = 256, 4096

_MARK_OPEN, _MARK_CLOSE = b"\xc2\xabredacted:", b"\xc2\xbb"
_MARK = re.compile(rb"\xc2\xab(?:redacted:[a-z0-9-]+:[0-9a-f]{8}|shape:[0-9a-f]{32})\xc2\xbb")
_NAME = re.compile(rb"[A-Za-z0-9._:/-]{1,80}")
_Span = tuple[int, int, str, bytes]
"""(start, end, kind, secret)."""


class RedactOptions(msgspec.Struct, frozen=True):
    """What the user adds: names of environment variables, regular expressions, keys of JSON objects."""

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    json_keys: tuple[str, ...] = ()


class Redactor:
    """Finds secrets in bytes, and remembers them.

    `key`: the run key, 32 random bytes. Raises AgentwrapError `usage` where a pattern of the user's is none.
    """

    def __init__(self, key: bytes, options: RedactOptions | None = None) -> None:
        options = options or RedactOptions()
        self.key = key
        self.exact = ExactSet()
        self._names = frozenset(name.upper() for name in options.names)
        self._user = [(_compile(pattern), 0) for pattern in options.patterns]
        if options.json_keys:
            keys = b"|".join(re.escape(key.encode()) for key in options.json_keys)
            quoted = (
                rb'\\*"(?:%b)\\*"\s*:\s*(?:(?P<q>\\*")(?P<text>.{0,8192}?)(?<!\\)(?P=q)|(?P<bare>[^\s,}\]"]+))' % keys
            )
            self._user.append((re.compile(quoted, re.DOTALL), 1))
        self._harmless: set[bytes] = set()
        self._harmless_under = (0, 0)  # numbers of what was known then
        self._telling: dict[bytes, int] = {}
        self._learned = 0
        self._tokens = TokenScanner().find

    def keyed(self, data: bytes) -> str:
        """HMAC-SHA256 under the run key, 16 bytes in hex: equality without the content."""
        return hmac.digest(self.key, data, sha256)[:16].hex()

    def shape(self, data: bytes) -> bytes:
        """What stands for a foreign value in a shape-only recording."""
        if not data or _MARK.fullmatch(data):
            return data
        return b"\xc2\xabshape:" + self.keyed(data).encode() + _MARK_CLOSE

    def shape_of_name(self, data: bytes) -> bytes:
        """As `shape`, but what looks like the name of a model, a tool or a method stays."""
        if _NAME.fullmatch(data) and not self.suspicious(data):
            return data
        return self.shape(data)

    def mark(self, kind: str, secret: bytes) -> bytes:
        """The mark of one secret; nothing for a further piece of one (which has no kind)."""
        if not kind:
            return b""
        tail = hmac.digest(self.key, secret, sha256)[:4].hex()
        return _MARK_OPEN + kind.encode() + b":" + tail.encode() + _MARK_CLOSE

    def learn(self, name: bytes, value: bytes) -> bool:
        """Told an environment entry: if its name promises a secret, its value is hidden from now on (true)."""
        if not self._secret_entry(name, value):
            return False
        if value not in self.exact and len(self.exact) < _MAX_KNOWN and worth_searching(value):
            self.exact.add(value, "env")
        return True

    def hide(self, value: bytes) -> None:
        """Told a secret as such: hidden wherever it stands, whatever it looks like."""
        if len(value) < MIN_FORM_BYTES:
            self._user.append((re.compile(re.escape(value)), 0))
        else:
            self.exact.add(value, "user")

    def _secret_entry(self, name: bytes, value: bytes) -> bool:
        telling = self._telling.get(name)
        if telling is None:  # the same names come with every program that is started
            text = name.decode(errors="replace")
            telling = 2 if text.upper() in self._names else int(secret_name(text))
            if len(self._telling) < _MAX_NAMES:
                self._telling[name] = telling
        return bool(value) if telling == 2 else telling == 1 and not trivial(value)

    def environment(self, pairs: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[bytes, bytes], ...]:
        """Environment entries with their names kept and secret values replaced."""
        return tuple(
            (self.clean(name), self.mark("env", value) if self._secret_entry(name, value) else self.clean(value))
            for name, value in pairs
        )

    def arguments(self, argv: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """An argument vector, cleaned; options that take a secret are known."""
        cleaned = list(argv)
        for index, offset in secret_arguments(argv):
            value = argv[index][offset:]
            if not trivial(value) and not _MARK.search(value):
                cleaned[index] = argv[index][:offset] + self.mark("argument", value)
                self._learn_found("argument", value)
        return tuple(map(self.clean, cleaned))

    def headers(self, pairs: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[bytes, bytes], ...]:
        """The lines of an HTTP head: names are kept, values of those that carry credentials replaced whole."""
        told = []
        for name, value in pairs:
            kind = http.header_kind(name) or self._named_by_user(name)
            if kind and value:
                for worth in http.worth_knowing(kind, value):
                    self._learn_found(kind, worth)
                told.append((name, value if _MARK.fullmatch(value) else self.mark(kind, value)))
            else:
                told.append((name, self.target(value)))
        return tuple((self.clean(name), self.clean(value)) for name, value in told)

    def _named_by_user(self, name: bytes) -> str:
        return "user" if name.decode("latin-1").upper().replace("-", "_") in self._names else ""

    def target(self, url: bytes) -> bytes:
        """A URL or request target with marks in place of what its query gives as a secret."""
        spans = []
        for start, end, value in http.in_query(url):
            if not _MARK.fullmatch(value):
                spans.append((start, end, "query", value))
                self._learn_found("query", value)
                self._learn_found("query", unquote_to_bytes(value))
        return replace(url, spans, self.mark)

    def suspicious(self, data: bytes, words: bool = True) -> bool:
        """Whether `clean` could change anything; `words` false: no assignments are expected (a path, an address)."""
        if self.exact.suspects(data):
            return True
        if self._tokens(data):
            return True
        if words and contexts.may_hold(data):
            return True
        # `find`, not `in`: bytes first tries to read its operand as a number, and an exception costs 0.3 us.
        if data.find(b"://") >= 0 and data.find(b"@") >= 0:
            return True
        return bool(self._user) and any(pattern.search(data) for pattern, _ in self._user)

    @property
    def knowledge(self) -> int:
        """A number that grows with what is looked for."""
        return len(self.exact) + len(self._user)

    def harmless(self, texts: Sequence[bytes], words: bool = True) -> bool:
        """Whether `clean` would change none of these, looked at together; `words` as for `suspicious`.

        False where it cannot be said: an expression of the user's may ask for the beginning or the end of a text.
        """
        return not self._user and not self.suspicious(b"\0".join(texts), words)

    def clean(self, data: bytes) -> bytes:
        """`data` with marks in place of secrets; the very same object where there are none."""
        known = len(self.exact)
        short = len(data) <= _SHORT_BYTES
        if short:
            # Hosts, paths, models and headers come again with every call. What is known only grows.
            if self._harmless_under != (known, len(self._user)) or len(self._harmless) == _MAX_HARMLESS:
                self._harmless_under = (known, len(self._user))
                self._harmless.clear()
            if data in self._harmless:
                return data
        cleaned = replace(data, self.find(data), self.mark)
        if short and cleaned is data and len(self.exact) == known:
            self._harmless.add(data)
            return data
        if len(self.exact) != known:
            # What was learned just now may stand elsewhere in the same bytes, in another form.
            cleaned = replace(cleaned, self._known(cleaned), self.mark)
        return cleaned

    def clean_scattered(self, data: bytes, texts: Sequence[tuple[int, ...]]) -> bytes:
        """As `clean`, for `data` in which texts lie in pieces (see `scattered`): secrets are found across them, too."""
        if not texts:
            return self.clean(data)
        spans: list[_Span] = []
        for _ in range(2):
            known = len(self.exact)
            spans = find_scattered(data, texts, self.find) + self._find_in_lines(data)
            if len(self.exact) == known:
                break
            # What was learned just now may stand elsewhere in the same bytes, in another form.
        return replace(data, spans, self.mark)

    def _find_in_lines(self, data: bytes) -> list[_Span]:
        """As `find`. In a stream every other line has been there before: where the others say nothing, nothing does."""
        if not self._user and not self.exact.several_lines:
            lines = data.split(b"\n")
            different = dict.fromkeys(lines)
            if len(different) < len(lines) * 3 // 4 and not self.find(b"\n".join(different)):
                return []
        return self.find(data)

    def cut_tail(self, data: bytes) -> bytes:
        """`data`, which somebody cut off at its end, without what may be the beginning of a secret there."""
        if any(mark.end() == len(data) for mark in _MARK.finditer(data, max(0, len(data) - _TAIL_BYTES))):
            return data
        breaks = max(data.rfind(sign, max(0, len(data) - _TAIL_BYTES)) for sign in (b" ", b"\n", b"\t", b"\0"))
        end = breaks + 1 if breaks >= 0 else max(0, len(data) - _TAIL_BYTES)
        return data[: min(end, self.exact.begun(data))]

    def find(self, data: bytes) -> list[_Span]:
        """Every secret in `data`, unsorted and possibly overlapping; what is found is learned."""
        spans = self._known(data)
        for start, end, kind, secret in self._tokens(data):
            spans.append((start, end, kind, secret))
            self._learn_found(kind, secret)
        for found in contexts.find_all(data):
            if found.end > found.start:
                spans.append(found[:4])
            if found.learn:
                self._learn_found(found.kind, found.value)
        for pattern, keyed in self._user:
            for match in pattern.finditer(data):
                name: str | int = 0 if not keyed else "text" if match["text"] is not None else "bare"
                if match.end(name) > match.start(name) and not _MARK.fullmatch(match[name]):
                    spans.append((*match.span(name), "user", match[name]))
                    self._learn_found("user", match[name])
        return spans

    def _known(self, data: bytes) -> list[_Span]:
        return [(start, end, secret.kind, secret.value) for start, end, secret in self.exact.find(data)]

    def _learn_found(self, kind: str, secret: bytes) -> None:
        if self._learned < _MAX_LEARNED and worth_searching(secret) and self.exact.add(secret, kind):
            self._learned += 1


def _compile(pattern: str) -> re.Pattern[bytes]:
    try:
        return re.compile(pattern.encode())
    except re.error as error:
        place = f"{pattern}\n{' ' * (error.pos or 0)}^ {error.msg}"
        raise AgentwrapError("usage", "not a regular expression", evidence=place) from error


def replace(data: bytes, spans: list[_Span], mark: Callable[[str, bytes], bytes]) -> bytes:
    """Put a mark in place of every span; overlapping ones become one, named after the one that begins first."""
    if not spans:
        return data
    marks = [(m.start(), m.end()) for m in _MARK.finditer(data)]
    spans.sort(key=lambda span: (span[0], -span[1]))
    pieces: list[bytes] = []
    done = 0
    open_span: _Span | None = None
    for span in spans:
        if any(start <= span[0] and span[1] <= end for start, end in marks):
            continue  # a mark of ours, met again
        if open_span is not None and span[0] < open_span[1]:
            named = open_span if open_span[2] else span
            open_span = (open_span[0], max(open_span[1], span[1]), named[2], named[3])
            continue
        if open_span is not None:
            pieces += (data[done : open_span[0]], mark(open_span[2], open_span[3]))
            done = open_span[1]
        open_span = span
    if open_span is not None:
        pieces += (data[done : open_span[0]], mark(open_span[2], open_span[3]))
        done = open_span[1]
    return b"".join(pieces) + data[done:] if pieces else data
