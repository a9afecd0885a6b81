"""What the vocabularies have in common: values that are text, withheld, cut off or wrapped."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence

import orjson

from otel_agentguard.events import ModelCall, Outcome, ToolCall
from otel_agentguard.fingerprint import digest, is_unknown, result_digest
from otel_agentguard.protocols import EndedSpan
from otel_agentguard.semconv import ERROR_TYPE

_LONGEST_NAME = 200
_LONGEST_LITERAL = 4096
_MOST_DIGITS = 15
_JSON_STARTS = frozenset('{["-0123456789tfn')
_TOOL_MESSAGE = re.compile(r"\A(content=.*) tool_call_id='([^']{1,200})'(.*)\Z", re.DOTALL)
_MESSAGE_ID = re.compile(r" id='[^']{1,200}'")


def name(value: object) -> str | None:
    """A value as the name of something, cut to 200 characters; None where it names nothing."""
    if isinstance(value, str):
        return value.strip()[:_LONGEST_NAME] or None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return None


def first_name(attributes: Mapping[str, object], *keys: str) -> str | None:
    """The first of these attributes that names something."""
    for key in keys:
        found = name(attributes.get(key))
        if found is not None:
            return found
    return None


def known(span: EndedSpan, *keys: str) -> object:
    """The first of these attributes whose value is there, whole and not withheld; else None."""
    for key in keys:
        value = span.attributes.get(key)
        if value is not None and not is_unknown(value, length_limit=span.max_value_chars):
            return value
    return None


def count(attributes: Mapping[str, object], *keys: str) -> int | None:
    """The first of these attributes that is a number of things, also where it was written as text."""
    for key in keys:
        value = attributes.get(key)
        if isinstance(value, str) and value.isdecimal() and len(value) <= _MOST_DIGITS:
            value = int(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def parsed(value: object) -> object:
    """What a JSON text says; any other value as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in _JSON_STARTS:
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def arguments(value: object, *, names: Sequence[str] = ()) -> Mapping[str, object] | None:
    """The arguments of a tool call by name.

    Taken apart are JSON text, the text of a Python dict, `{"args": [...], "kwargs": {...}}`, a lone
    `kwargs`, and what LangChain tells its callbacks. Arguments without a name get that of their
    place, else `arg0`, `arg1`; a lone value is called `input`.

    Args:
        value: What was recorded; None where nothing was.
        names: Names of the tool's parameters in order, where they are known.
    """
    value = parsed(value)
    if isinstance(value, str):
        value = _literal(value)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        return _named([value], {}, names, lone="input")
    inputs = value.get("inputs")
    if "input_str" in value:
        return inputs if isinstance(inputs, Mapping) else arguments(value["input_str"], names=names)
    keywords = value.get("kwargs")
    if isinstance(keywords, Mapping):
        positional = value.get("args", [])
        if isinstance(positional, list | tuple):
            return _named(positional, keywords, names)
    return value


def _named(
    positional: Sequence[object], keywords: Mapping[str, object], names: Sequence[str], *, lone: str = ""
) -> Mapping[str, object]:
    if len(positional) == 1 and not keywords and isinstance(positional[0], Mapping):
        return positional[0]
    found: dict[str, object] = {}
    for place, one in enumerate(positional):
        found[names[place] if place < len(names) else lone or f"arg{place}"] = one
    inner = keywords.get("kwargs")
    if len(keywords) == 1 and isinstance(inner, Mapping):
        keywords = inner
    return {**found, **keywords}


def _literal(text: str) -> object:
    """What the text of a Python dict says; LangChain hands a tool's input to its callbacks like that."""
    if not text.startswith("{") or len(text) > _LONGEST_LITERAL or "\\" in text:
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text


def parameter_names(schema: object) -> tuple[str, ...]:
    """Names of a tool's parameters in order, from a JSON Schema or a plain mapping of them."""
    schema = parsed(schema)
    if not isinstance(schema, Mapping):
        return ()
    properties = schema.get("properties")
    return tuple(properties if isinstance(properties, Mapping) else schema)


def renamed(given: Mapping[str, object], names: Sequence[str]) -> Mapping[str, object]:
    """Arguments that had no name, under the names of the tool's parameters."""
    places = ("input",) if len(given) == 1 and "input" in given else tuple(f"arg{place}" for place in range(len(names)))
    known_by = {place: real for place, real in zip(places, names, strict=False) if place in given and real not in given}
    if not known_by or any(place in names for place in known_by):
        return given
    return {known_by.get(key, key): value for key, value in given.items()}


