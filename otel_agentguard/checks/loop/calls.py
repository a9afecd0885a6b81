"""Repeated tool calls and model calls: same call, same outcome, nothing in between that could change it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from otel_agentguard import text, words
from otel_agentguard.checks.loop.answers import Texts
from otel_agentguard.checks.loop.attempts import Attempts
from otel_agentguard.checks.loop.changes import CHANGING, Changes
from otel_agentguard.checks.loop.grades import Answer, Grade
from otel_agentguard.checks.loop.marks import Marks
from otel_agentguard.checks.loop.past import Before, Past
from otel_agentguard.checks.loop.rounds import Round, Rounds
from otel_agentguard.checks.loop.streaks import Streak, Streaks
from otel_agentguard.events import NOT_EXECUTED, OK, Effect, Outcome, Similarity, ToolCall
from otel_agentguard.findings import CheckName, Finding, Kind, Limits, Severity
from otel_agentguard.packed import first_64_bits
from otel_agentguard.protocols import RunInfo

_ALWAYS_NEW = frozenset({Effect.WAIT, Effect.GENERATOR, Effect.CURSOR})
_WAIT: Final = Effect.WAIT
_PACED = frozenset({Effect.WAIT, Effect.GENERATOR})
_CHANGING_GRADES = (Grade.NUMBERS, Grade.ALIKE)
_CHANGED = {
    Grade.EQUAL: "unchanged",
    Grade.ORDER: "unchanged but for its order",
    Grade.NUMBERS: "unchanged but for numbers",
    Grade.NO_NEW_WORDS: "without anything new",
    Grade.ALIKE: "nearly unchanged",
    Grade.NEW: "unchanged",
}


class Calls:
    """The tool calls of one run.

    Args:
        run: The run.
        marks: What happened when; shared with the other parts of the check.
    """

    __slots__ = ("_attempts", "_changes", "_marks", "_past", "_rounds", "_run", "_streaks")

    def __init__(self, run: RunInfo, marks: Marks) -> None:
        self._run = run
        self._marks = marks
        self._past = Past()
        self._streaks = Streaks()
        self._rounds = Rounds()
        self._attempts = Attempts()
        self._changes = Changes(run, marks)

    def begin_intent(self) -> None:
        """A new intent: rounds begin anew."""
        self._rounds.clear()

    def compact(self) -> None:
        """The context was summarised: one more round may only read again what was lost."""
        self._rounds.excuse()

    def before(self, call: ToolCall) -> Sequence[Finding]:
        """What is known of a call before it runs."""
        key = call.fingerprint
        if key is None:
            return ()
        self._changes.note_pause(call)
        self._attempts.begin(key, call.step)
        streak = self._streaks.get(key)
        if streak is None or streak.broken_by(self._marks) or streak.spared_by(self._marks):
            return ()
        if self._past.who(call.agent) not in streak.agents and not streak.own_repeat:
            return ()
        ahead = self._rounds.upcoming(key, call.agent)
        if ahead is not None and (found := self._round_finding(call, ahead)):
            return (found,)
        changed = self._marks.stir if streak.failing else self._marks.doubt
        doubted = streak.doubted or changed > streak.step
        spaced = self._marks.wait > streak.step
        if streak.grade in _CHANGING_GRADES and (spaced or self._marks.news > streak.step):
            return ()
        row, count = self._row(call, streak, spaced=spaced, extra=1)
        found = self._finding(call, streak, row, count, doubted=doubted)
        return (found,) if found else ()

    def after(self, call: ToolCall, texts: Texts) -> Sequence[Finding]:
        """Take in a call with its result."""
        key = call.fingerprint
        leads = key is not None and self._attempts.leads(key, call)
        if call.refused:
            self._attempted(call)
            return ()
        if call.outcome is NOT_EXECUTED:
            return ()
        self._marks.note_end(call)
        if key is None or call.result_digest is None:
            self._took_unknown(call)
            return ()
        if not leads:
            call.repeats = 1
            call.similarity = Similarity.EXACT
            call.redundant = True
            return ()
        if call.served_from == "replay":
            return ()
        return self._took(call, key, call.result_digest, texts)

    def _took(self, call: ToolCall, key: bytes, digest: bytes, texts: Texts) -> Sequence[Finding]:
        (identity,) = first_64_bits(key)
        before = self._past.take(identity, digest, call.agent, call.step)
        new = before is None or not before.known
        findings: Sequence[Finding] = ()
        streak = None
        if before is not None:
            streak = self._streaks.get(key)
            if streak is None:
                streak = self._recall(call, before, digest)
                self._streaks.put(key, streak)
            findings = self._advance(call, streak, digest, texts, new=new)
            self._past.note_count(identity, streak.count, doubted=streak.doubted)
        self._rounds.push(key, digest, call.agent, call.step, known=not new)
        if call.effect is _WAIT:
            self._marks.wait = call.step
        if new:
            graded = streak is not None and streak.grade is not Grade.NEW
            self._changes.take_new(call, identity, digest, texts, graded=graded)
        elif (now := self._rounds.current()) is not None and (found := self._round_finding(call, now)):
            return [found, *(f for f in findings if f.kind is Kind.REDUNDANT)]
        return findings

    def _recall(self, call: ToolCall, before: Before, digest: bytes) -> Streak:
        """What is known of a call that happened before, but has no streak: it happened once, or long ago."""
        streak = Streak(before.step, Outcome.OK, (before.who,), evidence=[before.step])
        if before.same:
            streak.outcome = call.outcome or Outcome.UNKNOWN
            streak.digest = digest
            streak.tally[digest] = streak.count = streak.tight = before.count
            streak.doubted = before.doubted
        return streak

    def _advance(self, call: ToolCall, streak: Streak, digest: bytes, texts: Texts, *, new: bool) -> Sequence[Finding]:
        marks = self._marks
        who = self._past.who(call.agent)
        own = who in streak.agents
        counts = own or streak.own_repeat
        if not own:
            streak.agents += (who,)
        streak.own_repeat = streak.own_repeat or own
        broken = streak.broken_by(marks)
        spared = streak.spared_by(marks)
        doubt = (marks.stir if streak.failing else marks.doubt) > streak.step
        spaced = marks.wait > streak.step
        idle = (
            call.effect not in _ALWAYS_NEW
            and not spaced
            and max(marks.stir, marks.write) <= streak.step
            and not self._changes.changes(call)
        )
        call.redundant = idle and digest == streak.digest
        back_to_back = marks.news <= streak.step
        always_new = call.effect in _ALWAYS_NEW or (call.effect in CHANGING and call.outcome is OK)
        compared = not always_new and (digest != streak.digest or streak.answer is None)
        answer = Answer(digest, texts, streak.answer) if compared else None
        if broken:
            streak.restart(call.step)
            streak.tally[digest] = 1
            streak.digest, streak.answer = digest, answer or streak.answer
        elif not counts or (spared and digest in streak.tally):
            streak.spared = streak.spared or spared
            streak.note(call.step)
        else:
            streak.note(call.step)
            streak.tight = 1 if spaced else streak.tight + 1
            streak.take(digest, answer, texts, known=not new, back_to_back=back_to_back)
            streak.doubted = streak.doubted or doubt
        streak.step = call.step
        streak.outcome = call.outcome or Outcome.UNKNOWN
        self._streaks.move_to_end(call.fingerprint or b"")
        if broken or streak.grade is Grade.NEW:
            return []
        call.redundant = call.redundant or (idle and streak.grade in (Grade.EQUAL, Grade.ORDER, Grade.ALIKE))
        return self._judge(call, streak, spaced=spaced)

    def _judge(self, call: ToolCall, streak: Streak, *, spaced: bool) -> list[Finding]:
        repeats = {Grade.NUMBERS: streak.numbers, Grade.ALIKE: streak.alike}.get(streak.grade, streak.count)
        call.repeats = repeats - 1
        if call.repeats:
            exact = streak.grade in (Grade.EQUAL, Grade.ORDER)
            call.similarity = Similarity.EXACT if exact else Similarity.MASKED
        if streak.grade in _CHANGING_GRADES and spaced:
            return []
        row, count = self._row(call, streak, spaced=spaced, extra=0)
        found = self._finding(call, streak, row, count, doubted=streak.doubted)
        if found is not None:
            return [found]
        return [self._redundant(call, streak)] if call.redundant and streak.count == 2 else []

    def _row(self, call: ToolCall, streak: Streak, *, spaced: bool, extra: int) -> tuple[str, int]:
        if streak.grade is Grade.NUMBERS:
            return "numbers", streak.numbers + extra
        if streak.grade is Grade.ALIKE:
            return "alike", streak.alike + extra
        if streak.outcome is Outcome.DENIED:
            return "denied", streak.count + extra
        if spaced or call.effect in _PACED:
            return "spaced", streak.count + extra
        count = min(streak.count, streak.tight) + extra
        return ("failing" if streak.failing else "same"), count

    def _finding(self, call: ToolCall, streak: Streak, row: str, count: int, *, doubted: bool) -> Finding | None:
        limits = self._limits(row, call.tool, doubted=doubted)
        if limits.hint is None or count < limits.hint:
            return None
        first = streak.evidence[0]
        if row in ("failing", "denied"):
            note = words.repeated_failure(first, count, denied=row == "denied")
            what = f"{call.tool} failed the same way {count} times"
        else:
            empty = call.outcome is OK and text.is_empty_answer(text.text_of(call.result))
            note = words.repeated_call(first, count, changed=_CHANGED[streak.grade], empty=empty)
            what = f"{call.tool} gave the same result {count} times"
        evidence = tuple(streak.evidence) if streak.evidence[-1] == call.step else (*streak.evidence, call.step)
        return Finding(
            check=CheckName.LOOP,
            kind=Kind.NEAR if streak.grade is Grade.ALIKE else Kind.LOOP,
            severity=Severity.WARN,
            step=call.step,
            signature=call.fingerprint or b"",
            message=note,
            explanation=words.to_people(what, evidence, f"loop.{row}", limits),
            limits=limits,
            evidence=evidence,
            agent=call.agent,
            tool=call.tool,
            count=count,
        )

    def _redundant(self, call: ToolCall, streak: Streak) -> Finding:
        evidence = tuple(streak.evidence)
        return Finding(
            check=CheckName.DEDUP,
            kind=Kind.REDUNDANT,
            severity=Severity.INFO,
            step=call.step,
            signature=call.fingerprint or b"",
            message="",
            explanation=f"{call.tool} was called again with nothing changed in between, {words.steps(evidence)}",
            evidence=evidence,
            agent=call.agent,
            tool=call.tool,
            count=streak.count,
        )

    def _round_finding(self, call: ToolCall, seen: Round) -> Finding | None:
        alone = len(seen.agents) == 1
        row = "cycle" if alone else "pingpong"
        if self._marks.wait >= seen.evidence[0] and alone:
            row = "spaced"
        limits = self._limits(row, None, doubted=False)
        if limits.hint is None or seen.number < limits.hint:
            return None
        evidence = seen.evidence if seen.evidence[-1] == call.step else (*seen.evidence, call.step)
        who = sorted(seen.agents)
        what = f"{seen.period} calls of {', '.join(who)} went round {seen.number} times with the same results"
        return Finding(
            check=CheckName.LOOP,
            kind=Kind.CYCLE if alone else Kind.PINGPONG,
            severity=Severity.WARN,
            step=call.step,
            signature=seen.signature,
            message=words.rounds(seen.period, seen.number, evidence, who),
            explanation=words.to_people(what, evidence, f"loop.{row}", limits),
            limits=limits,
            evidence=evidence,
            agent=call.agent,
            tool=call.tool,
            count=seen.number,
        )

    def _limits(self, row: str, tool: str | None, *, doubted: bool) -> Limits:
        limits = self._run.settings.limits(row, tool)
        return limits.raised_by(1) if doubted else limits

    def _attempted(self, call: ToolCall) -> None:
        key = call.fingerprint
        streak = self._streaks.get(key) if key is not None else None
        if key is None or streak is None:
            return
        streak.count += 1
        streak.numbers += 1
        streak.tight += 1
        if streak.digest is not None:
            streak.tally[streak.digest] = streak.count
        streak.step = call.step
        streak.note(call.step)
        call.repeats = streak.count - 1
        call.similarity = Similarity.EXACT
        outcome = self._rounds.expected_outcome(key, call.agent)
        if outcome is not None:
            self._rounds.push(key, outcome, call.agent, call.step, known=True)

    def _took_unknown(self, call: ToolCall) -> None:
        self._changes.take_unknown(call)
        self._rounds.push(b"", b"%d" % call.step, call.agent, call.step, known=False)
        if call.fingerprint is not None and (streak := self._streaks.get(call.fingerprint)) is not None:
            streak.restart(call.step)
            streak.step = call.step
            streak.digest = streak.answer = None
