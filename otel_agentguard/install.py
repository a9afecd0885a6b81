"""From settings to a running guard: the one place that knows the parts.

The parts are imported when they are chosen. This module itself must be light, since the package imports
it at once: imported later, it would take the place of the function of its name in the package.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import entry_points
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from opentelemetry import metrics, trace

from otel_agentguard import loading
from otel_agentguard.checks.registry import default_checks
from otel_agentguard.config import Budget, LoopSettings, Mode, Settings, ToolSettings
from otel_agentguard.engine import Engine
from otel_agentguard.errors import ConfigError, StoreError
from otel_agentguard.events import ToolSpec
from otel_agentguard.findings import CheckName, Limits
from otel_agentguard.fingerprint import new_key
from otel_agentguard.forks import new_reentrant_lock
from otel_agentguard.guard import Guard, Redact, installed, remove_processor
from otel_agentguard.outofband import WorksLater
from otel_agentguard.parts import Parts, listed, rows, sorted_checks, tool_settings
from otel_agentguard.protocols import Check, Embedder, Judge, Sink, Store, Suspicion, Verdict, lacking
from otel_agentguard.runs import ApprovalCallback, FindingCallback
from otel_agentguard.seams.declare import DeclaredTools
from otel_agentguard.seams.effects import EffectReports
from otel_agentguard.seams.instrumenting import instrumented
from otel_agentguard.semconv import INSTRUMENTATION_SCOPE, SIDE_EFFECTS_UNSETTLED
from otel_agentguard.values import ByteBudget

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.sdk.trace.export import SpanExporter
    from prometheus_client import CollectorRegistry

    from otel_agentguard.judges import JudgeDesk
    from otel_agentguard.sinks.prometheus import PrometheusSink

_logger = logging.getLogger("otel_agentguard")

_T = TypeVar("_T")

CAPTURE_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURES_ON_SPANS = frozenset({"true", "1", "span_only", "span_and_event"})
_SINKS_GROUP = "otel_agentguard_sinks"

# Held while a guard is made, so that whoever installs at the same time waits and gets that one.
_lock = new_reentrant_lock()
_current: AgentGuard | None = None


class AgentGuard:
    """The guard of this process; made by `install()`.

    With `with`, it is shut down at the end of the block.

    Attributes:
        settings: The settings that hold.
        engine: Decides, and knows the runs.
        registry: The Prometheus registry with its metrics.
        metrics_url: Where the metrics are served; None without a server.
        guard: What seams see of it; None in mode `off`.
        by_program: The program installed it, not an instrumentation.
        declared: Settings of OpenTelemetry's declarative configuration that it was installed with.
        offers_metrics: A meter provider of the program may read them.
    """

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        *,
        guard: Guard | None,
        registry: CollectorRegistry,
        by_program: bool = True,
    ) -> None:
        self.declared: Mapping[str, object] = {}
        self.settings = settings
        self.engine = engine
        self.registry = registry
        self.metrics_url: str | None = None
        self.guard = guard
        self.by_program = by_program
        self.offers_metrics = True
        self._undo: list[Callable[[], object]] = []

    def undo(self, *steps: Callable[[], object]) -> None:
        """Have `shutdown()` do this too; what was put in last is taken out first."""
        self._undo += steps

    def instrument(self, tools: Any) -> Any:
        """Put the guard around tools that are not declared with `@tool`.

        Args:
            tools: A function; a list or tuple of them; a mapping from names to them, which then are the tools'
                names; a class whose public methods are tools, or an object of one.

        Returns:
            The same shape with every tool under guard. Lists, tuples and dicts are made anew; a registry (any other
            mapping that can be changed), a class and an object are changed. What is declared with `@tool`, and
            tools of a framework that has an adapter, stay as they are.

        Raises:
            ConfigError: There is something in it that is no tool.
        """
        from otel_agentguard.adapters.attaching import is_of_a_framework

        return instrumented(tools, is_guarded=is_of_a_framework)

    def memory(self, store: Any) -> Any:
        """Guard a long-term memory: what is written to it is judged by what the run really observed.

        Args:
            store: A dict or list, a LangGraph store, or an instance of mem0's `Memory`.

        Returns:
            What to use in its place; the store itself in mode `off`.

        Raises:
            ConfigError: It is none of those, or the memory check is off.
        """
        guard = self.guard
        if guard is None:
            return store
        from otel_agentguard.checks.memory import MemoryCheck
        from otel_agentguard.memory.wrappers import Door, guard_store
        from otel_agentguard.seams.memories import submitted

        check = next((check for check in self.engine.checks if isinstance(check, MemoryCheck)), None)
        if check is None:
            raise ConfigError("the memory check is off; add 'memory' to the setting checks")
        check.in_use = True
        door = Door(
            lambda memory: submitted(guard, memory),
            trust=check.book.trust,
            enforces=lambda: guard.enforce,
            on_failure=lambda exc: self.engine.failed("memory", exc),
        )
        return guard_store(store, door)

    def release(self, run_id: str) -> bool:
        """Lift the stop of a run, alive or ended.

        Returns:
            Whether there was one.
        """
        lifted = self.engine.release(run_id)
        if self.guard is not None and self.guard.dedup is not None and self.guard.dedup.marks is not None:
            lifted = self.guard.dedup.marks.release(run_id) or lifted
        return lifted

    def shutdown(self) -> None:
        """Take back what `install()` put in; shutting down twice is once.

        Runs that are open go on unguarded. Waits for the metrics server, at most a few seconds.
        """
        global _current
        with _lock:
            if _current is self:
                _current = None
            if self.guard is not None and installed.guard is self.guard:
                installed.guard = None
        undo, self._undo = self._undo, []
        for step in reversed(undo):
            try:
                step()
            except Exception as exc:
                self.engine.failed("shutdown", exc)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()


def install(
    *,
    mode: Mode | str | None = None,
    store: str | None = None,
    metrics_port: int | None = None,
    registry: CollectorRegistry | None = None,
    otlp: str | bool | None = None,
    on_finding: FindingCallback | None = None,
    approve: ApprovalCallback | None = None,
    attended: bool | None = None,
    fingerprint_key: bytes | str | None = None,
    store_content: bool | None = None,
    redact: Redact | None = None,
    checks: Iterable[str | Check] | None = None,
    limits: Limits | LoopSettings | Mapping[str, object] | None = None,
    tools: Mapping[str, ToolSettings | ToolSpec | Mapping[str, object]] | None = None,
    budget: Budget | Mapping[str, object] | None = None,
    embedder: str | Embedder | Callable[[list[str]], Sequence[Sequence[float]]] | None = None,
    judge: Judge | JudgeDesk | Callable[[Suspicion], Verdict | bool] | None = None,
    people: Iterable[str] | None = None,
    trust_baggage: bool | None = None,
    inject_hints: bool | None = None,
    namespace: str | None = None,
    sinks: Iterable[Sink] = (),
) -> AgentGuard:
    """Install the guard in this process.

    An argument beats `AGENTGUARD_*` in the environment, which beats what OpenTelemetry's declarative
    configuration says of the guard, which beats `agentguard.toml`; only `AGENTGUARD_MODE` beats
    everything. A second call gives the guard that is there.

    Args:
        mode: `"enforce"`, `"observe"` or `"off"`.
        store: URL of the store. One that is down does not keep the guard from being installed: it is waited for,
            5 seconds at most, and side effects are refused until it is back.
        metrics_port: Port of a metrics server on the loopback address; 0 for any free one.
        registry: A Prometheus registry to count in; a new one where it is None.
        otlp: Endpoint of a collector, such as `http://localhost:4317`, or True for the one of the
            `OTEL_EXPORTER_OTLP_*` variables, which also choose gRPC or HTTP; without them port 4317 is
            gRPC and any other HTTP. Only with this the global tracer provider is set, where there is
            none yet.
        on_finding: Asked about each finding and what would be done; returns another action or None.
        approve: Asked before an attended run is stopped; a true answer lets it go on.
        attended: Whether a person can be asked.
        fingerprint_key: Secret of exported fingerprints.
        store_content: Whether excerpts of content may be stored.
        redact: Applied to every text of content before it leaves the process.
        checks: Names of the checks that run, in place of the default ones; or checks, beside those.
        limits: Limits of the loop check: `Limits` for equal calls, or by row.
        tools: Settings of tools by name, or a `ToolRegistry`.
        budget: Most that one run may use.
        embedder: What tells the loop check the meaning of free texts: `"wordllama"`, a function of a list of
            texts, or an `Embedder`. Without one, words are compared.
        judge: Takes a second look at what is suspected, out of band: an `OpenAIJudge`, a function, or any
            `Judge`. It is shown excerpts of calls and messages: with a judge behind an endpoint these leave
            the process, and without one none do.
        people: Who opens a turn when a message names no role.
        trust_baggage: Whether a run id that arrives in baggage is believed.
        inject_hints: Whether adapters may add hints to a model request.
        namespace: Keeps applications on one store apart.
        sinks: Where else events go.

    Raises:
        ConfigError: A setting has no such name or value.
        MissingExtraError: What a setting needs is not installed.
    """
    names, own_checks = sorted_checks(checks)
    arguments: dict[str, object] = {
        "mode": mode,
        "store": store,
        "metrics_port": metrics_port,
        "attended": attended,
        "fingerprint_key": fingerprint_key,
        "store_content": store_content,
        "checks": names,
        "limits": None if limits is None else rows(limits),
        "tools": None if tools is None else tool_settings(tools),
        "budget": budget,
        "people": None if people is None else listed("people", people, "a list of names"),
        "trust_baggage": trust_baggage,
        "inject_hints": inject_hints,
        "namespace": namespace,
    }
    parts = Parts(
        checks=own_checks,
        sinks=listed("sinks", sinks, "a list of sinks"),
        registry=registry,
        otlp=otlp,
        on_finding=on_finding,
        approve=approve,
        redact=redact,
        embedder=embedder,
        judge=judge,
        specs={} if tools is None else {name: one for name, one in tools.items() if isinstance(one, ToolSpec)},
    )
    given = parts != Parts() or any(value is not None for value in arguments.values())
    return _install(arguments, parts, by_program=True, given=given)


def install_for_instrumentation(declared: Mapping[str, object] | None = None) -> AgentGuard:
    """Install the guard where no program asked for it: its own seams enforce, those put in for it observe.

    A later `install()` by the program takes its place, and takes over `declared`.

    Args:
        declared: What OpenTelemetry's declarative configuration says of the guard, by key.

    Raises:
        ConfigError: A setting in the environment or a file has no such name or value.
    """
    return _install({}, Parts(), by_program=False, given=bool(declared), declared=declared or {})


def _install(
    arguments: Mapping[str, object],
    parts: Parts,
    *,
    by_program: bool,
    given: bool,
    declared: Mapping[str, object] | None = None,
) -> AgentGuard:
    global _current
    with _lock:
        earlier = _current
        if earlier is not None and (earlier.by_program or not by_program):
            if given:
                what = "these arguments" if by_program else "the settings of the declarative configuration"
                _logger.warning("agentguard: installed already, so %s are not taken; shutdown() it first", what)
            return earlier
        if earlier is not None:
            declared = declared or earlier.declared
            earlier.shutdown()
        defaults = None if by_program else {"mode": Mode.OBSERVE}
        settings = loading.load(arguments, defaults=defaults, declared=declared)
        settings = replace(settings, tools=DeclaredTools(settings.tools))
        made = (
            _off(settings, by_program=by_program)
            if settings.mode is Mode.OFF
            else _build(settings, parts, by_program=by_program)
        )
        made.declared = declared or {}
        _current = made
        installed.guard = made.guard
        if made.guard is not None:
            made.guard.meet_provider()
            _attach_adapters(made, made.guard)
        return made


def _attach_adapters(made: AgentGuard, guard: Guard) -> None:
    from otel_agentguard.adapters.attaching import attach_all

    made.undo(attach_all(guard, left_out=made.settings.adapters_off, environ=os.environ))


def _off(settings: Settings, *, by_program: bool) -> AgentGuard:
    from prometheus_client import CollectorRegistry

    idle = Engine(checks=(), settings=settings)
    return AgentGuard(settings, idle, guard=None, registry=CollectorRegistry(), by_program=by_program)


def _notes(settings: Settings) -> Store | None:
    """What earlier sessions left; opened when it is first asked, so that a store that is down costs no start."""
    if settings.store.startswith("memory:"):
        return None
    from otel_agentguard.dedup.late import LateStore
    from otel_agentguard.stores.notes import check_url, open_notes

    check_url(settings.store)
    return LateStore(settings.store.partition("://")[0], lambda: open_notes(settings.store))


def _build(settings: Settings, parts: Parts, *, by_program: bool) -> AgentGuard:
    from otel_agentguard.dedup.dedup import make_dedup
    from otel_agentguard.embedders import open_embedder
    from otel_agentguard.judges import open_judge
    from otel_agentguard.sinks.prometheus import PrometheusSink
    from otel_agentguard.sinks.state import StateOfRuns
    from otel_agentguard.tracing.findings import FindingEvents

    notes = _notes(settings)
    embedder = open_embedder(settings.embedder if parts.embedder is None else parts.embedder)
    judges = [desk for desk in (open_judge(parts.judge),) if desk is not None]
    checks = (*default_checks(settings, embedder=embedder), *judges, *parts.checks)
    counting = PrometheusSink(parts.registry)
    budget = ByteBudget()
    dedup = make_dedup(
        settings,
        budget=budget,
        store=notes,
        key=settings.fingerprint_key,
        redact=parts.redact,
        tell=lambda *told: guard.tell(*told),
        failed=lambda where, exc: engine.failed(where, exc),
        stop_of=lambda run_id: None if (grave := engine.grave(run_id)) is None else grave.finding,
        is_on=any(check.name == CheckName.DEDUP for check in checks),
    )
    sinks: tuple[Sink, ...] = (counting, FindingEvents(), dedup, *judges, *_registered_sinks(), *parts.sinks)
    explicit = settings.mode if by_program or settings.mode_forced is not None else Mode.ENFORCE
    engine = Engine(
        checks=checks,
        settings=settings,
        sinks=sinks,
        on_finding=parts.on_finding,
        approve=parts.approve,
        enforces=explicit is Mode.ENFORCE,
        budget=budget,
    )
    StateOfRuns(counting, engine, budget, checks)
    guard = Guard(
        engine,
        key=settings.fingerprint_key or new_key(),
        explicit=explicit,
        automatic=settings.mode,
        processor=lambda: _met(made),
        captures_content=os.environ.get(CAPTURE_CONTENT, "").strip().lower() in _CAPTURES_ON_SPANS,
        redact=parts.redact,
        specs=parts.specs,
    )
    guard.dedup = dedup
    made = AgentGuard(settings, engine, guard=guard, registry=counting.registry, by_program=by_program)
    made.undo(counting.close, dedup.close, guard.implicit.close, guard.leave_provider)
    for late in (embedder, *judges):
        _hear_late(made, late, parts.redact)
    try:
        _keep_effects(made, guard, counting)
        if parts.otlp:
            _export(made, parts.otlp, counting.failed)
        if settings.metrics_port is not None:
            _serve(made, settings.metrics_port)
    except BaseException:
        made.shutdown()
        raise
    return made


def _hear_late(made: AgentGuard, late: object, redact: Redact | None) -> None:
    """Have what asks in a thread of its own redact, tell its failures, and end with the guard."""
    if isinstance(late, WorksLater):
        late.redact = late.redact or redact
        late.tell_failures_to(made.engine.failed)
        made.undo(late.close)


def _keep_effects(made: AgentGuard, guard: Guard, counting: PrometheusSink) -> None:
    """Have side effects recorded; a store that is down now is tried again with them."""
    from otel_agentguard.effects.execution import EffectExecutor
    from otel_agentguard.effects.opening import LateExecutor
    from otel_agentguard.effects.unsettled import Unsettled
    from otel_agentguard.stores import open_ledger

    url = made.settings.store
    in_memory = url.startswith("memory:")
    guard.effects = LateExecutor(
        url.partition("://")[0],
        lambda: EffectExecutor(open_ledger(url), observer=EffectReports(guard)),
        at_once=in_memory,
        failed=lambda exc: made.engine.failed("store", exc),
    )
    unsettled = Unsettled(guard.effects, counting.unsettled, failed=made.engine.failed)
    counting.looked_up(SIDE_EFFECTS_UNSETTLED, unsettled.look, ask=unsettled.ask)
    made.undo(guard.effects.close, unsettled.close)
    if not in_memory:
        with suppress(StoreError):  # counted by then
            guard.executor()


def _met(made: AgentGuard) -> SpanProcessor:
    """What goes into the tracer provider of the SDK; a meter provider is there by then too."""
    from otel_agentguard.sinks.otlp_bridge import offer_to_meter_provider
    from otel_agentguard.tracing.processor import AgentGuardSpanProcessor

    if made.offers_metrics and hasattr(metrics.get_meter_provider(), "force_flush"):
        made.undo(offer_to_meter_provider(made.registry, metrics.get_meter(INSTRUMENTATION_SCOPE)))
    return AgentGuardSpanProcessor()


def _serve(made: AgentGuard, port: int) -> None:
    from otel_agentguard.sinks.exposition import MetricsServer

    server = MetricsServer(port, made.registry)
    try:
        server.start()
    except ConfigError as exc:
        _logger.warning("agentguard: no metrics server: %s", exc)
        if made.guard is not None:
            made.guard.tell("failed", "metrics server")
        return
    made.metrics_url = server.url
    made.undo(server.stop)


def _export(made: AgentGuard, otlp: str | bool, counted: Callable[[str], None]) -> None:
    """Send spans and metrics to a collector, through the provider that is there or one of ours."""
    from otel_agentguard.sinks.otlp import metric_exporter, seconds, span_exporter
    from otel_agentguard.sinks.otlp_bridge import OtlpMetricsBridge

    endpoint = otlp if isinstance(otlp, str) else None
    interval_s = seconds("OTEL_METRIC_EXPORT_INTERVAL", 60.0, os.environ)
    timeout_s = seconds("OTEL_METRIC_EXPORT_TIMEOUT", 30.0, os.environ)
    spans, numbers = span_exporter(endpoint, os.environ), metric_exporter(endpoint, os.environ)
    if spans is not None:
        _export_spans(made, spans)
    made.offers_metrics = False
    if numbers is not None:
        bridge = OtlpMetricsBridge(numbers, made.registry, interval_s, timeout_s=timeout_s, failed=counted)
        bridge.start()
        made.undo(bridge.shutdown)


def _export_spans(made: AgentGuard, exporter: SpanExporter) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    batch = BatchSpanProcessor(exporter)
    provider = trace.get_tracer_provider()
    add = getattr(provider, "add_span_processor", None)
    if add is None:
        provider = TracerProvider()
        provider.add_span_processor(batch)
        trace.set_tracer_provider(provider)
    else:
        add(batch)
    made.undo(lambda: remove_processor(provider, batch), batch.shutdown)


def _registered_sinks() -> list[Sink]:
    sinks: list[Sink] = []
    for one in entry_points(group=_SINKS_GROUP):
        try:
            sink = one.load()()
            if missing := lacking(sink, Sink):
                raise TypeError(f"{sink!r} is no sink: it lacks {', '.join(missing)}")  # noqa: TRY301 - one path for every failure
            sinks.append(sink)
        except Exception:
            _logger.exception("agentguard: the sink %s cannot be loaded; it hears nothing", one.name)
    return sinks
