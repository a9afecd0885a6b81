"""Spans that real frameworks wrote, through the decoders.

`AGENTGUARD_DATA` names a folder that holds `traces/trail_otlp` (OTLP as JSON, smolagents under OpenInference)
and `traces/crewai_otlp` (OTLP bodies that CrewAI's own telemetry sent).
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_agentguard.events import Event, ToolCall
from otel_agentguard.fingerprint import call_digest
from otel_agentguard.protocols import EndedSpan
from otel_agentguard.tracing.decoders import DECODERS

DATA = os.environ.get("AGENTGUARD_DATA")
pytestmark = pytest.mark.skipif(not DATA, reason="AGENTGUARD_DATA is not set: no recorded traces to decode")


def files(folder: str, pattern: str) -> list[Path]:
    found = sorted((Path(DATA or "") / "traces" / folder).glob(pattern))
    assert found, f"no {pattern} in {folder} below AGENTGUARD_DATA={DATA}"
    return found


def plain(value: Any) -> object:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(one) for one in value.array_value.values]
    if kind == "kvlist_value":
        return {one.key: plain(one.value) for one in value.kvlist_value.values}
    return None if kind is None else getattr(value, kind)


def spans(request: ExportTraceServiceRequest) -> Iterator[EndedSpan]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield ended(span)


def ended(span: Span) -> EndedSpan:
    return EndedSpan(
        name=span.name,
        attributes={one.key: plain(one.value) for one in span.attributes},
        started_ns=span.start_time_unix_nano,
        ended_ns=span.end_time_unix_nano,
        failed=span.status.code == span.status.STATUS_CODE_ERROR,
    )


def decoded(span: EndedSpan) -> list[Event]:
    told = [
        decoder.decode(span) for decoder in DECODERS if any(marker in span.attributes for marker in decoder.markers)
    ]
    return [event for event in told if event is not None]


@pytest.fixture(scope="module")
def trail() -> list[tuple[EndedSpan, list[Event]]]:
    found = []
    for file in files("trail_otlp", "*.otlp.json.gz"):
        document = json.loads(gzip.decompress(file.read_bytes()))
        request = ParseDict(_hex_ids_dropped(document), ExportTraceServiceRequest(), ignore_unknown_fields=True)
        found += [(span, decoded(span)) for span in spans(request)]
    return found


def _hex_ids_dropped(document: dict[str, Any]) -> dict[str, Any]:
    """OTLP as JSON writes ids as hex, where protobuf's own JSON has base64."""
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    span.pop(key, None)
                span.pop("links", None)
    return document


def test_every_tool_agent_and_model_span_of_the_trail_traces_is_decoded(
    trail: list[tuple[EndedSpan, list[Event]]],
) -> None:
    expected = Counter(str(span.attributes.get("openinference.span.kind")) for span, _ in trail)

    seen = Counter(type(event).__name__ for _, events in trail for event in events)

    assert seen == {"ToolCall": expected["TOOL"], "Message": expected["AGENT"], "ModelCall": expected["LLM"]}
    assert min(seen.values()) > 50


def test_the_tool_calls_of_the_trail_traces_have_an_identity_and_named_arguments(
    trail: list[tuple[EndedSpan, list[Event]]],
) -> None:
    calls = [event for _, events in trail for event in events if isinstance(event, ToolCall)]

    identities = [call_digest(call.tool, call.arguments) for call in calls]

    assert None not in identities
    assert len(set(identities)) > len(calls) / 2
    assert not any(re.fullmatch(r"arg\d+", name) for call in calls for name in call.arguments or {})


def test_crewai_telemetry_speaks_none_of_the_vocabularies_and_adds_no_event() -> None:
    bodies = [ExportTraceServiceRequest.FromString(file.read_bytes()) for file in files("crewai_otlp", "*.pb")]
    all_spans = [span for body in bodies for span in spans(body)]

    assert len(all_spans) > 100
    assert [decoded(span) for span in all_spans if decoded(span)] == []
