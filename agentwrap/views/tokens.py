"""Tokens and money as a reader sees them: numbers of one call, sums of many, and what was not told.

Only what providers reported is counted; a number that was not told is no nought.
"""

from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from agentwrap.rows import is_number, number
from agentwrap.views.styled import Line

SORTS = ("input", "cache_read", "cache_write", "output", "reasoning")
"""As in `NAME_tokens` of `model.response`."""
HEADINGS = ("input", "cache read", "cache write", "output", "reasoning")
NOT_TOLD = "not told"


def told(data: dict[str, Any], sort: str) -> int | None:
    """A number of tokens of an answer, or None where the provider gave none."""
    value = data.get(f"{sort}_tokens")
    return value if is_number(value) else None


def short(amount: int) -> str:
    """`350`, `1.2k`, `71k`, `1.2M`."""
    for unit, size in (("", 1), ("k", 1000), ("M", 10**6), ("G", 10**9)):
        scaled = amount / size
        if unit and scaled < 9.95:
            return f"{scaled:.1f}{unit}"
        if scaled < 999.5:
            return f"{scaled:.0f}{unit}"
    return f"{amount / 10**9:.0f}G"


def of_call(data: dict[str, Any]) -> Line:
    """`in 18204 (cache 17900) out 212`, only of what was told."""
    line: Line = []
    taken, read, written, given = (told(data, sort) for sort in SORTS[:4])
    if taken is not None:
        line.append((f"  in {taken}", ""))
        caches = [f"cache {read}"] if read else []
        caches += [f"written {written}"] if written else []
        if caches:
            line.append((f" ({', '.join(caches)})", "dim"))
    if given is not None:
        line.append((f"{' ' if line else '  '}out {given}", ""))
    return line


def amount(cost_usd: Any) -> Decimal | None:
    """US dollars of a row, or None where there is no estimate."""
    if not isinstance(cost_usd, str) or not cost_usd:
        return None
    try:
        value = Decimal(cost_usd)
    except InvalidOperation:
        return None
    return value if value.is_finite() and 0 <= value < 10**12 else None


def money(value: Decimal) -> str:
    """`$0.12`, `$0.0042` below a cent, `$1,204.00`."""
    if not value or value >= Decimal("0.00995"):
        return f"${value:,.2f}"
    if value < Decimal("0.000001"):
        return "below $0.000001"
    digits = -value.adjusted() + 1
    return f"${value:.{digits}f}"


class Sum(msgspec.Struct):
    """Tokens and money of some calls. `untold`: for how many each sort was not told; `unpriced`: calls by model."""

    calls: int = 0
    tokens: dict[str, int] = msgspec.field(default_factory=dict)
    untold: dict[str, int] = msgspec.field(default_factory=dict)
    usd: Decimal = Decimal(0)
    priced: int = 0
    unpriced: dict[str, int] = msgspec.field(default_factory=dict)
    tables: dict[str, int] = msgspec.field(default_factory=dict)

    def add(self, data: dict[str, Any], model: str) -> None:
        """Count one answer."""
        self.calls += 1
        for sort in SORTS:
            value = told(data, sort)
            if value is None:
                self.untold[sort] = self.untold.get(sort, 0) + 1
            else:
                self.tokens[sort] = self.tokens.get(sort, 0) + value
        usd = amount(data.get("cost_usd"))
        if usd is not None:
            self.usd += usd
            self.priced += 1
            table = str(data.get("prices") or "a table that is not named")
            self.tables[table] = self.tables.get(table, 0) + 1
        elif any(told(data, sort) for sort in SORTS) and (model in self.unpriced or len(self.unpriced) < 1000):
            self.unpriced[model] = self.unpriced.get(model, 0) + 1

    def cell(self, sort: str) -> str:
        """A sum for a table; `+` where some calls did not tell."""
        if sort not in self.tokens:
            return NOT_TOLD
        return f"{self.tokens[sort]:,}" + ("+" if self.untold.get(sort) else "")

    def words(self) -> str:
        """`71k tokens in (68k cached), 1.2k out, est $0.12`; empty where nothing was told."""
        parts: list[str] = []
        if "input" in self.tokens:
            cached = self.tokens.get("cache_read", 0)
            parts.append(f"{short(self.tokens['input'])} tokens in" + (f" ({short(cached)} cached)" if cached else ""))
        if "output" in self.tokens:
            parts.append(f"{short(self.tokens['output'])}{'' if parts else ' tokens'} out")
        if self.priced:
            unpriced = sum(self.unpriced.values())
            without = f" without {unpriced:,} of them" if unpriced else ""
            parts.append(f"est {money(self.usd)}{without}")
        return ", ".join(parts)


def retry_after(data: dict[str, Any]) -> str:
    """`retry after 2s` as the provider said it, or nothing."""
    value = data.get("retry_after")
    if not isinstance(value, str) or not value:
        return ""
    return f"retry after {value}s" if value.isascii() and value.isdigit() else f"retry after {value}"


def status_of(data: dict[str, Any]) -> int:
    """The HTTP status of an answer, 0 where there was none."""
    return number(data.get("status"))
