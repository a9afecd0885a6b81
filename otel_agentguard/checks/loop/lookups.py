"""Lookups that fail or come back empty and share one rare identifier, in whatever command."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from otel_agentguard import text
from otel_agentguard.checks.loop.answers import Texts
from otel_agentguard.checks.loop.asked import Asked, judged
from otel_agentguard.checks.loop.marks import Marks
from otel_agentguard.events import OK, UNKNOWN_EFFECT, Effect, ToolCall
from otel_agentguard.findings import Finding
from otel_agentguard.protocols import RunInfo
from otel_agentguard.reading import only_reads

_MAX_IDENTIFIERS = 32
_MAX_IDENTIFIERS_A_CALL = 8
_MAX_ERRORS = 10
_SAYS_LITTLE_CHARS = 40
_RARE_CHARS = 6
_ASKED_CHARS = 4000
_FAILED_CHARS = 400
_ERROR_CHARS = 4000
_JOINED = re.compile(r"\w++(?:[-./:]++\w++)*+")
_JOINT = re.compile(r"[-./:]")
_RARE = re.compile(r"[^\W\d]+_\w+|[a-z]+[A-Z]\w*|[^\W\d]+\d\w*")
_QUOTED = re.compile(r"'[^']{0,400}'|\"[^\"]{0,400}\"")
_READS = frozenset({Effect.READ, Effect.PURE})


@dataclass(slots=True, eq=False)
class _Lookup(Asked):
    """Lookups of one identifier.

    Attributes:
        errors: Identities of the errors that they came to.
    """

    errors: list[int] = field(default_factory=list)


class Lookups:
    """What was looked up in vain in one run.

    Args:
        run: The run.
        marks: What happened when; shared with the other parts of the check.
    """

    __slots__ = ("_identifiers", "_marks", "_run")

    def __init__(self, run: RunInfo, marks: Marks) -> None:
        self._run = run
        self._marks = marks
        self._identifiers: OrderedDict[str, _Lookup] = OrderedDict()

    def after(self, call: ToolCall, texts: Texts) -> Sequence[Finding]:
        """Take in a call that is over."""
        error = None
        silent = not texts.answer.strip()
        if call.outcome is not OK:
            if len(texts.asked) > _FAILED_CHARS:
                return ()
            error = _error_of(texts)
        elif silent and not self._surely_reads(call):
            return ()
        elif not (silent or text.is_empty_answer(texts.answer) or texts.echoes):
            if self._identifiers:
                self._found(texts.asked[:_ASKED_CHARS])
            return ()
        return self._sought(call, texts.asked[:_ASKED_CHARS], error)

    def _surely_reads(self, call: ToolCall) -> bool:
        """Whether silence is an empty answer; a command that changes something succeeds in silence."""
        if call.effect is UNKNOWN_EFFECT:
            return self._run.settings.loop.dry_commands and only_reads(call)
        return call.effect in _READS

    def _sought(self, call: ToolCall, asked: str, error: int | None) -> Sequence[Finding]:
        findings: Sequence[Finding] = ()
        for identifier in _identifiers(asked):
            lookup = self._identifiers.get(identifier)
            if lookup is None or self._marks.write > lookup.step:
                lookup = self._begin(identifier, call.step)
            if error is not None and not _same_failure(lookup, error):
                continue
            lookup.step = call.step
            lookup.note(call.step, call.fingerprint)
            findings = findings or judged(self._run, call, lookup, identifier)
        return findings

    def _begin(self, identifier: str, step: int) -> _Lookup:
        lookup = self._identifiers[identifier] = _Lookup(step)
        if len(self._identifiers) > _MAX_IDENTIFIERS:
            self._identifiers.popitem(last=False)
        return lookup

    def _found(self, asked: str) -> None:
        """An answer said something: what was asked about is no longer sought in vain."""
        if any(identifier in asked for identifier in self._identifiers):
            for identifier in _identifiers(asked):
                self._identifiers.pop(identifier, None)


def _same_failure(lookup: _Lookup, error: int) -> bool:
    """Whether a failure says no more than those before."""
    known = not lookup.errors or error in lookup.errors
    if error not in lookup.errors and len(lookup.errors) < _MAX_ERRORS:
        lookup.errors.append(error)
    return known


def _identifiers(asked: str) -> list[str]:
    """The names in a call that are rare by their form: joined by signs, mixed with digits, or in camel case."""
    found: set[str] = set()
    for run in _JOINED.findall(asked):
        if len(run) >= _RARE_CHARS:
            found.update([run] if _JOINT.search(run) else _RARE.findall(run))
    return sorted(name for name in found if len(name) >= _RARE_CHARS)[:_MAX_IDENTIFIERS_A_CALL]


def _error_of(texts: Texts) -> int | None:
    """Identity of an error; None where it says too little to tell it from another."""
    if len(texts.answer) <= _SAYS_LITTLE_CHARS:
        return None
    return hash(_QUOTED.sub("", text.text_of(texts.masked, _ERROR_CHARS)))
