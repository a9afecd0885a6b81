"""Repeated tool calls and model calls: same call, same outcome, nothing in between that could change it."""

from __future__ import annotations

from collections.abc import Sequence

from xxhash import xxh3_64_intdigest, xxh3_128_digest

from otel_agentguard import text, words
from otel_agentguard.checks.loop.answers import echoes, own_words, without_arguments
from otel_agentguard.checks.loop.grades import Answer, Grade
from otel_agentguard.checks.loop.marks import Marks
from otel_agentguard.checks.loop.packed import PackedMap, PackedSet
from otel_agentguard.checks.loop.rounds import Round, Rounds
from otel_agentguard.checks.loop.streaks import Streak, Streaks
from otel_agentguard.events import Effect, Outcome, Similarity, ToolCall
from otel_agentguard.findings import CheckName, Finding, Kind, Limits, Severity
from otel_agentguard.protocols import RunInfo
from otel_agentguard.reading import only_reads, surely_writes

_MAX_CALLS = 2048
_MAX_OUTCOMES = 2048
_MAX_ANSWERS = 1024
_MAX_TELLERS = 64
_MAX_IN_FLIGHT = 1024
_AGENT_BITS = 8
_32_BITS = 0xFFFFFFFF
_CHANGES = frozenset({Effect.WRITE, Effect.SIDE_EFFECT})
_ALWAYS_NEW = frozenset({Effect.WAIT, Effect.GENERATOR, Effect.CURSOR})
_PACED = frozenset({Effect.WAIT, Effect.GENERATOR})
_CHANGED = {
    Grade.EQUAL: "unchanged",
    Grade.ORDER: "unchanged but for its order",
    Grade.NUMBERS: "unchanged but for numbers",
    Grade.NO_NEW_WORDS: "without anything new",
    Grade.ALIKE: "nearly unchanged",
    Grade.NEW: "unchanged",
}


_TELLING_CHARS = 200
_ECHO_CHARS = 2000


