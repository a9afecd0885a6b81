from __future__ import annotations

import gzip
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit

import pytest

from otel_agentguard.config import Settings
from otel_agentguard.protocols import RunInfo
from otel_agentguard.sinks.prometheus import PrometheusSink

Answer = tuple[Mapping[str, str], str]


def _get(url: str, *, context: ssl.SSLContext | None = None, **headers: str) -> Answer:
    place = urlsplit(url)
    if context is None:
        connection = HTTPConnection(place.netloc, timeout=5)
    else:
        connection = HTTPSConnection(place.netloc, timeout=5, context=context)
    with closing(connection):
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", f"{place.path}?{place.query}", headers=sent)
        response = connection.getresponse()
        body = response.read()
    unpacked = gzip.decompress(body) if response.headers["Content-Encoding"] == "gzip" else body
    return response.headers, unpacked.decode()


@pytest.fixture
def get() -> Callable[..., Answer]:
    """Fetches a page: its headers, and its text, unpacked."""
    return _get


@pytest.fixture
def run() -> RunInfo:
    return RunInfo(run_id="run-1", agent="coder", settings=Settings())


@pytest.fixture
def sink() -> Iterator[PrometheusSink]:
    sink = PrometheusSink()
    yield sink
    sink.close()
