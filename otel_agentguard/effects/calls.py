"""What a tool declares of its effect, and one call of it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from otel_agentguard.effects.decisions import OnDuplicate, OnUnknown, Place
from otel_agentguard.effects.keys import (
    Scope,
    ScopeValue,
    arguments_fingerprint,
    effect_key,
    identity_arguments,
    record_key,
    scope_value,
    step_key,
)
from otel_agentguard.effects.ledger import ClaimRequest
from otel_agentguard.errors import ConfigError

MAX_COUNTED = 10_000
MAX_UNDOABLE = 1_000


@dataclass(frozen=True, slots=True)
class Applied:
    """Answer of a `verify` function: the effect happened.

    Attributes:
        result: What the call would have returned.
    """

    result: object = None


@dataclass(frozen=True, slots=True)
class StillUnknown:
    """Answer of a `verify` function: it cannot tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectSpec:
    """What a tool declares of its effect.

    Attributes:
        tool: Its name.
        identity: The arguments that make an effect the same; None for all.
        scope: Within what; None for the event that the run serves, else the run.
        on_unknown: What a call does that finds an unknown outcome.
        on_duplicate: What a call does that finds the effect done by another step of the same intent.
        verify: `verify(key, arguments) -> Applied(result) | NotApplied() | StillUnknown()`; what it raises
            means `StillUnknown`. It may be a coroutine function where the tool is one.
        permanent: Exceptions that mean the effect did not happen and never will.
        wait_s: How long a second caller waits for the first one's result, seconds.
        compensates: The tool whose effects this one undoes; equal identity arguments tell which.
        keep_result: Whether results and error texts are stored.
        returns: The return annotation, names resolved; rebuilds stored results.
        decode: Rebuilds stored results from their plain form instead.

    Raises:
        ConfigError: The settings contradict each other.
    """

    tool: str
    identity: tuple[str, ...] | None = None
    scope: Scope | None = None
    on_unknown: OnUnknown = OnUnknown.BLOCK
    on_duplicate: OnDuplicate = OnDuplicate.REPLAY
    verify: Callable[[str, Mapping[str, object]], Any] | None = None
    permanent: tuple[type[Exception], ...] = ()
    wait_s: float = 30.0
    compensates: str | None = None
    keep_result: bool = True
    returns: object = None
    decode: Callable[[Any], object] | None = None

    def __post_init__(self) -> None:
        for name, kinds in (("on_unknown", OnUnknown), ("on_duplicate", OnDuplicate)):
            value = getattr(self, name)
            try:
                object.__setattr__(self, name, kinds(value))
            except ValueError as exc:
                known = ", ".join(kinds)
                raise ConfigError(f"{self.tool}: no {name}={value!r}; known: {known}") from exc
        if self.on_unknown is OnUnknown.VERIFY and self.verify is None:
            raise ConfigError(f'{self.tool}: on_unknown="verify" needs verify=, a function of key and arguments')
        if self.wait_s < 0:
            raise ConfigError(f"{self.tool}: wait_s={self.wait_s} must not be negative")


@dataclass(slots=True, kw_only=True, eq=False)
class EffectCall:
    """One call of a side-effect tool.

    Attributes:
        spec: What its tool declared.
        run: The effects of its run.
        arguments: All arguments by name, without the key parameter.
        scope: Within what its effect is the same.
        identity: The arguments that make it so.
        effect: The effect key.
        fingerprint: Of all arguments.
        step_id: The framework's name for the step; None to number the calls of one effect key.
        position: Step of the event in its run, for findings.
        agent: Whose call it is, for findings.
        step: The step key; empty until the call is led.
        occurrence: Which call of its effect key in its run this is; 0 until it is led.
    """

    spec: EffectSpec
    run: RunEffects
    arguments: Mapping[str, object]
    scope: ScopeValue
    identity: Mapping[str, object]
    effect: str
    fingerprint: str
    step_id: str | None = None
    position: int = 0
    agent: str = "agent"
    step: str = ""
    occurrence: int = 0

    def key_at(self, place: Place) -> str:
        """The key of one record of this effect, which its callee is handed."""
        return record_key(
            self.run.namespace,
            self.scope,
            self.spec.tool,
            self.identity,
            intent=place.intent,
            repeat=place.repeat,
        )

    def request_at(self, place: Place) -> ClaimRequest:
        """The claim of one record of this effect."""
        return ClaimRequest(
            key=self.key_at(place),
            effect=self.effect,
            intent=place.intent,
            repeat=place.repeat,
            arguments=self.fingerprint,
            step=self.step,
            turn=self.run.intents,
            tool=self.spec.tool,
            run_id=self.run.run_id,
        )


