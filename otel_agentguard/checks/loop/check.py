"""The loop check: the third time that an action comes to the same outcome while nothing could have changed it."""

from __future__ import annotations

from collections.abc import Sequence

from otel_agentguard.checks.loop.calls import Calls
from otel_agentguard.checks.loop.marks import Marks
from otel_agentguard.checks.loop.talk import Talk
from otel_agentguard.events import Compaction, Event, Handoff, Message, ModelCall, ToolCall, Turn
from otel_agentguard.findings import CheckName, Finding
from otel_agentguard.protocols import RunInfo

_LONG_PROMPT_CHARS = 80
_MAX_PROMPTS = 32


class LoopCheck:
    """Sees repeated calls, cycles, ping-pong, repeated messages and repeated model requests."""

    name = CheckName.LOOP

    def open(self, run: RunInfo) -> LoopRun:
        """The state of this check for one run; about 60 KB at most."""
        return LoopRun(run)


class LoopRun:
    """The loop check in one run."""

    __slots__ = ("_calls", "_marks", "_prompts", "_talk")

    def __init__(self, run: RunInfo) -> None:
        self._marks = Marks()
        self._calls = Calls(run, self._marks)
        self._talk = Talk(run, self._marks)
        self._prompts: set[int] = set()

    def before(self, event: Event) -> Sequence[Finding]:
        """Judge an event by what the run has done so far."""
        if isinstance(event, ToolCall):
            return self._calls.before(event)
        if isinstance(event, Message | Handoff | ModelCall):
            return self._talk.before(event)
        return ()

    def after(self, event: Event) -> Sequence[Finding]:
        """Take in an event that is over."""
        match event:
            case ToolCall():
                return self._calls.after(event)
            case Message() | Handoff() | ModelCall():
                return self._talk.after(event)
            case Turn(new_intent=True) if not self._typed_before(event.text):
                self._marks.intent = event.step
                self._calls.begin_intent()
                self._talk.begin_intent()
            case Compaction():
                self._marks.compaction = event.step
            case _:
                pass
        return ()

    def _typed_before(self, prompt: str | None) -> bool:
        """Whether a long prompt came before, letter for letter: a framework sends it, nobody types it twice."""
        if prompt is None or len(prompt) < _LONG_PROMPT_CHARS:
            return False
        identity = hash(prompt)
        if identity in self._prompts:
            return True
        if len(self._prompts) < _MAX_PROMPTS:
            self._prompts.add(identity)
        return False
