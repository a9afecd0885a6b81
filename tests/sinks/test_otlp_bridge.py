from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent import futures

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    InMemoryMetricReader,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import format_span_id, format_trace_id
from prometheus_client import Counter

from otel_agentguard.events import ToolCall
from otel_agentguard.protocols import RunInfo
from otel_agentguard.semconv import METRICS
from otel_agentguard.sinks.otlp_bridge import OtlpMetricsBridge, metrics_data, offer_to_meter_provider
from otel_agentguard.sinks.prometheus import PrometheusSink

RESOURCE = Resource({"service.name": "shop"})
START_NS, NOW_NS = 1_700_000_000_000_000_000, 1_700_000_060_000_000_000


class KeepingExporter(MetricExporter):
    """Keeps what it is given; fails while `broken` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.exported: list[MetricsData] = []
        self.arrived = threading.Semaphore(0)
        self.broken: Exception | MetricExportResult | None = None
        self.shut_down = 0

    def export(self, metrics_data: MetricsData, timeout_millis: float = 0, **_: object) -> MetricExportResult:
        if isinstance(self.broken, Exception):
            raise self.broken
        if self.broken is not None:
            return self.broken
        self.exported.append(metrics_data)
        self.arrived.release()
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **_: object) -> None:
        self.shut_down += 1


def read(sink: PrometheusSink) -> dict[str, Metric]:
    return by_name(metrics_data(sink.registry, resource=RESOURCE, start_ns=START_NS, now_ns=NOW_NS))


def by_name(data: MetricsData) -> dict[str, Metric]:
    return {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}


def point(metric: Metric, **attributes: str) -> NumberDataPoint:
    (found,) = [point for point in metric.data.data_points if point.attributes == attributes]
    assert isinstance(found, NumberDataPoint)
    return found


@pytest.fixture
def bridge(sink: PrometheusSink) -> Iterator[tuple[OtlpMetricsBridge, KeepingExporter]]:
    exporter = KeepingExporter()
    bridge = OtlpMetricsBridge(exporter, sink.registry, resource=RESOURCE, failed=sink.failed)
    yield bridge, exporter
    bridge.shutdown()


def test_every_metric_arrives_under_its_otlp_name_and_unit(sink: PrometheusSink) -> None:
    arrived = {name: (metric.unit, metric.description) for name, metric in read(sink).items()}

    assert arrived == {spec.otlp_name: (spec.unit, spec.question) for spec in METRICS}
    assert "agentguard_steps" in arrived
    assert "gen_ai.invoke_agent.tool_calls" in arrived


def test_a_counter_is_a_cumulative_monotonic_sum(sink: PrometheusSink) -> None:
    sink.plan_error("cycle")

    metric = read(sink)["agentguard_plan_errors"]

    assert isinstance(metric.data, Sum)
    assert metric.data.is_monotonic
    assert metric.data.aggregation_temporality is AggregationTemporality.CUMULATIVE
    assert point(metric, code="cycle").value == 1
    assert point(metric, code="enum").value == 0
    assert point(metric, code="cycle").time_unix_nano == NOW_NS


def test_a_series_starts_when_it_was_made(sink: PrometheusSink) -> None:
    made_s = sink.registry.get_sample_value("agentguard_plan_errors_created", {"code": "cycle"})

    start_ns = point(read(sink)["agentguard_plan_errors"], code="cycle").start_time_unix_nano

    assert made_s is not None
    assert abs(start_ns - made_s * 1e9) < 1000


def test_a_gauge_is_a_gauge(sink: PrometheusSink) -> None:
    sink.state("values", 2048)

    assert point(read(sink)["agentguard_state_bytes"], part="values").value == 2048


def test_a_histogram_keeps_its_bounds_and_counts(sink: PrometheusSink) -> None:
    for ratio in (0.02, 0.25, 0.27, 1.5):
        sink.plan_drift(ratio)

    (found,) = read(sink)["agentguard_plan_drift_ratio"].data.data_points

    assert isinstance(found, HistogramDataPoint)
    assert found.explicit_bounds == [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert found.bucket_counts == [1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1]
    assert found.count == 4
    assert found.sum == pytest.approx(2.04)


def test_histograms_of_several_series_are_kept_apart(sink: PrometheusSink) -> None:
    sink.timed("loop", 2e-6)
    sink.timed("plan", 5.0)

    points = {
        point.attributes["check"]: point for point in read(sink)["agentguard_check_duration_seconds"].data.data_points
    }

    assert points["loop"].bucket_counts[1] == 1
    assert points["plan"].bucket_counts[-1] == 1
    assert points["memory"].count == 0


def test_metrics_of_others_in_the_registry_are_left_to_them(sink: PrometheusSink) -> None:
    Counter("shop_orders", "Orders.", registry=sink.registry).inc()

    assert "shop_orders" not in read(sink)


def test_an_exporter_gets_what_was_counted(
    bridge: tuple[OtlpMetricsBridge, KeepingExporter], sink: PrometheusSink
) -> None:
    sink.unguarded("grep")

    delivered = bridge[0].force_flush()

    assert delivered
    (data,) = bridge[1].exported
    assert point(by_name(data)["agentguard_unguarded_calls"], tool="grep").value == 1
    assert data.resource_metrics[0].resource.attributes["service.name"] == "shop"
    assert data.resource_metrics[0].scope_metrics[0].scope.name == "otel_agentguard"


def test_it_exports_again_and_again_until_it_is_shut_down(sink: PrometheusSink) -> None:
    exporter = KeepingExporter()
    bridge = OtlpMetricsBridge(exporter, sink.registry, interval_s=0.001)

    bridge.start()
    bridge.start()
    for _ in range(3):
        assert exporter.arrived.acquire(timeout=10)
    bridge.shutdown()
    after = len(exporter.exported)

    assert not exporter.arrived.acquire(timeout=0) or len(exporter.exported) == after
    assert not [thread for thread in threading.enumerate() if thread.name == "agentguard-otlp-metrics"]
    assert exporter.shut_down == 1


def test_a_shutdown_sends_what_is_left_once(
    bridge: tuple[OtlpMetricsBridge, KeepingExporter], sink: PrometheusSink
) -> None:
    bridge[0].start()
    sink.unguarded("grep")

    bridge[0].shutdown()
    bridge[0].shutdown()

    (data,) = bridge[1].exported
    assert point(by_name(data)["agentguard_unguarded_calls"], tool="grep").value == 1
    assert bridge[1].shut_down == 1
    assert not bridge[0].force_flush()


def test_a_shutdown_sends_everything_where_no_thread_could_be_started(
    bridge: tuple[OtlpMetricsBridge, KeepingExporter], sink: PrometheusSink, no_threads: Callable[[], None]
) -> None:
    bridge[0].start()
    sink.unguarded("grep")

    bridge[0].shutdown()

    (data,) = bridge[1].exported
    assert point(by_name(data)["agentguard_unguarded_calls"], tool="grep").value == 1
    assert bridge[0].failures == 1


@pytest.mark.parametrize("broken", [OSError("no route"), MetricExportResult.FAILURE])
def test_a_broken_exporter_is_logged_once_and_counted(
    bridge: tuple[OtlpMetricsBridge, KeepingExporter],
    sink: PrometheusSink,
    caplog: pytest.LogCaptureFixture,
    broken: Exception | MetricExportResult,
) -> None:
    bridge[1].broken = broken

    with caplog.at_level(logging.WARNING, "otel_agentguard"):
        delivered = [bridge[0].force_flush() for _ in range(3)]

    assert delivered == [False, False, False]
    assert bridge[0].failures == 3
    assert sink.registry.get_sample_value("agentguard_guard_errors_total", {"where": "otlp"}) == 3
    assert len(caplog.records) == 1
    assert "metrics could not be exported" in caplog.records[0].message


def test_a_new_outage_after_a_recovery_is_logged_again(
    bridge: tuple[OtlpMetricsBridge, KeepingExporter], caplog: pytest.LogCaptureFixture
) -> None:
    for broken in (OSError("first"), None, OSError("second")):
        bridge[1].broken = broken
        bridge[0].force_flush()

    assert [record.message.rsplit(": ", 1)[1] for record in caplog.records] == ["first", "second"]


def test_the_thread_outlives_a_broken_exporter(sink: PrometheusSink) -> None:
    exporter = KeepingExporter()
    exporter.broken = OSError("down")
    bridge = OtlpMetricsBridge(exporter, sink.registry, interval_s=0.001)
    failed = threading.Event()
    bridge._failed = lambda where: failed.set()

    bridge.start()
    assert failed.wait(10)
    exporter.broken = None

    assert exporter.arrived.acquire(timeout=10)
    bridge.shutdown()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_exports_under_an_identity_of_its_own(sink: PrometheusSink) -> None:
    exporter = KeepingExporter()
    bridge = OtlpMetricsBridge(exporter, sink.registry, interval_s=0.2, resource=RESOURCE)
    bridge.start()
    exporter.arrived.acquire(timeout=10)

    child = os.fork()
    if child == 0:
        exporter.exported.clear()
        exporter.arrived = threading.Semaphore(0)
        arrived = exporter.arrived.acquire(timeout=10)
        attributes = exporter.exported[0].resource_metrics[0].resource.attributes if arrived else {}
        os._exit(0 if "service.instance.id" in attributes else 1)
    _, status = os.waitpid(child, 0)
    bridge.shutdown()

    assert os.waitstatus_to_exitcode(status) == 0
    assert "service.instance.id" not in exporter.exported[-1].resource_metrics[0].resource.attributes


class Receiver(metrics_service_pb2_grpc.MetricsServiceServicer):
    def __init__(self) -> None:
        self.metrics: dict[str, metrics_pb2.Metric] = {}

    def Export(
        self, request: metrics_service_pb2.ExportMetricsServiceRequest, context: grpc.ServicerContext
    ) -> metrics_service_pb2.ExportMetricsServiceResponse:
        for resource in request.resource_metrics:
            for scope in resource.scope_metrics:
                self.metrics |= {metric.name: metric for metric in scope.metrics}
        return metrics_service_pb2.ExportMetricsServiceResponse()


@pytest.fixture
def receiver() -> Iterator[tuple[Receiver, int]]:
    receiver = Receiver()
    server = grpc.server(futures.ThreadPoolExecutor(1))
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(receiver, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield receiver, port
    server.stop(0).wait()


def test_a_collector_receives_sums_histograms_and_exemplars(
    receiver: tuple[Receiver, int], sink: PrometheusSink, run: RunInfo
) -> None:
    arrived, port = receiver
    exporter = OTLPMetricExporter(endpoint=f"http://127.0.0.1:{port}", insecure=True)
    bridge = OtlpMetricsBridge(exporter, sink.registry, resource=RESOURCE)
    provider = TracerProvider(shutdown_on_exit=False)
    with provider.get_tracer("test").start_as_current_span("execute_tool charge") as span:
        sink.side_effect("charge", "executed")
    sink.timed("loop", 2e-5)
    sink.stepped(run, ToolCall(tool="grep", agent="coder"))

    delivered = bridge.force_flush()
    bridge.shutdown()

    assert delivered
    effects = arrived.metrics["agentguard_side_effects"].sum
    assert effects.is_monotonic
    assert effects.aggregation_temporality == metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
    (executed,) = [point for point in effects.data_points if point.as_double == 1]
    assert {a.key: a.value.string_value for a in executed.attributes} == {"tool": "charge", "outcome": "executed"}
    assert 0 < executed.start_time_unix_nano <= executed.time_unix_nano
    (exemplar,) = executed.exemplars
    assert exemplar.trace_id.hex() == format_trace_id(span.get_span_context().trace_id)
    assert exemplar.span_id.hex() == format_span_id(span.get_span_context().span_id)
    assert exemplar.as_double == 1
    duration = arrived.metrics["agentguard_check_duration_seconds"]
    (loop,) = [point for point in duration.histogram.data_points if point.count]
    assert duration.unit == "s"
    assert list(loop.bucket_counts) == [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    assert loop.sum == 2e-5
    assert not loop.HasField("min")
    assert not loop.HasField("max")


def collected(reader: InMemoryMetricReader) -> dict[str, Metric]:
    data = reader.get_metrics_data()
    return by_name(data) if data is not None and data.resource_metrics else {}


@pytest.fixture
def reader() -> Iterator[tuple[InMemoryMetricReader, MeterProvider]]:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    yield reader, provider
    provider.shutdown()


def test_a_meter_provider_reads_counters_and_gauges_when_it_collects(
    reader: tuple[InMemoryMetricReader, MeterProvider], sink: PrometheusSink, run: RunInfo
) -> None:
    offer_to_meter_provider(sink.registry, reader[1].get_meter("otel_agentguard"))
    sink.run_opened(run)
    sink.stepped(run, ToolCall(tool="grep", agent="coder"))

    first = collected(reader[0])
    sink.stepped(run, ToolCall(tool="grep", agent="coder"))
    second = collected(reader[0])

    labels = {"kind": "tool", "agent": "coder", "tool": "grep"}
    assert isinstance(first["agentguard_steps"].data, Sum)
    assert first["agentguard_steps"].data.is_monotonic
    assert point(first["agentguard_steps"], **labels).value == 1
    assert point(second["agentguard_steps"], **labels).value == 2
    assert point(first["agentguard_active_runs"]).value == 1
    assert first["agentguard_active_runs"].unit == "{run}"


def test_an_offer_that_is_withdrawn_reports_nothing(
    reader: tuple[InMemoryMetricReader, MeterProvider], sink: PrometheusSink
) -> None:
    withdraw = offer_to_meter_provider(sink.registry, reader[1].get_meter("otel_agentguard"))

    withdraw()

    assert collected(reader[0]) == {}


def test_an_offer_can_be_made_anew_after_it_was_withdrawn(
    reader: tuple[InMemoryMetricReader, MeterProvider], sink: PrometheusSink
) -> None:
    offer_to_meter_provider(sink.registry, reader[1].get_meter("otel_agentguard"))()
    later = PrometheusSink()
    later.unguarded("grep")

    offer_to_meter_provider(later.registry, reader[1].get_meter("otel_agentguard"))

    assert point(collected(reader[0])["agentguard_unguarded_calls"], tool="grep").value == 1


def test_nothing_is_offered_where_the_environment_wants_no_metrics(
    reader: tuple[InMemoryMetricReader, MeterProvider], sink: PrometheusSink
) -> None:
    meter = reader[1].get_meter("otel_agentguard")

    withdraw = offer_to_meter_provider(sink.registry, meter, environ={"OTEL_METRICS_EXPORTER": "none"})

    assert collected(reader[0]) == {}
    withdraw()
