"""Sends the metrics of a prometheus_client registry as OTLP, through any metric exporter of the SDK.

The SDK has no interface for metrics that somebody else has aggregated, so a registry is turned into
the `MetricsData` that exporters take, on a thread of our own. Where the application has a meter
provider, `offer_to_meter_provider` lets that one read counters and gauges instead.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import uuid4

from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry
from prometheus_client import Metric as Family
from prometheus_client.samples import Exemplar as PrometheusExemplar
from prometheus_client.samples import Sample

from otel_agentguard.forks import in_child, new_lock
from otel_agentguard.semconv import INSTRUMENTATION_SCOPE, METRICS, MetricSpec

_logger = logging.getLogger("otel_agentguard")

_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE
_NS: Final = 1_000_000_000
_SPECS: Final = {spec.name.removesuffix("_total"): spec for spec in METRICS}

_Labels = tuple[tuple[str, str], ...]


def metrics_data(registry: CollectorRegistry, *, resource: Resource, start_ns: int, now_ns: int) -> MetricsData:
    """Read our metrics of a registry as the SDK's own data, cumulative.

    Metrics of others in the same registry are left out: whoever put them there sends them.

    Args:
        registry: The registry.
        resource: Who sends.
        start_ns: Start of those series whose creation the registry does not tell, nanoseconds since the epoch.
        now_ns: Time of the reading, nanoseconds since the epoch.
    """
    metrics = []
    for family in registry.collect():
        spec = _SPECS.get(family.name)
        if spec is not None:
            metrics.append(_metric(spec, family, start_ns, now_ns))
    scope = ScopeMetrics(scope=InstrumentationScope(INSTRUMENTATION_SCOPE), metrics=metrics, schema_url="")
    return MetricsData([ResourceMetrics(resource=resource, scope_metrics=[scope], schema_url=resource.schema_url)])


class OtlpMetricsBridge:
    """Exports a registry every so often, from a daemon thread that survives a fork.

    A failing exporter never reaches the application: the first failure of an outage is logged, each is
    counted. Sums and histograms are cumulative, whatever the exporter prefers.

    Args:
        exporter: Any metric exporter of the SDK; `shutdown` shuts it down.
        registry: What is sent.
        interval_s: Seconds between two exports.
        timeout_s: Most seconds that one export may take.
        resource: Who sends; from the environment when it is None.
        failed: Told `"otlp"` at each failed export, such as `PrometheusSink.failed`.
        now_ns: Wall clock, nanoseconds since the epoch.

    Attributes:
        failures: How many exports have failed.
    """

    def __init__(
        self,
        exporter: MetricExporter,
        registry: CollectorRegistry,
        interval_s: float = 60.0,
        *,
        timeout_s: float = 10.0,
        resource: Resource | None = None,
        failed: Callable[[str], None] | None = None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.failures = 0
        self._exporter = exporter
        self._registry = registry
        self._interval_s = interval_s
        self._timeout_ms = timeout_s * 1000
        self._resource = resource if resource is not None else Resource.create()
        self._failed = failed
        self._now_ns = now_ns
        self._start_ns = now_ns()
        self._failing = False
        self._stop = threading.Event()
        self._export_lock = new_lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to export; does nothing while it does, or after a shutdown."""
        if self._thread is not None or self._stop.is_set():
            return
        self._run_thread()
        in_child(self._after_fork)

    def force_flush(self, timeout_s: float = 10.0) -> bool:
        """Export now, from the calling thread.

        Returns:
            Whether it has been delivered.
        """
        if self._stop.is_set() or not self._export(timeout_s * 1000):
            return False
        try:
            return self._exporter.force_flush(timeout_s * 1000)
        except Exception as exc:
            self._fail(str(exc) or type(exc).__name__)
            return False

    def shutdown(self, timeout_s: float = 10.0) -> None:
        """Export once more, end the thread and shut the exporter down; doing so twice is once."""
        if self._stop.is_set():
            return
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        self._export(timeout_s * 1000)
        try:
            self._exporter.shutdown(timeout_s * 1000)
        except Exception as exc:
            self._fail(str(exc) or type(exc).__name__)

    def _run_thread(self) -> None:
        thread = threading.Thread(target=self._run, name="agentguard-otlp-metrics", daemon=True)
        try:
            thread.start()
        except RuntimeError as exc:
            self._fail(str(exc))
            return
        self._thread = thread

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._export(self._timeout_ms)

    def _after_fork(self) -> None:
        if self._thread is None or self._stop.is_set():
            return
        # The counts that were inherited go on from there, so the child needs an identity of its own, or every
        # change of sender looks like a reset.
        self._stop = threading.Event()
        self._resource = self._resource.merge(Resource({"service.instance.id": str(uuid4())}))
        self._run_thread()

    def _export(self, timeout_ms: float) -> bool:
        try:
            with self._export_lock, suppress_instrumentation():
                data = metrics_data(
                    self._registry, resource=self._resource, start_ns=self._start_ns, now_ns=self._now_ns()
                )
                result = self._exporter.export(data, timeout_ms)
        except Exception as exc:
            self._fail(str(exc) or type(exc).__name__)
            return False
        if result is not MetricExportResult.SUCCESS:
            self._fail(f"{type(self._exporter).__name__} did not deliver")
            return False
        self._failing = False
        return True

    def _fail(self, why: str) -> None:
        self.failures += 1
        if not self._failing:
            self._failing = True
            _logger.warning("metrics could not be exported; trying on in silence: %s", why)
        if self._failed is not None:
            self._failed("otlp")


