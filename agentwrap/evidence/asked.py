"""What a recording says was done, as questions to a policy. Knows event rows; refuses to guess what they do not tell.

Where a gateway stood in the way, its rows say by which name each connection was made, and the system calls behind them
say nothing more. Without one, recordings hold the addresses that were dialled and, apart from them, the names that were
asked of name servers: an address is then asked about without a name. What cannot be asked at all (a hidden name, a
datagram socket that was connected and then used) comes out with the reason.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from agentwrap.evidence import asked_calls
from agentwrap.policy.defaults import NAME_SERVICE_CACHE
from agentwrap.policy.hosts import HostError, parse_host, special
from agentwrap.policy.paths import Places
from agentwrap.policy.questions import Connect, Exec, Family, Lookup, Question, Read, Unix, Write
from agentwrap.policy.repositories import OwnRepositories
from agentwrap.policy.suggest import Asked
from agentwrap.recording.foreign import to_bytes
from agentwrap.recording.places import key_paths, own_paths
from agentwrap.rows import Row, Rows, Span, number

NAME_SERVER_PORT = 53
_REMEMBERED = 100_000
_HIDDEN = ("«redacted:", "«shape:")
_FILES = ("file.edit", "file.rename", "file.directory", "file.mode", "file.link", "file.special", "file.read")
_SOCKETS = ("net.connect", "net.send", "dns.server")
_GATEWAY = ("net.decision", "dns.query", "net.refused")
PUBLISHED = "--publish"  # the rule of connections that came in from outside
_OTHERS = "(others)"  # what the gateway calls what it could not tell apart
_LISTENING = ("net.listen", "net.bind")
KINDS = (*_FILES, *_SOCKETS, *_GATEWAY, "process.exec", asked_calls.CALL, asked_calls.TOOL)


class Recording(Rows, Protocol):
    """What is asked of a recording."""

    @property
    def meta(self) -> Mapping[str, str]: ...  # noqa: D102

    def span(self, id: str) -> Span | None:  # noqa: A002 - the interface's word
        """One span, or None."""
        ...


class Unclear(msgspec.Struct, frozen=True):
    """An act that cannot be judged, and why."""

    seq: int
    what: str
    why: str
    who: str = ""


def places_of(recording: Recording, policy_file: str = "") -> Places:
    """What `$CWD`, `~` and `$TMP` were in the recorded run, and which files were ours, as far as it tells."""
    environment: dict[str, str] = {}
    cwd = ""
    for row in recording.rows(kinds=("run.start",), limit=1):
        cwd = _text(row.data.get("cwd"))
        for pair in _list(row.data.get("environment")):
            if isinstance(pair, list) and len(pair) == 2:
                environment[_text(pair[0])] = _text(pair[1])
    cwd = cwd or recording.meta.get("cwd", "")
    return places_in(environment, cwd, policy_file)


def places_in(environment: Mapping[str, str], cwd: str, *own_files: str) -> Places:
    """Places out of an environment; `own_files` are ours as well. Without a HOME in it, nothing lies at home."""
    home = environment.get("HOME", "")
    own: list[str] = []
    secret: list[str] = []
    if home.startswith("/"):
        own += map(str, own_paths(environment))
        secret.append(str(key_paths(environment)[0]))
    own += [file for file in own_files if file and file not in own]
    tmp = environment.get("TMPDIR", "")
    return Places(_folder(cwd, "/"), _folder(home, "/nonexistent"), _folder(tmp, "/tmp"), tuple(own), tuple(secret))


def _folder(text: str, otherwise: str) -> str:
    return text.rstrip("/") or "/" if text.startswith("/") else otherwise


def asked(recording: Recording) -> Iterator[Asked | Unclear]:
    """Every act of a recording that a policy has a say in, in order."""
    inner = _Inner(recording)
    names = _Programs(recording)
    calls = asked_calls.Calls(recording.rows(kinds=(asked_calls.DECISION,)))
    for row in recording.rows(kinds=KINDS):
        if row.verdict == "deny":  # it did not happen
            continue
        who = names.of(row.span)
        klass = str(row.data.get("klass", "work"))
        if row.kind == asked_calls.TOOL:
            calls.lists(row.data)
            continue
        if row.kind == asked_calls.CALL:
            call = calls.question(row.data)
            questions: Iterable[Question | str] = () if call is None else (call,)
        else:
            questions = _questions(row, inner)
        for one in questions:
            if isinstance(one, str):
                yield Unclear(row.seq, row.kind, one, who)
            elif _hidden(one):
                yield Unclear(row.seq, row.kind, "the name is hidden in the recording", who)
            else:
                yield Asked(one, row.seq, who, klass)


def _hidden(question: Question) -> bool:
    return any(
        mark in value for value in msgspec.structs.astuple(question) if isinstance(value, str) for mark in _HIDDEN
    )


class _Inner:
    """Where something of the run itself listened, and which name servers were asked names that were read.

    `walled`: a gateway tells what left the machine. `repositories`: what the rows until now say was made in the run.
    """

    def __init__(self, recording: Recording) -> None:
        self.walled = is_walled(recording)
        self.repositories = OwnRepositories()
        self.ports: set[int] = set()
        self.paths: set[str] = set()
        self.read_servers: set[str] = set()
        for row in recording.rows(kinds=(*_LISTENING, "dns.server")):
            data = row.data
            if row.kind == "dns.server":
                if data.get("names"):
                    self.read_servers.add(_text(data.get("host")))
            elif data.get("family") == "unix":
                self.paths.add(_text(data.get("path")))
            elif row.kind == "net.listen" or data.get("transport") == "udp":
                self.ports.add(number(data.get("port")))
        self.ports.discard(0)
        self.paths.discard("")


def is_walled(recording: Recording) -> bool:
    """Whether a gateway stood between the run and the network, so that its rows tell every connection."""
    about = (row.data for row in recording.rows(kinds=("coverage",)) if row.data.get("what") == "connect")
    return any(data.get("tier") in ("wall", "guard") for data in about)


class _Programs:
    """Names of programs by span, looked up once."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.known: dict[str, str] = {}

    def of(self, span: str | None) -> str:
        """The program of a process; of one that never ran its own, its parent's."""
        asked = span or ""
        if asked not in self.known:
            if len(self.known) > _REMEMBERED:
                self.known.clear()
            self.known[asked] = self._find(asked)
        return self.known[asked]

    def _find(self, span: str) -> str:
        passed: set[str] = set()
        while span and span not in passed:
            passed.add(span)
            found = self.recording.span(span)
            if found is None or found.kind != "process":
                return ""
            if found.name:
                return found.name
            span = found.parent or ""
        return ""


