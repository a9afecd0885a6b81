"""A collector for tests: takes spans and metrics over gRPC and over HTTP, on free ports of loopback."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

WAIT_S = 20.0


class OtlpReceiver:
    """What has arrived.

    Attributes:
        grpc_url: Where it listens for gRPC.
        http_url: Where it listens for HTTP, without a path.
        spans: Every span, in the order of arrival.
        metrics: Every metric, likewise.
        headers: Names and values of the headers of the latest request, names in lower case.
    """

    def __init__(self, grpc_port: int, http_port: int) -> None:
        self.grpc_url = f"http://127.0.0.1:{grpc_port}"
        self.http_url = f"http://127.0.0.1:{http_port}"
        self.spans: list[Span] = []
        self.metrics: list[Metric] = []
        self.headers: dict[str, str] = {}

    def wait_for(self, arrived: Callable[[OtlpReceiver], bool]) -> None:
        """Wait until something has arrived; AssertionError after 20 seconds without it."""
        deadline = time.monotonic() + WAIT_S
        while not arrived(self):
            assert time.monotonic() < deadline, f"{len(self.spans)} spans, {len(self.metrics)} metrics arrived"
            time.sleep(0.02)

    def trace_ids(self) -> set[str]:
        """The traces of which spans have arrived, as hex."""
        return {span.trace_id.hex() for span in list(self.spans)}

    def take_spans(self, request: trace_pb.ExportTraceServiceRequest) -> None:
        self.spans += [
            span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans
        ]

    def take_metrics(self, request: metrics_pb.ExportMetricsServiceRequest) -> None:
        self.metrics += [
            metric
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]


@contextmanager
def receiving() -> Iterator[OtlpReceiver]:
    """A receiver that listens within the block."""
    server = grpc.server(futures.ThreadPoolExecutor(2))
    port = server.add_insecure_port("127.0.0.1:0")
    http = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    receiver = OtlpReceiver(port, http.server_port)
    http.RequestHandlerClass = _handler(receiver)
    trace_grpc.add_TraceServiceServicer_to_server(_Traces(receiver), server)
    metrics_grpc.add_MetricsServiceServicer_to_server(_Metrics(receiver), server)
    server.start()
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
        server.stop(0).wait()


class _Traces(trace_grpc.TraceServiceServicer):
    def __init__(self, receiver: OtlpReceiver) -> None:
        self._receiver = receiver

    def Export(
        self, request: trace_pb.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_pb.ExportTraceServiceResponse:
        self._receiver.headers = dict(context.invocation_metadata())
        self._receiver.take_spans(request)
        return trace_pb.ExportTraceServiceResponse()


class _Metrics(metrics_grpc.MetricsServiceServicer):
    def __init__(self, receiver: OtlpReceiver) -> None:
        self._receiver = receiver

    def Export(
        self, request: metrics_pb.ExportMetricsServiceRequest, context: grpc.ServicerContext
    ) -> metrics_pb.ExportMetricsServiceResponse:
        self._receiver.headers = dict(context.invocation_metadata())
        self._receiver.take_metrics(request)
        return metrics_pb.ExportMetricsServiceResponse()


def _handler(receiver: OtlpReceiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.headers = {name.lower(): value for name, value in self.headers.items()}
            match self.path:
                case "/v1/traces":
                    receiver.take_spans(trace_pb.ExportTraceServiceRequest.FromString(body))
                case "/v1/metrics":
                    receiver.take_metrics(metrics_pb.ExportMetricsServiceRequest.FromString(body))
                case _:
                    self.send_error(404)
                    return
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    return Handler