def offer_to_meter_provider(
    registry: CollectorRegistry, meter: Meter, *, environ: Mapping[str, str] = os.environ
) -> Callable[[], None]:
    """Let a meter provider read our counters and gauges whenever it collects.

    Histograms cannot be offered: the API has no observable one. Nothing is offered where
    `OTEL_METRICS_EXPORTER` is `none`. One meter reads one registry: the one that was offered last.

    Args:
        registry: The registry that is read.
        meter: A meter of that provider.
        environ: The environment.

    Returns:
        Withdraws the offer: from then on the instruments, which the API cannot remove, report nothing.
    """
    if environ.get("OTEL_METRICS_EXPORTER", "").strip().lower() == "none":
        return _nothing
    offer = _offers.get(meter)
    if offer is None:
        offer = _offers[meter] = _Offer()
        for spec in METRICS:
            if spec.type != "histogram":
                create = meter.create_observable_counter if spec.type == "counter" else meter.create_observable_gauge
                create(spec.otlp_name, [offer.reader(spec.name)], spec.unit, spec.question)
    offer.registry = registry
    return partial(offer.withdraw, registry)


class _Offer:
    """The registry that the instruments of one meter read.

    A meter that is asked for an instrument again gives out the first one, and its callbacks stay as
    they were: a later offer takes the place of an earlier one here.
    """

    def __init__(self) -> None:
        self.registry: CollectorRegistry | None = None

    def withdraw(self, registry: CollectorRegistry) -> None:
        if self.registry is registry:
            self.registry = None

    def reader(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> Iterable[Observation]:
            registry = self.registry
            if registry is None:
                return []
            only = registry.restricted_registry([name]).collect()
            return [Observation(sample.value, sample.labels) for family in only for sample in family.samples]

        return read


_offers: weakref.WeakKeyDictionary[Meter, _Offer] = weakref.WeakKeyDictionary()


def _nothing() -> None:
    """Withdraws an offer that was not made."""


def _metric(spec: MetricSpec, family: Family, start_ns: int, now_ns: int) -> Metric:
    data: Sum | Gauge | Histogram
    match spec.type:
        case "counter":
            data = Sum(_numbers(family, f"{family.name}_total", start_ns, now_ns), _CUMULATIVE, is_monotonic=True)
        case "gauge":
            data = Gauge(_numbers(family, family.name, start_ns, now_ns))
        case "histogram":
            data = Histogram(_distributions(family, start_ns, now_ns), _CUMULATIVE)
    return Metric(name=spec.otlp_name, description=spec.question, unit=spec.unit, data=data)


def _numbers(family: Family, name: str, start_ns: int, now_ns: int) -> Sequence[NumberDataPoint]:
    created = _created(family)
    return [
        NumberDataPoint(
            attributes=sample.labels,
            start_time_unix_nano=created.get(_key(sample), start_ns),
            time_unix_nano=now_ns,
            value=sample.value,
            exemplars=_exemplars(sample.exemplar, now_ns),
        )
        for sample in family.samples
        if sample.name == name
    ]


@dataclass(slots=True)
class _Distribution:
    labels: dict[str, str]
    total: float = 0.0
    cumulative: list[tuple[float, float]] = field(default_factory=list)
    exemplars: list[Exemplar] = field(default_factory=list)

    def point(self, start_ns: int, now_ns: int) -> HistogramDataPoint:
        self.cumulative.sort()
        counts = [int(count) for _, count in self.cumulative]
        return HistogramDataPoint(
            attributes=self.labels,
            start_time_unix_nano=start_ns,
            time_unix_nano=now_ns,
            count=counts[-1],
            sum=self.total,
            bucket_counts=[upper - lower for lower, upper in zip([0, *counts], counts, strict=False)],
            explicit_bounds=[bound for bound, _ in self.cumulative[:-1]],
            # Optional in OTLP and unknown here; the SDK's type knows no None, its encoder leaves them out.
            min=None,  # type: ignore[arg-type]
            max=None,  # type: ignore[arg-type]
            exemplars=self.exemplars,
        )


def _distributions(family: Family, start_ns: int, now_ns: int) -> Sequence[HistogramDataPoint]:
    created = _created(family)
    found: dict[_Labels, _Distribution] = {}
    for sample in family.samples:
        bound = sample.labels.get("le")
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        distribution = found.setdefault(tuple(sorted(labels.items())), _Distribution(labels))
        if bound is not None:
            distribution.cumulative.append((float(bound), sample.value))
            distribution.exemplars += _exemplars(sample.exemplar, now_ns)
        elif sample.name == f"{family.name}_sum":
            distribution.total = sample.value
    return [one.point(created.get(key, start_ns), now_ns) for key, one in found.items()]


def _created(family: Family) -> dict[_Labels, int]:
    """When each series began, where the registry says so."""
    name = f"{family.name}_created"
    return {_key(sample): int(sample.value * _NS) for sample in family.samples if sample.name == name}


def _key(sample: Sample) -> _Labels:
    return tuple(sorted(sample.labels.items()))


def _exemplars(exemplar: PrometheusExemplar | None, now_ns: int) -> list[Exemplar]:
    if exemplar is None:
        return []
    labels = dict(exemplar.labels)
    trace_id, span_id = labels.pop("trace_id", None), labels.pop("span_id", None)
    return [
        Exemplar(
            filtered_attributes=labels,
            value=float(exemplar.value),
            time_unix_nano=now_ns if exemplar.timestamp is None else int(float(exemplar.timestamp) * _NS),
            span_id=int(span_id, 16) if span_id else None,
            trace_id=int(trace_id, 16) if trace_id else None,
        )
    ]