class Calls:
    """The tool calls of one run.

    Args:
        run: The run.
        marks: What happened when; shared with the other parts of the check.
    """

    __slots__ = (
        "_agents",
        "_answers",
        "_batch",
        "_in_flight",
        "_marks",
        "_outcomes",
        "_rounds",
        "_run",
        "_seen",
        "_streaks",
        "_tellers",
    )

    def __init__(self, run: RunInfo, marks: Marks) -> None:
        self._run = run
        self._marks = marks
        self._seen = PackedMap(_MAX_CALLS)
        self._outcomes = PackedSet(_MAX_OUTCOMES)
        self._streaks = Streaks()
        self._rounds = Rounds()
        self._in_flight: dict[bytes, int] = {}
        self._batch: tuple[str, set[bytes]] | None = None
        self._answers = PackedMap(_MAX_ANSWERS)
        self._tellers: set[str] = set()
        self._agents: list[str] = []

    def begin_intent(self) -> None:
        """A new intent: rounds begin anew."""
        self._rounds.clear()

    def before(self, call: ToolCall) -> Sequence[Finding]:
        """What is known of a call before it runs."""
        key = call.fingerprint
        if key is None:
            return ()
        self._note_pause(call)
        if len(self._in_flight) < _MAX_IN_FLIGHT:
            self._in_flight.setdefault(key, call.step)
        streak = self._streaks.get(key)
        if streak is None or streak.broken_by(self._marks) or streak.spared_by(self._marks):
            return ()
        if call.agent not in streak.agents and not streak.own_repeat:
            return ()
        ahead = self._rounds.upcoming(key, call.agent)
        if ahead is not None and (found := self._round_finding(call, ahead)):
            return (found,)
        changed = self._marks.stir if streak.failing else self._marks.doubt
        doubted = streak.doubted or changed > streak.step
        spaced = self._marks.wait > streak.step
        row, count = self._row(call, streak, spaced=spaced, extra=1)
        found = self._finding(call, streak, row, count, doubted=doubted)
        return (found,) if found else ()

    def after(self, call: ToolCall) -> Sequence[Finding]:
        """Take in a call with its result."""
        key = call.fingerprint
        leads = key is not None and self._leads(key, call)
        if call.refused:
            self._attempted(call)
            return ()
        if call.outcome is Outcome.NOT_EXECUTED:
            return ()
        marks = self._marks
        marks.call = call.step
        marks.ended_s = call.ended_s if call.ended_s is not None else call.at_s
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
        return self._took(call, key, call.result_digest)

    def _took(self, call: ToolCall, key: bytes, digest: bytes) -> Sequence[Finding]:
        outcome = xxh3_64_intdigest(key + digest)
        new = self._outcomes.add(outcome)
        agent = self._agent_number(call.agent)
        earlier = self._seen.put(_identity(key), call.step << _AGENT_BITS | agent)
        findings: list[Finding] = []
        if earlier is not None:
            streak = self._streaks.get(key)
            if streak is None:
                streak = self._second(call, earlier, None if new else digest)
                self._streaks.put(key, streak)
            findings = self._advance(call, streak, digest, new=new)
        self._rounds.push(agent << 64 | outcome, key, call.agent, call.step, known=not new)
        self._note_effect(call, key, digest, new=new)
        if not new and (now := self._rounds.current()) is not None and (found := self._round_finding(call, now)):
            return [found, *(f for f in findings if f.kind is Kind.REDUNDANT)]
        return findings

    def _second(self, call: ToolCall, earlier: int, digest: bytes | None) -> Streak:
        step = earlier >> _AGENT_BITS
        agent = self._agents[earlier & ((1 << _AGENT_BITS) - 1)]
        outcome = call.outcome or Outcome.UNKNOWN
        streak = Streak(step, outcome if digest is not None else Outcome.OK, {agent}, digest, evidence=[step])
        if digest is not None:
            streak.tally[digest] = 1
        else:
            streak.numbers = 1
        return streak

    def _advance(self, call: ToolCall, streak: Streak, digest: bytes, *, new: bool) -> list[Finding]:
        marks = self._marks
        own = call.agent in streak.agents
        counts = own or streak.own_repeat
        streak.agents.add(call.agent)
        streak.own_repeat = streak.own_repeat or own
        broken = streak.broken_by(marks)
        spared = streak.spared_by(marks)
        doubt = (marks.stir if streak.failing else marks.doubt) > streak.step
        spaced = marks.wait > streak.step
        idle = (
            call.effect not in _ALWAYS_NEW
            and not spaced
            and max(marks.stir, marks.write) <= streak.step
            and not self._changes(call)
        )
        call.redundant = idle and digest == streak.digest
        back_to_back = marks.news <= streak.step
        answer = None if digest == streak.digest and streak.answer is not None else Answer(digest, call.result)
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
            streak.take(digest, answer, known=not new, back_to_back=back_to_back)
            streak.doubted = streak.doubted or doubt
        streak.step = call.step
        streak.outcome = call.outcome or Outcome.UNKNOWN
        self._streaks.touch(call.fingerprint or b"")
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
        if streak.grade in (Grade.NUMBERS, Grade.ALIKE) and spaced:
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
            empty = call.outcome is Outcome.OK and text.is_empty_answer(text.text_of(call.result))
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
        token = self._rounds.expected_token(key, call.agent)
        if token is not None:
            self._rounds.push(token, key, call.agent, call.step, known=True)

    def _took_unknown(self, call: ToolCall) -> None:
        marks = self._marks
        if call.effect in _CHANGES and call.outcome is Outcome.OK:
            marks.write = call.step
        elif call.effect is Effect.UNKNOWN:
            marks.doubt = call.step
        marks.news = call.step
        self._rounds.push(call.step, b"", call.agent, call.step, known=False)
        if call.fingerprint is not None and (streak := self._streaks.get(call.fingerprint)) is not None:
            streak.restart(call.step)
            streak.step = call.step
            streak.digest = streak.answer = None

    def _note_effect(self, call: ToolCall, key: bytes, digest: bytes, *, new: bool) -> None:
        marks = self._marks
        if call.effect is Effect.WAIT:
            marks.wait = call.step
        if not new:
            return
        says_nothing = self._says_nothing(call, key, digest)
        changes = call.outcome is Outcome.OK and self._changes(call)
        if changes:
            marks.write = call.step
        elif call.effect is Effect.UNKNOWN and call.outcome is Outcome.OK and not self._reads(call):
            if self._may_change(call, says_nothing=says_nothing):
                marks.stir = call.step
            if not says_nothing:
                marks.doubt = call.step
        if changes or not says_nothing:
            marks.news = call.step
            self._run.progress += 1

    def _says_nothing(self, call: ToolCall, key: bytes, digest: bytes) -> bool:
        """Whether the answer is an echo, or another call got it too but for the caller's own words in it."""
        result = call.result
        if not isinstance(result, str) or len(result) <= _ECHO_CHARS:
            content = text.text_of(result)
            if echoes(content, own_words(call.arguments)):
                return True
            rest = without_arguments(content, call.arguments)
            if rest is not content:
                digest = xxh3_128_digest(rest.encode("utf-8", "surrogatepass"))
        asked = _identity(key) & _32_BITS
        first = self._answers.get(_identity(digest))
        if first is None:
            self._answers.put(_identity(digest), asked)
        return first is not None and first != asked

    def _may_change(self, call: ToolCall, *, says_nothing: bool) -> bool:
        """Whether an answer looks like that of a change: brief, and no list that is merely empty.

        A tool that has only ever answered with silence changes nothing.
        """
        content = text.text_of(call.result).strip()
        if content:
            if len(self._tellers) < _MAX_TELLERS:
                self._tellers.add(call.tool)
            if text.is_empty_answer(content) or len(content) >= _TELLING_CHARS:
                return False
            return text.is_short(content) or not says_nothing
        return call.tool in self._tellers

    def _reads(self, call: ToolCall) -> bool:
        return self._run.settings.loop.dry_commands and only_reads(call.arguments)

    def _changes(self, call: ToolCall) -> bool:
        """Whether the call itself changes something: made again it is a second effect, not an idle repeat."""
        if call.effect is Effect.UNKNOWN:
            return self._run.settings.loop.dry_commands and surely_writes(call.arguments)
        return call.effect in _CHANGES

    def _note_pause(self, call: ToolCall) -> None:
        ended = self._marks.ended_s
        if call.at_s is not None and ended is not None and call.at_s - ended >= self._run.settings.loop.wait_s:
            self._marks.wait = call.step

    def _leads(self, key: bytes, call: ToolCall) -> bool:
        """Whether this call is an attempt of its own, not one of several equal ones at once."""
        if call.batch is not None:
            if self._batch is None or self._batch[0] != call.batch:
                self._batch = (call.batch, set())
            if key in self._batch[1]:
                return False
            if len(self._batch[1]) < _MAX_IN_FLIGHT:
                self._batch[1].add(key)
        if self._in_flight.get(key, call.step) != call.step:
            return False
        self._in_flight.pop(key, None)
        return True

    def _agent_number(self, agent: str) -> int:
        try:
            return self._agents.index(agent)
        except ValueError:
            if len(self._agents) < (1 << _AGENT_BITS) - 1:
                self._agents.append(agent)
                return len(self._agents) - 1
            return 0


def _identity(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "little")
