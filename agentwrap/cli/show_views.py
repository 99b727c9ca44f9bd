"""The views of `agentwrap show`: each a stream of lines out of a recording, and the JSON document."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from agentwrap import text
from agentwrap.cli import reading
from agentwrap.errors import AgentwrapError
from agentwrap.evidence import check
from agentwrap.rows import Row
from agentwrap.views import denials, failures, noise, passing, summary
from agentwrap.views.context import Context
from agentwrap.views.failures import is_failure
from agentwrap.views.filter import Filter
from agentwrap.views.filter_keys import Surroundings
from agentwrap.views.lines import stream_line
from agentwrap.views.styled import Line

if TYPE_CHECKING:
    from agentwrap.evidence.linking import Linker
    from agentwrap.recording.reader import Reader


_NAME = re.compile(r"[mtxahks][0-9]{1,9}")


class Wish(msgspec.Struct):
    """What was asked for. `about`: a call, a turn, a tool call; `story`: what the recording tells of model traffic."""

    view: str
    chosen: Filter
    everything: bool
    limit: int | None
    in_utc: bool
    about: str = ""
    find: str = ""
    story: "Linker | None" = None


def named(chosen: Filter) -> str:
    """The call, turn, tool call, agent, exchange, MCP call or session that the words name: `m3` alone, unquoted."""
    if len(chosen.terms) != 1:
        return ""
    term = chosen.terms[0]
    plain = not term.key and not term.negated and term.end - term.start == len(term.value)
    return term.value if plain and _NAME.fullmatch(term.value) else ""


def required_lines(judged: check.Report) -> Iterator[Line]:
    """What `--require` asked for, judged."""
    from agentwrap.views.coverage import judgement_lines

    yield []
    yield [("required", "title")]
    yield from judgement_lines(judged.judgements)


def lines_of(source: "Reader", wish: Wish, columns: int | None) -> Iterator[Line]:
    """Every line of a view, as it is read."""
    clock = reading.utc_clock(source.meta) if wish.in_utc else text.clock
    wish.story = story_of(source)
    context = Context(source, columns=columns, live=source.state() == "live", clock=clock, story=wish.story)
    yield from summary.header(source, reading.started_words(source.meta, in_utc=wish.in_utc), columns)
    yield []
    yield from _view(wish.view)(source, wish, context)
    if wish.view != "gaps":
        yield from _closing_gaps(source)


def story_of(source: "Reader") -> "Linker | None":
    """Model calls, calls of MCP servers, tools and what they caused; None where there were none."""
    told = ("model.request", "model.response", "tool.call", "mcp.session", "mcp.call")
    if next(source.rows(kinds=told, limit=1), None) is None:
        return None
    from agentwrap.evidence import linking

    return linking.of_recording(source, source.meta)


def _view(name: str) -> Callable[["Reader", Wish, Context], Iterator[Line]]:
    if name in _VIEWS:
        return _VIEWS[name]
    if name == "mcp":
        from agentwrap.cli.show_mcp import MCP_VIEWS

        return MCP_VIEWS[name]
    from agentwrap.cli.show_models import MODEL_VIEWS

    return MODEL_VIEWS[name]


def _closing_gaps(source: "Reader") -> Iterator[Line]:
    statements = check.statements(source)
    yield from summary.gap_summary(check.holes(source))
    yield from summary.uncovered(statements, ("exec", "file-write", "connect"))


def _rows(source: "Reader", wish: Wish) -> Iterator[Row]:
    """The rows the filter lets through."""
    rows: Iterator[Row] = reading.rows_of(source, wish.chosen.kinds())
    if not wish.chosen:
        return rows
    spans = Surroundings(Context(source).span, wish.story)
    return (row for row in rows if wish.chosen(row, spans))


def _named_kinds(chosen: Filter) -> bool:
    """Whether the filter names kinds one by one: then none of them is told elsewhere."""
    return any(term.key == "kind" and not term.negated for term in chosen.terms)


def stream_of(source: "Reader", wish: Wish, context: Context) -> Iterator[Line]:
    """The stream of the rows that the filter lets through."""
    yield from _stream(source, wish, context)


def _stream(source: "Reader", wish: Wish, context: Context) -> Iterator[Line]:
    tally, hidden, shown = summary.Tally(), Counter[str](), 0
    explicit = _named_kinds(wish.chosen)
    stopped = False
    told = noise.Told()
    gone = frozenset[str]() if wish.everything or context.live else passing.passed(source)
    for row in _rows(source, wish):
        tally.add(row)
        context.follow(row)
        told.met(row)
        reason = ""
        if not wish.everything:
            reason = noise.hidden(row, live=context.live, spans=context.span, walled=context.walled)
        if not reason and passing.of_a_passing_file(row, gone):
            reason = noise.TEMPORARY
        if not reason and not wish.everything and not context.live:
            reason = told.again(row)
        if reason and not (explicit and reason not in noise.NOISE):
            hidden[reason] += 1
            continue
        told.shown(row)
        if wish.limit is not None and shown >= wish.limit:
            stopped = True
            break
        shown += 1
        yield stream_line(row, context)
    yield []
    if stopped:
        yield [(f"stopped after {text.count(shown, 'event')} (`-n`); there are more", "dim")]
        return
    if wish.chosen:
        yield [(f"{shown:,} of {source.count():,} events match `{wish.chosen}` and are shown", "dim")]
    else:
        yield from summary.totals(tally, check.statements(source), check.holes(source))
    yield from summary.hidden_summary(hidden, noise.NOISE if not wish.chosen else frozenset(hidden))


def _tree(source: "Reader", wish: Wish, context: Context) -> Iterator[Line]:
    from agentwrap.views import tree

    chosen, everything = wish.chosen, wish.everything
    spans = Surroundings(context.span, wish.story)
    built = tree.build(source, lambda row: chosen(row, spans) and (everything or not noise.hidden(row)))
    yield from tree.tree_lines(built, context.columns)
    yield []


def _files(source: "Reader", wish: Wish, context: Context) -> Iterator[Line]:
    from agentwrap.views import files

    hidden = Counter[str]()
    # A file's end is told by a row that is noise by itself: without it, what came and went would seem to have stayed.
    changes = files.collect(_visible(source, wish, files.CHANGES, hidden, ends=True), context)
    if not wish.everything:
        for passing in [changed for changed in changes.values() if changed.letter == "T"]:
            hidden[noise.TEMPORARY] += changes.pop(passing.path).edits
    yield from files.file_lines(changes, context)
    yield []
    number = text.count(len(changes), "path") if changes else "no path"
    yield [(f"{number} changed, as far as it was seen", "")]
    yield from summary.hidden_summary(hidden, noise.NOISE)


def _diff(source: "Reader", wish: Wish, context: Context) -> Iterator[Line]:
    from agentwrap.views import files

    hidden = Counter[str]()
    yield from files.diff_lines(_visible(source, wish, files.CHANGES, hidden), context, lambda _row: True)
    yield []
    yield from summary.hidden_summary(hidden, noise.NOISE)


def _visible(
    source: "Reader", wish: Wish, kinds: tuple[str, ...], hidden: Counter[str], *, ends: bool = False
) -> Iterator[Row]:
    """Rows of some kinds that the filter lets through and that are no noise, up to the limit.

    `ends`: also those that tell the end of a file the run made.
    """
    left = wish.limit
    spans = Surroundings(Context(source).span, wish.story)
    gone = frozenset[str]() if wish.everything or ends else passing.passed(source)
    for row in reading.rows_of(source, kinds):
        if not wish.chosen(row, spans):
            continue
        reason = "" if wish.everything else noise.hidden(row)
        if not reason and passing.of_a_passing_file(row, gone):
            reason = noise.TEMPORARY
        if reason and not (ends and reason == noise.TEMPORARY and row.data.get("change") == "transient"):
            hidden[reason] += 1
            continue
        if left is not None:
            if left == 0:
                return
            left -= 1
        yield row


def _errors(source: "Reader", wish: Wish, context: Context) -> Iterator[Line]:
    yield from failures.failure_lines(_rows(source, wish), context, wish.limit)
    yield []


def _denied(source: "Reader", wish: Wish, context: Context) -> Iterator[Line]:
    found = denials.collect(_rows(source, wish))
    yield from denials.denial_lines(found, context, wish.limit)
    if not found.kinds:
        yield [("no denial was recorded", "dim")]
    yield []


def _gaps(source: "Reader", wish: Wish, context: Context) -> Iterator[Line]:
    from agentwrap.views.coverage import coverage_table, gap_lines

    if wish.chosen:
        raise AgentwrapError("usage", "`--gaps` takes no filter", hint="`agentwrap show kind:gap ...` filters gaps")
    yield from coverage_table(check.statements(source))
    yield []
    yield from gap_lines(source, context.clock)


_VIEWS: dict[str, Callable[["Reader", Wish, Context], Iterator[Line]]] = {
    "stream": _stream,
    "tree": _tree,
    "files": _files,
    "diff": _diff,
    "errors": _errors,
    "denied": _denied,
    "gaps": _gaps,
}


def _is_file(row: Row) -> bool:
    return row.kind.startswith("file.")


_WANTED: dict[str, Callable[[Row], bool]] = {
    "errors": is_failure,
    "denied": lambda row: row.verdict in denials.REFUSED,
    "files": _is_file,
    "diff": _is_file,
    "gaps": lambda row: row.kind == "gap",
    "tools": lambda row: row.kind in ("tool.call", "tool.result"),
    "tokens": lambda row: row.kind.startswith("model."),
    "cost": lambda row: row.kind.startswith("model."),
    "mcp": lambda row: row.kind.startswith("mcp."),
}


def _model_document(source: "Reader", wish: Wish) -> dict[str, Any]:
    if wish.view == "mcp":
        from agentwrap.cli import show_mcp

        return show_mcp.document_of(wish, Context(source, story=wish.story))
    if wish.view not in ("tools", "tokens", "cost", "context"):
        return {}
    from agentwrap.cli import show_models

    return show_models.document_of(source, wish, Context(source, story=wish.story))


def document_of(source: "Reader", wish: Wish, judged: check.Report | None) -> dict[str, Any]:
    """The JSON document: the run, its coverage and gaps, its spans, and (streamed) the events the view is about."""
    from agentwrap.export.jsonl import event_object, span_object

    started_ns = summary.started_at(source.meta)
    wish.story = story_of(source)
    rows = filter(_WANTED.get(wish.view, lambda _row: True), _rows(source, wish))
    document: dict[str, Any] = {
        "schema": 1,
        "meta": dict(source.meta),
        "state": source.state(),
        "coverage": [msgspec.structs.asdict(statement) for statement in check.statements(source)],
        "gaps": [msgspec.structs.asdict(hole) for hole in check.holes(source)],
        "spans": [span_object(span) for span in source.spans().values()],
        "links": [msgspec.structs.asdict(link) for link in wish.story.links] if wish.story is not None else [],
        **_model_document(source, wish),
        "events": (event_object(row, started_ns) for row in islice(rows, wish.limit)),
    }
    return document if judged is None else {"check": judged.document(), **document}
