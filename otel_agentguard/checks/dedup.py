"""The dedup check: calls that need not have run, and answers from a cache that were no longer true."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from itertools import islice

from xxhash import xxh3_128_digest

from otel_agentguard import words
from otel_agentguard.dedup.asking import asks_fresh
from otel_agentguard.dedup.places import Places, places_of, written_by
from otel_agentguard.events import NOT_EXECUTED, Compaction, Effect, Event, Outcome, ToolCall
from otel_agentguard.findings import Action, CheckName, Finding, Kind, Severity
from otel_agentguard.packed import Origin, PackedOutcomes, mark_of
from otel_agentguard.protocols import RunInfo

_MAX_CALLS = 2_048
_MAX_WRITES = 256
_MAX_ARGUMENTS = 8
_KEPT_CHARS = 512
_CHANGES = frozenset({Effect.WRITE, Effect.SIDE_EFFECT})
_MAY_CHANGE = _CHANGES | {Effect.UNKNOWN}
_STUB_CHARS = 200
_STUB = re.compile(
    r"unchanged|not changed|no changes?\b|already (?:read|seen|shown|in (?:your |the )?context)"
    r"|(?:same|identical) (?:as|to) (?:before|step|the (?:earlier|previous))|see (?:above|earlier|previous|step)",
    re.IGNORECASE,
)
_HAPPENED = frozenset({Outcome.OK, Outcome.UNKNOWN})


class DedupCheck:
    """Sees calls that repeat with nothing changed in between, and stale answers of any cache.

    That a call is such a repeat is the loop check's mark (`ToolCall.redundant`); without that check none
    is reported.
    """

    name = CheckName.DEDUP

    def open(self, run: RunInfo) -> DedupRun:
        """The state of this check for one run; 40 KB, and 1 MB where its latest 256 changes came with long texts."""
        return DedupRun()


class _Write:
    """A call that may have changed something; where is looked up when an answer comes from a cache."""

    __slots__ = ("_arguments", "_places", "_result", "effect", "step", "texts", "tool", "touches")

    def __init__(self, call: ToolCall) -> None:
        self.step = call.step
        self.effect = call.effect
        self.tool = call.tool
        self.touches = call.touches
        self.texts: list[int] = []
        self._arguments: dict[str, object] = {}
        for name, value in islice((call.arguments or {}).items(), _MAX_ARGUMENTS):
            if isinstance(value, str):
                self.texts.append(hash(value))
                self._arguments[name] = value[:_KEPT_CHARS]
            elif isinstance(value, int):
                self._arguments[name] = value
        self._result = call.result[:_KEPT_CHARS] if isinstance(call.result, str) else None
        self._places: Places | None = None

    def reaches(self, reads: Places) -> bool:
        """Whether it surely changed what is read there."""
        if self._places is None:
            call = ToolCall(tool=self.tool, touches=self.touches, arguments=self._arguments, result=self._result)
            self._places = places_of(call) if self.effect in _CHANGES else written_by(call)
        return self._places.reach(reads)


class DedupRun:
    """The dedup check in one run."""

    __slots__ = ("_compacted", "_origins", "_writes")

    def __init__(self) -> None:
        self._compacted = 0
        self._origins = PackedOutcomes(_MAX_CALLS)
        self._writes: deque[_Write] = deque(maxlen=_MAX_WRITES)

    def before(self, event: Event) -> Sequence[Finding]:
        """Nothing is known of a call before it has an answer."""
        return ()

    def after(self, event: Event) -> Sequence[Finding]:
        """Take in a call with its answer."""
        if not isinstance(event, ToolCall):
            if isinstance(event, Compaction):
                self._compacted = event.step
            return ()
        if event.refused or event.outcome is NOT_EXECUTED:
            return ()
        if event.served_from == "cache":
            stale = self._judge(event)
            return () if stale is None else (stale,)
        if event.served_from is not None:
            return ()
        redundant = self._redundant(event) if event.redundant else None
        self._note(event)
        return () if redundant is None else (redundant,)

    def _note(self, call: ToolCall) -> None:
        if call.fingerprint is not None:
            self._origins.put(call.fingerprint, call.step, mark_of(call.result_digest))
        if call.effect in _MAY_CHANGE and call.outcome in _HAPPENED:
            self._writes.append(_Write(call))

    def _judge(self, call: ToolCall) -> Finding | None:
        """A finding where an answer from a cache cannot be true any more."""
        origin = None if call.fingerprint is None else self._origins.get(call.fingerprint)
        if asks_fresh(call.arguments):
            return _stale(call, origin, None, "although a fresh answer was asked for")
        made = 0 if origin is None else origin.step
        stub = _is_stub(call.result)
        if stub and self._compacted > made:
            return _stale(call, origin, self._compacted, "with a pointer to what a compaction has taken from the model")
        if origin is not None and origin.mark and origin.mark != mark_of(call.result_digest) and not stub:
            return None  # whatever keeps it has looked again since
        write = self._written_since(call, made)
        if write is None:
            return None
        return _stale(call, origin, write.step, f"although step {write.step} changed what it reads")

    def _written_since(self, call: ToolCall, step: int) -> _Write | None:
        """The first change of what the call reads after a step, unless it wrote just what is served."""
        later = [write for write in self._writes if write.step > step]
        if not later:
            return None
        reads = places_of(call)
        found = [write for write in later if write.reaches(reads)]
        if not found or _is_one_of(call.result, found[-1].texts):
            return None
        return found[0]

    def _redundant(self, call: ToolCall) -> Finding | None:
        if call.fingerprint is None:
            return None
        origin = self._origins.get(call.fingerprint)
        evidence = (call.step,) if origin is None else (origin.step, call.step)
        return Finding(
            check=CheckName.DEDUP,
            kind=Kind.REDUNDANT,
            severity=Severity.INFO,
            step=call.step,
            signature=call.fingerprint,
            message="",
            explanation=f"{call.tool} was called again with nothing changed in between, {words.steps(evidence)}",
            evidence=evidence,
            agent=call.agent,
            tool=call.tool,
            count=call.repeats + 1,
        )


def _stale(call: ToolCall, origin: Origin | None, changed: int | None, why: str) -> Finding:
    made = None if origin is None else origin.step
    evidence = tuple(step for step in (made, changed, call.step) if step is not None)
    return Finding(
        check=CheckName.DEDUP,
        kind=Kind.STALE_CACHE,
        severity=Severity.WARN,
        step=call.step,
        signature=xxh3_128_digest(b"stale" + (call.fingerprint or call.tool.encode())),
        message=words.stale_answer(made, changed),
        explanation=f"{call.tool} was answered from a cache {why}",
        action=Action.HINT,
        evidence=evidence,
        agent=call.agent,
        tool=call.tool,
        count=1,
    )


def _is_one_of(result: object, texts: Sequence[int]) -> bool:
    """Whether a result is one of some texts, but for the line end of a file."""
    return isinstance(result, str) and (hash(result) in texts or hash(result + "\n") in texts)


def _is_stub(result: object) -> bool:
    """Whether an answer stands in place of an earlier one that the model is to look up."""
    return isinstance(result, str) and len(result) <= _STUB_CHARS and _STUB.search(result) is not None
