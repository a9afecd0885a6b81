"""The loop check: the third time that an action comes to the same outcome while nothing could have changed it."""

from __future__ import annotations

from collections.abc import Sequence

from otel_agentguard.checks.loop.answers import Texts
from otel_agentguard.checks.loop.calls import Calls
from otel_agentguard.checks.loop.conversation import Conversation
from otel_agentguard.checks.loop.heard import Heard
from otel_agentguard.checks.loop.lookups import Lookups
from otel_agentguard.checks.loop.marks import Marks
from otel_agentguard.checks.loop.near import NEAR_ROWS, Near
from otel_agentguard.checks.loop.subjects import Subjects, question_of
from otel_agentguard.checks.loop.talk import Talk
from otel_agentguard.events import NOT_EXECUTED, OK, Compaction, Event, Handoff, Message, ModelCall, ToolCall, Turn
from otel_agentguard.findings import CheckName, Finding, Severity
from otel_agentguard.protocols import Embedder, RunInfo

_LONG_PROMPT_CHARS = 80
_MAX_PROMPTS = 32


class LoopCheck:
    """Sees repeated calls, cycles, ping-pong, repeated messages and repeated model requests.

    Three layers in rising cost: exact repeats by digest, near repeats by comparison with a few recent
    calls, and subjects that bring nothing new. Only the first refuses calls and stops runs.

    Args:
        embedder: Tells the meaning of free texts; without one the third layer compares words.
    """

    name = CheckName.LOOP

    def __init__(self, embedder: Embedder | None = None) -> None:
        self._embedder = embedder

    def open(self, run: RunInfo) -> LoopRun:
        """The state of this check for one run: 64 KB of digests and the latest texts, 150 KB at most."""
        return LoopRun(run, self._embedder)


class LoopRun:
    """The loop check in one run."""

    __slots__ = (
        "_asks_late",
        "_calls",
        "_compares",
        "_conversation",
        "_heard",
        "_lookups",
        "_marks",
        "_near",
        "_prompts",
        "_subjects",
        "_talk",
    )

    def __init__(self, run: RunInfo, embedder: Embedder | None) -> None:
        self._marks = Marks()
        self._calls = Calls(run, self._marks)
        self._talk = Talk(run, self._marks)
        self._heard = Heard()
        self._near = Near(run, self._marks, self._heard) if run.settings.hints_at(*NEAR_ROWS) else None
        self._conversation = Conversation(run, self._marks)
        semantic = run.settings.hints_at("semantic")
        self._subjects = Subjects(run, self._marks, self._heard, embedder) if semantic else None
        self._lookups = Lookups(run, self._marks) if semantic else None
        self._compares = semantic or self._near is not None
        self._asks_late = hasattr(embedder, "prepare")
        self._prompts: set[int] = set()

    def before(self, event: Event) -> Sequence[Finding]:
        """Judge an event by what the run has done so far."""
        if isinstance(event, ToolCall):
            if self._asks_late and self._subjects is not None:
                self._subjects.before(event)
            return self._calls.before(event)
        if isinstance(event, Message | Handoff | ModelCall):
            return self._talk.before(event)
        return ()

    def after(self, event: Event) -> Sequence[Finding]:
        """Take in an event that is over."""
        if isinstance(event, ToolCall):
            return self._take_call(event)
        match event:
            case Message() | Handoff():
                return self._take_message(event)
            case ModelCall():
                return self._talk.after(event)
            case Turn():
                self._take_turn(event)
            case Compaction():
                self._marks.compaction = event.step
                self._calls.compact()
            case _:
                pass
        return ()

    def _take_call(self, call: ToolCall) -> Sequence[Finding]:
        """The exact layer comes last because it notes what the call changed; its findings win."""
        texts = Texts(call)
        alike = self._compare(call, texts) if self._compares else ()
        exact = self._calls.after(call, texts)
        if not alike or any(finding.severity is not Severity.INFO for finding in exact):
            return exact
        return [*exact, *alike]

    def _compare(self, call: ToolCall, texts: Texts) -> Sequence[Finding]:
        """What the layers say that compare the answers of calls that ran; both take in each of them."""
        if call.refused or call.served_from is not None or call.outcome is NOT_EXECUTED or call.result_digest is None:
            return ()
        near = self._near.after(call, texts) if self._near is not None else ()
        semantic = self._semantic(call, texts) if call.arguments else ()
        return near or semantic

    def _semantic(self, call: ToolCall, texts: Texts) -> Sequence[Finding]:
        if self._subjects is None or self._lookups is None:
            return ()
        if call.outcome is OK and (question := question_of(call, texts.strings)) is not None:
            return self._subjects.after(call, question, texts)
        return self._lookups.after(call, texts)

    def _take_message(self, message: Message | Handoff) -> Sequence[Finding]:
        if message.text:
            self._heard.add(message.text, from_tool=False)
        exact = self._talk.after(message)
        if message.refused:
            return exact
        return exact or self._conversation.after(message)

    def _take_turn(self, turn: Turn) -> None:
        if turn.text:
            self._heard.add(turn.text, from_tool=False)
        if turn.new_intent and not self._typed_before(turn.text):
            self._marks.intent = turn.step
            self._calls.begin_intent()
            self._talk.begin_intent()
            self._conversation.clear()

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