@dataclass(slots=True, kw_only=True, eq=False)
class RunEffects:
    """The effects of one run: where in it a call stands, and what it compensates.

    Made once a run, also for a resumed one, which counts anew and so arrives at the same numbers.

    Attributes:
        run_id: The run.
        namespace: Keeps applications on one store apart.
        session: The conversation that the run belongs to, where one is known.
        event: The outside event that it serves now, where one was given.
        intents: How many new intents it has seen.
    """

    run_id: str
    namespace: str = ""
    session: str | None = None
    event: str | None = None
    intents: int = 0
    _occurrences: OrderedDict[str, int] = field(default_factory=OrderedDict)
    _done: OrderedDict[str, tuple[str, Mapping[str, object], str]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def turn(self, *, new_intent: bool, event: str | None = None) -> None:
        """Take in a turn.

        Args:
            new_intent: Whether repeats of earlier effects are legitimate from now on.
            event: The outside event that opened it, which becomes the default scope.
        """
        self.intents += new_intent
        if event is not None:
            self.event = event

    def call(
        self,
        spec: EffectSpec,
        arguments: Mapping[str, object],
        *,
        step_id: str | None = None,
        position: int = 0,
        agent: str = "agent",
    ) -> EffectCall:
        """Describe one call.

        Args:
            spec: What the tool declared.
            arguments: Its arguments by name, defaults filled in, without the key parameter.
            step_id: The framework's name for the step, where it is the same after a restart.
            position: Step of the event in its run.
            agent: Whose call it is.

        Raises:
            ConfigError: No key can be made of the arguments, or the scope does not resolve.
        """
        scope = scope_value(spec.scope, arguments, run_id=self.run_id, session=self.session, event=self.event)
        identity = identity_arguments(arguments, spec.identity)
        return EffectCall(
            spec=spec,
            run=self,
            arguments=arguments,
            scope=scope,
            identity=identity,
            effect=effect_key(self.namespace, scope, spec.tool, identity),
            fingerprint=arguments_fingerprint(spec.tool, arguments),
            step_id=step_id,
            position=position,
            agent=agent,
        )

    def lead(self, call: EffectCall) -> None:
        """Number a call that does not share another one's execution, and give it its step key.

        Of the effect keys that are counted the least recently used go beyond 10,000; a call of one of those
        counts from 1 again and finds the first record, which is the safe side.
        """
        with self._lock:
            call.occurrence = self._occurrences.pop(call.effect, 0) + 1
            self._occurrences[call.effect] = call.occurrence
            if len(self._occurrences) > MAX_COUNTED:
                self._occurrences.popitem(last=False)
        step_id = call.step_id if call.step_id is not None else f"{call.effect}#{call.occurrence}"
        call.step = step_key(self.namespace, self.run_id, step_id, call.spec.tool)

    def succeeded(self, call: EffectCall, key: str) -> Sequence[str]:
        """Take in a success, from the tool or from the ledger; the last 1,000 can be undone.

        Returns:
            The keys of the records that it undid.
        """
        with self._lock:
            self._done.pop(key, None)
            undone = self._undone_by(call)
            for earlier in undone:
                del self._done[earlier]
            self._done[key] = (call.spec.tool, call.identity, call.effect)
            if len(self._done) > MAX_UNDOABLE:
                self._done.popitem(last=False)
        return undone

    def _undone_by(self, call: EffectCall) -> list[str]:
        """Effects of the tool that `call` compensates, where all arguments that both have are equal.

        Where they have none in common, nothing tells which effect was undone: then it is the last one.
        """
        candidates = [
            (key, identity) for key, (tool, identity, _) in self._done.items() if tool == call.spec.compensates
        ]
        equal, apart = [], []
        for key, identity in candidates:
            common = identity.keys() & call.identity.keys()
            if not common:
                apart.append(key)
            elif all(identity[name] == call.identity[name] for name in common):
                equal.append(key)
        return equal or apart[-1:]