def tool_call(
    span: EndedSpan,
    tool: str,
    *,
    given: Mapping[str, object] | None,
    result: object,
    call_id: str | None,
    agent: str | None,
) -> ToolCall:
    """A tool call as a span tells it.

    Args:
        span: The span.
        tool: Name of the tool.
        given: Its arguments.
        result: What was recorded of its result; None where that is unknown.
        call_id: The id that the model gave the call.
        agent: Who made it, where the span says.
    """
    failed = span.failed or ERROR_TYPE in span.attributes
    value, its_id = _result(result)
    if failed and value is None:
        value = span.error if span.error else None
    return ToolCall(
        tool=tool,
        arguments=given,
        call_id=call_id or its_id,
        outcome=Outcome.FAILED if failed else Outcome.OK,
        result=value,
        result_known=value is not None,
        result_digest=None if value is None else result_digest(failed, value),
        agent=agent or "",
        at_s=span.started_ns / 1e9,
        ended_s=span.ended_ns / 1e9,
    )


def _result(value: object) -> tuple[object, str | None]:
    """What a tool returned, without the envelope and the ids that make equal results look different."""
    value = parsed(value)
    if isinstance(value, Mapping) and "output" in value and value.keys() <= {"output", "kwargs"}:
        value = parsed(value["output"])
    message = _message(value)
    if message is not None and "tool_call_id" in message and "content" in message:
        return message["content"], name(message["tool_call_id"])
    if isinstance(value, str) and value.startswith("content=") and (told := _TOOL_MESSAGE.match(value)):
        return _MESSAGE_ID.sub("", told[1] + told[3]), told[2]
    if isinstance(value, list) and value and all(_is_text_block(part) for part in value):
        return "\n".join(_texts(value)), None
    return value, None


def _is_text_block(part: object) -> bool:
    return isinstance(part, Mapping) and part.keys() == {"type", "text"} and part["type"] == "text"


def _message(value: object) -> Mapping[str, object] | None:
    """A message, also where LangChain has put it into an envelope: `{"lc", "kwargs"}` or `{"type", "data"}`."""
    if not isinstance(value, Mapping):
        return None
    for envelope, inner in (("lc", "kwargs"), ("type", "data")):
        message = value.get(inner)
        if envelope in value and isinstance(message, Mapping):
            return message
    return value


def model_call(
    span: EndedSpan,
    *,
    model: str | None,
    request: object,
    answer: object,
    agent: str | None,
    input_tokens: int | None,
    output_tokens: int | None,
) -> ModelCall:
    """A model call as a span tells it.

    Args:
        span: The span.
        model: Name of the model.
        request: What was recorded of the messages; None where that is unknown.
        answer: What was recorded of the answer; None where that is unknown.
        agent: Who made it, where the span says.
        input_tokens: Tokens read.
        output_tokens: Tokens written.
    """
    failed = span.failed or ERROR_TYPE in span.attributes
    return ModelCall(
        model=model or "",
        request_digest=None if request is None else digest(request),
        answer_digest=None if answer is None else digest(answer),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        outcome=Outcome.FAILED if failed else Outcome.OK,
        agent=agent or "",
        at_s=span.started_ns / 1e9,
        ended_s=span.ended_ns / 1e9,
    )


def messages(span: EndedSpan, key: str, prefix: str) -> object:
    """What was recorded of some messages: one attribute each, else all in one; None where it is unknown."""
    told = {one: value for one, value in span.attributes.items() if one.startswith(prefix)}
    if not told:
        return known(span, key)
    return None if is_unknown(told, length_limit=span.max_value_chars) else told


def message_text(value: object) -> str | None:
    """The text of the last of some messages, or of a lone one; None where there is none."""
    value = parsed(value)
    if isinstance(value, Mapping) and isinstance(value.get("messages"), list | tuple):
        value = value["messages"]
    if isinstance(value, list | tuple):
        value = value[-1] if value else None
    message = _message(value)
    if message is not None:
        value = message.get("content", message.get("parts", message.get("output")))
    if isinstance(value, list | tuple):
        value = "\n".join(_texts(value))
    return value if isinstance(value, str) and value else None


def _texts(parts: Iterable[object]) -> Iterable[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
        elif isinstance(part, Mapping) and part.get("type", "text") in {"text", "output_text"}:
            text = part.get("content", part.get("text"))
            if isinstance(text, str):
                yield text
