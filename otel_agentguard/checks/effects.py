"""Side effects that happen twice: seen in recorded runs, and before calls that no ledger answers for.

Tools declared with `@tool` claim their effects in the ledger, which knows more and outlives the
process. This check is for the rest: recorded runs, spans of other instrumentations, and tools that
only the settings call side effects.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from otel_agentguard.events import SIDE_EFFECT, UNKNOWN_EFFECT, Crash, Effect, Event, Outcome, Resume, ToolCall, Turn
from otel_agentguard.findings import Action, CheckName, Finding, Kind, Severity
from otel_agentguard.fingerprint import digest
from otel_agentguard.protocols import RunInfo
from otel_agentguard.reading import surely_writes
from otel_agentguard.shown import shown
from otel_agentguard.words import effect_again, steps

_MAX_EFFECTS = 512
_PROSE_WORDS = 3
_WRITE: Final = Effect.WRITE
_NOT_RUN = frozenset({Outcome.NOT_EXECUTED, Outcome.DENIED})


class EffectsCheck:
    """Sees side effects that were made, or would be made, a second time within one intent."""

    name = CheckName.EFFECTS

    def open(self, run: RunInfo) -> EffectsRun:
        """The state of this check for one run: a digest for each effect, 512 at most."""
        return EffectsRun(run)


@dataclass(slots=True, eq=False)
class _Made:
    step: int
    intent: int
    certain: bool
    texts: Mapping[str, str]


class EffectsRun:
    """The side effects of one run."""

    def __init__(self, run: RunInfo) -> None:
        self._run = run
        self._intent = 0
        self._resumed = 0
        self._made: OrderedDict[bytes, _Made] = OrderedDict()
        self._latest: dict[str, bytes] = {}
        self._writes: OrderedDict[bytes, tuple[int, bytes | None]] = OrderedDict()
        self._starting: set[tuple[str, bytes]] = set()

    def before(self, event: Event) -> Sequence[Finding]:
        """Judge a side effect that has not happened."""
        if not isinstance(event, ToolCall) or not self._concerns(event):
            return ()
        key = self._key(event)
        earlier = self._earlier(event, key)
        if event.batch is not None and (event.batch, key) in self._starting:
            earlier = earlier or _Made(event.step - 1, self._intent, True, {})
        if event.batch is not None:
            self._starting = {one for one in self._starting if one[0] == event.batch} | {(event.batch, key)}
        return () if earlier is None else (self._finding(event, key, earlier),)

    def after(self, event: Event) -> Sequence[Finding]:
        """Take in an event that has happened."""
        match event:
            case ToolCall():
                if not event.refused and event.served_from is None and event.outcome not in _NOT_RUN:
                    self._took(event)
            case Turn(new_intent=True):
                self._intent += 1
                self._writes.clear()
            case Crash() | Resume():
                self._resumed = event.step
            case _:
                pass
        return ()

    def _concerns(self, call: ToolCall) -> bool:
        if call.effect is not SIDE_EFFECT or call.claimed or call.served_from is not None:
            return False
        spec = self._run.tools.get(call.tool)
        return (
            call.arguments is not None and call.outcome not in _NOT_RUN and not (spec is not None and spec.repeatable)
        )

    def _took(self, call: ToolCall) -> None:
        if self._concerns(call):
            key = self._key(call)
            call.again = self._earlier(call, key) is not None
            if call.outcome is not Outcome.FAILED:
                self._remember(call, key)
        elif call.effect is _WRITE or (call.effect is UNKNOWN_EFFECT and surely_writes(call)):
            self._took_write(call)

    def _remember(self, call: ToolCall, key: bytes) -> None:
        certain = call.outcome is Outcome.OK
        self._made[key] = _Made(call.step, self._intent, certain, _texts(call.arguments))
        self._made.move_to_end(key)
        self._latest[call.tool] = key
        while len(self._made) > _MAX_EFFECTS:
            dropped, _ = self._made.popitem(last=False)
            self._latest = {tool: kept for tool, kept in self._latest.items() if kept != dropped}

    def _took_write(self, call: ToolCall) -> None:
        if call.fingerprint is None:
            return
        earlier = self._writes.get(call.fingerprint)
        call.again = earlier is not None and earlier[1] == call.result_digest
        self._writes[call.fingerprint] = (call.step, call.result_digest)
        if len(self._writes) > _MAX_EFFECTS:
            self._writes.popitem(last=False)

    def _earlier(self, call: ToolCall, key: bytes) -> _Made | None:
        made = self._made.get(key)
        if made is not None:
            return made if made.intent == self._intent else None
        return self._reworded(call)

    def _reworded(self, call: ToolCall) -> _Made | None:
        """The same effect in other words after a resume: the model wrote its free text anew."""
        made = self._made.get(self._latest.get(call.tool, b""))
        if made is None or made.intent != self._intent or made.step > self._resumed:
            return None
        texts = _texts(call.arguments)
        differing = [name for name in texts.keys() | made.texts.keys() if texts.get(name) != made.texts.get(name)]
        if len(differing) == len(texts) or not all(_is_prose(texts.get(name, "")) for name in differing):
            return None
        return made

    def _key(self, call: ToolCall) -> bytes:
        """Identity of the effect; an argument that is null and one that is absent are the same."""
        spec = self._run.tools.get(call.tool)
        names = None if spec is None else spec.identity
        arguments = call.arguments or {}
        kept = {
            name: value for name, value in arguments.items() if value is not None and (names is None or name in names)
        }
        return digest([call.tool, call.scope, kept])

    def _finding(self, call: ToolCall, key: bytes, earlier: _Made) -> Finding:
        certainty = "made" if earlier.certain else "started, with unknown outcome,"
        evidence = (earlier.step, call.step)
        return Finding(
            check=CheckName.EFFECTS,
            kind=Kind.DUPLICATE_SIDE_EFFECT,
            severity=Severity.WARN,
            step=call.step,
            signature=key,
            message=effect_again(earlier.step, certain=earlier.certain),
            explanation=f"{call.tool} was {certainty} before with no new intent in between, {steps(evidence)}",
            action=Action.BLOCK,
            evidence=evidence,
            agent=call.agent,
            tool=call.tool,
            count=2,
        )


def _texts(arguments: Mapping[str, object] | None) -> dict[str, str]:
    return {name: shown(value)[:400] for name, value in (arguments or {}).items() if value is not None}


def _is_prose(value: str) -> bool:
    return len(value.split()) >= _PROSE_WORDS
