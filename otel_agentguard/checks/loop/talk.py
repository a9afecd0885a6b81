"""Repeated messages, handoffs, plans and model requests, and agents that send each other the same."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from otel_agentguard import text, words
from otel_agentguard.checks.loop.marks import Marks
from otel_agentguard.checks.loop.rounds import LONGEST_PERIOD, Round, Rounds
from otel_agentguard.events import Event, Handoff, Message, ModelCall, Similarity
from otel_agentguard.findings import CheckName, Finding, Kind, Limits, Severity
from otel_agentguard.protocols import RunInfo

_MAX_TEXTS = 64
_MAX_EVIDENCE = 8


@dataclass(slots=True, eq=False)
class _Said:
    step: int
    count: int = 1
    answer: bytes | None = None
    evidence: list[int] = field(default_factory=list)


class Talk:
    """What the agents of one run say.

    Args:
        run: The run.
        marks: What happened when; shared with the other parts of the check.
    """

    __slots__ = ("_formal", "_last", "_marks", "_rounds", "_run", "_said")

    def __init__(self, run: RunInfo, marks: Marks) -> None:
        self._run = run
        self._marks = marks
        self._rounds = Rounds()
        self._said: OrderedDict[bytes, _Said] = OrderedDict()
        self._formal: list[bool] = []
        self._last = 0

    def begin_intent(self) -> None:
        """A new intent: what is said now answers something else."""
        self._rounds.clear()
        self._said.clear()

    def before(self, event: Event) -> Sequence[Finding]:
        """What is known of a text before it goes out."""
        key = _identity(event)
        if key is None:
            return ()
        self._forget_if_acted()
        if not isinstance(event, ModelCall):
            ahead = self._rounds.upcoming(key, event.agent)
            if ahead is not None and self._counts(ahead) and (found := self._round_finding(event, ahead)):
                return (found,)
        said = self._said.get(_with_agent(key, event))
        if said is None or self._acted_since(said, event):
            return ()
        found = self._finding(event, said, said.count + 1)
        return (found,) if found else ()

    def after(self, event: Event) -> Sequence[Finding]:
        """Take in a text that went out, or was refused."""
        key = _identity(event)
        if key is None:
            return ()
        said = self._count(event, key)
        event.repeats = said.count - 1
        if event.repeats:
            event.similarity = Similarity.EXACT
        now = None if isinstance(event, ModelCall) else self._push(event, key)
        if event.refused:
            return ()
        if now is not None and (found := self._round_finding(event, now)):
            return (found,)
        found = self._finding(event, said, said.count)
        return (found,) if found else ()

    def _count(self, event: Event, key: bytes) -> _Said:
        identity = _with_agent(key, event)
        said = self._said.get(identity)
        answer = event.answer_digest if isinstance(event, ModelCall) else None
        if said is None:
            said = _Said(event.step, answer=answer)
            self._said[identity] = said
            if len(self._said) > _MAX_TEXTS:
                self._said.popitem(last=False)
        elif self._acted_since(said, event) or (not event.refused and answer != said.answer):
            said.count = 1
            said.evidence.clear()
        else:
            said.count += 1
        said.step = event.step
        said.answer = said.answer if event.refused else answer
        said.evidence.append(event.step)
        if len(said.evidence) > _MAX_EVIDENCE:
            del said.evidence[1]
        self._said.move_to_end(identity)
        return said

    def _acted_since(self, said: _Said, event: Event) -> bool:
        """A text counts again only with no tool call in between; a request may follow old news."""
        if isinstance(event, ModelCall):
            return self._marks.write > said.step
        return self._marks.call > said.step

    def _forget_if_acted(self) -> None:
        if self._marks.news > self._last:
            self._rounds.clear()

    def _push(self, event: Event, key: bytes) -> Round | None:
        self._forget_if_acted()
        self._last = event.step
        self._rounds.push(key, b"", event.agent, event.step, known=True)
        self._formal = [*self._formal[1 - LONGEST_PERIOD :], _is_formal(event)]
        seen = self._rounds.current()
        return seen if seen is not None and self._counts(seen) else None

    def _counts(self, seen: Round) -> bool:
        """Whether rounds are more than what one agent says around its calls, or set phrases of one agent."""
        if len(seen.agents) > 1:
            return True
        return self._marks.call <= seen.evidence[0] and not all(islice(reversed(self._formal), seen.period))

    def _finding(self, event: Event, said: _Said, count: int) -> Finding | None:
        limits = self._run.settings.limits("same")
        if limits.hint is None or count < limits.hint:
            return None
        if _is_formal(event):
            return None
        asked = isinstance(event, ModelCall)
        first = said.evidence[0]
        note = words.repeated_model_call(first, count) if asked else words.repeated_message(first, count)
        what = f"{event.agent} {'asked the model for' if asked else 'said'} the same {count} times"
        return self._make(
            event,
            Kind.LOOP,
            _with_agent(_identity(event) or b"", event),
            note,
            what,
            limits,
            "same",
            said.evidence,
            count,
        )

    def _round_finding(self, event: Event, seen: Round) -> Finding | None:
        alone = len(seen.agents) == 1
        row = "cycle" if alone else "pingpong"
        limits = self._run.settings.limits(row)
        if limits.hint is None or seen.number < limits.hint:
            return None
        who = sorted(seen.agents)
        note = words.rounds(seen.period, seen.number, seen.evidence, who)
        what = f"{' and '.join(who)} said the same in {seen.number} rounds"
        kind = Kind.CYCLE if alone else Kind.PINGPONG
        return self._make(event, kind, seen.signature, note, what, limits, row, seen.evidence, seen.number)

    def _make(
        self,
        event: Event,
        kind: Kind,
        signature: bytes,
        note: str,
        what: str,
        limits: Limits,
        row: str,
        evidence: Sequence[int],
        count: int,
    ) -> Finding:
        shown = tuple(evidence) if evidence[-1] == event.step else (*evidence, event.step)
        return Finding(
            check=CheckName.LOOP,
            kind=kind,
            severity=Severity.WARN,
            step=event.step,
            signature=signature,
            message=note,
            explanation=words.to_people(what, shown, f"loop.{row}", limits),
            limits=limits,
            evidence=shown,
            agent=event.agent,
            count=count,
        )


def _identity(event: Event) -> bytes | None:
    match event:
        case Message(digest=digest):
            return digest
        case Handoff(to=to, digest=digest):
            return f"handoff {to} ".encode() + (digest or b"")
        case ModelCall(request_digest=digest):
            return digest
        case _:
            return None


def _is_formal(event: Event) -> bool:
    """Whether a message is as short as a set phrase, which may be said many times."""
    return isinstance(event, Message) and event.text is not None and text.is_short(event.text)


def _with_agent(key: bytes, event: Event) -> bytes:
    return key + event.agent.encode()
