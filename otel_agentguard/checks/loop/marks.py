"""When things last happened that decide whether a repeat is legitimate."""

from __future__ import annotations

from dataclasses import dataclass

from otel_agentguard.events import ToolCall


@dataclass(slots=True, eq=False)
class Marks:
    """Steps, 0 for never.

    Attributes:
        write: A declared write succeeded with an outcome that is new in this run.
        intent: A new intent began: what succeeded before may be done again.
        doubt: A call of unknown effect brought something new: it may have changed anything.
        stir: Such a call whose answer was brief; what answers at length rather reads than changes.
        wait: Time passed on purpose: a wait tool, or a pause.
        compaction: The model may have lost what it read.
        news: A call brought information that the run did not have.
        call: A tool call of any kind.
        ended_s: When the latest call ended; None when not recorded.
    """

    write: int = 0
    intent: int = 0
    doubt: int = 0
    stir: int = 0
    wait: int = 0
    compaction: int = 0
    news: int = 0
    call: int = 0
    ended_s: float | None = None

    def note_end(self, call: ToolCall) -> None:
        """Take in that a call is over, whatever it brought."""
        self.call = call.step
        self.ended_s = call.at_s if call.ended_s is None else call.ended_s
