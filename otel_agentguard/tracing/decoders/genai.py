"""OpenTelemetry's own names, https://github.com/open-telemetry/semantic-conventions-genai (in development)."""

from __future__ import annotations

from collections.abc import Mapping

from otel_agentguard import semconv
from otel_agentguard.errors import ConfigError
from otel_agentguard.events import Event, Memory, MemoryOperation, Message, ModelCall, Plan, ToolCall
from otel_agentguard.fingerprint import digest, text_digest
from otel_agentguard.plans.shapes import parse_plan
from otel_agentguard.protocols import EndedSpan
from otel_agentguard.tracing import decoding

_MODEL_OPERATIONS = frozenset(
    {semconv.OPERATION_CHAT, semconv.OPERATION_GENERATE_CONTENT, semconv.OPERATION_TEXT_COMPLETION}
)
_MEMORY_OPERATIONS = {
    semconv.OPERATION_SEARCH_MEMORY: MemoryOperation.READ,
    semconv.OPERATION_CREATE_MEMORY: MemoryOperation.WRITE,
    semconv.OPERATION_UPSERT_MEMORY: MemoryOperation.WRITE,
    semconv.OPERATION_UPDATE_MEMORY: MemoryOperation.UPDATE,
    semconv.OPERATION_DELETE_MEMORY: MemoryOperation.DELETE,
}


_ANTHROPIC_RESULT = "anthropic.tool_result.content"
"""Where Anthropic's own spans of its tool runner have a result."""
_PYDANTIC_AI_ANSWER = "final_result"
"""Where Pydantic AI's own spans of an agent have its answer."""


class GenAI:
    """Reads `gen_ai.operation.name` spans."""

    name = "genai"
    markers = (semconv.GEN_AI_OPERATION_NAME,)

    def decode(self, span: EndedSpan) -> Event | None:
        """See `Decoder.decode`."""
        operation = span.attributes.get(semconv.GEN_AI_OPERATION_NAME)
        if not isinstance(operation, str):
            return None
        if operation == semconv.OPERATION_EXECUTE_TOOL:
            return _tool_call(span)
        if operation in _MODEL_OPERATIONS:
            return _model_call(span)
        if operation == semconv.OPERATION_INVOKE_AGENT:
            return _message(span)
        if operation == semconv.OPERATION_PLAN:
            return _plan(span)
        if operation in _MEMORY_OPERATIONS:
            return _memory(span, _MEMORY_OPERATIONS[operation])
        return None

    def agent(self, name: str, attributes: Mapping[str, object]) -> str | None:
        """See `Decoder.agent`."""
        return decoding.name(attributes.get(semconv.GEN_AI_AGENT_NAME)) or _after(name, semconv.SPAN_INVOKE_AGENT)

    def conversation(self, attributes: Mapping[str, object]) -> str | None:
        """See `Decoder.conversation`."""
        return decoding.name(attributes.get(semconv.GEN_AI_CONVERSATION_ID))


def _after(name: str, operation: str) -> str | None:
    """What stands in a span name behind the operation."""
    return decoding.name(name[len(operation) :]) if name.startswith(operation + " ") else None


def _acting(span: EndedSpan) -> str | None:
    return decoding.name(span.attributes.get(semconv.GEN_AI_AGENT_NAME))


def _tool_call(span: EndedSpan) -> ToolCall | None:
    attributes = span.attributes
    tool = decoding.name(attributes.get(semconv.GEN_AI_TOOL_NAME)) or _after(span.name, semconv.SPAN_EXECUTE_TOOL)
    if tool is None:
        return None
    return decoding.tool_call(
        span,
        tool,
        given=decoding.arguments(decoding.known(span, semconv.GEN_AI_TOOL_CALL_ARGUMENTS)),
        result=decoding.known(span, semconv.GEN_AI_TOOL_CALL_RESULT, _ANTHROPIC_RESULT),
        call_id=decoding.name(attributes.get(semconv.GEN_AI_TOOL_CALL_ID)),
        agent=_acting(span),
    )


def _model_call(span: EndedSpan) -> ModelCall:
    attributes = span.attributes
    messages = decoding.known(span, semconv.GEN_AI_INPUT_MESSAGES)
    return decoding.model_call(
        span,
        model=decoding.first_name(attributes, semconv.GEN_AI_RESPONSE_MODEL, semconv.GEN_AI_REQUEST_MODEL),
        request=None if messages is None else [messages, decoding.known(span, semconv.GEN_AI_SYSTEM_INSTRUCTIONS)],
        answer=decoding.known(span, semconv.GEN_AI_OUTPUT_MESSAGES),
        agent=_acting(span),
        input_tokens=decoding.count(attributes, semconv.GEN_AI_USAGE_INPUT_TOKENS, semconv.GEN_AI_USAGE_PROMPT_TOKENS),
        output_tokens=decoding.count(
            attributes, semconv.GEN_AI_USAGE_OUTPUT_TOKENS, semconv.GEN_AI_USAGE_COMPLETION_TOKENS
        ),
    )


def _message(span: EndedSpan) -> Message:
    """What an agent hands back when it ends is its message to whoever called it."""
    text = decoding.message_text(decoding.known(span, semconv.GEN_AI_OUTPUT_MESSAGES, _PYDANTIC_AI_ANSWER))
    return Message(
        agent=_acting(span) or _after(span.name, semconv.SPAN_INVOKE_AGENT) or "",
        text=text,
        digest=None if text is None else text_digest(text),
        at_s=span.ended_ns / 1e9,
    )


def _plan(span: EndedSpan) -> Plan | None:
    told = decoding.parsed(decoding.known(span, semconv.GEN_AI_OUTPUT_MESSAGES))
    plan = decoding.message_text(told) or (told if isinstance(told, Mapping) else None)
    if plan is None:
        return None
    try:
        steps = parse_plan(plan)
    except (ConfigError, ValueError, TypeError, RecursionError):
        return None
    return Plan(
        agent=_acting(span) or _after(span.name, semconv.SPAN_PLAN) or "",
        steps=steps,
        digest=digest(steps),
        at_s=span.ended_ns / 1e9,
    )


def _memory(span: EndedSpan, operation: MemoryOperation) -> Memory:
    records = decoding.parsed(decoding.known(span, semconv.GEN_AI_MEMORY_RECORDS))
    told = [record for record in records if isinstance(record, Mapping)] if isinstance(records, list | tuple) else []
    contents = [record["content"] for record in told if "content" in record]
    return Memory(
        operation=operation,
        key=decoding.name(span.attributes.get(semconv.GEN_AI_MEMORY_RECORD_ID))
        or (decoding.name(told[0].get("id")) if len(told) == 1 else None),
        value=contents[0] if len(contents) == 1 else contents or None,
        agent=_acting(span) or "",
        at_s=span.ended_ns / 1e9,
    )
