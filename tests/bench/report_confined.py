"""The parts of the page about the gateway's traffic and about confined start-ups."""

from collections.abc import Sequence

import confined
import gateway
from confined import Confined
from gateway import Traffic

MIN_CONNECTIONS, MIN_BYTES, MAX_ADDED_US = 4_000, 1e9, 60
MAX_ADDED_MS = 300

TRAFFIC_WORDS = f"""
A C client and a C server ({gateway.SAMPLE_S} s for each cell and round; connection: connect, a request of 100 bytes, an
answer of 100, close; round trip: the same on an open connection; bulk: one connection, writes of 256 KiB) on the
loopback of a network namespace of the bench's own. Client, server and everything between share this machine's cores.
Processes of class SCHED_IDLE keep the cores from halting, so that wake-ups cost the same in every row. Medians, and
the ratio to direct. agentwrap follows the client and records each connection (what decided, how it ended, who asked),
enforcing a policy of one rule; every recording is checked to tell of every connection. `gateway alone` is the wall
without tracer and recorder. pasta and slirp4netns record and enforce nothing.
"""
STARTS_WORDS = """
Whole commands, from before the tool's start to its end: `true`, and a `curl` of a page from another network namespace,
by a name that the policy allows. Medians. `docker profile`: inside of a container, timed there. `keeps to hosts` was
tried: a host that no rule allows was not reached.
"""


def _mark(good: bool) -> str:
    return "met" if good else "**missed**"


def _cell(result: Traffic, direct: Traffic | None, shape: str, what: str, divisor: float = 1.0) -> str:
    value = result.median(shape, what)
    if value is None:
        return ""
    base = direct.median(shape, what) if direct is not None and direct is not result else None
    return f"{value / divisor:,.0f}" + (f" ({value / base:.2f}x)" if base else "")


def traffic(results: Sequence[Traffic]) -> list[str]:
    """The table, and the targets."""
    direct = gateway.find(results, gateway.DIRECT)
    lines = ["", "## The way through the gateway", *TRAFFIC_WORDS.rstrip().split("\n"), ""]
    heads = ("way", "connections/s, 16 at once", "one after the other", "one takes", "round trip", "it adds")
    lines += [f"| {' | '.join((*heads, 'down MB/s', 'up MB/s'))} |", "|---|" + "--:|" * 7]
    for result in results:
        if result.missing:
            lines.append(f"| {result.way} | missing: {result.missing} |" + " |" * 6)
            continue
        added = _added_us(result, direct)
        cells = [
            _cell(result, direct, "c16", "per_second"),
            _cell(result, direct, "c1", "per_second"),
            f"{result.median('c1', 'p50_us') or 0:,.0f} µs",
            f"{result.median('r1', 'p50_us') or 0:,.0f} µs",
            "" if result is direct or added is None else f"{added:+,.0f} µs",
            _cell(result, direct, "down", "per_second", 1e6),
            _cell(result, direct, "up", "per_second", 1e6),
        ]
        lines.append(f"| {result.way} | " + " | ".join(cells) + " |")
    return lines + _traffic_targets(results, direct)


def _added_us(result: Traffic, direct: Traffic | None) -> float | None:
    mine, base = result.median("r1", "p50_us"), direct.median("r1", "p50_us") if direct is not None else None
    return mine - base if mine is not None and base is not None else None


def _traffic_targets(results: Sequence[Traffic], direct: Traffic | None) -> list[str]:
    lines = ["", "| target | " + " | ".join(_HELD) + " |", "|---|" + "--:|" * len(_HELD)]
    rows: dict[str, list[str]] = {
        "> 4,000 connections/s": [],
        "> 1 GB/s each way": [],
        "< 60 µs added to a round trip": [],
    }
    for name in _HELD:
        found = gateway.find(results, name)
        rate = found.median("c16", "per_second") if found else None
        bulk = [found.median(shape, "per_second") for shape in ("down", "up")] if found else []
        least = min((one for one in bulk if one is not None), default=None)
        added = _added_us(found, direct) if found else None
        good = (
            rate is not None and rate > MIN_CONNECTIONS,
            least is not None and least > MIN_BYTES,
            added is not None and added < MAX_ADDED_US,
        )
        values = (
            "" if rate is None else f"{rate:,.0f}",
            "" if least is None else f"{least / 1e9:.2f} GB/s",
            "" if added is None else f"{added:.0f} µs",
        )
        for row, value, met in zip(rows.values(), values, good, strict=True):
            row.append(f"{value}, {_mark(met)}" if value else "")
    return lines + [f"| {what} | " + " | ".join(cells) + " |" for what, cells in rows.items()]


_HELD = (gateway.WALL, gateway.GUARD, gateway.ALONE)


def starts(results: Sequence[Confined]) -> list[str]:
    """The table, and the targets."""
    lines = ["", "## Start-up, confined", *STARTS_WORDS.rstrip().split("\n"), ""]
    lines += ["| way | keeps to hosts | `true` | over bare | `curl` | over bare |", "|---|---|--:|--:|--:|--:|"]
    for result in results:
        if result.missing:
            lines.append(f"| {result.way} | missing: {result.missing} |" + " |" * 4)
            continue
        bare = confined.find(
            results, confined.CONTAINER_BARE if result.way.endswith("(docker profile)") else confined.BARE
        )
        cells = ["yes" if result.enforced else "no" if "curl" in result.seconds else "no network"]
        for command in ("true", "curl"):
            mine, base = result.median_ms(command), bare.median_ms(command) if bare else None
            cells.append("" if mine is None else f"{mine:.0f} ms")
            cells.append("" if mine is None or base is None or result is bare else f"{mine - base:+.0f} ms")
        if result.failed:
            cells[-2] += f" ({result.failed} failed)"
        lines.append(f"| {result.way} | " + " | ".join(cells) + " |")
    return lines + _starts_targets(results)


def _starts_targets(results: Sequence[Confined]) -> list[str]:
    medians = [
        found.median_ms("true") if found is not None else None
        for found in (confined.find(results, name) for name in (confined.WALL, confined.BARE, confined.SRT))
    ]
    wall, bare, srt = medians
    if wall is None or bare is None:
        return []
    added = wall - bare
    lines = ["", "| target | figure | |", "|---|--:|---|"]
    lines.append(
        f"| wrapped `true`, wall: < {MAX_ADDED_MS} ms over bare | {added:.0f} ms | {_mark(added < MAX_ADDED_MS)} |"
    )
    beside = f"{wall:.0f} ms, srt {srt:.0f} ms" if srt is not None else "srt is missing"
    lines.append(f"| and below srt | {beside} | {_mark(wall < srt) if srt is not None else ''} |")
    return lines
