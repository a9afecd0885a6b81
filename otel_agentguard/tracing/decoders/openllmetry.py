"""OpenLLMetry (Traceloop), https://github.com/traceloop/openllmetry."""

from __future__ import annotations

from collections.abc import Mapping

from otel_agentguard import semconv
from otel_agentguard.events import Event, Message, ModelCall, ToolCall
from otel_agentguard.fingerprint import text_digest
from otel_agentguard.protocols import EndedSpan
from otel_agentguard.tracing import decoding

_REQUEST_TYPES = frozenset({"chat", "completion"})
_PROMPT = "gen_ai.prompt."
_COMPLETION = "gen_ai.completion."


class OpenLLMetry:
    """Reads `traceloop.span.kind` spans, and model calls, which carry `llm.request.type` instead."""

    name = "openllmetry"
    markers = (semconv.TRACELOOP_SPAN_KIND, semconv.TRACELOOP_REQUEST_TYPE)

    def decode(self, span: EndedSpan) -> Event | None:
        """See `Decoder.decode`."""
        match span.attributes.get(semconv.TRACELOOP_SPAN_KIND):
            case semconv.TRACELOOP_KIND_TOOL:
                return _tool_call(span)
            case semconv.TRACELOOP_KIND_AGENT:
                return _message(span, self.agent(span.name, span.attributes))
            case _:
                asked = span.attributes.get(semconv.TRACELOOP_REQUEST_TYPE)
                return _model_call(span) if isinstance(asked, str) and asked in _REQUEST_TYPES else None

    def agent(self, name: str, attributes: Mapping[str, object]) -> str | None:
        """See `Decoder.agent`."""
        named = decoding.name(attributes.get(semconv.GEN_AI_AGENT_NAME))
        if named is None and attributes.get(semconv.TRACELOOP_SPAN_KIND) == semconv.TRACELOOP_KIND_AGENT:
            return decoding.name(attributes.get(semconv.TRACELOOP_ENTITY_NAME)) or decoding.name(
                name.removesuffix(".agent")
            )
        return named

    def conversation(self, attributes: Mapping[str, object]) -> str | None:
        """See `Decoder.conversation`; LangGraph's thread is one too."""
        return decoding.first_name(
            attributes, semconv.TRACELOOP_ASSOCIATION_SESSION_ID, semconv.TRACELOOP_ASSOCIATION_THREAD_ID
        )


def _acting(span: EndedSpan) -> str | None:
    return decoding.name(span.attributes.get(semconv.GEN_AI_AGENT_NAME))


def _tool_call(span: EndedSpan) -> ToolCall | None:
    attributes = span.attributes
    tool = decoding.first_name(attributes, semconv.GEN_AI_TOOL_NAME, semconv.TRACELOOP_ENTITY_NAME)
    tool = tool or decoding.name(span.name.removesuffix(".tool"))
    if tool is None:
        return None
    told = decoding.parsed(decoding.known(span, semconv.TRACELOOP_ENTITY_INPUT, semconv.GEN_AI_TOOL_CALL_ARGUMENTS))
    return decoding.tool_call(
        span,
        tool,
        given=decoding.arguments(told),
        result=decoding.known(span, semconv.TRACELOOP_ENTITY_OUTPUT, semconv.GEN_AI_TOOL_CALL_RESULT),
        call_id=decoding.name(attributes.get(semconv.GEN_AI_TOOL_CALL_ID)) or _callback_id(told),
        agent=_acting(span),
    )


def _callback_id(told: object) -> str | None:
    """The call id that LangChain tells its callbacks beside the input."""
    beside = told.get("kwargs") if isinstance(told, Mapping) and "input_str" in told else None
    return decoding.name(beside.get("tool_call_id")) if isinstance(beside, Mapping) else None


def _model_call(span: EndedSpan) -> ModelCall:
    attributes = span.attributes
    read, written = _usage(attributes)
    return decoding.model_call(
        span,
        model=decoding.first_name(attributes, semconv.GEN_AI_RESPONSE_MODEL, semconv.GEN_AI_REQUEST_MODEL),
        request=decoding.messages(span, semconv.GEN_AI_INPUT_MESSAGES, _PROMPT),
        answer=decoding.messages(span, semconv.GEN_AI_OUTPUT_MESSAGES, _COMPLETION),
        agent=_acting(span),
        input_tokens=read,
        output_tokens=written,
    )


def _usage(attributes: Mapping[str, object]) -> tuple[int | None, int | None]:
    """Tokens read and written; where only their sum is told, it counts as read."""
    read = decoding.count(attributes, semconv.GEN_AI_USAGE_INPUT_TOKENS, semconv.GEN_AI_USAGE_PROMPT_TOKENS)
    written = decoding.count(attributes, semconv.GEN_AI_USAGE_OUTPUT_TOKENS, semconv.GEN_AI_USAGE_COMPLETION_TOKENS)
    if read is None and (total := decoding.count(attributes, semconv.TRACELOOP_USAGE_TOTAL_TOKENS)) is not None:
        read = max(total - (written or 0), 0)
    return read, written


def _message(span: EndedSpan, agent: str | None) -> Message:
    text = decoding.message_text(decoding.known(span, semconv.TRACELOOP_ENTITY_OUTPUT))
    return Message(
        agent=agent or "",
        text=text,
        digest=None if text is None else text_digest(text),
        at_s=span.ended_ns / 1e9,
    )
