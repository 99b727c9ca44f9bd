"""Lines of the claims protocol: what is one becomes a claim of the peer, anything else is refused in words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwrap.claims.lines import DATA_BYTES, LINE_BYTES, SAID, LineError, claim
from agentwrap.events import Claim


def said(**fields: object) -> Claim:
    return claim(json.dumps({"event": "log", **fields}).encode(), 7, "p3", 42)


def test_a_statement_is_its_peers() -> None:
    made = said(name="plan", id=5, parent="s0", status="ok", time=1700000000.5, data={"pid": 1, "span": "p1"})
    assert (made.span, made.pid, made.at_ns) == ("p3", 42, 7)
    assert (made.said, made.name, made.id, made.parent, made.status) == ("log", b"plan", b"5", b"s0", b"ok")
    assert made.told_ns == 1700000000500000000
    assert json.loads(made.data) == {"pid": 1, "span": "p1"}


@pytest.mark.parametrize("event", SAID)
def test_every_sort_of_statement(event: str) -> None:
    assert claim(json.dumps({"event": event}).encode(), 0, "run", 0).said == event


def test_long_data_is_clipped_and_counted() -> None:
    made = said(data="x" * (DATA_BYTES + 10))
    assert (len(made.data), made.omitted_bytes) == (DATA_BYTES, 12)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 5000, "not"),
        (b'{"event":"log","data":' + b"[" * 5000, "not JSON"),
        (b"[]", "not as the protocol says"),
        (b'{"event":"exec"}', "not as the protocol says"),
        (b'{"event":"log","name":5}', "not as the protocol says"),
        (b'{"event":"log","name":"' + b"x" * LINE_BYTES + b'"}', "longer than"),
    ],
)
def test_what_is_no_claim_is_refused_with_a_reason(line: bytes, why: str) -> None:
    with pytest.raises(LineError, match=why):
        claim(line, 0, "run", 0)


@given(st.binary(max_size=300))
def test_no_bytes_do_anything_else(line: bytes) -> None:
    try:
        claim(line, 0, "run", 0)
    except LineError:
        return


NESTED = st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=5)
OTHERS = {"name": st.text(), "id": st.text(), "time": st.floats(allow_nan=False, allow_infinity=False), "data": NESTED}


@given(st.fixed_dictionaries({"event": st.sampled_from(SAID)}, optional=OTHERS))
def test_every_statement_keeps_its_words(told: dict[str, object]) -> None:
    made = claim(json.dumps(told).encode(), 0, "run", 0)
    assert made.name == str(told.get("name", "")).encode("utf-8", "surrogatepass")[:1024]
    assert 0 <= made.told_ns < 2**63
    if "data" in told:
        assert json.loads(made.data) == told["data"]