def _questions(row: Row, inner: _Inner) -> Iterator[Question | str]:
    """The questions of one row, or reasons why there is none."""
    data = row.data
    if row.kind in ("net.connect", "net.send"):
        yield from _socket(row.kind, data, inner)
    elif row.kind in _GATEWAY:
        yield from _judged(row.kind, data)
    elif row.kind == "dns.server" and inner.walled:
        return
    elif row.kind == "dns.server":
        yield from (Lookup(_text(name)) for name in _list(data.get("names")))
        if not data.get("names"):
            yield "names were asked that could not be read"
    elif row.kind == "process.exec":
        # A link runs what it leads to.
        asked_for = _text(data.get("resolved")) or _text(data.get("path"))
        yield from (Exec(path) for path in _distinct(asked_for, _text(data.get("exe"))))
    elif row.kind == "file.read":
        yield Read(_text(data.get("path")))
    elif data.get("klass") != "stdio":  # what the caller redirected output to is the caller's choice
        yield from _changed(row.kind, data, inner.repositories)


def _judged(kind: str, data: Mapping[str, Any]) -> Iterator[Question | str]:
    """What the gateway let pass, by the names it knew."""
    if kind == "dns.query":
        name = _text(data.get("name"))
        yield Lookup(name) if name != _OTHERS else "more names were asked than could be told apart"
        return
    host, port, address = _text(data.get("host")), number(data.get("port")), _text(data.get("address"))
    if _text(data.get("rule")) == PUBLISHED:
        return
    if host == _OTHERS:
        yield "more connections were made than could be told apart"
    elif kind == "net.refused" and data.get("transport", "udp") != "tcp":
        yield Connect(host, port, "udp") if data.get("transport", "udp") == "udp" else Family("raw")
    else:
        yield Connect(host, port, address="" if address == host else address)


