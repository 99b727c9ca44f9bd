"""Times as RFC 3339 in UTC, exact to the nanosecond (datetime stops at microseconds). Pure."""

_DAY_NS = 86400 * 10**9


def rfc3339(unix_ns: int, fraction: int = 9) -> str:
    """`2026-11-30T03:01:12.102345678Z` for nanoseconds since 1970 UTC; `fraction` decimals, cut, not rounded."""
    days, rest = divmod(unix_ns, _DAY_NS)
    year, month, day = civil(days)
    seconds, nanoseconds = divmod(rest, 10**9)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    decimals = f".{nanoseconds:09d}"[: fraction + 1] if fraction else ""
    return f"{year:04d}-{month:02d}-{day:02d}T{clock}{decimals}Z"


def civil(days: int) -> tuple[int, int, int]:
    """Days since 1970-01-01 as (year, month, day): Howard Hinnant's `civil_from_days`, proleptic Gregorian."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1
