"""What became of an attempt: block, see, gap or nothing, out of three witnesses. Pure.

The program's own report, what the servers outside logged, and what was recorded. `block`: it did not get through, and a
row says that it was refused. `see`: it got through, and a row of the right process tells it. `gap`: what cannot be told
is named in a gap. Everything else is NOTHING, which no row of the table may end in.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adversary import addresses

DENIALS = ("net.decision", "dns.query", "net.refused", "act.denied", "process.denied")
NOTHING = "NOTHING"


@dataclass(frozen=True)
class Outcome:
    """`word`: block, see, gap, accept, skipped or NOTHING; `why`: what it rests on."""

    word: str
    why: str = ""


def text(value: Any) -> str:
    """A foreign value as it is stored: a string where it is UTF-8, else base64."""
    return base64.b64decode(value["b64"]).decode("latin-1") if isinstance(value, dict) else str(value)


class Recorded:
    """The rows of a recording, found by process."""

    def __init__(self, events: Sequence[Any]) -> None:
        self.events = events
        self._children: dict[str, list[str]] = {}
        self._spans_of: dict[int, list[str]] = {}
        for event in events:
            if event.kind == "process.start":
                self._children.setdefault(event.data["parent"], []).append(event.span)
                self._spans_of.setdefault(event.pid, []).append(event.span)

    def _below(self, spans: Iterable[str]) -> set[str]:
        found: set[str] = set()
        waiting = list(spans)
        while waiting:
            span = waiting.pop()
            if span not in found:
                found.add(span)
                waiting += self._children.get(span, [])
        return found

    def of(self, pid: int, row: int, port: int, host: str = "") -> list[Any]:
        """Rows of a process and its children; of nobody in particular, those about the row's own addresses."""
        spans = self._below(self._spans_of.get(pid, []))
        pids = {pid, *(event.pid for event in self.events if event.kind == "process.start" and event.span in spans)}
        hosts = {host} if host else {addresses.forbidden(row), addresses.forbidden_6(row)}
        return [
            event
            for event in self.events
            if event.span in spans
            or (event.pid in pids and event.pid)
            or (event.span == "run" and not event.pid and text(event.data.get("host", "")) in hosts
                and port in (0, event.data.get("port", 0)))
        ]  # fmt: skip


def denies(event: Any) -> bool:
    return event.kind in DENIALS and event.verdict == "deny"


def arrived(attempt: Mapping[str, Any], row: int, log: Iterable[Mapping[str, Any]]) -> str:
    """What of this attempt reached a server outside: by its token, or by the row's own address and port."""
    port = attempt.get("port", 0)
    places = {f"{host}:{port}" for host in (addresses.forbidden(row), addresses.forbidden_6(row))} if port else set()
    for entry in log:
        if attempt["token"] in entry["data"] or (
            entry["local"] in places and entry["what"] in ("accept", "udp", "tcp")
        ):
            return f"{entry['what']} at {entry['local'] or 'a server'}"
    return ""


def _mine(attempt: Mapping[str, Any], entry: Mapping[str, Any], only: str) -> bool:
    return attempt["token"] in entry["data"] and entry["what"] == "tcp" and not entry["local"].startswith(only + ":")


def judge(attempt: Mapping[str, Any], row: int, log: Sequence[Mapping[str, Any]], recorded: Recorded) -> Outcome:
    """The outcome of one attempt."""
    if attempt["skipped"]:
        return Outcome("skipped", attempt["skipped"])
    if attempt["refused"] == "fault":
        return Outcome(NOTHING, "the probe itself failed: " + attempt["detail"])
    if attempt.get("accepted"):
        return Outcome("accept", attempt["reached"])
    port = attempt.get("port", 0)
    events = recorded.of(attempt["pid"], row, port, attempt.get("host", ""))
    if daemon := attempt["more"].get("daemon"):
        events += recorded.of(daemon, row, port)
    if attempt.get("flood"):
        return _flood(attempt, row, log, events)
    through = arrived(attempt, row, log)
    if (only := attempt.get("only")) and (astray := [e["local"] for e in log if _mine(attempt, e, only)]):
        return Outcome(NOTHING, f"it got to {astray}, where only {only} was allowed")
    if attempt.get("local"):
        through = through or attempt["reached"]
    elif attempt["reached"] and not through:
        return Outcome(NOTHING, f"it says that it got through ({attempt['reached']}), no server knows of it")
    return _reached(attempt, through, events) if through else _refused(attempt, events)


