"""What model calls took: tokens of each and in all, as the providers reported them, and what that may have cost."""

from collections.abc import Iterable, Iterator, Sequence

from agentwrap import text
from agentwrap.evidence.turns import Call
from agentwrap.rows import number
from agentwrap.views import tokens
from agentwrap.views.model_parts import ENDINGS, model_name
from agentwrap.views.styled import Line, Piece, line
from agentwrap.views.table import Cell, table

_NUMBERS = range(4, 9)
NO_CALL = "no model call was recorded"


def sums(calls: Iterable[Call]) -> tuple[tokens.Sum, dict[str, tokens.Sum]]:
    """Of all answers, and by model in the order in which they were first asked."""
    total, by_model = tokens.Sum(), dict[str, tokens.Sum]()
    for call in calls:
        if call.response is not None:
            model = model_name(call.response, call.request)
            for one in (total, by_model.setdefault(model, tokens.Sum())):
                one.add(call.response.data, model)
    return total, by_model


def token_lines(calls: Sequence[Call]) -> Iterator[Line]:
    """The table of `show --tokens`."""
    if not calls:
        yield line((NO_CALL, "dim"))
        return
    total, by_model = sums(calls)
    rows = [_of_call(call) for call in calls]
    summed = [*by_model.items()] if len(by_model) > 1 else []
    for name, one in [*summed, ("", total)]:
        head: list[Cell] = [("sum" if name else "all", "title"), "", "", name or text.count(one.calls, "answer")]
        rows.append([*head, *(one.cell(sort) for sort in tokens.SORTS)])
    yield from table(("call", "turn", "agent", "model", *tokens.HEADINGS), rows, right=_NUMBERS)
    yield line()
    yield line(("input counts what was read from and written to a cache; numbers are the providers' own", "dim"))
    untold = {sort: count for sort, count in total.untold.items() if sort in ("input", "output")}
    if untold:
        worst = max(untold.values())
        yield line((f"{text.count(worst, 'answer')} told no number of input or output tokens", "gap"))


def _of_call(call: Call) -> list[Cell]:
    row: list[Cell] = [call.id, call.turn, call.agent, (model_name(call.response, call.request), "name")]
    response = call.response
    if response is None:
        return [*row, *(("no answer", "gap") if not at else "" for at in range(len(tokens.SORTS)))]
    return [*row, *map(_number, (tokens.told(response.data, sort) for sort in tokens.SORTS))]


def _number(value: int | None) -> Piece:
    return (tokens.NOT_TOLD, "dim") if value is None else (f"{value:,}", "")


def cost_lines(calls: Sequence[Call]) -> Iterator[Line]:
    """The table of `show --cost`: estimates, whose table they are by, and which calls have none."""
    if not calls:
        yield line((NO_CALL, "dim"))
        return
    total, by_model = sums(calls)
    rows: list[list[Cell]] = [
        [call.id, call.turn, call.agent, (model_name(call.response, call.request), "name"), _price(call)]
        for call in calls
    ]
    for name, one in by_model.items() if len(by_model) > 1 else ():
        rows.append([("sum", "title"), "", "", name, tokens.money(one.usd) if one.priced else ("no price", "dim")])
    told = tokens.money(total.usd) if total.priced else "no price"
    rows.append([("all", "title"), "", "", text.count(total.calls, "answer"), told])
    yield from table(("call", "turn", "agent", "model", "estimate"), rows, right=(4,))
    yield line()
    for name, count in total.tables.items():
        yield line((f"estimated by {text.escape(name)}, {text.count(count, 'call')}; no bill", "dim"))
    if total.unpriced:
        told = ", ".join(f"{text.escape(name)} ({count:,})" for name, count in total.unpriced.items())
        yield line((f"without a price: {told}", "gap"))
        if not total.priced:
            yield line(("prices come with the extra `cost` (genai-prices), if it is there when the run is made", "dim"))


def _price(call: Call) -> Cell:
    if call.response is None:
        return ("no answer", "gap")
    usd = tokens.amount(call.response.data.get("cost_usd"))
    if usd is not None:
        return tokens.money(usd)
    if call.failed:
        status = number(call.response.data.get("status"))
        ending = str(call.response.data.get("ending", ""))
        return (str(status) if status >= 400 else ENDINGS.get(ending, ending), "dim")
    return ("no price", "gap")
