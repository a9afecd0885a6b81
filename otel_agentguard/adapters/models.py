"""The seam in the model path of a framework: no request of a stopped run goes out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextvars import ContextVar
from typing import Any, TypeVar
from weakref import WeakSet

from opentelemetry import context
from opentelemetry.trace import SpanKind
from opentelemetry.util.types import AttributeValue

from otel_agentguard.adapters.contract import Carrier, ModelAnswer, ModelRequest
from otel_agentguard.current import Scope, scope, within
from otel_agentguard.errors import RunAborted, RunStopped
from otel_agentguard.events import OK, ModelCall, Outcome
from otel_agentguard.fingerprint import digest
from otel_agentguard.guard import Guard, installed
from otel_agentguard.runs import Decision, Run
from otel_agentguard.seams.hints import hints_of
from otel_agentguard.seams.step import Step
from otel_agentguard.seams.streams import Watch, relaying, relaying_async
from otel_agentguard.semconv import (
    GEN_AI_AGENT_NAME,
    GEN_AI_INPUT_MESSAGES,
    GEN_AI_OPERATION_NAME,
    GEN_AI_OUTPUT_MESSAGES,
    GEN_AI_REQUEST_MODEL,
    GEN_AI_USAGE_INPUT_TOKENS,
    GEN_AI_USAGE_OUTPUT_TOKENS,
    OPERATION_CHAT,
    SPAN_CHAT,
)

R = TypeVar("R")

Follow = Callable[[R, "ModelStep"], bool]
"""Takes over an answer whose pieces are still to come; whether it is one."""

_INSIDE = context.create_key("agentguard-model-call")


# Beside the mark in OpenTelemetry's context: while a framework calls its SDK, an instrumentation may put back a context
# that it kept from before our seam, as opentelemetry-instrumentation-genai-langchain 1.3b0 does.
_under_way: ContextVar[ModelStep | None] = ContextVar("agentguard-model-call", default=None)


def is_model_call_told() -> bool:
    """Whether a seam further out tells of the model call that this code makes: a framework's, above an SDK's."""
    if context.get_value(_INSIDE) is True:
        return True
    around = _under_way.get()
    return around is not None and around.is_current


class ModelSeam:
    """The place around the model calls of one framework.

    A model call made inside of another seam's model call is that call, and passes.

    Attributes:
        carrier: What ends the run from here.
        unwinds: Whether plain code may be around: inside of `run()`, code that catches the first refusal and asks
            again is unwound with `RunStopped`, as a loop that survives every `Exception` would ask for ever.
    """

    def __init__(self, carrier: Carrier = RunAborted, *, unwinds: bool = False) -> None:
        self.carrier = carrier
        self.unwinds = unwinds
        self._refused: WeakSet[Run] = WeakSet()

    def call(
        self,
        decode: Callable[[], ModelRequest | None],
        read: Callable[[R], ModelAnswer],
        body: Callable[[str], R],
        *,
        follow: Follow[R] | None = None,
    ) -> R:
        """Take one request through the guard.

        Args:
            decode: Reads the request; None lets it pass, and so does what it raises.
            read: Reads the answer.
            body: Makes the request. Gets the text for its system prompt: empty unless `inject_hints` is set and
                there is something to say, and then it must go into this request only, not into any history.
            follow: Takes over an answer that it is to settle later.

        Raises:
            RunAborted: The run was stopped or must end now (the carrier).
            CallBlocked: The request must not be made.
            BaseException: What the body raised.
        """
        step = self.begin(decode)
        if step is None:
            return body("")
        self.ask(step)
        try:
            answer = body(step.hints())
        except BaseException as exc:
            step.took_error(exc)
            self.settle(step, step.after(step.event), exc)
            raise
        if follow is None or not _follows(follow, answer, step):
            step.took(read, answer)
            self.settle(step, step.after(step.event))
        return answer

    async def call_async(
        self,
        decode: Callable[[], ModelRequest | None],
        read: Callable[[R], ModelAnswer],
        body: Callable[[str], Awaitable[R]],
        *,
        follow: Follow[R] | None = None,
    ) -> R:
        """`call` for a coroutine."""
        step = self.begin(decode)
        if step is None:
            return await body("")
        await self.ask_async(step)
        try:
            answer = await body(step.hints())
        except Exception as exc:
            step.took_error(exc)
            self.settle(step, await step.after_async(step.event), exc)
            raise
        except BaseException as exc:
            step.took_error(exc)
            self.settle(step, step.after(step.event), exc)
            raise
        if follow is None or not _follows(follow, answer, step):
            step.took(read, answer)
            self.settle(step, await step.after_async(step.event))
        return answer

    def stream(
        self,
        decode: Callable[[], ModelRequest | None],
        read: Callable[[list[Any]], ModelAnswer],
        body: Callable[[str], Generator[Any, Any, Any]],
    ) -> Generator[Any, Any, Any]:
        """`call` for an answer that comes in pieces: asked at the first piece, read when all of them are there."""

        def begin(args: Any, kwargs: Any) -> tuple[Generator[Any, Any, Any], ModelWatch | None]:
            step = self.begin(decode, current=False)
            if step is None:
                return body(""), None
            self.ask(step)
            return body(step.hints()), ModelWatch(self, step, read)

        return relaying(begin)()

    def stream_async(
        self,
        decode: Callable[[], ModelRequest | None],
        read: Callable[[list[Any]], ModelAnswer],
        body: Callable[[str], AsyncGenerator[Any, Any]],
    ) -> AsyncGenerator[Any, Any]:
        """`stream` for an async generator."""

        async def begin(args: Any, kwargs: Any) -> tuple[AsyncGenerator[Any, Any], ModelWatch | None]:
            step = self.begin(decode, current=False)
            if step is None:
                return body(""), None
            await self.ask_async(step)
            return body(step.hints()), ModelWatch(self, step, read)

        return relaying_async(begin)()

    def begin(self, decode: Callable[[], ModelRequest | None], *, current: bool = True) -> ModelStep | None:
        """Begin a request whose answer comes in pieces; else `call` does all of this.

        Args:
            decode: As for `call`.
            current: Whether the span is the current one at once; else between `resume` and `park`.

        Returns:
            The request, to be asked for and settled; None lets it pass.
        """
        guard = installed.guard
        if guard is None or is_model_call_told():
            return None
        here = scope()
        if here.unguarded:
            return None
        try:
            request = decode()
            return None if request is None else ModelStep(guard, here, request, current=current)
        except RunAborted:
            raise
        except Exception as exc:
            guard.engine.failed("adapter", exc)
            return None

    def ask(self, step: ModelStep) -> None:
        """Ask whether the request may be made; raises as `call` does where it must not."""
        if (refusal := step.before(step.event)) is not None:
            self._refuse(step, refusal)

    async def ask_async(self, step: ModelStep) -> None:
        """`ask`, awaiting the callbacks of the application."""
        if (refusal := await step.before_async(step.event)) is not None:
            self._refuse(step, refusal)

    def settle(self, step: ModelStep, decision: Decision, error: BaseException | None = None) -> None:
        """End the span of a request that was made; raises the carrier where the run must end now."""
        step.keep_notes(decision.notes)
        stop = step.stop_after(decision) if error is None or isinstance(error, Exception) else None
        step.finish(stop or error)
        if stop is not None:
            raise self.carrier(getattr(stop, "finding", None), run_id=step.run.run_id) from error

    def _refuse(self, step: ModelStep, refusal: BaseException) -> None:
        step.finish(refusal)
        if isinstance(refusal, RunAborted | RunStopped):
            if self.unwinds and step.run in self._refused and isinstance(refusal, RunStopped):
                raise refusal
            self._refused.add(step.run)
            raise self.carrier(refusal.finding, run_id=step.run.run_id)
        raise refusal


def _follows(follow: Follow[R], answer: R, step: ModelStep) -> bool:
    try:
        return follow(answer, step)
    except Exception as exc:
        step.guard.engine.failed("adapter", exc)
        return False


class ModelWatch(Watch):
    """A request whose answer comes in pieces; a `Watch`.

    Args:
        seam: Where it is made.
        step: The request, let through.
        read: Reads the answer from all its pieces.
    """

    def __init__(self, seam: ModelSeam, step: ModelStep, read: Callable[[list[Any]], ModelAnswer]) -> None:
        self._seam = seam
        self._step = step
        self._read = read
        self._pieces: list[Any] = []

    def resume(self) -> None:
        """See `Watch`."""
        self._step.resume()

    def park(self) -> None:
        """See `Watch`."""
        self._step.park()

    def took(self, item: object) -> None:
        """See `Watch`."""
        self._pieces.append(item)

    def returned(self) -> None:
        """See `Watch`; raises the carrier where the run must end now."""
        self._account()
        self._seam.settle(self._step, self._step.after(self._step.event))

    async def returned_async(self) -> None:
        """See `returned`."""
        self._account()
        self._seam.settle(self._step, await self._step.after_async(self._step.event))

    def closed(self) -> None:
        """See `Watch`; an answer that nobody reads to its end counts as far as it was read."""
        self._account()
        self._closed(self._step.after(self._step.event))

    async def closed_async(self) -> None:
        """See `closed`."""
        self._account()
        self._closed(await self._step.after_async(self._step.event))

    def raised(self, error: BaseException) -> None:
        """See `Watch`; raises the carrier from it where the run must end now."""
        self._step.took_error(error)
        self._seam.settle(self._step, self._step.after(self._step.event), error)

    async def raised_async(self, error: BaseException) -> None:
        """See `raised`."""
        if not isinstance(error, Exception):
            self.raised(error)
            return
        self._step.took_error(error)
        self._seam.settle(self._step, await self._step.after_async(self._step.event), error)

    def _closed(self, decision: Decision) -> None:
        self._step.keep_notes(decision.notes)
        self._step.finish(None)

    def _account(self) -> None:
        if self._pieces:
            self._step.took(self._read, self._pieces)
        else:
            self._step.took_error(GeneratorExit())


class ModelStep(Step):
    """One request of a framework to a model on its way through the guard.

    Attributes:
        event: Its event.
        request: What was decoded of it.
    """

    def __init__(self, guard: Guard, here: Scope, request: ModelRequest, *, current: bool = True) -> None:
        run = request.run
        if run is None and here.run is None and request.conversation is not None:
            run = guard.implicit.of_conversation(request.conversation)
        super().__init__(guard, here, run=run)
        self.enforce = guard.enforce_auto
        if request.agent is not None:
            self.agent = request.agent
        self.request = request
        self.event = ModelCall(agent=self.agent, model=request.model, at_s=guard.engine.now_s())
        if request.messages is not None:
            self.event.request_digest = digest((request.messages, request.tools), on_fallback=guard.opaque)
        self._answer: object = None
        self._outer: ModelStep | None = None
        self._around = context.set_value(_INSIDE, True, within(self.run, here, self._around))
        attributes: dict[str, AttributeValue] = {
            GEN_AI_OPERATION_NAME: OPERATION_CHAT,
            GEN_AI_REQUEST_MODEL: request.model,
            GEN_AI_AGENT_NAME: self.agent,
        }
        self.start(f"{SPAN_CHAT} {request.model}".rstrip(), attributes, kind=SpanKind.CLIENT, current=current)

    @property
    def is_current(self) -> bool:
        """Whether code that runs now, and is told of it, makes this request."""
        return self._token is not None

    def resume(self) -> None:
        """See `Step`."""
        super().resume()
        self._outer = _under_way.get()
        _under_way.set(self)

    def park(self) -> None:
        """See `Step`."""
        super().park()
        if _under_way.get() is self:
            _under_way.set(self._outer)

    def hints(self) -> str:
        """What this request should tell the model beside its messages; empty unless the user wants that."""
        if not self.guard.settings.inject_hints or not self.enforce:
            return ""
        return hints_of(self.run)

    def took(self, read: Callable[[R], ModelAnswer], answer: R) -> None:
        """Take in the answer."""
        event = self.event
        event.outcome = OK
        event.ended_s = self.guard.engine.now_s()
        try:
            told = read(answer)
            if told.content is not None:
                event.answer_digest = digest(told.content, on_fallback=self.guard.opaque)
        except Exception as exc:
            self.guard.engine.failed("adapter", exc)
            return
        self._answer = told.content
        event.input_tokens = told.input_tokens
        event.output_tokens = told.output_tokens

    def took_error(self, error: BaseException) -> None:
        """Take in what the request ended in."""
        self.event.ended_s = self.guard.engine.now_s()
        self.event.outcome = Outcome.FAILED if isinstance(error, Exception) else Outcome.UNKNOWN

    def finish(self, error: BaseException | None) -> None:
        """End the span."""
        told: dict[str, AttributeValue] = {}
        if self.event.input_tokens is not None:
            told[GEN_AI_USAGE_INPUT_TOKENS] = self.event.input_tokens
        if self.event.output_tokens is not None:
            told[GEN_AI_USAGE_OUTPUT_TOKENS] = self.event.output_tokens
        if self.guard.captures_content:
            told[GEN_AI_INPUT_MESSAGES] = self.guard.content(self.request.messages)
            if self._answer is not None:
                told[GEN_AI_OUTPUT_MESSAGES] = self.guard.content(self._answer)
        self.end(self.event, self.event.request_digest, error=error, more=told)
