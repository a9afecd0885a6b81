"""Which events of a run are evidence, and of what."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import lru_cache

from otel_agentguard.events import (
    Compaction,
    Crash,
    Effect,
    Event,
    Handoff,
    Message,
    ModelCall,
    Outcome,
    Plan,
    Resume,
    ToolCall,
    Trigger,
    Turn,
)
from otel_agentguard.memory.claims import key_words, text_of
from otel_agentguard.memory.corrections import Corrections
from otel_agentguard.memory.marks import without_marked
from otel_agentguard.memory.observations import Observations
from otel_agentguard.memory.recall import Trust
from otel_agentguard.memory.shelves import Producer
from otel_agentguard.memory.text import TokenKind, read

PEOPLE = frozenset({"user", "human"})
"""Agents whose messages are those of users, where nobody says otherwise."""

_OUTSIDE = frozenset({Trigger.EVENT, Trigger.WEBHOOK, Trigger.QUEUE})
_READS = frozenset({Effect.PURE, Effect.READ, Effect.WAIT, Effect.CURSOR, Effect.GENERATOR})
_AGENT_WORDS = (Message, ModelCall, Handoff)
_SILENT = (Crash, Resume, Compaction)
_MAX_UNREAD = 256
_MAX_SAID = 21
_MAX_ARGUMENT = 500
_SHORTEST_ECHO = 20
_SHORT_ARGUMENT = 40
_SHORT_WORDS = 4
_NAMED = (TokenKind.PATH, TokenKind.ID, TokenKind.LINK)
_RECALL_NOUNS = frozenset({"memory", "memories", "mem0", "memo", "remembered"})
_RECALL_VERBS = frozenset(
    {"search", "recall", "retrieve", "read", "get", "load", "query", "fetch", "list", "find", "lookup"}
)
_NO_RECALL = frozenset({"usage", "stats", "info", "size", "limit", "free", "profile", "leak", "process", "gpu"})


class Intake:
    """Puts events into the observations of one run.

    What a user said is looked through for corrections only when something is judged.
    """

    __slots__ = ("_agents", "_observations", "_people", "_said", "_trust", "_unread", "_untold")

    def __init__(self, observations: Observations, people: frozenset[str], trust: Trust | None) -> None:
        self._observations = observations
        self._people = frozenset(name.casefold() for name in people)
        self._trust = trust
        self._agents: set[str] = set()
        self._unread: deque[tuple[int, str]] = deque(maxlen=_MAX_UNREAD)
        self._said: deque[str] = deque(maxlen=_MAX_SAID)
        self._untold = False

    def take(self, event: Event) -> None:
        """Take in one event; what is not evidence is remembered as that."""
        if len(self._agents) < _MAX_UNREAD:
            self._agents.add(event.agent.casefold())
        if isinstance(event, Message) and event.agent.casefold() in self._people:
            self._user_said(event.step, event.text if event.text is not None else _payload(event))
            return
        if isinstance(event, Turn) and event.trigger is Trigger.USER:
            if event.replay:
                self._observations.note(event.step, Producer.OTHER)
            else:
                self._user_said(event.step, event.text)
            return
        if self._untold:
            self._observations.uncaptured.add(Producer.USER)
            self._untold = False
        if isinstance(event, ToolCall):
            self._take_call(event)
        elif isinstance(event, Turn):
            self._take_turn(event)
        else:
            self._observations.note(event.step, _producer(event))

    def catch_up(self, corrections: Corrections) -> None:
        """Look through what users said since the last time for corrections of what they said before."""
        while self._unread:
            step, text = self._unread.popleft()
            corrections.said(text, step, list(self._said))
            self._said.appendleft(text)
        if self._untold:
            self._observations.uncaptured.add(Producer.USER)

    def _user_said(self, step: int, text: str | None) -> None:
        if text is None:
            self._observations.note(step, Producer.UNCAPTURED)
            self._untold = True
            return
        self._untold = False
        own = without_marked(text)
        self._observations.add(step, Producer.USER, own)
        self._unread.append((step, own))

    def _take_turn(self, turn: Turn) -> None:
        if turn.trigger in _OUTSIDE and turn.text:
            self._observations.add(turn.step, Producer.OUTSIDE, without_marked(turn.text))
        else:
            self._observations.note(turn.step, Producer.OTHER)

    def _take_call(self, call: ToolCall) -> None:
        producer = self._producer_of(call)
        if producer is not Producer.TOOL:
            self._observations.note(call.step, producer)
            if producer is Producer.RECALLED and call.result is not None:
                self._observations.recalled(text_of(call.result), call.step)
            elif producer is Producer.UNCAPTURED:
                self._observations.uncaptured.add(Producer.TOOL)
            return
        text = "" if call.result is None else without_marked(text_of(call.result))
        changed = call.effect not in _READS
        about = f"{call.tool}\n{_brief(call.arguments)}"
        if changed:
            declared = call.effect in (Effect.WRITE, Effect.SIDE_EFFECT)
            told = f"{about}\n{text[:_MAX_ARGUMENT]}".replace("_", " ")
            self._observations.done(call.step, told, declared=declared)
        if self._trust is not None and call.touches:
            for resource in call.touches:
                if call.effect in (Effect.WRITE, Effect.SIDE_EFFECT):
                    self._trust.changed(resource)
                elif call.result_digest is not None:
                    self._trust.changed(resource, call.result_digest.hex()[:16])
        if _is_echo(text, call.arguments):
            self._observations.note(call.step, Producer.AGENT)
            return
        self._observations.add(
            call.step,
            Producer.TOOL,
            text,
            about=about,
            resources=call.touches or (),
            digest=call.result_digest,
        )

    def _producer_of(self, call: ToolCall) -> Producer:
        if call.refused or call.served_from == "guard" or call.outcome is Outcome.NOT_EXECUTED:
            return Producer.OTHER
        if call.outcome is not Outcome.OK:
            return Producer.FAILED
        if not call.result_known:
            return Producer.UNCAPTURED
        if call.tool.casefold() in self._agents:
            return Producer.AGENT
        if _recalls(call.tool):
            return Producer.RECALLED
        return Producer.TOOL


def subjects_of(about: str) -> frozenset[str]:
    """What a call was about: the name of its tool, its short arguments, and paths, ids and links in longer ones.

    A long argument is a text of the model's own, whose numbers and names are no subject.

    Args:
        about: The name of the tool, a line break, its arguments.
    """
    tool, *arguments = about.split("\n")
    subjects = set(key_words(tool))
    for argument in arguments:
        short = len(argument) <= _SHORT_ARGUMENT and len(argument.split()) <= _SHORT_WORDS
        for token in read(argument):
            if short or token.word.kind in _NAMED:
                subjects.add(token.word.stem)
                subjects.update(token.word.forms)
    return frozenset(subjects)


def _producer(event: Event) -> Producer:
    if isinstance(event, _AGENT_WORDS):
        return Producer.AGENT
    if isinstance(event, Plan):
        return Producer.PLAN
    return Producer.OTHER


def _payload(message: Message) -> str | None:
    return None if message.payload is None else text_of(message.payload)


def _brief(arguments: Mapping[str, object] | None) -> str:
    """Short arguments as text; long ones are content and not what a call is about."""
    if not arguments:
        return ""
    pending: list[tuple[str, object]] = list(arguments.items())
    shown: list[str] = []
    for name, value in pending:
        if isinstance(value, Mapping) and len(pending) < _MAX_UNREAD:
            pending += value.items()
        elif isinstance(value, list | tuple) and len(pending) < _MAX_UNREAD:
            pending += [(name, one) for one in value]
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            shown.append(f"{name} {value}"[:_MAX_ARGUMENT].replace("\n", " "))
    return "\n".join(shown)


def _is_echo(text: str, arguments: Mapping[str, object] | None) -> bool:
    """A result made only of the caller's own words tells nothing."""
    said = text.strip()
    if len(said) < _SHORTEST_ECHO or not arguments:
        return False
    return any(isinstance(value, str) and said in value for value in arguments.values())


@lru_cache(maxsize=1024)
def _recalls(tool: str) -> bool:
    """A tool that by its name reads the long-term memory: what it gives is what was stored, not what is so."""
    words = {word for word in _split(tool) if word}
    return bool(words & _RECALL_NOUNS and words & _RECALL_VERBS and not words & _NO_RECALL) or words == {"recall"}


def _split(tool: str) -> list[str]:
    spaced = "".join(f" {character}" if character.isupper() else character for character in tool)
    return "".join(character if character.isalnum() else " " for character in spaced).casefold().split()
