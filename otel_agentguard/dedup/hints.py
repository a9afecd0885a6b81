"""What the model is told of its own run at the next turn: short, capped, and in the same order each time."""

from __future__ import annotations

from otel_agentguard import words
from otel_agentguard.dedup.journal import Journal, Journals, Reading, Repeat

MAX_READINGS = 20
MAX_REPEATS = 10


def hints(journals: Journals, run_id: str, *, max_chars: int = 2000) -> str:
    """What a run has read and repeated so far, and what that saved.

    Looks at the files that it names, at most 20 of them. What does not fit is left out, the least telling
    first: what was read once and has not changed, then the least repeated.

    Args:
        journals: The journals of all runs.
        run_id: The run.
        max_chars: Most characters.

    Returns:
        Lines for the model; empty where there is nothing to tell, or no room for it.
    """
    journal = journals.of(run_id)
    readings = _most_telling(journal)
    changed = {id(reading): journals.has_changed(reading) for reading in readings}
    readings.sort(key=lambda reading: (not changed[id(reading)], -reading.count, -reading.last_step))
    repeats = sorted(journal.repeats(), key=lambda repeat: (-repeat.count, repeat.first_step))[:MAX_REPEATS]
    if not readings and not repeats:
        return ""
    total = words.calls_so_far(journal.calls, journal.executed, journal.saved)
    while True:
        text = _written(readings, changed, repeats, total)
        if len(text) <= max_chars:
            return text
        if not readings and not repeats:
            return ""
        _leave_out(readings, repeats)


def _most_telling(journal: Journal) -> list[Reading]:
    readings = journal.readings()
    readings.sort(key=lambda reading: (reading.count, bool(reading.purpose or reading.summary), reading.last_step))
    return readings[-MAX_READINGS:]


def _leave_out(readings: list[Reading], repeats: list[Repeat]) -> None:
    if readings and (not repeats or readings[-1].count <= repeats[-1].count):
        readings.pop()
    else:
        repeats.pop()


def _written(readings: list[Reading], changed: dict[int, bool | None], repeats: list[Repeat], total: str) -> str:
    read = [
        words.already_read(
            reading.name,
            reading.count,
            reading.last_step,
            changed=changed[id(reading)],
            purpose=reading.purpose,
            summary=reading.summary,
        )
        for reading in sorted(readings, key=lambda reading: (reading.first_step, reading.name))
    ]
    called = [
        words.already_called(repeat.tool, repeat.count, repeat.first_step, repeat.last_step)
        for repeat in sorted(repeats, key=lambda repeat: (repeat.first_step, repeat.tool))
    ]
    return "\n".join((words.known_so_far(), *read, *called, total))
