"""The values that written numbers and dates can have."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from functools import lru_cache

Day = tuple[int | None, int, int]
"""Year where it is known, month, day."""


@lru_cache(maxsize=4096)
def number_forms(text: str) -> tuple[str, ...]:
    """The values that a written number can have, as canonical decimals.

    `1,000` is a thousand or one, `0.20` is `0.2`, `1.2.3` is a version and only equal to itself.
    """
    text = text.replace("−", "-")
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    if ":" in digits:
        return (digits.removeprefix("0"),)
    marks = [char for char in digits if char in ".,"]
    if not marks:
        return (canonical(Decimal(sign + digits)),)
    groups = re.split("[.,]", digits)
    grouped = groups[0] not in ("", "0") and len(groups[0]) <= 3 and all(len(group) == 3 for group in groups[1:])
    found = []
    if len(set(marks)) == 2:
        found.append("".join(groups[:-1]) + "." + groups[-1])
    else:
        if len(marks) == 1:
            found.append(groups[0] + "." + groups[1])
        if grouped:
            found.append("".join(groups))
    try:
        return tuple(canonical(Decimal(sign + value)) for value in found) or (digits,)
    except InvalidOperation:
        return (digits,)


def canonical(value: Decimal) -> str:
    """A decimal without exponent and trailing zeros."""
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def days_of(text: str) -> tuple[Day, ...]:
    """The days that a date in digits can be; `4.5.2026` is two, since nobody knows which comes first."""
    parts = [int(part) for part in re.findall(r"\d+", text)]
    if len(parts) == 2:
        month, day = parts
        return ((None, month, day),) if _is_day(month, day) else ()
    if parts[0] > 31:
        year, month, day = parts
        return ((year, month, day),) if _is_day(month, day) else ()
    first, second, year = parts
    return tuple((year, month, day) for month, day in {(second, first), (first, second)} if _is_day(month, day))


def _is_day(month: int, day: int) -> bool:
    return 1 <= month <= 12 and 1 <= day <= 31
