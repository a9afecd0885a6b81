"""Side-effect tools at a seam: their body runs through the ledger, their callee gets a key.

The key is filled in every mode, also where nothing is recorded, so that a callee that dedupes on it is
never handed none.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, cast
from uuid import uuid4

from otel_agentguard.binding import Binder
from otel_agentguard.current import Scope, scope
from otel_agentguard.effects.calls import EffectCall, EffectSpec, RunEffects
from otel_agentguard.effects.decisions import OnDuplicate, OnUnknown
from otel_agentguard.effects.keys import Scope as EffectScope
from otel_agentguard.effects.keys import record_key
from otel_agentguard.effects.reports import Certainty, EffectAnswer, EffectOutcome
from otel_agentguard.errors import AgentGuardError, ConfigError, NotApplied
from otel_agentguard.findings import Action, CheckName, Finding, Kind, Severity
from otel_agentguard.guard import Guard, installed
from otel_agentguard.seams.calls import ToolStep
from otel_agentguard.seams.declare import ToolDeclaration
from otel_agentguard.semconv import AGENTGUARD_EFFECT_ATTEMPT, AGENTGUARD_EFFECT_KEY, AGENTGUARD_EFFECT_OUTCOME

_KEYED_APART = frozenset({OnDuplicate.WARN, OnDuplicate.ALLOW})
_DID_NOT_RUN = frozenset({EffectOutcome.REPLAYED, EffectOutcome.WAITED})


def effect_spec(declaration: ToolDeclaration) -> EffectSpec:
    """What the ledger needs to know of a declared tool.

    Raises:
        ConfigError: The declaration contradicts itself.
    """
    return EffectSpec(
        tool=declaration.name,
        identity=declaration.identity,
        scope=cast("EffectScope | None", declaration.scope),
        on_unknown=OnUnknown(declaration.on_unknown),
        on_duplicate=OnDuplicate(declaration.on_duplicate),
        verify=declaration.verify,
        permanent=declaration.permanent,
        wait_s=declaration.wait_s,
        compensates=declaration.compensates,
        keep_result=declaration.keep_result is not False,
        returns=_returns(declaration.function),
        decode=declaration.decode,
    )


def caused(step: ToolStep, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Run the body of a side-effect call that was let through, or answer it from the ledger."""
    effect = _Effect(step, args, kwargs)
    token = _under_way.set(effect)
    try:
        call = effect.prepared()
        answer = step.guard.executor().run(call, effect.body, tx=effect.transaction(), enforce=step.enforce)
    except BaseException as exc:
        return effect.unrecorded() if effect.runs_all_the_same(exc) else effect.raised(exc)
    finally:
        _under_way.reset(token)
    return step.finish(effect.answered(answer))


