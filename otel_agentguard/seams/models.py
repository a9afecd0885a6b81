"""`model_call()`: one request to a model, for loops that are written by hand."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from opentelemetry.trace import SpanKind
from opentelemetry.util.types import AttributeValue

from otel_agentguard.current import scope
from otel_agentguard.errors import ConfigError
from otel_agentguard.events import ModelCall, Outcome
from otel_agentguard.fingerprint import digest
from otel_agentguard.guard import installed
from otel_agentguard.runs import Decision
from otel_agentguard.seams.step import Step
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


def model_call(*, model: str = "", messages: object = None, tools: object = None) -> ModelCallHandle:
    """Put the guard around one request to a model; used with `with` or `async with`.

    It raises before the request goes out when the run was stopped or the request is refused.

    Args:
        model: Name of the model.
        messages: The messages of the request; with `tools` they make its identity.
        tools: The tools of the request.

    Returns:
        The handle that takes the answer.
    """
    return ModelCallHandle(model, messages, tools)


class ModelCallHandle:
    """One request to a model; made by `model_call()`."""

    def __init__(self, model: str, messages: object, tools: object) -> None:
        self._model = model
        self._messages = messages
        self._tools = tools
        self._step: Step | None = None
        self._event = ModelCall(model=model)
        self._answer: object = None

    def record(
        self, answer: object = None, *, input_tokens: int | None = None, output_tokens: int | None = None
    ) -> None:
        """Say what came back.

        Args:
            answer: The answer: a text, or the message as the provider's JSON.
            input_tokens: Tokens read.
            output_tokens: Tokens written.

        Raises:
            ConfigError: A number of tokens is below 0.
        """
        for name, tokens in (("input_tokens", input_tokens), ("output_tokens", output_tokens)):
            if tokens is not None and tokens < 0:
                raise ConfigError(f"{name} is {tokens}; give 0 or more, or None where it is not known")
        event = self._event
        if answer is not None:
            self._answer = answer
            event.answer_digest = digest(answer)
        event.input_tokens = event.input_tokens if input_tokens is None else input_tokens
        event.output_tokens = event.output_tokens if output_tokens is None else output_tokens

    def __enter__(self) -> Self:
        """Ask whether the request may go out.

        Raises:
            CallBlocked: It must not.
            RunStopped: The run was stopped (`RunAborted` outside of `run()`).
        """
        if (step := self._begin()) is not None and (refusal := step.before(self._event)) is not None:
            self._refuse(step, refusal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Tell what came of it.

        Raises:
            RunStopped: The run must end now (`RunAborted` outside of `run()`).
        """
        if (step := self._over(error)) is not None:
            self._finish(step, step.after(self._event), error)

    async def __aenter__(self) -> Self:
        """See `__enter__`."""
        if (step := self._begin()) is not None and (refusal := await step.before_async(self._event)) is not None:
            self._refuse(step, refusal)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """See `__exit__`."""
        if (step := self._over(error)) is not None:
            waits = error is None or isinstance(error, Exception)
            decision = await step.after_async(self._event) if waits else step.after(self._event)
            self._finish(step, decision, error)

    def _begin(self) -> Step | None:
        if self._step is not None:
            raise ConfigError("this model_call() is under way already; make one for each request")
        guard = installed.guard
        here = scope()
        if guard is None or here.unguarded:
            return None
        step = self._step = Step(guard, here)
        event = self._event
        event.agent = step.agent
        event.at_s = guard.engine.now_s()
        if self._messages is not None:
            event.request_digest = digest((self._messages, self._tools), on_fallback=guard.opaque)
        attributes: dict[str, AttributeValue] = {
            GEN_AI_OPERATION_NAME: OPERATION_CHAT,
            GEN_AI_REQUEST_MODEL: self._model,
            GEN_AI_AGENT_NAME: step.agent,
        }
        step.start(f"{SPAN_CHAT} {self._model}".rstrip(), attributes, kind=SpanKind.CLIENT)
        return step

    def _refuse(self, step: Step, refusal: BaseException) -> None:
        self._step = None
        step.end(self._event, error=refusal)
        raise refusal

    def _over(self, error: BaseException | None) -> Step | None:
        step, self._step = self._step, None
        if step is not None:
            self._event.ended_s = step.guard.engine.now_s()
            if error is None:
                self._event.outcome = Outcome.OK
            else:
                self._event.outcome = Outcome.FAILED if isinstance(error, Exception) else Outcome.UNKNOWN
        return step

    def _finish(self, step: Step, decision: Decision, error: BaseException | None) -> None:
        step.keep_notes(decision.notes)
        stop = step.stop_after(decision) if error is None or isinstance(error, Exception) else None
        step.end(self._event, error=stop or error, more=self._told(step))
        if stop is not None:
            raise stop from error

    def _told(self, step: Step) -> dict[str, AttributeValue]:
        told: dict[str, AttributeValue] = {}
        if self._event.input_tokens is not None:
            told[GEN_AI_USAGE_INPUT_TOKENS] = self._event.input_tokens
        if self._event.output_tokens is not None:
            told[GEN_AI_USAGE_OUTPUT_TOKENS] = self._event.output_tokens
        if step.guard.captures_content:
            told[GEN_AI_INPUT_MESSAGES] = step.guard.content(self._messages)
            told[GEN_AI_OUTPUT_MESSAGES] = step.guard.content(self._answer)
        return told