def _changed(kind: str, data: Mapping[str, Any], own: OwnRepositories) -> Iterator[Question]:
    """What a row changed; as at the stop, a repository's first sign of life makes it the run's own."""
    folder, change = kind == "file.directory", data.get("change")
    moved = kind == "file.rename" and data.get("type") == "directory"
    for path in _written(kind, data):
        # A file `.git` says where a repository is (gitrepository-layout(5)).
        pointer = not folder and path.endswith("/.git") and (change != "create" or not own.may_come(path))
        tree = moved or pointer or data.get("link") == "symbolic"
        yield Write(path, folder, tree, path in own)
    path, target = _text(data.get("path")), _text(data.get("target"))
    if moved:
        own.moved(path, away=True)
        own.moved(target, away=bool(data.get("exchange")))
    elif change == "create" and kind in ("file.directory", "file.edit"):
        own.came(path)
    elif change in ("remove", "delete"):
        own.went(path)


def _written(kind: str, data: Mapping[str, Any]) -> list[str]:
    """Every name whose meaning a row changes: both of a rename, both of a hard link, a temporary file's."""
    paths = [_text(data.get("path"))]
    if kind == "file.rename" or (kind == "file.link" and data.get("link") == "hard"):
        paths.append(_text(data.get("target")))
    if kind == "file.edit" and data.get("temporary"):
        paths.append(_text(data.get("temporary")))
    return _distinct(*paths)


def _socket(kind: str, data: Mapping[str, Any], inner: _Inner) -> Iterator[Question | str]:
    family, transport = str(data.get("family", "")), str(data.get("transport", "unknown"))
    if family == "unix":
        path = _text(data.get("path"))
        # The C library tries it for every user name; refused, it asks the name servers, which are judged.
        if path and path not in NAME_SERVICE_CACHE:
            yield Unix(path, inner=path in inner.paths)
        return
    if family not in ("inet", "inet6") or transport == "raw":
        yield Family("raw" if transport == "raw" else family)
        return
    host, port = _text(data.get("host")), number(data.get("port"))
    here = port in inner.ports and _is_loopback(host)
    if inner.walled and not here:
        return  # the gateway tells it, or nothing came of it
    if port == NAME_SERVER_PORT:
        if host not in inner.read_servers:
            yield "a name server was asked, and what is not recorded"
        return
    if transport == "udp" and kind == "net.connect":
        # connect(2) of a datagram socket sends nothing; getaddrinfo(3) does it to sort addresses (RFC 6724, 2).
        if port and not here:
            yield "a datagram socket was given an address; what it sent is not recorded"
        return
    yield Connect(host, port, "udp" if transport == "udp" else "tcp", inner=here, nameless=True)


def _is_loopback(host: str) -> bool:
    try:
        return special(parse_host(host)) == "loopback"
    except HostError:
        return False


def _distinct(*texts: str) -> list[str]:
    return list(dict.fromkeys(text for text in texts if text))


def _text(value: Any) -> str:
    """A foreign field as text; other bytes than UTF-8 as surrogates."""
    try:
        return to_bytes(value).decode("utf-8", "surrogateescape")
    except ValueError:
        return ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
