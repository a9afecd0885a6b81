"""Keeps agent spans that will not be exported visible to the guard."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

from otel_agentguard.current import scope
from otel_agentguard.errors import ConfigError
from otel_agentguard.protocols import Decoder
from otel_agentguard.semconv import (
    GEN_AI_AGENT_NAME,
    GEN_AI_TOOL_NAME,
    OPENINFERENCE_TOOL_NAME,
    SPAN_EXECUTE_TOOL,
    SPAN_INVOKE_AGENT,
    SPAN_PLAN,
)
from otel_agentguard.tracing.decoders import DECODERS

_DEFAULT = "parentbased_always_on"


class AgentGuardSampler(Sampler):
    """Records agent spans that another sampler drops; what is exported stays the same.

    A dropped span reaches no span processor. One that belongs to a run, or that shows at its start
    that it is an agent span, is recorded without being sampled: processors see it, exporters do not.

    It must be the outermost sampler. Inside of `ParentBased` it is never asked about the children of
    a span that is not sampled.

    Args:
        delegate: Decides what is sampled.
        decoders: The vocabularies whose spans are kept.
    """

    def __init__(self, delegate: Sampler, *, decoders: Sequence[Decoder] = DECODERS) -> None:
        self._delegate = delegate
        self._signs = (
            *(marker for decoder in decoders for marker in decoder.markers),
            GEN_AI_TOOL_NAME,
            GEN_AI_AGENT_NAME,
            OPENINFERENCE_TOOL_NAME,
        )

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Ask the delegate, and turn a drop into "record only" where the guard wants to see the span."""
        result = self._delegate.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)
        if result.decision is not Decision.DROP or not self._is_wanted(parent_context, name, attributes):
            return result
        return SamplingResult(Decision.RECORD_ONLY, attributes, result.trace_state)

    def get_description(self) -> str:
        """Its name, with the delegate's."""
        return f"AgentGuardSampler{{{self._delegate.get_description()}}}"

    def _is_wanted(self, parent_context: Context | None, name: str, attributes: Attributes) -> bool:
        if scope(parent_context).run is not None:
            return True
        if attributes and any(sign in attributes for sign in self._signs):
            return True
        # Several frameworks set every attribute only after the span has started.
        return name.startswith(_NAMES)


_NAMES = tuple(f"{operation} " for operation in (SPAN_EXECUTE_TOOL, SPAN_INVOKE_AGENT, SPAN_PLAN))


def from_environment(arg: str | None) -> AgentGuardSampler:
    """Make the sampler that `OTEL_TRACES_SAMPLER=agentguard` asks for.

    Args:
        arg: Value of `OTEL_TRACES_SAMPLER_ARG`: name of the sampler inside, with `:ratio` or `=ratio`
            where it takes one; empty for `parentbased_always_on`.

    Raises:
        ConfigError: There is no such sampler, or the ratio is not one.
    """
    text = (arg or "").strip().lower() or _DEFAULT
    name, ratio = text, ""
    for sign in ":=":
        if sign in text:
            name, _, ratio = (part.strip() for part in text.partition(sign))
            break
    if name in _WITH_RATIO:
        return AgentGuardSampler(_WITH_RATIO[name](_ratio(text, ratio)))
    if name not in _PLAIN:
        known = ", ".join((*_PLAIN, *(f"{one}:RATIO" for one in _WITH_RATIO)))
        raise ConfigError(f"OTEL_TRACES_SAMPLER_ARG: no sampler {name!r} inside agentguard; known: {known}")
    if ratio:
        raise ConfigError(f"OTEL_TRACES_SAMPLER_ARG: {name} takes no ratio, got {text!r}; leave out {ratio!r}")
    return AgentGuardSampler(_PLAIN[name])


def _ratio(text: str, ratio: str) -> float:
    try:
        value = float(ratio) if ratio else 1.0
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"OTEL_TRACES_SAMPLER_ARG: {ratio!r} in {text!r} is no ratio; give a number from 0 to 1")
    return value


def _parent_based_ratio(ratio: float) -> Sampler:
    return ParentBased(TraceIdRatioBased(ratio))


_PLAIN: dict[str, Sampler] = {
    "always_on": ALWAYS_ON,
    "always_off": ALWAYS_OFF,
    "parentbased_always_on": ParentBased(ALWAYS_ON),
    "parentbased_always_off": ParentBased(ALWAYS_OFF),
}
_WITH_RATIO: dict[str, Callable[[float], Sampler]] = {
    "traceidratio": TraceIdRatioBased,
    "parentbased_traceidratio": _parent_based_ratio,
}
