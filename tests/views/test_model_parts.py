import dataclasses
import unicodedata
from decimal import Decimal

import model_run
import pytest
from fake_recording import FakeRecording, FakeRow
from hypothesis import given
from hypothesis import strategies as st

from agentwrap import text
from agentwrap.events import Claim, HttpExchange, SessionFile
from agentwrap.evidence.linking import Linker, of_recording
from agentwrap.views import noise, tokens
from agentwrap.views.context import Context
from agentwrap.views.lines import stream_line
from agentwrap.views.styled import plain

RUN = FakeRecording(model_run.items(), meta=model_run.meta())
STORY = of_recording(RUN, RUN.meta)


def line(row: FakeRow, columns: int | None = None, *, live: bool = False, story: Linker | None = STORY) -> str:
    return plain(stream_line(row, Context(RUN, columns=columns, live=live, story=story)))


def stream(*kinds: str) -> list[str]:
    return [line(row) for row in RUN.rows(kinds=kinds)]


def test_a_call_is_one_line_with_its_answer() -> None:
    assert stream("model.request") == [
        "  0.100 t1 model  a1 claude-sonnet-4-5  529  overloaded_error: busy  retry after 1s  200ms",
        "  1.300 t1 model  a1 claude-sonnet-4-5  in 18204 (cache 17900) out 212  attempt 2  1.9s  est $0.02",
        "  6.450 t2 model  a1 claude-sonnet-4-5  in 18400 (cache 18204) out 90  550ms",
        "  7.150 t3 model  ↳ a2 unknown-model  in 500 out 20            750ms",
        "  8.000 t4 model  a1 claude-sonnet-4-5  broken off  the connection was cut  1.0s",
        "  9.100 t5 model  a1 claude-sonnet-4-5                         no answer seen",
    ]


def test_a_tool_call_is_one_line_with_its_result() -> None:
    assert stream("tool.call") == [
        "  3.200 t1 tool   a1 Bash  pytest -x tests/billing             exit 1  3.2s",
        "  7.000 t2 tool   a1 Edit  billing/retry.py                    ok  1.0s",
        "  7.000 t2 tool   a1 Task  look it over                        error  1.0s",
    ]


def test_what_a_tool_caused_is_of_its_turn() -> None:
    turns = {line(row)[8:10] for row in RUN.rows() if row.span in ("p2", "p3")}
    assert turns == {"t1"}
    assert [told[8:10] for told in stream("file.edit")] == ["t1", "t2"]
    assert stream("net.connect")[0][8:10] == "--"


def test_while_it_happens_request_and_answer_have_a_line_each() -> None:
    context = Context(RUN, live=True)
    told = []
    for row in RUN.rows():
        context.follow(row)
        told.append(plain(stream_line(row, context)))
    assert "  0.100 t1 model  claude-sonnet-4-5  asked, 1 message" in told
    assert "  3.200 t1 model  claude-sonnet-4-5  in 18204 (cache 17900) out 212  1.9s  est $0.02" in told
    assert "  3.200 t1 tool   Bash  pytest -x tests/billing" in told
    assert "  6.450 t2 tool   Bash  pytest -x tests/billing                result  exit 1  3.2s  12B" in told
    assert any(one.startswith("  3.300 t1 file   A report.xml") for one in told)


def test_a_call_that_had_its_line_needs_none_for_its_answer() -> None:
    told = noise.Told()
    asked, answered = (next(RUN.rows(kinds=(kind,))) for kind in ("model.request", "model.response"))
    called, resulted = (next(RUN.rows(kinds=(kind,))) for kind in ("tool.call", "tool.result"))
    assert told.again(answered) == told.again(resulted) == ""
    told.shown(asked)
    told.shown(called)
    assert told.again(answered) == told.again(resulted) == noise.AGAIN
    assert told.again(called) == ""


def test_exchanges_claims_and_session_files() -> None:
    events = [
        HttpExchange(
            at_ns=10**9, exchange="h1", host=b"api.example.com", port=443, method=b"POST", path=b"/log", status=404
        ),
        Claim(at_ns=2 * 10**9, said="decision", name=b"deploy\x1b", status=b"ok", data=b'{"a":1}'),
        SessionFile(at_ns=3 * 10**9, agent="codex", path=b"/srv/project/x.jsonl", joined=((b"msg_1", b"m1"),)),
    ]
    recording = FakeRecording(events, meta=model_run.meta())
    told = [plain(stream_line(row, Context(recording))) for row in recording.rows()]
    assert told[0].startswith("  1.000 -- http   404  POST api.example.com:443/log  ")
    assert told[1] == '  2.000 -- claim  says  decision  deploy\\x1b  ok  {"a":1}'
    assert told[2] == "  3.000 -- log    codex  x.jsonl  0B  1 id joined"


@pytest.mark.parametrize(
    ("amount", "told"),
    [("0", "$0.00"), ("0.0214", "$0.02"), ("0.0042", "$0.0042"), ("0.00995", "$0.01"), ("1234.5", "$1,234.50"),
     ("0.00000007", "below $0.000001"), ("12", "$12.00")],
)  # fmt: skip
def test_money(amount: str, told: str) -> None:
    assert tokens.money(Decimal(amount)) == told


@pytest.mark.parametrize("foreign", ["", None, 3, "NaN", "inf", "-1", "x", "1e400"])
def test_what_is_no_amount_is_none(foreign: object) -> None:
    assert tokens.amount(foreign) is None


def test_numbers_of_tokens_are_short() -> None:
    told = [tokens.short(number) for number in (0, 350, 999, 1000, 1234, 71_420, 999_600, 1_234_567, 10**13)]
    assert told == ["0", "350", "999", "1.0k", "1.2k", "71k", "1.0M", "1.2M", "10000G"]


def test_sums_say_what_was_not_told() -> None:
    total = tokens.Sum()
    total.add({"input_tokens": 5, "cost_usd": "0.5", "prices": "p 1"}, "m")
    total.add({"output_tokens": 7}, "n")
    assert (total.cell("input"), total.cell("output"), total.cell("reasoning")) == ("5+", "7+", "not told")
    assert (total.unpriced, total.tables) == ({"n": 1}, {"p 1": 1})
    assert total.words() == "5 tokens in, 7 out, est $0.50 without 1 of them"
    assert tokens.Sum().words() == ""


FIELDS = (
    "call agent turn model status ending error retry_after input_tokens cache_read_tokens cache_write_tokens "
    "output_tokens cost_usd prices attempt messages requested_ns tool name arguments provider_side size exchange "
    "detail request response said data path joined content agent_parent"
).split()
KINDS = ["model.request", "model.response", "tool.call", "tool.result", "http.exchange", "claim", "session.file"]
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=12) |
    st.sampled_from(["m1", "x1", "a1", "a2", "0.1", "error"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner), max_leaves=6,
)  # fmt: skip
rows = st.builds(
    FakeRow, seq=st.just(1), at_ns=st.integers(0, 2**62), kind=st.sampled_from(KINDS),
    span=st.sampled_from(["p1", "gone"]), pid=st.just(1), subject=st.text(max_size=20), verdict=st.just(""),
    data=st.dictionaries(st.sampled_from(FIELDS), values, max_size=8),
)  # fmt: skip


@given(rows, st.booleans(), st.integers(20, 200))
def test_a_row_of_any_shape_is_one_harmless_line_that_fits(row: FakeRow, live: bool, columns: int) -> None:
    story = Linker()
    story.feed(dataclasses.replace(row))
    for told in (line(row, live=live), line(row, columns, live=live, story=story)):
        assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in told)
    assert text.width(line(row, columns, live=live)) <= columns
