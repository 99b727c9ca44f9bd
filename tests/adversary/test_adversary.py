"""Every row of the table in every tier that can be made here, and the published page is what was seen."""

import json
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from adversary import addresses, page, tiers, verdicts
from adversary.table import ROWS, Row
from adversary.verdicts import NOTHING, Recorded, judge

pytestmark = pytest.mark.timeout(3600)  # the first test of a tier makes all of its runs
FINE_ANYWHERE = {"skipped", "machine"}
RUN = [row for row in ROWS if row.runs]


@cache
def shown(tier: str) -> tiers.Tier:
    return tiers.everything(tier)


@pytest.fixture(params=tiers.TIERS)
def tier(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if why := tiers.refusal(name):
        pytest.skip(f"{name}: {why}")
    return name


@pytest.mark.parametrize("row", RUN, ids=lambda row: str(row.number))
def test_every_attempt_ends_as_it_has_to(tier: str, row: Row) -> None:
    ended = {
        f"{attempt['letter']} {attempt['what']}": f"{found.word} ({found.why})"
        for attempt, found in shown(tier).rows[row.number]
        if found.word not in {row.expected(tier, attempt["letter"]), *FINE_ANYWHERE}
    }
    assert ended == {}


def test_without_agentwrap_most_of_it_gets_through(tier: str) -> None:
    """Otherwise the rows above would show nothing."""
    bare = shown(tier).bare
    through = sum(not refused for refused in bare.values())
    assert through > len(bare) / 2, bare


def test_the_published_results_are_what_was_seen(tier: str) -> None:
    published = json.loads(page.RESULTS.read_text()).get(tier, {}).get("rows", {})
    seen = page.told(shown(tier))["rows"]

    def words(rows: dict[str, Any]) -> dict[str, str]:
        return {number + letter: word for number, row in rows.items() for letter, (_, word) in row.items()}

    ours, theirs = words(seen), words(published)
    assert ours.keys() == theirs.keys()
    assert {
        key: (theirs[key], word)
        for key, word in ours.items()
        if not {word, theirs[key]} & FINE_ANYWHERE and word != theirs[key]
    } == {}


def test_the_page_is_made_from_the_results() -> None:
    assert page.PAGE.read_text() == page.render(json.loads(page.RESULTS.read_text()))


def test_the_table_has_all_rows_once() -> None:
    assert [row.number for row in ROWS] == list(range(1, 68))
    assert {row.number for row in ROWS if not row.runs} == set(range(61, 68))


# -- the judge can say no

ATTEMPT: dict[str, Any] = {
    "letter": "a", "what": "", "token": "r10az", "pid": 77, "port": 443, "reached": "", "refused": "ECONNREFUSED",
    "detail": "", "skipped": "", "more": {},
}  # fmt: skip


def event(kind: str, span: str = "p2", pid: int = 77, verdict: str = "", **data: Any) -> SimpleNamespace:
    return SimpleNamespace(kind=kind, span=span, pid=pid, verdict=verdict, data=data)


STARTED = event("process.start", parent="p1")
DENIED = event("net.decision", verdict="deny", by="wall", host="198.51.100.110", port=443)
ARRIVED = {"what": "tcp", "local": "198.51.100.110:443", "data": "r10az\n"}


@pytest.mark.parametrize(
    ("attempt", "log", "events", "word"),
    [
        ({}, [], [STARTED, DENIED], "block"),
        ({}, [], [STARTED], NOTHING),
        ({}, [], [], NOTHING),
        ({}, [ARRIVED], [STARTED, DENIED], "see"),
        ({}, [ARRIVED], [STARTED], NOTHING),
        ({"refused": "hung"}, [], [STARTED, DENIED], NOTHING),
        ({"reached": "answered", "refused": ""}, [], [STARTED, DENIED], NOTHING),
        ({}, [], [STARTED, event("net.decision", "p9", 99, "deny", by="wall")], NOTHING),
        ({}, [], [event("net.refused", "run", 0, "deny", by="wall", host="198.51.100.110", port=443)], "block"),
        ({}, [], [event("net.refused", "run", 0, "deny", by="wall", host="198.51.100.110", port=80)], NOTHING),
        ({}, [], [STARTED, event("gap", cause="not-dumpable")], "gap"),
        ({"refused": "fault"}, [], [STARTED, DENIED], NOTHING),
        ({"skipped": "no gcc"}, [], [], "skipped"),
        ({"only": "192.0.2.10"}, [ARRIVED], [STARTED, DENIED], NOTHING),
        ({"see_bytes": 10}, [ARRIVED], [STARTED, event("net.closed", up_bytes=9)], NOTHING),
        ({"see_bytes": 10}, [ARRIVED], [STARTED, event("net.closed", up_bytes=10)], "see"),
    ],
)
def test_the_judge(attempt: dict[str, Any], log: list[Any], events: list[Any], word: str) -> None:
    assert judge(ATTEMPT | attempt, 10, log, Recorded(events)).word == word


def test_a_child_of_the_attempt_is_the_attempt() -> None:
    child = event("process.start", "p3", 78, parent="p2")
    denied = event("net.decision", "p3", 78, "deny", by="wall")
    assert judge(ATTEMPT, 10, [], Recorded([STARTED, child, denied])).word == "block"


def test_every_row_has_addresses_of_its_own() -> None:
    everything = addresses.everything()
    assert len(set(everything)) == len(everything)
    assert verdicts.arrived(ATTEMPT, 10, [ARRIVED | {"data": ""}]) != ""
    assert verdicts.arrived(ATTEMPT, 11, [ARRIVED | {"data": ""}]) == ""
