"""Every form of a report, with texts that an adversary chose: they are shown, and are never markup, formula or control.

The outline of a report (everything but the foreign texts) has to be that of the same report with harmless texts.
"""

import csv
import html.parser
import io
import json
import re
import unicodedata
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentwrap.evidence.report.controls import Control, Exceptional
from agentwrap.evidence.report.reviewed import Finding, Recorded, Review
from agentwrap.export.reports import FORMATS, document, markdown, oscal, page, renderer, sarif, table
from agentwrap.views.report import report_lines
from agentwrap.views.styled import plain

HOSTILE = (
    "<script>alert(1)</script>", "</code></li><img src=x onerror=alert(1)>", '" onmouseover="x', "' autofocus='",
    "<!--", "-->", "]]>", "</style>", "&lt;script&gt;", "javascript:alert(1)", "`", "``", "` `` ```", "x`", "`x",
    "[a](http://evil.example)", "![a](x)", "<http://evil.example>", "http://evil.example", "# title", "- item",
    "| cell |", "\x7f",
    "\n\n# title\n", "\r\n=1+1", "=cmd|'/c calc'!A0", "+1", "-1", "@SUM(1)", "\t=1", " =1", "'=1", "\uff1d1", "%0a=1",
    "\u202egnp.exe", "\u2066\u2069", "\x1b[31m", "\x1b]8;;http://evil.example\x07", "\x9b31m", "\x00", "\u2028",
    "\ufeff",
    "{0} {{1}}", "[x](1)", "\\[", "\udc80\udcff", "e\u0301" * 50, "\\", "$(x)", "x" * 5000, "",
)  # fmt: skip
texts = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(max_size=40),
    st.lists(st.sampled_from(HOSTILE), min_size=2, max_size=3).map("".join),
    st.text(st.sampled_from("`|[](){}<>&\"'=+-@\\!#* \n\r\t\x1b\u202e"), max_size=12),
)


def made(*foreign: str) -> Review:
    """A review with these texts in every place that somebody else fills."""
    take = [*foreign, *("x" for _ in range(12))]
    recorded = Recorded(
        name=take[0], sha256="ab" * 32, run=take[1], command=take[2], started_unix_ns=1767225600 * 10**9, ended_ns=5,
        events=9, verdict="intact", verdict_detail=take[3], tool_version=take[4], policy=take[5] or "p",
        policy_sha256=take[6], mode=take[7],
    )  # fmt: skip
    exceptions = (
        Exceptional(take[8] or "why", (3, 4), take[9] or "about"),
        Exceptional("nobody can say", (), take[9] or "about", broken=False),
    )
    broken = Control("decided", "Decisions", "fail", 3, "calls", "How.", 1, 1, exceptions, (take[10] or "note",))
    fine = Control("outcome", "Outcomes", "pass", 3, "calls", "How.")
    return Review(recorded, (broken, fine), (Finding(take[11] or "f", 2, (7, 8)),), {3: "cd" * 32, 4: "ef" * 32})


def whole(render: Callable[[Review], Iterator[bytes]], review: Review) -> str:
    return b"".join(render(review)).decode("utf-8")


def harmful(shown: str, allowed: str = "\n") -> list[str]:
    """Characters that move a cursor, turn the direction of writing, or are not there to be seen."""
    bad = ("Cc", "Cs", "Zl", "Zp")
    turning = set("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff\u200b")
    return [one for one in shown if one not in allowed and (unicodedata.category(one) in bad or one in turning)]


