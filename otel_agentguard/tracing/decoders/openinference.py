"""OpenInference, https://github.com/Arize-ai/openinference/blob/main/spec/semantic_conventions.md."""

from __future__ import annotations

from collections.abc import Mapping

from otel_agentguard import semconv
from otel_agentguard.events import Event, Handoff, Message, ModelCall, ToolCall
from otel_agentguard.fingerprint import text_digest
from otel_agentguard.protocols import EndedSpan
from otel_agentguard.tracing import decoding

_HANDOFF = "handoff to "
_INPUT_MESSAGES = "llm.input_messages."
_OUTPUT_MESSAGES = "llm.output_messages."
_AGENT_TELLS = (
    semconv.OPENINFERENCE_AGENT_NAME,
    semconv.GEN_AI_AGENT_NAME,
    semconv.OPENINFERENCE_GRAPH_NODE_ID,
    semconv.OPENINFERENCE_INPUT_VALUE,
    semconv.OPENINFERENCE_OUTPUT_VALUE,
)
_METADATA = "metadata"
_LANGCHAIN_AGENT = "lc_agent_name"
_ENTRY_METHODS = (".run", ".arun", ".invoke", ".ainvoke", "._execute_core")


class OpenInference:
    """Reads `openinference.span.kind` spans."""

    name = "openinference"
    markers = (semconv.OPENINFERENCE_SPAN_KIND,)

    def decode(self, span: EndedSpan) -> Event | None:
        """See `Decoder.decode`."""
        match _kind(span.attributes):
            case semconv.OPENINFERENCE_KIND_TOOL:
                return _tool_call(span)
            case semconv.OPENINFERENCE_KIND_LLM:
                return _model_call(span)
            case semconv.OPENINFERENCE_KIND_AGENT:
                return _message(span, self.agent(span.name, span.attributes))
            case _:
                return None

    def agent(self, name: str, attributes: Mapping[str, object]) -> str | None:
        """See `Decoder.agent`."""
        if (named := _named(attributes)) is not None:
            return named
        if _kind(attributes) != semconv.OPENINFERENCE_KIND_AGENT:
            return None
        return decoding.name(attributes.get(semconv.OPENINFERENCE_GRAPH_NODE_ID)) or _of_span_name(name)

    def conversation(self, attributes: Mapping[str, object]) -> str | None:
        """See `Decoder.conversation`."""
        return decoding.name(attributes.get(semconv.OPENINFERENCE_SESSION_ID))


def _kind(attributes: Mapping[str, object]) -> str | None:
    kind = attributes.get(semconv.OPENINFERENCE_SPAN_KIND)
    return kind.upper() if isinstance(kind, str) else None


def _of_span_name(name: str) -> str | None:
    for method in _ENTRY_METHODS:
        name = name.removesuffix(method)
    return decoding.name(name)


def _named(attributes: Mapping[str, object]) -> str | None:
    """The agent by whichever name is there.

    Spans of Pydantic AI keep the names of the GenAI conventions when they are translated; LangChain tells its agent
    in the metadata of all that it does.
    """
    named = decoding.first_name(attributes, semconv.OPENINFERENCE_AGENT_NAME, semconv.GEN_AI_AGENT_NAME)
    if named is None and _METADATA in attributes:
        metadata = decoding.parsed(attributes[_METADATA])
        named = decoding.name(metadata.get(_LANGCHAIN_AGENT)) if isinstance(metadata, Mapping) else None
    return named


def _acting(span: EndedSpan) -> str | None:
    return _named(span.attributes)


def _tool_call(span: EndedSpan) -> ToolCall | Handoff | None:
    attributes = span.attributes
    tool = decoding.name(attributes.get(semconv.OPENINFERENCE_TOOL_NAME))
    if tool is None and span.name.startswith(_HANDOFF) and (to := decoding.name(span.name[len(_HANDOFF) :])):
        # openai-agents tells a handoff as a tool without a name
        return Handoff(to=to, agent=_acting(span) or "", at_s=span.started_ns / 1e9)
    tool = tool or decoding.name(span.name)
    if tool is None:
        return None
    given = decoding.known(span, semconv.OPENINFERENCE_INPUT_VALUE)
    names = decoding.parameter_names(attributes.get(semconv.OPENINFERENCE_TOOL_PARAMETERS)) if given is not None else ()
    return decoding.tool_call(
        span,
        tool,
        given=decoding.arguments(given, names=names),
        result=decoding.known(span, semconv.OPENINFERENCE_OUTPUT_VALUE),
        call_id=decoding.name(attributes.get(semconv.OPENINFERENCE_TOOL_CALL_ID)),
        agent=_acting(span),
    )


def _model_call(span: EndedSpan) -> ModelCall:
    attributes = span.attributes
    return decoding.model_call(
        span,
        model=decoding.name(attributes.get(semconv.OPENINFERENCE_MODEL_NAME)),
        # The raw answer holds ids and times, its messages do not.
        request=decoding.messages(span, semconv.OPENINFERENCE_INPUT_VALUE, _INPUT_MESSAGES),
        answer=decoding.messages(span, semconv.OPENINFERENCE_OUTPUT_VALUE, _OUTPUT_MESSAGES),
        agent=_acting(span),
        input_tokens=decoding.count(attributes, semconv.OPENINFERENCE_TOKEN_COUNT_PROMPT),
        output_tokens=decoding.count(attributes, semconv.OPENINFERENCE_TOKEN_COUNT_COMPLETION),
    )


def _message(span: EndedSpan, agent: str | None) -> Message | None:
    attributes = span.attributes
    if not any(name in attributes for name in _AGENT_TELLS):
        # openai-agents calls the root of its trace an agent too
        return None
    text = decoding.message_text(decoding.known(span, semconv.OPENINFERENCE_OUTPUT_VALUE))
    return Message(
        agent=agent or "",
        text=text,
        digest=None if text is None else text_digest(text),
        at_s=span.ended_ns / 1e9,
    )
