"""The report as one HTML file: no script, nothing loaded, readable in light and dark. Pure.

Everything is put together by `element`, which escapes each text that is not markup of ours already: what is foreign
cannot be forgotten, only be said to be ours by mistake. A policy in the page forbids scripts, whatever stands in it.
"""

import base64
import html
from collections.abc import Iterator
from hashlib import sha256

from agentwrap import text
from agentwrap.evidence.report.controls import Control, Exceptional
from agentwrap.evidence.report.frameworks import WORDS, evidence_for
from agentwrap.evidence.report.reviewed import Review
from agentwrap.export.reports import wording

MEDIA = "text/html"
LONGEST = 2_000
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --pass: #1a7f37; --fail: #cf222e; --gap: #8250df; --dim: #6e7781; }
@media (prefers-color-scheme: dark) { :root { --pass: #3fb950; --fail: #ff7b72; --gap: #bc8cff; --dim: #8b949e; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin: 0 0 .4rem; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .3rem .6rem .3rem 0; }
td, th, section { border-bottom: 1px solid var(--line); } section { padding: 1rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; }
dt { color: var(--dim); } dd { margin: 0; }
code { font: .9em ui-monospace, monospace; unicode-bidi: isolate; overflow-wrap: anywhere; overflow: clip; }
.pass { color: var(--pass); } .fail { color: var(--fail); } .cannot-tell { color: var(--gap); }
.not-applicable, .how, .note, footer { color: var(--dim); } .outcome { font-weight: 600; white-space: nowrap; }
li { margin: .3rem 0; } details code { display: block; }
"""
_POLICY = "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'"


class Markup(str):
    """Text that is HTML already. Made by `element` alone."""

    __slots__ = ()


def element(name: str, *children: str, kind: str = "", **attributes: str) -> Markup:
    """An element of ours. Children that are no Markup are foreign, or words of ours: they are escaped."""
    given = {**({"class": kind} if kind else {}), **attributes}
    told = "".join(f' {key}="{_escaped(value)}"' for key, value in given.items())
    inner = "".join(one if isinstance(one, Markup) else _escaped(one) for one in children)
    return Markup(f"<{name}{told}>{inner}</{name}>")


def _escaped(foreign: str) -> str:
    shown = text.escape(foreign)
    return html.escape(shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…", quote=True)


def code(foreign: str) -> Markup:
    """Foreign text, set apart, so that its direction of writing reaches nothing else."""
    return element("code", foreign or "(empty)")


def render(review: Review) -> Iterator[bytes]:
    """The page."""
    digest = base64.b64encode(sha256(_STYLE.encode()).digest()).decode()
    yield b'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY.format(digest)}">\n'.encode()
    yield b'<meta name="viewport" content="width=device-width">\n<meta name="referrer" content="no-referrer">\n'
    yield element("title", wording.TITLE).encode() + b"\n"
    yield f"<style>{_STYLE}</style>\n</head>\n<body>\n".encode()
    yield element("h1", wording.TITLE).encode() + b"\n"
    yield _facts(review).encode() + b"\n"
    yield element("p", wording.CAVEAT).encode() + b"\n"
    yield _summary(review).encode() + b"\n"
    for number, control in enumerate(review.controls, 1):
        yield _control(number, control, review).encode("utf-8", "replace") + b"\n"
    yield _findings(review).encode("utf-8", "replace")
    yield b"</body>\n</html>\n"


def _facts(review: Review) -> Markup:
    recorded = review.recorded
    policy = (code(recorded.policy), ", mode ", code(recorded.mode), ", SHA-256 ", code(recorded.policy_sha256))
    pairs: list[tuple[str, tuple[str, ...]]] = [
        ("recording", (code(recorded.name), f", {recorded.events:,} events, {recorded.verdict}")),
        ("SHA-256", (code(recorded.sha256),)),
        ("run", (code(recorded.run), f", begun {wording.started(recorded)}")),
        ("command", (code(recorded.command),)),
        ("policy", policy if recorded.policy else ("none",)),
        ("outcome", (wording.summary(review),)),
    ]
    return element("dl", *(one for name, told in pairs for one in (element("dt", name), element("dd", *told))))


def _summary(review: Review) -> Markup:
    head = element("tr", element("th", "control"), element("th", "outcome"), element("th", "tested"))
    rows = [
        element(
            "tr",
            element("td", element("a", f"{number}. {control.title}", href=f"#{control.id}")),
            element("td", control.outcome, kind=f"outcome {control.outcome}"),
            element("td", _tested(control)),
        )
        for number, control in enumerate(review.controls, 1)
    ]
    return element("table", element("thead", head), element("tbody", *rows))


def _tested(control: Control) -> str:
    told = wording.counted(control)
    return control.tested + (f"; {told}" if told else "")


def _control(number: int, control: Control, review: Review) -> Markup:
    outcome = element("span", control.outcome, kind=f"outcome {control.outcome}")
    parts = [
        element("h2", f"{number}. {control.title}: ", outcome),
        element("p", f"Tested: {control.tested}. {control.how}", kind="how"),
    ]
    told = [f"{framework.name}: {', '.join(ids)}" for framework, ids in evidence_for(control.id)]
    if told:
        parts.append(element("p", f"{WORDS.capitalize()}: {'; '.join(told)}.", kind="how"))
    items = [_exceptional(one, review) for one in control.exceptions]
    if left := wording.left_out(control):
        items.append(element("li", f"and {left:,} more"))
    if items:
        parts.append(element("ul", *items))
    parts += [element("p", "Note: ", code(note), kind="note") for note in control.notes]
    return element("section", *parts, id=control.id)


def _exceptional(one: Exceptional, review: Review) -> Markup:
    word = "broken" if one.broken else "cannot tell"
    mark = element("span", word, kind="fail" if one.broken else "cannot-tell")
    parts: list[str] = [mark, ": ", element("bdi", one.why)]
    if one.about:
        parts += [": ", code(one.about)]
    if one.rows:
        hashes = [element("code", f"event {seq}: {review.digests.get(seq, '')}") for seq in one.rows]
        parts.append(element("details", element("summary", wording.rows(one)), *hashes))
    return element("li", *parts)


def _findings(review: Review) -> Markup:
    if not review.findings:
        return Markup("")
    items = [element("li", code(one.what), f": {one.count:,}, {wording.places(one.rows)}") for one in review.findings]
    return element("section", element("h2", "Findings of the recorder"), element("ul", *items))