class Outline(html.parser.HTMLParser):
    """Tags and attributes of a page, in order; in an attribute or tag that a text got in, it would be seen."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.told: list[object] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.told.append((tag, attrs))

    def handle_endtag(self, tag: str) -> None:
        self.told.append(tag)

    def handle_comment(self, data: str) -> None:
        self.told.append(("comment", data))

    def handle_decl(self, decl: str) -> None:
        self.told.append(decl)

    def handle_pi(self, data: str) -> None:
        self.told.append(("pi", data))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def outside_code(line: str) -> str:
    """A line of Markdown without its code spans (CommonMark 0.31, 6.1)."""
    told, at = "", 0
    while match := re.compile("`+").search(line, at):
        told += line[at : match.start()]
        close = next((one for one in re.finditer("`+", line[match.end() :]) if one[0] == match[0]), None)
        if close is None:
            return told + line[match.start() :]
        told += "CODE"
        at = match.end() + close.end()
    return told + line[at:]


def test_what_a_page_shows_is_what_was_said() -> None:
    for one in HOSTILE:
        told = Outline(whole(page.render, made(*[one] * 12)))
        if one.isprintable() and one.strip() and len(one) < 100:
            assert one in told.texts


@settings(max_examples=150)
@given(st.lists(texts, min_size=12, max_size=12))
@example(["</code>"] * 12)
def test_no_text_becomes_markup_of_a_page(foreign: list[str]) -> None:
    shown = whole(page.render, made(*foreign))
    assert Outline(shown).told == Outline(whole(page.render, made())).told
    assert not harmful(shown)
    assert shown.count("<script") == 0


def test_a_page_loads_nothing_and_lets_nothing_run() -> None:
    shown = whole(page.render, made())
    assert "default-src 'none'" in shown
    assert re.findall(r'(?:src|href)="([^#"][^"]*)"', shown) == []
    assert "http" not in shown.replace('http-equiv="Content-Security-Policy"', "")


@settings(max_examples=150)
@given(st.lists(texts, min_size=12, max_size=12))
@example(["`"] * 12)
@example(["\\"] * 12)
def test_no_text_becomes_markup_of_markdown(foreign: list[str]) -> None:
    shown = whole(markdown.render, made(*foreign))
    outline = [outside_code(line).replace("(empty)", "CODE") for line in shown.split("\n")]
    assert outline == [outside_code(line) for line in whole(markdown.render, made()).split("\n")]
    assert not harmful(shown)


@settings(max_examples=150)
@given(st.lists(texts, min_size=12, max_size=12))
@example(["=1+1"] * 12)
def test_no_cell_is_a_formula_and_no_text_is_two_cells(foreign: list[str]) -> None:
    shown = whole(table.render, made(*foreign))
    read = list(csv.reader(io.StringIO(shown, newline=""), strict=True))
    assert [len(line) for line in read] == [len(table.COLUMNS)] * 5
    for one in (one for line in read for one in line):
        assert one.lstrip(" \u3000")[:1] not in {*"=+-@|%\t\r\n\uff1d\uff0b\uff0d\uff20"} or not one
    assert not harmful(shown, "\r\n")


@settings(max_examples=100)
@given(st.lists(texts, min_size=12, max_size=12))
@example(["[x](1)"] * 12)
def test_json_forms_are_ascii_and_hold_no_link_of_somebody_elses(foreign: list[str]) -> None:
    review = made(*foreign)
    for render in (document.render, oscal.render, sarif.render):
        shown = whole(render, review)
        assert shown.isascii()
        assert not harmful(shown)
        json.loads(shown)
    for result in sarif.document(review)["runs"][0]["results"]:
        message = result["message"]["text"]
        assert not re.search(r"(?<!\\)(?:\\\\)*[\[\]]", message.replace("\\[", "").replace("\\]", ""))
        assert not re.search(r"\{\d+\}", message.replace("{{", "").replace("}}", ""))
    told = oscal.document(review)["assessment-results"]
    evidence = told["results"][0]["observations"][0]["relevant-evidence"]
    assert [outside_code(one["description"]) for one in evidence] == ["broken: CODE: CODE", "cannot tell: CODE: CODE"]


@given(st.lists(texts, min_size=12, max_size=12))
def test_lines_on_a_terminal_stay_lines(foreign: list[str]) -> None:
    for full in (False, True):
        lines = list(report_lines(made(*foreign), full=full))
        assert len(lines) == len(list(report_lines(made(), full=full)))
        assert not harmful("".join(map(plain, lines)), "")


@pytest.mark.parametrize("name", FORMATS)
def test_every_form_says_evidence_and_none_says_that_anything_is_complied_with(name: str) -> None:
    shown = whole(renderer(name), made()).lower()
    if name != "csv":
        assert "evidence for" in shown.replace("_", " ").replace("evidence-for", "evidence for")
    assert not re.search(r"complian|complies|conform|certif|accredit", shown)


def test_no_word_of_the_source_claims_more() -> None:
    from agentwrap.evidence.report.frameworks import frameworks

    for framework in frameworks().values():
        assert set(framework.controls) == {
            "complete", "attributed", "approved", "separated", "decided", "tools", "outcome", "connections", "gaps",
        }  # fmt: skip


def test_ids_of_a_catalog_are_written_as_it_has_them() -> None:
    assert [oscal.catalog_id(one) for one in ("AC-3", "AC-3(2)", "SC-7(5)")] == ["ac-3", "ac-3.2", "sc-7.5"]
