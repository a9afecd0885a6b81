"""The metrics of `semconv.METRICS`, declared in a registry of prometheus_client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.metrics import MetricWrapperBase

from otel_agentguard.errors import ConfigError
from otel_agentguard.semconv import LABEL_OVERFLOW_TOTAL, METRICS, MetricSpec
from otel_agentguard.sinks.labels import Family, Names, Pairs

_SPECS: Final = {spec.name: spec for spec in METRICS}
_OPENMETRICS_UNITS: Final = {"s": "seconds", "By": "bytes", "1": "ratio"}

Labels = tuple[str, ...]
Born = Callable[[Labels], None]


class _LookedUp(MetricWrapperBase):
    """A metric that is brought up to date before it is read, where `look` is set."""

    look: Callable[[], object] | None = None

    def collect(self) -> Iterable[Metric]:
        """Its samples as they are now."""
        if self.look is not None:
            self.look()
        return super().collect()


class LookedUpCounter(_LookedUp, Counter):
    """A counter that can be looked up."""


class LookedUpGauge(_LookedUp, Gauge):
    """A gauge that can be looked up."""


class Declared:
    """All metrics of ours in one registry, by name.

    Args:
        registry: Where they are registered.
        names: The values that open labels may have, by label.
        pairs: The pairs of agent and tool that metrics with both may have.

    Attributes:
        counters: Counters by name, with `_total`.
        gauges: Gauges by name; over several processes they are the sum of those alive, or the latest of what all share.
        histograms: Histograms by name.

    Raises:
        ConfigError: The registry already holds a metric of one of these names.
    """

    def __init__(self, registry: CollectorRegistry, names: Mapping[str, Names], pairs: Pairs) -> None:
        self.counters: dict[str, LookedUpCounter] = {}
        self.gauges: dict[str, LookedUpGauge] = {}
        self.histograms: dict[str, Histogram] = {}
        self._registry = registry
        self._names = names
        self._pairs = pairs
        try:
            for spec in METRICS:
                self._declare(spec)
        except ValueError as exc:
            self.withdraw()
            raise ConfigError(
                f"the registry already holds metrics of these names ({exc}); "
                "give each guard a registry of its own, or shut the first one down"
            ) from exc
        overflow = self.counters[LABEL_OVERFLOW_TOTAL]
        self._overflow = {name: overflow.labels(name) for name in _SPECS[LABEL_OVERFLOW_TOTAL].values["metric"]}

    def withdraw(self) -> None:
        """Take the metrics out of the registry; doing so twice is once."""
        for metrics in (self.counters, self.gauges, self.histograms):
            for metric in metrics.values():
                self._registry.unregister(metric)
            metrics.clear()

    def counter(self, name: str, born: Born | None = None) -> Family[Counter]:
        """The series of a labelled counter; `born` is told the labels of each new one."""
        return Family(self.counters[name], self._admission(name), self._overflow[name].inc, born)

    def gauge(self, name: str) -> Family[Gauge]:
        """The series of a labelled gauge."""
        return Family(self.gauges[name], self._admission(name), self._overflow[name].inc)

    def histogram(self, name: str) -> Family[Histogram]:
        """The series of a labelled histogram."""
        return Family(self.histograms[name], self._admission(name), self._overflow[name].inc)

    def _declare(self, spec: MetricSpec) -> None:
        unit = _OPENMETRICS_UNITS.get(spec.unit, "")
        name, text, labels, registry = spec.name, spec.question, spec.labels, self._registry
        match spec.type:
            case "counter":
                self.counters[name] = LookedUpCounter(name, text, labels, unit=unit, registry=registry)
            case "gauge":
                several: Literal["livesum", "livemostrecent"] = "livemostrecent" if spec.is_shared else "livesum"
                self.gauges[name] = LookedUpGauge(
                    name, text, labels, unit=unit, registry=registry, multiprocess_mode=several
                )
            case "histogram":
                self.histograms[name] = Histogram(
                    name, text, labels, unit=unit, registry=registry, buckets=spec.buckets
                )

    def _admission(self, name: str) -> Callable[[Labels], Labels]:
        spec = _SPECS[name]
        rules = [
            Names.closed(spec.values[label]) if label in spec.values else self._names[label] for label in spec.labels
        ]
        if not {"agent", "tool"} <= set(spec.labels):
            return lambda values: tuple(rule.admit(value) for rule, value in zip(rules, values, strict=True))

        agent, tool = spec.labels.index("agent"), spec.labels.index("tool")
        others = [(place, rule) for place, rule in enumerate(rules) if place not in {agent, tool}]

        def admit(values: Labels) -> Labels:
            labels = list(values)
            for place, rule in others:
                labels[place] = rule.admit(values[place])
            labels[agent], labels[tool] = self._pairs.admit(values[agent], values[tool])
            return tuple(labels)

        return admit
