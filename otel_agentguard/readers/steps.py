"""Steps of the run log format, decoded to events.

What a step says beyond the format is ignored. A value that an open set does not know is read as
`unknown` and counted; a step of an unknown kind keeps its number and says nothing else.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from otel_agentguard.annotations import effect_of_annotations
from otel_agentguard.config import Settings, ToolSettings
from otel_agentguard.errors import ReadError
from otel_agentguard.events import (
    Compaction,
    Crash,
    Effect,
    Event,
    Handoff,
    Memory,
    MemoryOperation,
    Message,
    ModelCall,
    Outcome,
    Plan,
    PlanStep,
    Resume,
    ToolCall,
    ToolSpec,
    Trigger,
    Turn,
)
from otel_agentguard.fingerprint import REDACTED, call_digest, result_digest, text_digest

_Step = Mapping[str, object]
_Set = TypeVar("_Set", bound=StrEnum)

_BYTES = "__bytes__"
_SOURCES = frozenset({"user", "tool", "inferred", "unknown"})
_ANSWERS = frozenset({"cache", "replay", "guard"})
_UNPROVEN = frozenset({"unverified", "hypothesis", "inferred", "assumed", "guess"})
_UNSURE = frozenset({"low", "guess"})
_FAR = 1e300
_NO_TOOL = ToolSettings()


class StepDecoder:
    """Turns recorded steps into events.

    Args:
        settings: Effects and ignored arguments of tools, and who opens a turn.
        unknown: Counts values that no open set knows, as `"effect 'magic'"`.
    """

    def __init__(self, settings: Settings, unknown: Counter[str]) -> None:
        self._settings = settings
        self._people = frozenset(name.lower() for name in settings.people)
        self._unknown = unknown
        self._by_kind: dict[str, Callable[[_Step, Mapping[str, ToolSpec]], Event]] = {
            "tool": self._tool_call,
            "message": self._message,
            "model": self._model_call,
            "handoff": self._handoff,
            "turn": self._turn,
            "plan": self._plan,
            "memory": self._memory,
            "crash": lambda step, _: Crash(agent=_agent(step), at_s=_number(step.get("t"))),
            "resume": _resume,
            "compaction": lambda step, _: Compaction(agent=_agent(step), at_s=_number(step.get("t"))),
        }

    def events(self, steps: object, tools: Mapping[str, ToolSpec]) -> list[Event]:
        """The events of one run, in order.

        Args:
            steps: What the record has under `steps`.
            tools: What the record says of its tools.

        Raises:
            ReadError: It is no list, or one of the steps cannot be read.
        """
        if not isinstance(steps, list):
            raise ReadError(f"'steps' is a list of objects, not {type(steps).__name__}")
        events = []
        for number, step in enumerate(steps, 1):
            if not isinstance(step, dict):
                raise ReadError(f"step {number} is an object, not {type(step).__name__}")
            try:
                events.append(self._event(step, tools))
            except ReadError as exc:
                raise ReadError(f"step {number}: {exc}") from exc
        return events

    def specs(self, tools: object) -> dict[str, ToolSpec]:
        """What a record says of its tools.

        Raises:
            ReadError: It is not an object of objects.
        """
        if tools is None:
            return {}
        if not isinstance(tools, dict):
            raise ReadError(f"'tools' is an object, not {type(tools).__name__}")
        return {name: self._spec(name, entry) for name, entry in tools.items()}

    def _event(self, step: _Step, tools: Mapping[str, ToolSpec]) -> Event:
        kind = step.get("kind")
        decode = self._by_kind.get(kind) if isinstance(kind, str) else None
        if decode is None:
            self._unknown[f"kind {kind!r}"] += 1
            return Event(agent=_agent(step), at_s=_number(step.get("t")))
        return decode(step, tools)

    def _tool_call(self, step: _Step, tools: Mapping[str, ToolSpec]) -> Event:
        tool = _text(step.get("tool"))
        if not tool:
            raise ReadError("a tool call names its 'tool'")
        said = self._settings.tools.get(tool, _NO_TOOL)
        arguments = _arguments(step.get("args"))
        outcome = self._outcome(step)
        result = _with_bytes(step.get("result"))
        digest = result_digest(outcome is not Outcome.OK, result) if "result" in step else None
        return ToolCall(
            agent=_agent(step),
            at_s=_number(step.get("t")),
            tool=tool,
            arguments=arguments,
            fingerprint=call_digest(tool, arguments, ignore=frozenset(said.ignore)),
            effect=said.effect or self._effect(step, tools.get(tool)),
            call_id=_name(step.get("call_id")),
            batch=_name(step.get("batch")),
            outcome=outcome,
            result=result,
            result_known=digest is not None,
            result_digest=digest,
            served_from=self._served_from(step),
        )

    def _effect(self, step: _Step, spec: ToolSpec | None) -> Effect:
        effect = self._one_of(Effect, "effect", step.get("effect"), Effect.UNKNOWN)
        if effect is Effect.UNKNOWN and spec is not None:
            effect = spec.effect
        hints = step.get("hints")
        return effect_of_annotations(hints) if effect is Effect.UNKNOWN and isinstance(hints, dict) else effect

    def _outcome(self, step: _Step) -> Outcome:
        ended = Outcome.FAILED if step.get("is_error") is True else Outcome.OK
        return self._one_of(Outcome, "outcome", step.get("outcome"), ended)

    def _served_from(self, step: _Step) -> str | None:
        if step.get("replayed") is True:
            return "replay"
        served = step.get("served_from")
        if not served:
            return None
        if isinstance(served, str) and served in _ANSWERS:
            return served
        # Wherever it came from, the body did not run.
        self._unknown[f"served_from {served!r}"] += 1
        return "cache"

    def _message(self, step: _Step, _: Mapping[str, ToolSpec]) -> Event:
        role = step.get("role")
        agent = step.get("agent")
        text, payload = _content(step.get("content"))
        at_s = _number(step.get("t"))
        by_person = str(agent).lower() in self._people if role is None else str(role).lower() in ("user", "human")
        if by_person:
            return Turn(agent=_text(agent) or "user", at_s=at_s, trigger=Trigger.USER, text=text)
        return Message(
            agent=_agent(step),
            at_s=at_s,
            text=text,
            to=_name(step.get("to")),
            payload=payload,
            digest=_digest(text, payload),
        )

    def _model_call(self, step: _Step, _: Mapping[str, ToolSpec]) -> Event:
        return ModelCall(
            agent=_agent(step),
            at_s=_number(step.get("t")),
            model=_text(step.get("model")),
            request_digest=_digest(*_content(step.get("request"))),
            answer_digest=_digest(*_content(step.get("result"))),
            input_tokens=_count(step.get("input_tokens")),
            output_tokens=_count(step.get("output_tokens")),
            outcome=self._outcome(step),
        )

    def _handoff(self, step: _Step, _: Mapping[str, ToolSpec]) -> Event:
        to = _text(step.get("to"))
        if not to:
            raise ReadError("a handoff names the agent that it goes 'to'")
        text, payload = _content(step.get("content"))
        sender = _text(step.get("from")) or _agent(step)
        return Handoff(agent=sender, at_s=_number(step.get("t")), to=to, text=text, digest=_digest(text, payload))

    def _turn(self, step: _Step, _: Mapping[str, ToolSpec]) -> Event:
        text, _payload = _content(step.get("text", step.get("content")))
        return Turn(
            agent=_agent(step),
            at_s=_number(step.get("t")),
            trigger=self._one_of(Trigger, "trigger", step.get("trigger"), Trigger.UNKNOWN),
            text=text,
            event=_name(step.get("event")),
            replay=step.get("replay") is True,
        )

    def _plan(self, step: _Step, _: Mapping[str, ToolSpec]) -> Event:
        steps = step.get("steps")
        if not isinstance(steps, list):
            raise ReadError(f"the 'steps' of a plan are a list, not {type(steps).__name__}")
        return Plan(
            agent=_agent(step),
            at_s=_number(step.get("t")),
            steps=tuple(_plan_step(number, entry) for number, entry in enumerate(steps, 1)),
            digest=result_digest(False, steps),
        )

    def _memory(self, step: _Step, _: Mapping[str, ToolSpec]) -> Event:
        at_s = _number(step.get("t"))
        try:
            operation = MemoryOperation(str(step.get("op")))
        except ValueError:
            self._unknown[f"op {step.get('op')!r}"] += 1
            return Event(agent=_agent(step), at_s=at_s)
        return Memory(
            agent=_agent(step),
            at_s=at_s,
            operation=operation,
            key=_name(step.get("key")),
            value=_with_bytes(step.get("value")),
            source=self._source(step.get("source")),
            supersedes=_name(step.get("supersedes")),
            hypothesis=_is_hypothesis(step),
        )

    def _source(self, source: object) -> str | None:
        if source is None or (isinstance(source, str) and source in _SOURCES):
            return source
        self._unknown[f"source {source!r}"] += 1
        return "unknown"

    def _spec(self, name: str, entry: object) -> ToolSpec:
        if not isinstance(entry, dict):
            raise ReadError(f"tool {name!r} in 'tools' is an object, not {type(entry).__name__}")
        identity = entry.get("identity")
        return ToolSpec(
            name=name,
            schema=_schema(entry),
            description=_text(entry.get("description")),
            effect=self._one_of(Effect, "effect", entry.get("effect"), Effect.UNKNOWN),
            repeatable=entry.get("repeatable") is True,
            identity=tuple(_names(identity)) if isinstance(identity, list) else None,
        )

    def _one_of(self, members: type[_Set], what: str, value: object, missing: _Set) -> _Set:
        if value is None:
            return missing
        try:
            return members(str(value))
        except ValueError:
            self._unknown[f"{what} {value!r}"] += 1
            return members("unknown")


def _schema(entry: Mapping[str, object]) -> Mapping[str, object]:
    for name in ("schema", "parameters", "inputSchema"):
        if isinstance(given := entry.get(name), dict):
            return given
    if "required" not in entry and "optional" not in entry:
        return {}
    required, optional = _names(entry.get("required")), _names(entry.get("optional"))
    items = entry.get("items_schema")
    properties: dict[str, object] = {name: {} for name in (*required, *optional)}
    if isinstance(items, dict):
        properties |= {name: {"type": "array", "items": {"type": "object", **each}} for name, each in items.items()}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _plan_step(number: int, entry: object) -> PlanStep:
    if not isinstance(entry, dict):
        return PlanStep(id=str(number))
    needs = entry.get("deps", entry.get("depends_on"))
    return PlanStep(
        id=_name(entry.get("n", entry.get("id"))) or str(number),
        tool=_name(entry.get("tool")),
        arguments=_arguments(entry.get("args")),
        agent=_name(entry.get("agent")),
        depends_on=tuple(_names(needs)),
        optional=entry.get("optional") is True,
    )


def _resume(step: _Step, _: Mapping[str, ToolSpec]) -> Event:
    return Resume(
        agent=_agent(step),
        at_s=_number(step.get("t")),
        attempt=_count(step.get("attempt")),
        run=_name(step.get("run")),
    )


def _is_hypothesis(step: _Step) -> bool:
    return str(step.get("status")).lower() in _UNPROVEN or str(step.get("confidence")).lower() in _UNSURE


def _arguments(args: object) -> Mapping[str, object] | None:
    """Arguments by name; a text is the raw JSON that the model wrote, valid or not."""
    if isinstance(args, str):
        try:
            parsed = json.loads(args)
        except (ValueError, RecursionError):
            return {"input": args}
        args = parsed if isinstance(parsed, dict) else args
    if args is None:
        return None
    decoded = _with_bytes(args)
    return decoded if isinstance(decoded, dict) else {"input": decoded}


def _content(content: object) -> tuple[str | None, object]:
    """Text and structured content: a list of text parts, as chat formats have it, is its text."""
    if content is None or content == REDACTED:
        return None, None
    if isinstance(content, str):
        return content, None
    if isinstance(content, list) and content and all(_is_text_part(part) for part in content):
        return "\n".join(part["text"] for part in content), None
    return None, _with_bytes(content)


def _is_text_part(part: object) -> bool:
    return isinstance(part, dict) and part.get("type", "text") == "text" and isinstance(part.get("text"), str)


def _digest(text: str | None, payload: object) -> bytes | None:
    if text is not None:
        return text_digest(text)
    return None if payload is None else result_digest(False, payload)


def _with_bytes(value: object) -> object:
    """The value with each `{"__bytes__": base64}` in it as real bytes."""
    if isinstance(value, dict):
        if len(value) == 1 and isinstance(encoded := value.get(_BYTES), str):
            try:
                return base64.b64decode(encoded, validate=True)
            except (binascii.Error, ValueError):
                return value
        return {name: _with_bytes(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_bytes(part) for part in value]
    return value


def _agent(step: _Step) -> str:
    return _text(step.get("agent")) or "agent"


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _name(value: object) -> str | None:
    """A name or an id; numbers are in use for both."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _names(values: object) -> list[str]:
    if not isinstance(values, Sequence) or isinstance(values, str):
        return []
    return [name for name in map(_name, values) if name is not None]


def _number(value: object) -> float | None:
    """A finite number; what does not fit a float says nothing of when something happened."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not -_FAR < value < _FAR:
        return None
    return float(value)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
