"""The vocabularies in which agent spans are written."""

from otel_agentguard.protocols import Decoder
from otel_agentguard.tracing.decoders.genai import GenAI
from otel_agentguard.tracing.decoders.openinference import OpenInference
from otel_agentguard.tracing.decoders.openllmetry import OpenLLMetry

DECODERS: tuple[Decoder, ...] = (OpenLLMetry(), OpenInference(), GenAI())
"""Asked in this order: a span of the first two may carry attributes of the third as well."""

__all__ = ["DECODERS", "GenAI", "OpenInference", "OpenLLMetry"]
