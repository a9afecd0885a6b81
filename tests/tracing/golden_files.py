"""The golden files: spans as instrumentations really made them, without what differs from run to run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Status, StatusCode

GOLDEN = Path(__file__).parent / "golden"
FAMILIES: dict[str, tuple[str, ...]] = {
    "native": ("pydantic-ai", "anthropic", "anthropic-runner", "mcp", "fastmcp"),
    "openinference": ("langchain", "openai-agents", "pydantic-ai", "openai", "anthropic"),
    "openllmetry": ("langchain", "openai-agents", "openai", "anthropic"),
    "genai": ("langchain", "openai-agents", "openai", "anthropic"),
}
RUNS = [(family, framework) for family, frameworks in FAMILIES.items() for framework in frameworks]

# Tools and settings, told again with every request, and traces of calls with the paths of a machine.
_LEFT_OUT = re.compile(
    r"^(llm\.tools\.|llm\.request\.functions\.|logfire\.|pydantic_ai\.|model_request_parameters$|llm\.invocation_parameters$"
    r"|gen_ai\.tool\.(definitions|description)$|tool\.description$|exception\.stacktrace$|server\.port$"
    r"|.*\.json_schema$)"
)
_KEPT_OF_A_HOLDER = re.compile(r"kind$|name$|\.id$|session_id$|^metadata$")
_TICK_NS = 1_000_000
_BEGAN_NS = 1_700_000_000_000_000_000
_CHANGING = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"\b(trace|span|group|run)_+[0-9a-f]{16,32}\b"), r"\1_ID"),
    (re.compile(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(Z|[+-]\d\d:?\d\d)?"), "TIME"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1"),
    (re.compile(r"\bat 0x[0-9a-f]+"), "at ADDRESS"),
    (re.compile(r"(\\n|\n|^)?Traceback \(most recent call last\).*", re.DOTALL), ""),
)


def plain(spans: list[dict[str, Any]], *, is_event: Any) -> list[dict[str, Any]]:
    """The spans of a run as they stand in a golden file.

    Args:
        spans: What was recorded.
        is_event: Tells of the attributes of a span whether they are those of an event; of others that only hold
            spans together, names are kept.
    """
    return [_plain(span, is_event(span["name"], span["attributes"])) for span in spans]


def _plain(span: dict[str, Any], is_event: bool) -> dict[str, Any]:
    attributes = {
        key: _settled(value)
        for key, value in span["attributes"].items()
        if not _LEFT_OUT.search(key) and (is_event or _KEPT_OF_A_HOLDER.search(key))
    }
    events = [
        {
            "name": event["name"],
            "attributes": {k: _settled(v) for k, v in event["attributes"].items() if not _LEFT_OUT.search(k)},
        }
        for event in span["events"]
        if event["name"] == "exception"
    ]
    return {**span, "error": _settled(span["error"]), "attributes": attributes, "events": events}


def _settled(value: Any) -> Any:
    if isinstance(value, list):
        return [_settled(one) for one in value]
    if not isinstance(value, str):
        return value
    for pattern, instead in _CHANGING:
        value = pattern.sub(instead, value)
    return value


def path_of(family: str, framework: str) -> Path:
    return GOLDEN / family / f"{framework}.json"


def written(spans: list[dict[str, Any]]) -> str:
    return json.dumps(spans, indent=1, ensure_ascii=False) + "\n"


def golden(family: str, framework: str) -> list[dict[str, Any]]:
    """The spans of a golden file, in the order of their start."""
    return list(json.loads(path_of(family, framework).read_text(encoding="utf-8")))


def replay(provider: TracerProvider, spans: list[dict[str, Any]]) -> None:
    """Make the spans again, in their order, under a provider."""
    living: dict[int, trace.Span] = {}
    for at, place, ends in _moments(spans):
        span = spans[place]
        at_ns = _BEGAN_NS + at * _TICK_NS
        if not ends:
            parent = None if span["parent"] is None else living.get(span["parent"])
            around = Context() if parent is None else trace.set_span_in_context(parent, Context())
            living[place] = provider.get_tracer(span["scope"]).start_span(
                span["name"], around, attributes=span["attributes"], start_time=at_ns
            )
            continue
        for event in span["events"]:
            living[place].add_event(event["name"], event["attributes"])
        living[place].set_status(
            Status(StatusCode[span["status"]], span["error"] if span["status"] == "ERROR" else None)
        )
        living[place].end(at_ns)


def _moments(spans: list[Mapping[str, Any]] | list[dict[str, Any]]) -> Iterator[tuple[int, int, bool]]:
    starts = [(span["from"], place, False) for place, span in enumerate(spans)]
    ends = [(span["to"], place, True) for place, span in enumerate(spans)]
    yield from sorted([*starts, *ends], key=lambda moment: (moment[0], moment[2], moment[1]))
