"""What each call may have changed, and whether it brought news: this decides which repeats are legitimate."""

from __future__ import annotations

from xxhash import xxh3_128_digest

from otel_agentguard import text
from otel_agentguard.checks.loop.answers import Texts
from otel_agentguard.checks.loop.marks import Marks
from otel_agentguard.events import OK, UNKNOWN_EFFECT, Effect, Form, ToolCall
from otel_agentguard.packed import PackedMap, first_64_bits
from otel_agentguard.protocols import RunInfo
from otel_agentguard.reading import form_of_call

CHANGING = frozenset({Effect.WRITE, Effect.SIDE_EFFECT})
_MAY_CHANGE = CHANGING | {Effect.UNKNOWN}
_MAX_ANSWERS = 512
_MAX_TELLERS = 64
_TELLING_CHARS = 200
_ECHO_CHARS = 2000
_32_BITS = 0xFFFFFFFF


class Changes:
    """Writes the marks that tool calls leave.

    Args:
        run: The run; its progress is counted here.
        marks: What happened when; shared with the other parts of the check.
    """

    __slots__ = ("_answers", "_dry_commands", "_marks", "_run", "_tellers", "_wait_s")

    def __init__(self, run: RunInfo, marks: Marks) -> None:
        self._run = run
        self._marks = marks
        self._dry_commands = run.settings.loop.dry_commands
        self._wait_s = run.settings.loop.wait_s
        self._answers = PackedMap(_MAX_ANSWERS)
        self._tellers: set[str] = set()

    def note_pause(self, call: ToolCall) -> None:
        """Take in when a call begins: a long pause before it is a wait."""
        ended = self._marks.ended_s
        if ended is not None and call.at_s is not None and call.at_s - ended >= self._wait_s:
            self._marks.wait = call.step

    def take_unknown(self, call: ToolCall) -> None:
        """Take in a call whose arguments or result nobody knows."""
        marks = self._marks
        if call.effect in CHANGING and call.outcome is OK:
            marks.write = call.step
        elif call.effect is UNKNOWN_EFFECT:
            marks.doubt = call.step
        marks.news = call.step

    def take_new(self, call: ToolCall, key: int, digest: bytes, texts: Texts, *, graded: bool) -> None:
        """Take in a call with a result that it has not had before in this run.

        Args:
            call: The call.
            key: Identity of the call.
            digest: Identity of outcome and result.
            texts: The texts of the call.
            graded: The result is no more than an earlier one of this call with other numbers or the like.
        """
        marks = self._marks
        says_nothing = self._says_nothing(call.result, key, digest, texts)
        if call.effect in _MAY_CHANGE and call.outcome is OK:
            self._note_change(call, texts, says_nothing=says_nothing)
        if not (says_nothing or graded) or marks.write == call.step:
            marks.news = call.step
            self._run.progress += 1

    def changes(self, call: ToolCall) -> bool:
        """Whether the call itself changes something: made again it is a second effect, not an idle repeat."""
        return self._does(call) is Form.WRITES

    def _note_change(self, call: ToolCall, texts: Texts, *, says_nothing: bool) -> None:
        does = self._does(call)
        if does is Form.WRITES:
            self._marks.write = call.step
        elif does is Form.UNSURE:
            stirs = self._may_change(call, texts, says_nothing=says_nothing)
            if stirs:
                self._marks.stir = call.step
            if stirs or not says_nothing:
                self._marks.doubt = call.step

    def _does(self, call: ToolCall) -> Form:
        effect = call.effect
        if effect is UNKNOWN_EFFECT:
            return form_of_call(call) if self._dry_commands else Form.UNSURE
        return Form.WRITES if effect in CHANGING else Form.READS

    def _says_nothing(self, result: object, key: int, digest: bytes, texts: Texts) -> bool:
        """Whether the answer is silence, an echo, or one that another call got too but for the caller's own words."""
        if not isinstance(result, str) or len(result) <= _ECHO_CHARS:
            answer = texts.answer
            if not answer or answer.isspace() or texts.echoes:
                return True
            bare = texts.bare
            if bare is not answer:
                digest = xxh3_128_digest(bare.encode("utf-8", "surrogatepass"))
        (answered,) = first_64_bits(digest)
        asked = key & _32_BITS
        first = self._answers.put(answered, asked, replace=False)
        return first is not None and first != asked

    def _may_change(self, call: ToolCall, texts: Texts, *, says_nothing: bool) -> bool:
        """Whether an answer looks like that of a change: brief, and no list that is merely empty.

        A tool that has only ever answered with silence changes nothing.
        """
        content = texts.answer.strip()
        if content:
            if len(self._tellers) < _MAX_TELLERS:
                self._tellers.add(call.tool)
            if len(content) >= _TELLING_CHARS or text.is_empty_answer(content):
                return False
            return not says_nothing or text.is_short(content)
        return call.tool in self._tellers
