"""What `install()` is given, looked at before anything is made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from otel_agentguard.config import LOOP_ROWS, LoopSettings, ToolSettings
from otel_agentguard.errors import ConfigError
from otel_agentguard.events import Effect, ToolSpec
from otel_agentguard.findings import Limits
from otel_agentguard.guard import Redact
from otel_agentguard.protocols import Check, Sink, is_check, lacking
from otel_agentguard.runs import ApprovalCallback, FindingCallback

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_T = TypeVar("_T")


class _Registry(Protocol):
    """What is needed of a registry of metrics."""

    def register(self, collector: Any) -> None:
        """Add a metric."""
        ...

    def unregister(self, collector: Any) -> None:
        """Take a metric out."""
        ...

    def collect(self) -> Iterable[Any]:
        """Give all metrics."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What `install()` is given that is no setting.

    Raises:
        ConfigError: One of them is not what is expected there.
    """

    checks: tuple[Check, ...] = ()
    sinks: tuple[Sink, ...] = ()
    registry: CollectorRegistry | None = None
    otlp: str | bool | None = None
    on_finding: FindingCallback | None = None
    approve: ApprovalCallback | None = None
    redact: Redact | None = None
    embedder: object = None
    judge: object = None
    specs: Mapping[str, ToolSpec] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for check in self.checks:
            if not is_check(check):
                raise ConfigError(f"checks holds {check!r}; give names, or objects with a name and open(run)")
        for sink in self.sinks:
            if missing := lacking(sink, Sink):
                raise ConfigError(f"sinks holds {sink!r}; give objects that have {', '.join(missing)} too, see Sink")
        if self.registry is not None and lacking(self.registry, _Registry):
            raise ConfigError(f"registry is {self.registry!r}; give a CollectorRegistry of prometheus_client")
        if not isinstance(self.otlp, str | bool | None):
            raise ConfigError(f"otlp is {self.otlp!r}; give the endpoint of a collector, or True")
        for name in ("on_finding", "approve", "redact"):
            given = getattr(self, name)
            if given is not None and not callable(given):
                raise ConfigError(f"{name} is {given!r}; give a function")


def sorted_checks(checks: Iterable[str | Check] | None) -> tuple[tuple[str, ...] | None, tuple[Check, ...]]:
    """The names among the checks, None where there are only checks of the program, and these.

    Raises:
        ConfigError: It is no list.
    """
    if checks is None:
        return None, ()
    every = listed("checks", checks, "a list of names or checks")
    names = tuple(one for one in every if isinstance(one, str))
    own = tuple(one for one in every if not isinstance(one, str))
    return None if own and not names else names, own


def listed(argument: str, given: Iterable[_T], expected: str) -> tuple[_T, ...]:
    """What an argument holds.

    Raises:
        ConfigError: It is no list.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ConfigError(f"{argument} is {given!r}; give {expected}")
    return tuple(given)


def rows(limits: Limits | LoopSettings | Mapping[str, object]) -> LoopSettings | Mapping[str, object]:
    """Limits by row of the loop check; plain ones are those of equal calls.

    Raises:
        ConfigError: They are none.
    """
    if isinstance(limits, Limits):
        return {"same": limits, "failing": limits}
    if isinstance(limits, LoopSettings | Mapping):
        return limits
    raise ConfigError(f"limits is {limits!r}; give Limits, LoopSettings, or limits by row: {', '.join(LOOP_ROWS)}")


def tool_settings(tools: Mapping[str, ToolSettings | ToolSpec | Mapping[str, object]]) -> Mapping[str, object]:
    """Settings by tool; what is known of a tool sets its effect.

    Raises:
        ConfigError: It is no mapping.
    """
    if not isinstance(tools, Mapping):
        raise ConfigError(f"tools is {tools!r}; give settings by name of the tool, or a ToolRegistry")
    settings: dict[str, object] = {}
    for name, one in tools.items():
        if not isinstance(one, ToolSpec):
            settings[name] = one
        elif one.effect is not Effect.UNKNOWN:
            settings[name] = ToolSettings(effect=one.effect)
    return settings
