"""The seam around the client of a model's vendor, for loops that are written by hand.

Such a loop runs its tools itself, so nobody but the model's messages tells of them: an answer asks for a call,
and a later request brings its result. That makes a call known once it is over: too late to refuse it, in time
to end the run before the next request.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar
from uuid import uuid4

import orjson
from opentelemetry import context, trace
from opentelemetry.util.types import AttributeValue

from otel_agentguard.adapters.contract import EntryRequest, ModelAnswer, ModelRequest, ToolRequest
from otel_agentguard.adapters.entries import take_users_turn
from otel_agentguard.adapters.models import ModelSeam, ModelStep, ModelWatch
from otel_agentguard.adapters.tools import declaration_for, event_of
from otel_agentguard.current import scope, within
from otel_agentguard.errors import RunAborted
from otel_agentguard.events import Outcome, ToolCall
from otel_agentguard.fingerprint import result_digest
from otel_agentguard.forks import new_lock
from otel_agentguard.guard import Guard, installed
from otel_agentguard.runs import Decision, Run
from otel_agentguard.seams.streams import relaying, relaying_async
from otel_agentguard.seen import Sighting
from otel_agentguard.semconv import (
    AGENTGUARD_ACTION,
    AGENTGUARD_EVIDENCE_STEPS,
    AGENTGUARD_FINDING_KIND,
    AGENTGUARD_FINGERPRINT,
    AGENTGUARD_RUN_ID,
    AGENTGUARD_STEP,
    GEN_AI_AGENT_NAME,
    GEN_AI_CONVERSATION_ID,
    GEN_AI_OPERATION_NAME,
    GEN_AI_TOOL_CALL_ID,
    GEN_AI_TOOL_NAME,
    OPERATION_CHAT,
    OPERATION_EXECUTE_TOOL,
    SPAN_EXECUTE_TOOL,
)

R = TypeVar("R")

_MAX_KEYS = 16_384
_MAX_PENDING = 256
# Where the streams of both vendors' clients keep the generator that they are iterated by.
_PIECES = "_iterator"


@dataclass(slots=True, eq=False)
class Asked:
    """A tool call that a model asked for.

    Attributes:
        call_id: Its id.
        tool: Name of the tool.
        arguments: Its arguments; None where they are no JSON object.
    """

    call_id: str
    tool: str
    arguments: dict[str, object] | None


@dataclass(slots=True, eq=False)
class Told:
    """The result of a tool call, as a request brings it.

    Attributes:
        call_id: Id of the call.
        content: The result.
        failed: The program says that it is an error.
    """

    call_id: str
    content: object
    failed: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class TalkRequest(ModelRequest):
    """One request of a client.

    Attributes:
        results: Reads the results that it brings, those of its history too, from the newest on. What is older than
            the calls that wait for one stays unread.
        follows: Ids of what it goes on from on the server: an earlier answer, a conversation.
        user_messages: How many messages of the user it brings.
        user_text: Text of the last of them, where it is the newest thing in the request; else None.
        ends_with_user: Whether it is.
    """

    results: Callable[[], Iterable[Told]] = tuple
    follows: Sequence[str] = ()
    user_messages: int = 0
    user_text: str | None = None
    ends_with_user: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class TalkAnswer(ModelAnswer):
    """What a client got.

    Attributes:
        id: Id of the answer; requests may name it later.
        asked: The tool calls that it asks for.
    """

    id: str | None = None
    asked: Sequence[Asked] = ()


@dataclass(slots=True, eq=False)
class Talk:
    """A conversation of a hand-written loop with a model.

    Attributes:
        id: Ours, unless the vendor has one.
        pending: Calls that were asked for and have no result yet, with the time and the answer's id.
        user_messages: How many messages of the user its latest request brought.
    """

    id: str
    pending: OrderedDict[str, tuple[Asked, int, str | None]] = field(default_factory=OrderedDict)
    user_messages: int = 0


class TalkSeam:
    """The place around the requests of one vendor's client.

    Args:
        source: Name of the adapter.

    Attributes:
        models: The seam that it asks at.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self.models = ModelSeam(RunAborted, unwinds=True)
        self._talks = Talks(source)

    def call(
        self,
        decode: Callable[[], TalkRequest | None],
        read: Callable[[Any], TalkAnswer],
        body: Callable[[str], R],
    ) -> R:
        """Take one request through the guard.

        Args:
            decode: Reads the request; None lets it pass, and so does what it raises.
            read: Reads an answer, or the list of all pieces of a stream.
            body: Makes the request; gets the text for its system prompt, as in `ModelSeam.call`.

        Raises:
            RunAborted: The run was stopped or must end now.
            BaseException: What the body raised.
        """
        turn = _Turn(self, read)
        return self.models.call(lambda: turn.heard(decode), turn.read, body, follow=turn.follow)

    async def call_async(
        self,
        decode: Callable[[], TalkRequest | None],
        read: Callable[[Any], TalkAnswer],
        body: Callable[[str], Awaitable[R]],
    ) -> R:
        """`call` for a coroutine."""
        turn = _Turn(self, read)
        return await self.models.call_async(lambda: turn.heard(decode), turn.read, body, follow=turn.follow)

    def stream(
        self,
        decode: Callable[[], TalkRequest | None],
        read: Callable[[list[Any]], TalkAnswer],
        body: Callable[[str], Generator[Any, Any, Any]],
    ) -> Generator[Any, Any, Any]:
        """`call` for a body that yields the pieces of the answer."""
        turn = _Turn(self, read)
        return self.models.stream(lambda: turn.heard(decode), turn.read, body)

    def stream_async(
        self,
        decode: Callable[[], TalkRequest | None],
        read: Callable[[list[Any]], TalkAnswer],
        body: Callable[[str], AsyncGenerator[Any, Any]],
    ) -> AsyncGenerator[Any, Any]:
        """`stream` for an async generator."""
        turn = _Turn(self, read)
        return self.models.stream_async(lambda: turn.heard(decode), turn.read, body)

    def hear(self, request: TalkRequest) -> tuple[TalkRequest, Talk]:
        """Find the run of a request, and tell of the calls whose results it brings."""
        guard = installed.guard
        talk = self._talks.find(request)
        if guard is None:
            return request, talk
        guard.others.expect(always=True)
        here = scope()
        run = here.run
        if run is None:
            trace_id, of_request = _enclosing_traces(self._source)
            if trace_id is None:
                run = guard.implicit.of_conversation(talk.id, trace_id=of_request)
            else:
                is_recorded = trace.get_current_span().is_recording()
                run = guard.implicit.of_trace(trace_id, is_recorded=is_recorded)
            if request.ends_with_user and request.user_messages != talk.user_messages:
                entry = EntryRequest(user_text=request.user_text)
                run = take_users_turn(guard, run, here, entry)
            if trace_id is None:
                guard.implicit.lend(run)
        talk.user_messages = request.user_messages
        agent = here.agent or run.info.agent
        for told in _news(talk, request):
            pending = talk.pending.pop(told.call_id, None)
            if pending is not None:  # another thread may bring the same history
                self._completed(guard, run, agent, told, *pending)
        request.run = run
        return request, talk

    def remember(self, talk: Talk, answer: TalkAnswer) -> None:
        """Note the calls that an answer asks for."""
        now_ns = time.time_ns()
        for asked in answer.asked:
            talk.pending[asked.call_id] = asked, now_ns, answer.id
            while len(talk.pending) > _MAX_PENDING:
                talk.pending.popitem(last=False)
        self._talks.note(talk, answer)

    def _completed(
        self, guard: Guard, run: Run, agent: str, told: Told, asked: Asked, began_ns: int, batch: str | None
    ) -> None:
        request = ToolRequest(
            tool=asked.tool, arguments=asked.arguments, call_id=asked.call_id, agent=agent, batch=batch
        )
        call = event_of(guard, agent, request, declaration_for(request))
        call.at_s = began_ns / 1e9
        call.ended_s = guard.engine.now_s()
        call.outcome = Outcome.FAILED if told.failed else Outcome.OK
        call.result = told.content
        call.result_digest = result_digest(told.failed, told.content, on_fallback=guard.opaque)
        call.result_known = call.result_digest is not None
        now_ns = time.time_ns()
        if not run.seen.is_news(Sighting(call, self._source, began_ns, now_ns)):
            return
        decision = guard.engine.observe(run, call, enforce=guard.enforce_auto)
        if decision.notes and guard.enforce_auto:
            with run.lock:
                run.pending_notes.extend(decision.notes)
        try:
            _show(guard, run, call, decision, began_ns, now_ns)
        except Exception as exc:
            guard.engine.failed("span", exc)


