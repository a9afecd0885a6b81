"""The guard that is installed, as seams see it.

Decorators run at import time and the guard comes later, or never, or goes away again: seams look it
up in `installed` at each call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

import orjson
from opentelemetry import trace

from otel_agentguard.config import Mode
from otel_agentguard.current import ImplicitRuns
from otel_agentguard.effects.calls import RunEffects
from otel_agentguard.engine import Engine
from otel_agentguard.errors import StoreError
from otel_agentguard.events import ToolSpec
from otel_agentguard.findings import Finding
from otel_agentguard.fingerprint import exporter
from otel_agentguard.forks import new_lock
from otel_agentguard.runs import Run
from otel_agentguard.seen import Others
from otel_agentguard.semconv import INSTRUMENTATION_SCOPE

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

    from otel_agentguard.dedup.dedup import Dedup
    from otel_agentguard.effects.execution import EffectExecutor
    from otel_agentguard.effects.opening import LateExecutor

_logger = logging.getLogger("otel_agentguard")

Redact = Callable[[str], str]

# Where the SDK's provider keeps its processors.
_CHAIN = "_active_span_processor"
_MEMBERS = "_span_processors"


class AcceptsProcessors(Protocol):
    """A tracer provider of the SDK."""

    def add_span_processor(self, span_processor: SpanProcessor) -> None:
        """Have the processor see every span from now on."""
        ...


class Guard:
    """What a seam needs to know of the installed guard.

    Attributes:
        engine: Decides.
        enforce: Whether seams that the program put in itself may refuse.
        enforce_auto: Whether seams that auto-instrumentation put in may.
        exported: Gives the form of an identity that may leave the process; see `fingerprint.exported`.
        implicit: The runs of code outside of every `run()`.
        tell: Calls a method of every sink that has it.
        tracer: Makes our spans, whichever provider there is.
        captures_content: Whether arguments, results and messages may go onto spans.
        processor_pending: Our span processor has not met the SDK's provider yet.
        others: Whether anybody else may tell of the events of our seams.
        specs: What is known of the tools of every run.
        effects: Opens what runs the bodies of side-effect tools, at the first of them; None without a ledger.
        dedup: Answers pure and reading tools from what is known; None for never.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        key: bytes,
        explicit: Mode = Mode.ENFORCE,
        automatic: Mode = Mode.OBSERVE,
        processor: Callable[[], SpanProcessor] | None = None,
        captures_content: bool = False,
        redact: Redact | None = None,
        specs: Mapping[str, ToolSpec] | None = None,
    ) -> None:
        self.engine = engine
        self.settings = engine.settings
        self.tell = engine.tell
        self.exported = exporter(key)
        self.enforce = explicit is Mode.ENFORCE
        self.enforce_auto = automatic is Mode.ENFORCE
        self.implicit = ImplicitRuns(engine, trust_baggage=engine.settings.trust_baggage)
        self.tracer = trace.get_tracer(INSTRUMENTATION_SCOPE)
        self.captures_content = captures_content
        self.effects: LateExecutor | None = None
        self.dedup: Dedup | None = None
        self._run_effects: WeakKeyDictionary[Run, RunEffects] = WeakKeyDictionary()
        self.processor_pending = processor is not None
        self.others = Others()
        self._make_processor = processor
        self._attached: tuple[AcceptsProcessors, SpanProcessor] | None = None
        self.specs = dict(specs or {})
        self._redact = redact
        self._lock = new_lock()
        self._opaque_told: set[str] = set()
        self._warned_of_memory = False

    def opaque(self, type_name: str) -> None:
        """Count a value that has no stable form; the first of each type is logged."""
        if type_name not in self._opaque_told and len(self._opaque_told) < 1000:
            self._opaque_told.add(type_name)
            _logger.warning(
                "agentguard: values of %s have no stable form, calls with them are told apart by type alone", type_name
            )
        self.tell("failed", "fingerprint")

    def declare_side_effect(self, tool: str) -> None:
        """Prepare for a side-effect tool, before its first effect."""
        self.tell("declare_side_effect_tool", tool)
        if self.settings.store.startswith("memory:") and not self._warned_of_memory:
            self._warned_of_memory = True
            _logger.warning(
                "agentguard: %s is a side effect, and what is known of side effects dies with this process; "
                'name a store to keep it: install(store="sqlite:///agentguard.db")',
                tool,
            )

    def executor(self) -> EffectExecutor:
        """What runs side effects; waits for its store, for a few seconds at most.

        Raises:
            StoreError: The ledger cannot be opened, so no side effect may happen.
        """
        return self._late_executor().ready()

    async def executor_async(self) -> EffectExecutor:
        """`executor` without blocking the event loop."""
        return await self._late_executor().ready_async()

    def _late_executor(self) -> LateExecutor:
        if self.effects is None:
            raise StoreError("this guard has no ledger, so no side effect may happen")
        return self.effects

    def effects_of(self, run: Run) -> RunEffects:
        """The effects of a run, made with its first turn or side effect."""
        known = self._run_effects.get(run)
        if known is None:
            info = run.info
            made = RunEffects(
                run_id=info.run_id, namespace=self.settings.namespace, session=info.conversation, event=info.event
            )
            with self._lock:
                known = self._run_effects.setdefault(run, made)
        return known

    def report(self, run: Run, finding: Finding, *, enforced: bool) -> bool:
        """Tell of a finding that a seam made itself; whether it is new."""
        with run.lock:
            finding, new = run.ladder.judge(finding, run.info.progress, upcoming=False)
            if new:
                run.findings.append(finding)
        if new:
            self.tell("found", run.info, finding, "enforce" if enforced else "observe")
        return new

    def content(self, value: object) -> str:
        """A value as text for a span, redacted; only where content is captured."""
        text = value if isinstance(value, str) else _json(value)
        if self._redact is None:
            return text
        try:
            return self._redact(text)
        except Exception as exc:
            self.engine.failed("redact", exc)
            return ""

    def enter_run(self, opened: Callable[[], Run]) -> Run:
        """Open or join a run, which lives until everybody who entered it has left.

        Raises:
            RunAborted: A run of this id was stopped, and not released since.
        """
        with self._lock:
            run = opened()
            run.entries += 1
            return run

    def leave_run(self, run: Run, *, failed: bool) -> None:
        """Leave a run; whoever is the last one ends it."""
        with self._lock:
            run.entries -= 1
            if run.entries <= 0:
                self.engine.close(run, failed=failed)

    def meet_provider(self) -> None:
        """Add our processor to the SDK's tracer provider, once there is one."""
        provider = trace.get_tracer_provider()
        add = getattr(provider, "add_span_processor", None)
        if add is None or self._make_processor is None:
            return
        with self._lock:
            if not self.processor_pending:
                return
            self.processor_pending = False
            try:
                processor = self._make_processor()
                self.others.expect()
                if any(type(one) is type(processor) for one in _processors(provider)):
                    return
                add(processor)
                self._attached = (provider, processor)  # type: ignore[assignment]
            except Exception as exc:
                self.engine.failed("span processor", exc)

    def leave_provider(self) -> None:
        """Take our processor out of the provider again."""
        with self._lock:
            attached, self._attached = self._attached, None
            self.processor_pending = False
        if attached is not None:
            remove_processor(*attached)


class Installed:
    """Where seams look the guard up.

    Attributes:
        guard: The guard; None before `install()`, after `shutdown()` and in mode `off`.
    """

    __slots__ = ("guard",)

    def __init__(self) -> None:
        self.guard: Guard | None = None


installed = Installed()


def remove_processor(provider: object, processor: object) -> None:
    """Take a processor out of an SDK provider, which has no way of its own to do so."""
    chain = getattr(provider, _CHAIN, None)
    lock = getattr(chain, "_lock", None)
    if chain is None or lock is None:
        return
    with lock:
        setattr(chain, _MEMBERS, tuple(one for one in getattr(chain, _MEMBERS) if one is not processor))


def _processors(provider: object) -> Sequence[object]:
    return tuple(getattr(getattr(provider, _CHAIN, None), _MEMBERS, ()))


def _json(value: object) -> str:
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError, RecursionError):
        return f"<{type(value).__qualname__}>"
