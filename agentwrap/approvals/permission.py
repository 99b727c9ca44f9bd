"""The entry of a policy that would allow what was asked, written into the policy's text. Pure.

The text is edited, not written anew: comments, order and layout are somebody's. What the edit means is for the policy's
own loader to say; whoever calls this loads the result before it replaces anything.
"""

import json
import re
import tomllib

import msgspec

from agentwrap.policy.hosts import HOST_LOOPBACK, HostError, parse_host, special
from agentwrap.policy.positions import Path, Spans, spans
from agentwrap.policy.questions import Connect

SECTION, KEY = "network", "allow"
_ASKED = re.compile(
    r"connect (?:to )?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s\[\]:]+):(?P<port>[0-9]{1,5})(?: at (?P<address>[0-9A-Fa-f:.]+))?"
)


class Permission(msgspec.Struct, frozen=True):
    """What would have to stand in `network.allow`: the host, and the address where a rule has to name that, too."""

    question: Connect
    entries: tuple[str, ...]


class Edit(msgspec.Struct, frozen=True):
    """A policy's text with entries added. `lines`: what was added, with the number of its line, from 1."""

    text: str
    lines: tuple[tuple[int, str], ...]


def permission_for(question: str) -> Permission | None:
    """The entry that allows what a question asks for; None where no entry of a policy can.

    Questions are as the gateway asks them: `connect to HOST:PORT`, with ` at ADDRESS` where the name leads somewhere.
    """
    match = _ASKED.fullmatch(question)
    if match is None or not 0 < int(match["port"]) < 65536:
        return None
    port, address = int(match["port"]), match["address"] or ""
    try:
        host = parse_host(match["host"])
        dialled = parse_host(address) if address else host
    except HostError:
        return None
    entries = [_entry(str(host), port, loopback=special(host) == "loopback")]
    if dialled != host and special(dialled):
        entries.append(_entry(str(dialled), port, loopback=special(dialled) == "loopback"))
    return Permission(Connect(str(host), port, address=address), tuple(dict.fromkeys(entries)))


def _entry(host: str, port: int, *, loopback: bool) -> str:
    if loopback:
        return f"{HOST_LOOPBACK}:{port}"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def fresh(entries: tuple[str, ...], name: str, mode: str) -> Edit:
    """A policy that allows these hosts and says nothing else."""
    text = f'version = 1\nname = {_quoted(name)}\nmode = "{mode}"\n\n[{SECTION}]\n{KEY} = [{_joined(entries)}]\n'
    return Edit(text, ((6, f"{KEY} = [{_joined(entries)}]"),))


def add(text: str, entries: tuple[str, ...]) -> Edit:
    """The text with those of the entries that are not in its `network.allow` yet.

    Raises ValueError where the text is no TOML or `network` is no table.
    """
    document = tomllib.loads(text)
    network = document.get(SECTION, {})
    present = network.get(KEY, []) if isinstance(network, dict) else None
    if not isinstance(present, list):
        raise ValueError(f"`{SECTION}.{KEY}` is no list")
    missing = tuple(entry for entry in entries if entry not in present)
    if not missing:
        return Edit(text, ())
    where = spans(text)
    if (SECTION, KEY) in where.values:
        edited = _into_list(text, where.values, len(present), missing)
    elif SECTION in document:
        edited = _into_section(text, where, missing)
    else:
        edited = _ended(text) + f"\n[{SECTION}]\n{KEY} = [{_joined(missing)}]\n"
    return Edit(edited, _new_lines(text, edited))


def _into_list(text: str, values: dict[Path, tuple[int, int]], count: int, new: tuple[str, ...]) -> str:
    """Behind the last entry: on lines of its own where the list has its bracket on one, else beside it."""
    start, end = values[SECTION, KEY]
    close = end - 1
    if not count:
        return text[: start + 1] + _joined(new) + text[start + 1 :]
    last = values[SECTION, KEY, count - 1][1]
    tail = text[last:close]
    comma = "," in re.sub(r"#[^\n]*", "", tail)
    line_start = text.rfind("\n", 0, close) + 1
    if line_start <= last or text[line_start:close].strip():
        # The bracket follows the last entry: there is no room for a comment in between.
        return text[:last] + ("" if comma else ",") + tail.rstrip(" \t") + " " + _joined(new) + text[close:]
    first = values[SECTION, KEY, 0][0]
    indent = re.match(r"[ \t]*", text[text.rfind("\n", 0, first) + 1 :])
    lead = indent[0] if indent and text[text.rfind("\n", 0, first) + 1 : first].isspace() else "  "
    added = "".join(f"{lead}{_quoted(one)},\n" for one in new)
    return text[:last] + ("" if comma else ",") + text[last:line_start] + added + text[line_start:]


def _into_section(text: str, where: Spans, new: tuple[str, ...]) -> str:
    """`network` is there and has no `allow`: behind its header, in its braces, or after its first dotted key."""
    if (SECTION,) in where.headers:
        at = _line_end(text, where.headers[(SECTION,)])
        return text[:at] + f"\n{KEY} = [{_joined(new)}]" + text[at:]
    members = [span for path, span in where.values.items() if len(path) == 2 and path[0] == SECTION]
    if (SECTION,) in where.values:
        end = max((one[1] for one in members), default=0)
        if not end:
            start = where.values[(SECTION,)][0] + 1
            return text[:start] + f" {KEY} = [{_joined(new)}] " + text[start:].lstrip(" \t")
        return text[:end] + f", {KEY} = [{_joined(new)}]" + text[end:]
    if not members:
        raise ValueError(f"`{SECTION}` is written in a way that cannot be added to")
    at = _line_end(text, min(members)[1])
    return text[:at] + f"\n{SECTION}.{KEY} = [{_joined(new)}]" + text[at:]


def _line_end(text: str, at: int) -> int:
    """The end of the line, without its line break."""
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    return end - 1 if text[end - 1 : end] == "\r" else end


def _quoted(text: str) -> str:
    """A basic string of TOML; of printable ASCII, as entries are, JSON's form is one (TOML 1.0, String)."""
    return json.dumps(text)


def _joined(entries: tuple[str, ...]) -> str:
    return ", ".join(map(_quoted, entries))


def _ended(text: str) -> str:
    return text if text.endswith("\n") or not text else text + "\n"


def _new_lines(before: str, after: str) -> tuple[tuple[int, str], ...]:
    """Lines of the result that are not in the text, in order; of a line that grew, what it is now."""
    old = before.split("\n")
    found: list[tuple[int, str]] = []
    at = 0
    for number, line in enumerate(after.split("\n"), 1):
        if at < len(old) and line == old[at]:
            at += 1
        else:
            found.append((number, line.strip()))
    return tuple(found)
