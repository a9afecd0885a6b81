"""Foreign values as text: whatever their own `__str__` does, this returns."""

from __future__ import annotations


def shown(value: object) -> str:
    """`str()` of a value; its type in angle brackets where that raises."""
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__qualname__}>"


def error_text(error: BaseException) -> str:
    """Type and text of an error, as a result of a call that failed."""
    return f"{type(error).__qualname__}: {shown(error)}"