async def caused_async(step: ToolStep, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """`caused` for a coroutine function."""
    effect = _Effect(step, args, kwargs)
    token = _under_way.set(effect)
    try:
        call = effect.prepared()
        executor = await step.guard.executor_async()
        answer = await executor.run_async(call, effect.body_async, tx=effect.transaction(), enforce=step.enforce)
    except BaseException as exc:
        if effect.runs_all_the_same(exc):
            return await effect.unrecorded_async()
        return await effect.raised_async(exc)
    finally:
        _under_way.reset(token)
    return await step.finish_async(effect.answered(answer))


def keyed(declaration: ToolDeclaration) -> Callable[..., Any]:
    """The function of a declaration, its key parameter filled without a ledger."""
    body, name = declaration.function, declaration.key_param
    if name is None:
        return body
    binder = Binder(body, skip_first=declaration.skip_first, hidden=(name,))
    spec: EffectSpec | None = None

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal spec
        if spec is None:
            spec = effect_spec(declaration)
        kwargs[name] = _key_alone(spec, binder.bind(args, kwargs))
        return body(*args, **kwargs)

    return call


class EffectReports:
    """Makes metrics and findings of what the executor tells; see `EffectObserver`.

    Args:
        guard: The guard whose sinks are told.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def effect(self, call: EffectCall, outcome: EffectOutcome, *, key: str, attempt: int, enforced: bool) -> None:
        """See `EffectObserver`."""
        self._guard.tell("side_effect", call.spec.tool, outcome.value if enforced else EffectOutcome.EXECUTED.value)

    def duplicate(self, call: EffectCall, certainty: Certainty, *, key: str) -> None:
        """See `EffectObserver`."""
        self._guard.tell("duplicate_side_effect", call.spec.tool, certainty.value)
        under_way = _under_way.get()
        if under_way is not None:
            under_way.certainty = certainty

    def failed(self, where: str) -> None:
        """See `EffectObserver`."""
        self._guard.tell("failed", where)


class _Effect:
    """One call of a side-effect tool on its way through the ledger."""

    def __init__(self, step: ToolStep, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.certainty: Certainty | None = None
        self._step = step
        self._args = args
        self._kwargs = kwargs
        self._ran = False
        self._refusal: BaseException | None = None
        self._call: EffectCall | None = None

    def prepared(self) -> EffectCall:
        """The description of the effect; raises where no key can be made."""
        step = self._step
        spec = step.plan.effect_spec
        if spec is None:
            raise ConfigError(f"{step.call.tool} is no side effect")
        if step.call.arguments is None:
            self._ran = True
            inspect.signature(step.plan.declaration.function).bind(*self._args, **self._with_key(""))
            raise ConfigError(f"{step.call.tool}: its arguments cannot be read, so no key can be made of them")
        effects = step.guard.effects_of(step.scope.left or step.run)
        arguments = step.call.arguments or {}
        self._call = effects.call(spec, arguments, position=step.call.step, agent=step.agent)
        return self._call

    def body(self, key: str) -> Any:
        """Run the tool, after the last look."""
        self._begin(key)
        value = self._step.plan.declaration.function(*self._args, **self._with_key(key))
        if inspect.iscoroutine(value):
            value.close()
            self._refuse(
                ConfigError(
                    f"{self._step.call.tool} returns a coroutine, so nobody would know when its effect has happened; "
                    "declare a coroutine function: async def"
                )
            )
        return value

    async def body_async(self, key: str) -> Any:
        """Run the tool, after the last look."""
        self._begin(key)
        return await self._step.plan.declaration.function(*self._args, **self._with_key(key))

    def transaction(self) -> object:
        """The caller's connection, where effect and record are to be one transaction."""
        tx = self._step.plan.declaration.tx
        return tx() if inspect.isroutine(tx) or isinstance(tx, functools.partial) else tx

    def answered(self, answer: EffectAnswer) -> Any:
        """Note on the call where its answer comes from; the answer's value."""
        step = self._step
        step.more = {
            AGENTGUARD_EFFECT_KEY: answer.key,
            AGENTGUARD_EFFECT_ATTEMPT: answer.attempt,
            AGENTGUARD_EFFECT_OUTCOME: answer.outcome.value,
        }
        if answer.outcome in _DID_NOT_RUN and not self._ran:
            step.call.served_from = "replay"
        if self.certainty is not None:
            step.report(self._finding(self.certainty, answer.note))
        if answer.note:
            step.remark(answer.note)
        return answer.value

    def runs_all_the_same(self, error: BaseException) -> bool:
        """Whether the body is still to run: in mode observe, where the call could not be described or recorded."""
        if self._ran or self._refusal is not None or self._step.enforce or not isinstance(error, Exception):
            return False
        self._step.guard.engine.failed("effects", error)
        return True

    def unrecorded(self) -> Any:
        """Run the body without a record."""
        step = self._step
        try:
            value = step.plan.passing(*self._args, **self._kwargs)
        except BaseException as exc:
            step.fail(exc)
            raise
        self._count_unrecorded()
        return step.finish(value)

    async def unrecorded_async(self) -> Any:
        """`unrecorded` for a coroutine function."""
        step = self._step
        try:
            value = await step.plan.passing(*self._args, **self._kwargs)
        except Exception as exc:
            await step.fail_async(exc)
            raise
        except BaseException as exc:
            step.fail(exc)
            raise
        self._count_unrecorded()
        return await step.finish_async(value)

    def _count_unrecorded(self) -> None:
        self._step.guard.tell("side_effect", self._step.call.tool, EffectOutcome.EXECUTED.value)

    def raised(self, error: BaseException) -> Any:
        """Account for a call that ends in an error; raises it, or gives the text of a refusal taken inline."""
        if self._is_outcome(error):
            self._step.fail(error)
            raise error
        return self._did_not_happen(error)

    async def raised_async(self, error: BaseException) -> Any:
        """`raised` for a coroutine function."""
        if self._is_outcome(error) and isinstance(error, Exception):
            await self._step.fail_async(error)
            raise error
        return self.raised(error)

    def _is_outcome(self, error: BaseException) -> bool:
        """Whether an error is what the call came to, now or, as the ledger tells again, for good."""
        if self._ran or self._refusal is not None:
            return self._ran
        if not isinstance(error, Exception) or isinstance(error, AgentGuardError):
            return False
        self._step.call.served_from = "replay"
        return True

    def _did_not_happen(self, error: BaseException) -> Any:
        step = self._step
        if self._refusal is None and not isinstance(error, Exception):
            step.withdraw(step.call, error)
            raise error
        step.refused_late()
        finding = getattr(error, "finding", None)
        if self._refusal is None and finding is not None:
            step.report(finding)
        return step.refused(self._refusal or error)

    def _begin(self, key: str) -> None:
        """Take the last look; from here on the span tells the key, also of a call whose outcome nobody will know."""
        refusal = self._step.last_look(self._step.call)
        if refusal is not None:
            self._refuse(refusal)
        self._ran = True
        self._step.more = {AGENTGUARD_EFFECT_KEY: key}

    def _refuse(self, refusal: BaseException) -> None:
        self._ran = False
        self._refusal = refusal
        raise NotApplied("the guard did not let it begin")

    def _with_key(self, key: str) -> Mapping[str, Any]:
        name = self._step.plan.declaration.key_param
        return self._kwargs if name is None else {**self._kwargs, name: key}

    def _finding(self, certainty: Certainty, note: str) -> Finding:
        call = self._call
        tool = self._step.call.tool
        prevented = certainty is Certainty.PREVENTED
        what = "was asked for again and not done again" if prevented else f"happened twice: {certainty.value}"
        return Finding(
            check=CheckName.EFFECTS,
            kind=Kind.DUPLICATE_SIDE_EFFECT,
            severity=Severity.WARN if prevented else Severity.ERROR,
            step=self._step.call.step,
            signature=b"" if call is None else bytes.fromhex(call.effect),
            message=note,
            explanation=f"{tool} {what}, with equal identity arguments within one intent",
            action=Action.REUSE if prevented else Action.ALLOW,
            evidence=(self._step.call.step,),
            agent=self._step.agent,
            tool=tool,
        )


_under_way: ContextVar[_Effect | None] = ContextVar("agentguard_effect", default=None)


def _key_alone(spec: EffectSpec, arguments: Mapping[str, object] | None) -> str:
    """The key of a call that nothing records; outside of a run each call is an effect of its own."""
    effects = _effects_here(scope()) or RunEffects(run_id=uuid4().hex)
    try:
        call = effects.call(spec, arguments or {})
    except Exception:
        return uuid4().hex
    repeat = 1
    if spec.on_duplicate in _KEYED_APART:
        effects.lead(call)
        repeat = call.occurrence
    intent = 1 + effects.intents
    return record_key(effects.namespace, call.scope, spec.tool, call.identity, intent=intent, repeat=repeat)


def _effects_here(here: Scope) -> RunEffects | None:
    guard = installed.guard
    run = here.left or here.run
    return here.effects if guard is None or run is None else guard.effects_of(run)


def _returns(function: Callable[..., Any]) -> object:
    bare = function
    while isinstance(bare, functools.partial):
        bare = bare.func
    try:
        return typing.get_type_hints(bare).get("return")
    except Exception:  # a forward reference to what exists for type checkers only
        return None
