"""Records as lines that nobody has to piece together: no line is wrapped, so that a key can be copied whole."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import click
from rich.cells import cell_len

_GAP = "  "


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print one line a row: in columns under their names on a terminal, else the bare values with tabs between."""
    shown = [[_plain(value) for value in row] for row in rows]
    if sys.stdout.isatty():
        _print_aligned([list(columns), *shown])
    else:
        _print_tabbed(shown)


def print_fields(fields: Mapping[str, str]) -> None:
    """Print one line a field: its name, and its value."""
    lines = [[name, _plain(value)] for name, value in fields.items()]
    if sys.stdout.isatty():
        _print_aligned(lines)
    else:
        _print_tabbed(lines)


def utc(seconds: float) -> str:
    """A time in seconds since the epoch, as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _print_aligned(lines: Sequence[Sequence[str]]) -> None:
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (value + " " * (width - cell_len(value)) for value, width in zip(line, widths, strict=True))
        click.echo(_GAP.join(padded).rstrip())


def _print_tabbed(lines: Sequence[Sequence[str]]) -> None:
    for line in lines:
        click.echo("\t".join(line))


def _plain(value: str) -> str:
    """A value on one line; models and callers choose names, so control characters are shown and not obeyed."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in value)
