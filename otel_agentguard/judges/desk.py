"""Where suspicions wait for a judge, and verdicts for the next seam."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

from xxhash import xxh3_128_digest

from otel_agentguard import text, words
from otel_agentguard.errors import ConfigError
from otel_agentguard.events import Event, Handoff, Message, ModelCall, ToolCall, Turn
from otel_agentguard.findings import Action, CheckName, Finding, Severity
from otel_agentguard.forks import new_lock
from otel_agentguard.outofband import Breaker, Failed, Worker
from otel_agentguard.protocols import Excerpt, Judge, RunInfo, Sink, Suspicion, Verdict

_NOTHING: tuple[Finding, ...] = ()
_MAX_EXCERPTS = 16
_SAID_CHARS = 400
_ANSWERED_CHARS = 600
_REASON_CHARS = 300
_MAX_VERDICTS = 256
_MAX_WAITING = 4
_SEAMS = (ToolCall, ModelCall, Message, Handoff)

Redact = Callable[[str], str]


class JudgeDesk(Sink):
    """Asks a judge about what is suspected but not proven, in a thread of its own.

    It is a check and a sink in one: as a sink it hears of findings outside of every lock, as a check it
    keeps the latest events of a run as excerpts, and brings in the verdict with the first event after it.
    Only a yes does something. Nothing waits for the judge: a question that cannot be asked now is dropped.

    Args:
        judge: Who is asked.
        max_questions: Questions in all; None for the judge's own `max_questions`, else 100.
        max_questions_a_run: Questions about one run.
        on_yes: What a yes leads to: `HINT`, or `BLOCK` for the next call of the suspected tool, or `STOP`.
        min_confidence: Least confidence of a yes that counts, 0 to 1.
        redact: Applied to every text before the judge sees it.
        breaker: Leaves the judge alone after failures.

    Attributes:
        asked: Questions that went to the judge.
        dropped: Questions that could not be asked.

    Raises:
        ConfigError: A limit is below 0, or `on_yes` is no such action.
    """

    name = "judge"

    def __init__(
        self,
        judge: Judge,
        *,
        max_questions: int | None = None,
        max_questions_a_run: int = 3,
        on_yes: Action = Action.HINT,
        min_confidence: float = 0.5,
        redact: Redact | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        if on_yes not in (Action.HINT, Action.BLOCK, Action.STOP):
            raise ConfigError(f"on_yes is {on_yes!s}; a yes can hint, block or stop")
        most = getattr(judge, "max_questions", 100) if max_questions is None else max_questions
        for name, limit in (("max_questions", most), ("max_questions_a_run", max_questions_a_run)):
            if limit < 0:
                raise ConfigError(f"{name} is {limit!r}; give 0 or more")
        self.redact = redact
        self.asked = 0
        self.dropped = 0
        self._judge = judge
        self._most = most
        self._most_a_run = max_questions_a_run
        self._on_yes = on_yes
        self._min_confidence = min_confidence
        self._breaker = breaker or Breaker(now_s=time.monotonic)
        self._lock = new_lock()
        self._runs: WeakValueDictionary[str, JudgeRun] = WeakValueDictionary()
        self._verdicts: OrderedDict[bytes, Verdict] = OrderedDict()
        self.worker = Worker("judge")

    def tell_failures_to(self, failed: Failed) -> None:
        """Have failures of the judge counted."""
        self.worker.failed = failed

    def close(self) -> None:
        """Ask nothing more; waits a second for an answer that is under way."""
        self.worker.close()

    def open(self, run: RunInfo) -> JudgeRun:
        """The excerpts of one run, about 20 KB, and the verdicts that wait for its next event."""
        opened = JudgeRun()
        with self._lock:
            self._runs[run.run_id] = opened
        return opened

    def found(self, run: RunInfo, finding: Finding, mode: str) -> None:
        """Ask about a finding of a layer that suspects and does not know."""
        if finding.check != CheckName.LOOP or finding.limits is None or finding.score >= 1.0:
            return
        with self._lock:
            state = self._runs.get(run.run_id)
        if state is None or not state.may_ask(finding.signature, self._most_a_run):
            return
        question = Suspicion(run_id=run.run_id, finding=finding, excerpts=self._redacted(state.since(finding)))
        key = _content(question)
        with self._lock:
            known = self._verdicts.get(key)
            if known is None:
                if self.asked >= self._most or not self._breaker.allows():
                    self.dropped += 1
                    return
                self.asked += 1
        if known is not None:
            self._deliver(state, finding, known)
        elif not self.worker.submit(lambda: self._ask(state, question, key)):
            with self._lock:
                self.asked -= 1
                self.dropped += 1

    def _ask(self, state: JudgeRun, question: Suspicion, key: bytes) -> None:
        try:
            verdict = self._judge.judge(question)
            if not isinstance(verdict, Verdict):
                raise TypeError(f"the judge returned {type(verdict).__name__}; it returns a Verdict")  # noqa: TRY301 - one path for every failure
        except Exception:
            with self._lock:
                self._breaker.failed()
            raise
        with self._lock:
            self._breaker.succeeded()
            self._verdicts[key] = verdict
            if len(self._verdicts) > _MAX_VERDICTS:
                self._verdicts.popitem(last=False)
        self._deliver(state, question.finding, verdict)

    def _deliver(self, state: JudgeRun, asked: Finding, verdict: Verdict) -> None:
        if verdict.loop and verdict.confidence >= self._min_confidence:
            state.deliver(_late(asked, verdict, self._on_yes))

    def _redacted(self, excerpts: Sequence[Excerpt]) -> tuple[Excerpt, ...]:
        redact = self.redact
        if redact is None:
            return tuple(excerpts)
        return tuple(
            Excerpt(
                step=one.step,
                agent=one.agent,
                what=one.what,
                said=redact(one.said),
                answered=redact(one.answered),
            )
            for one in excerpts
        )


class JudgeRun:
    """What a judge can be shown of one run, and what it has said."""

    __slots__ = ("__weakref__", "_about", "_excerpts", "_lock", "_verdicts")

    def __init__(self) -> None:
        self._lock = new_lock()
        self._excerpts: deque[Excerpt] = deque(maxlen=_MAX_EXCERPTS)
        self._verdicts: deque[Finding] = deque(maxlen=_MAX_WAITING)
        self._about: set[bytes] = set()

    def may_ask(self, signature: bytes, most: int) -> bool:
        """Whether this is to be asked, as nobody has asked it before; it counts as asked from then on."""
        with self._lock:
            if signature in self._about or len(self._about) >= most:
                return False
            self._about.add(signature)
            return True

    def since(self, finding: Finding) -> list[Excerpt]:
        """The excerpts from the first step of the evidence on."""
        first = finding.evidence[0] if finding.evidence else finding.step
        with self._lock:
            return [one for one in self._excerpts if first <= one.step <= finding.step]

    def deliver(self, verdict: Finding) -> None:
        """Have a verdict brought in with the next event; called from any thread."""
        with self._lock:
            self._verdicts.append(verdict)

    def before(self, event: Event) -> Sequence[Finding]:
        """A verdict that refuses, before an event that it is about."""
        if not self._verdicts or not isinstance(event, _SEAMS):
            return _NOTHING
        return self._take(lambda verdict: verdict.action is Action.STOP or _concerns(verdict, event))

    def after(self, event: Event) -> Sequence[Finding]:
        """Keep an excerpt; a verdict that hints comes with whatever event is over next."""
        if not event.refused and (excerpt := _excerpt(event)) is not None:
            with self._lock:
                self._excerpts.append(excerpt)
        if not self._verdicts:
            return _NOTHING
        return self._take(lambda verdict: verdict.action is Action.HINT)

    def _take(self, wanted: Callable[[Finding], bool]) -> list[Finding]:
        with self._lock:
            taken = [one for one in self._verdicts if wanted(one)]
            for one in taken:
                self._verdicts.remove(one)
        return taken


def _concerns(verdict: Finding, event: Event) -> bool:
    if verdict.action is not Action.BLOCK:
        return False
    if verdict.tool is None:
        return isinstance(event, Message | Handoff)
    return isinstance(event, ToolCall) and event.tool == verdict.tool


def _excerpt(event: Event) -> Excerpt | None:
    match event:
        case ToolCall():
            arguments = "" if event.arguments is None else text.text_of(event.arguments, _SAID_CHARS)
            answer = text.text_of(event.result, _ANSWERED_CHARS) if event.result_known else ""
            outcome = "" if event.outcome is None else f" ({event.outcome.value})"
            what, said, answered = f"tool {event.tool}{outcome}", arguments, answer
        case Message():
            content = event.text if event.payload is None else event.payload
            what, said, answered = f"message to {event.to or 'anybody'}", text.text_of(content or "", _SAID_CHARS), ""
        case Handoff():
            what, said, answered = f"handoff to {event.to}", text.text_of(event.text or "", _SAID_CHARS), ""
        case Turn():
            what, said, answered = f"turn of {event.trigger.value}", text.text_of(event.text or "", _SAID_CHARS), ""
        case _:
            return None
    return Excerpt(step=event.step, agent=event.agent, what=what, said=said, answered=answered)


def _content(question: Suspicion) -> bytes:
    """Identity of what a judge reads; the same events in another run, at other steps, are the same question."""
    first = question.excerpts[0].step if question.excerpts else 0
    evidence = [step - first for step in question.finding.evidence]
    shown = [(one.step - first, one.agent, one.what, one.said, one.answered) for one in question.excerpts]
    return xxh3_128_digest(repr((question.finding.kind, evidence, shown)).encode("utf-8", "surrogatepass"))


def _late(asked: Finding, verdict: Verdict, action: Action) -> Finding:
    """A yes as a finding of the step that was asked about."""
    reason = text.text_of(verdict.reason, _REASON_CHARS)
    return Finding(
        check=CheckName.LOOP.value,
        kind=asked.kind,
        severity=Severity.WARN if action is Action.HINT else Severity.ERROR,
        step=asked.step,
        signature=xxh3_128_digest(b"judge " + asked.signature),
        message=words.judged(asked.evidence[0] if asked.evidence else asked.step),
        explanation=words.judged_to_people(asked.explanation, verdict.confidence, reason),
        action=action,
        evidence=asked.evidence or (asked.step,),
        agent=asked.agent,
        tool=asked.tool,
        count=asked.count,
        score=verdict.confidence,
    )