class Talks:
    """The conversations of one client, found by what their requests name; the oldest are forgotten. Thread safe.

    Args:
        source: Begins the ids of those that the vendor has none for.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._lock = new_lock()
        self._by_key: OrderedDict[str, Talk] = OrderedDict()

    def find(self, request: TalkRequest) -> Talk:
        """The conversation that a request goes on with, else a new one."""
        with self._lock:
            for key in chain(request.follows, (told.call_id for told in request.results())):
                known = self._by_key.get(key)
                if known is not None:
                    return known
            talk = Talk(request.conversation or f"{self._source}-{uuid4().hex}")
            self._keep(talk, request.follows)
            return talk

    def note(self, talk: Talk, answer: TalkAnswer) -> None:
        """Have later requests find it by what an answer said."""
        with self._lock:
            self._keep(talk, [asked.call_id for asked in answer.asked])
            if answer.id is not None:
                self._keep(talk, [answer.id])

    def _keep(self, talk: Talk, keys: Sequence[str]) -> None:
        for key in keys:
            self._by_key[key] = talk
        while len(self._by_key) > _MAX_KEYS:
            self._by_key.popitem(last=False)


def _news(talk: Talk, request: TalkRequest) -> list[Told]:
    """The results of calls that have none yet, the oldest first."""
    found: dict[str, Told] = {}
    if talk.pending:
        for told in request.results():
            if told.call_id in talk.pending:
                found.setdefault(told.call_id, told)
                if len(found) == len(talk.pending):
                    break
    return [*reversed(found.values())]


class _Turn:
    """One request and its answer."""

    def __init__(self, seam: TalkSeam, read: Callable[[Any], TalkAnswer]) -> None:
        self._seam = seam
        self._read = read
        self._talk: Talk | None = None

    def heard(self, decode: Callable[[], TalkRequest | None]) -> TalkRequest | None:
        request = decode()
        if request is None:
            return None
        request, self._talk = self._seam.hear(request)
        return request

    def read(self, result: object) -> ModelAnswer:
        answer = self._read(result)
        if self._talk is not None:
            self._seam.remember(self._talk, answer)
        return answer

    def follow(self, result: object, step: ModelStep) -> bool:
        """Read a stream while the program does; whether the result is one."""
        stream = parsed(result)
        source = getattr(stream, _PIECES, None)
        if source is None:
            return False
        step.park()
        watch = ModelWatch(self._seam.models, step, self.read)
        if hasattr(source, "__anext__"):

            async def begin(args: Any, kwargs: Any) -> tuple[Any, ModelWatch]:
                return source, watch

            setattr(stream, _PIECES, relaying_async(begin)())
        else:
            setattr(stream, _PIECES, relaying(lambda args, kwargs: (source, watch))())
        return True


def parsed(result: Any) -> Any:
    """What a client returns, out of the envelope that `with_raw_response` puts around it.

    A response that the program reads itself (`with_streaming_response`) stays unread.
    """
    return result.parse() if type(result).__name__ == "LegacyAPIResponse" else result


def arguments_of(text: object) -> dict[str, object] | None:
    """The arguments of a call as a model writes them.

    Returns:
        The object that the JSON text is; `{"arguments": text}` where it is none, since a model that writes the same
        nonsense again repeats itself; None for what is no text.
    """
    if not isinstance(text, str):
        return dict(text) if isinstance(text, Mapping) else None
    try:
        found = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        found = None
    return found if isinstance(found, dict) else {"arguments": text}


def _enclosing_traces(source: str) -> tuple[int | None, int | None]:
    """The trace that the program is in, and the one that is nothing but the span of this very request.

    Another instrumentation makes that span around our seam. OpenInference says what its span is only when it ends,
    so that until then it is known by its scope.
    """
    span = trace.get_current_span()
    known = span.get_span_context()
    if not known.is_valid:
        return None, None
    attributes = getattr(span, "attributes", None) or {}
    scope_name = getattr(getattr(span, "instrumentation_scope", None), "name", "")
    is_request = (
        attributes.get(GEN_AI_OPERATION_NAME) == OPERATION_CHAT
        or "llm.request.type" in attributes
        or attributes.get("openinference.span.kind") == "LLM"
        or scope_name == f"openinference.instrumentation.{source}"
    )
    if is_request and getattr(span, "parent", None) is None:
        return None, known.trace_id
    return known.trace_id, None


def _show(guard: Guard, run: Run, call: ToolCall, decision: Decision, began_ns: int, ended_ns: int) -> None:
    """Make the span of a call that nobody else has told of."""
    attributes: dict[str, AttributeValue] = {
        GEN_AI_OPERATION_NAME: OPERATION_EXECUTE_TOOL,
        GEN_AI_TOOL_NAME: call.tool,
        GEN_AI_AGENT_NAME: call.agent,
        AGENTGUARD_RUN_ID: run.run_id,
        AGENTGUARD_STEP: call.step,
    }
    if call.call_id is not None:
        attributes[GEN_AI_TOOL_CALL_ID] = call.call_id
    if call.fingerprint is not None:
        attributes[AGENTGUARD_FINGERPRINT] = guard.exported(call.fingerprint)
    if run.info.conversation is not None:
        attributes[GEN_AI_CONVERSATION_ID] = run.info.conversation
    if decision.finding is not None:
        attributes[AGENTGUARD_ACTION] = str(decision.action)
        attributes[AGENTGUARD_FINDING_KIND] = decision.finding.kind.value
        attributes[AGENTGUARD_EVIDENCE_STEPS] = decision.finding.evidence
    here = within(run, scope(), context.get_current())
    name = f"{SPAN_EXECUTE_TOOL} {call.tool}"
    span = guard.tracer.start_span(name, here, attributes=attributes, start_time=began_ns)
    span.end(ended_ns)
