"""Reads run logs: JSON Lines, one run a line, plain or gzip.

A line that cannot be read becomes an `UnreadableRun` and the next one is read. Of each line only `id`,
`steps` and `tools` are looked at. Memory is that of one run at a time.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from otel_agentguard.config import Settings
from otel_agentguard.errors import ReadError
from otel_agentguard.events import Event, ToolSpec
from otel_agentguard.readers.steps import StepDecoder

FORMATS = "the run log format (JSON Lines: one object with 'id' and 'steps' a line; .jsonl, .ndjson, also with .gz)"
SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")

_GZIP_MAGIC = b"\x1f\x8b"
_MOST_STRANGE_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """One run, read.

    Attributes:
        id: What the record calls it; file and line where it has no name.
        events: Its events in order, not yet numbered.
        tools: What the record says of its tools.
        offset: How far into the file the reader is, bytes on disk.
    """

    id: str
    events: Sequence[Event]
    tools: Mapping[str, ToolSpec]
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableRun:
    """A line, or a whole file, that is no run.

    Attributes:
        id: What the record calls it; None where that is unknown.
        error: Where it stands, and what is wrong with it.
        offset: How far into the file the reader is, bytes on disk.
    """

    id: str | None
    error: str
    offset: int = 0


def find_files(path: Path) -> list[Path]:
    """The run logs that a path stands for: itself, or all below it in the order of their names.

    Raises:
        ReadError: There is nothing, or no run log below the directory.
    """
    if not path.exists():
        raise ReadError(f"there is no file or directory '{path}'")
    if not path.is_dir():
        return [path]
    found = sorted(
        Path(folder, name) for folder, _, names in os.walk(path) for name in names if name.lower().endswith(SUFFIXES)
    )
    if not found:
        raise ReadError(f"no run log below '{path}'; scan reads {FORMATS}")
    return found


def read_file(path: Path, *, settings: Settings, unknown: Counter[str]) -> Iterator[RecordedRun | UnreadableRun]:
    """The runs of one file, one at a time.

    A file whose first 21 lines hold nothing like a run is given up as one of another format.

    Args:
        path: The file.
        settings: Effects and ignored arguments of tools, and who opens a turn.
        unknown: Counts values that no open set knows; shared by all files of one scan.
    """
    decoder = StepDecoder(settings, unknown)
    held: list[UnreadableRun] | None = []
    try:
        with path.open("rb") as raw, _opened(raw) as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                run, is_record = _read_line(line, f"{path}:{number}", decoder, raw.tell())
                if held is None:
                    yield run
                elif is_record:
                    yield from held
                    held = None
                    yield run
                elif isinstance(run, UnreadableRun):
                    held.append(run)
                    if len(held) > _MOST_STRANGE_LINES:
                        break
    except (OSError, EOFError, zlib.error) as exc:
        yield from held or ()
        yield UnreadableRun(id=None, error=f"{path}: cannot be read to its end: {exc}")
        return
    if held:
        yield held[0] if len(held) == 1 else _foreign(path)


def _foreign(path: Path) -> UnreadableRun:
    return UnreadableRun(id=None, error=f"{path}: no format that scan reads; it reads {FORMATS}")


def _opened(raw: IO[bytes]) -> IO[bytes]:
    packed = raw.read(2) == _GZIP_MAGIC
    raw.seek(0)
    return gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[return-value]


def _read_line(line: bytes, where: str, decoder: StepDecoder, offset: int) -> tuple[RecordedRun | UnreadableRun, bool]:
    """The run of one line, and whether the line looks like a run at all."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as exc:
        return UnreadableRun(id=None, error=f"{where}: not JSON ({exc}); scan reads {FORMATS}", offset=offset), False
    if not isinstance(record, dict) or "steps" not in record:
        run_id = _id(record.get("id")) if isinstance(record, dict) else None
        error = f"{where}: no run, it has no 'steps'; scan reads {FORMATS}"
        return UnreadableRun(id=run_id, error=error, offset=offset), run_id is not None
    run_id = _id(record.get("id"))
    try:
        tools = decoder.specs(record.get("tools"))
        events = decoder.events(record["steps"], tools)
    except (ReadError, RecursionError) as exc:
        return UnreadableRun(id=run_id, error=f"{where}: {exc}", offset=offset), True
    return RecordedRun(id=run_id or where, events=events, tools=tools, offset=offset), True


def _id(value: object) -> str | None:
    return value if isinstance(value, str) else None if value is None else str(value)