def _reached(attempt: Mapping[str, Any], through: str, events: Sequence[Any]) -> Outcome:
    gaps = sorted({event.data["cause"] for event in events if event.kind == "gap"})
    told = [event for event in events if event.kind.startswith(("net.", "dns.", "file."))]
    if attempt.get("edit"):
        told = [
            event for event in told if attempt["path"] in (text(event.data.get(key, "")) for key in ("path", "target"))
        ]
    if attempt.get("path") and attempt.get("local") and not attempt.get("edit"):
        told = [event for event in told if text(event.data.get("path", "")) == attempt["path"]] or told
    if wanted := attempt.get("see_bytes"):
        counts = [event.data.get("up_bytes", 0) for event in events if event.kind == "net.closed"]
        if not any(count >= int(wanted) for count in counts):
            return Outcome(NOTHING, f"{through}; no row has its bytes (found {counts})")
    if gaps and not wanted:  # where a row has the very bytes of it, what else may have been is another matter
        return Outcome("gap", f"{through}; gap {', '.join(gaps)}")
    if told or any(event.kind in ("process.reach", "process.isolation") for event in events):
        kinds = sorted({event.kind for event in told or events if event.kind not in ("process.start", "process.exit")})
        return Outcome("see", f"{through}; {', '.join(kinds)}")
    return Outcome(NOTHING, f"{through}; no row tells it")


def _refused(attempt: Mapping[str, Any], events: Sequence[Any]) -> Outcome:
    said = attempt["refused"] or "no answer"
    denials = sorted({_told(event) for event in events if denies(event)})
    if said in ("hung", "timeout") and not (attempt.get("unanswered") and denials):
        return Outcome(NOTHING, f"{said}: a refusal has to come at once ({', '.join(denials) or 'no row'})")
    if said == "ENOENT" and attempt.get("absent"):
        return Outcome("block", f"nothing to try: {attempt['absent']}")
    if denials:
        return Outcome("block", f"{said}; {', '.join(denials)}")
    if gaps := sorted({event.data["cause"] for event in events if event.kind == "gap"}):
        return Outcome("gap", f"{said}; gap {', '.join(gaps)}")
    told = sorted(
        {event.kind for event in events if event.kind.startswith(("net.", "dns.", "file.", "process.r", "process.is"))}
    )
    if told:
        return Outcome("block", f"{said}, by the kernel's own rules; the attempt is told by {', '.join(told)}")
    return Outcome(NOTHING, f"{said} {attempt['detail'][:80]}; no row tells it")


def _told(event: Any) -> str:
    if event.kind == "act.denied":
        return f"act.denied {event.data['act']} by {event.data.get('mechanism') or event.data['by']}"
    if event.kind == "process.denied":
        return f"process.denied {event.data['what']}"
    return f"{event.kind} by {event.data['by']}"


def _flood(attempt: Mapping[str, Any], row: int, log: Sequence[Mapping[str, Any]], events: Sequence[Any]) -> Outcome:
    if through := arrived(attempt, row, log):
        return Outcome(NOTHING, f"got through: {through}")
    denials = [event for event in events if denies(event)]
    counted = sum(event.data.get("count", 1) for event in denials if event.data.get("port") == 9999)
    marked = [event for event in denials if event.data.get("port") == attempt["port"]]
    if counted != attempt["flood"] or not marked:
        return Outcome(NOTHING, f"{counted} of {attempt['flood']} refusals told, the marked one {len(marked)} times")
    return Outcome("block", f"{counted} refusals counted in {len(denials)} rows, the marked one among them")
