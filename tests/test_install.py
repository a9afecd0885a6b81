from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, TraceIdRatioBased
from opentelemetry.util._once import Once
from prometheus_client import CollectorRegistry

from otel_agentguard import (
    Action,
    AgentGuard,
    AgentGuardSpanProcessor,
    ConfigError,
    Effect,
    Limits,
    RunAborted,
    ToolRegistry,
    install,
    run,
    tool,
    unguarded,
)
from otel_agentguard.checks.schema import SchemaCheck
from otel_agentguard.embedders import CallableEmbedder
from otel_agentguard.events import Event, ToolSpec
from otel_agentguard.findings import Finding
from otel_agentguard.guard import installed
from otel_agentguard.install import install_for_instrumentation
from otel_agentguard.judges import JudgeDesk
from otel_agentguard.testing import RecordingSink

Installing = Callable[..., AgentGuard]


@tool
def look(word: str) -> str:
    return word


def loop(times: int = 20) -> int:
    """How often a looping agent got its answer."""
    answered = 0
    for _ in range(times):
        try:
            look("x")
            answered += 1
        except Exception:  # noqa: S110
            pass
    return answered


@pytest.fixture(autouse=True)
def no_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    monkeypatch.delenv("AGENTGUARD_MODE", raising=False)


@pytest.fixture
def installing() -> Iterator[Installing]:
    guards: list[AgentGuard] = []

    def install_it(**arguments: Any) -> AgentGuard:
        guards.append(install(**arguments))
        return guards[-1]

    yield install_it
    for guard in guards:
        guard.shutdown()


def processors_of(provider: TracerProvider) -> list[type]:
    return [type(one) for one in provider._active_span_processor._span_processors]


def test_a_second_install_gives_the_guard_that_is_there(
    installing: Installing, caplog: pytest.LogCaptureFixture
) -> None:
    first = installing()
    again = installing()
    with caplog.at_level(logging.WARNING, logger="otel_agentguard"):
        with_arguments = installing(mode="observe")

    assert first is again is with_arguments
    assert "these arguments are not taken" in caplog.text


@pytest.mark.usefixtures("hurried")
def test_threads_that_install_at_the_same_time_get_one_guard(installing: Installing) -> None:
    start = threading.Barrier(8)
    serving = set(threading.enumerate())

    def install_it(_: int) -> AgentGuard:
        start.wait()
        return installing(metrics_port=0)

    with ThreadPoolExecutor(8) as pool:
        guards = list(pool.map(install_it, range(8)))

    assert len({id(guard) for guard in guards}) == 1
    assert installed.guard is guards[0].guard
    assert len([one for one in set(threading.enumerate()) - serving if "serve_forever" in one.name]) == 1


def test_after_shutdown_it_can_be_installed_anew(installing: Installing) -> None:
    first = installing(mode="observe")
    first.shutdown()
    first.shutdown()
    second = installing()

    assert second is not first
    assert second.settings.mode == "enforce"


def test_a_guard_can_be_a_context(installing: Installing) -> None:
    with install() as guard:
        assert installed.guard is guard.guard
    assert installed.guard is None


def test_install_never_sets_the_global_provider(installing: Installing) -> None:
    installing()
    with run("r"):
        look("x")

    assert trace._TRACER_PROVIDER is None


@pytest.mark.parametrize("when", ["before", "after", "after the first event"])
def test_the_processor_goes_into_the_provider_that_is_there(installing: Installing, when: str) -> None:
    provider = TracerProvider()
    if when == "before":
        trace.set_tracer_provider(provider)
    guard = installing()
    with run("r"):
        if when == "after the first event":
            look("a")
        if when != "before":
            trace.set_tracer_provider(provider)
        look("b")
        look("c")

    assert processors_of(provider) == [AgentGuardSpanProcessor]
    guard.shutdown()
    assert processors_of(provider) == []


def test_shutdown_leaves_the_processors_of_others(installing: Installing) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    trace.set_tracer_provider(provider)
    guard = installing()
    with run("r"):
        look("a")
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))

    guard.shutdown()

    assert processors_of(provider) == [SimpleSpanProcessor, SimpleSpanProcessor]


def test_a_processor_that_the_program_added_itself_stays_the_only_one(installing: Installing) -> None:
    provider = TracerProvider()
    provider.add_span_processor(AgentGuardSpanProcessor())
    trace.set_tracer_provider(provider)
    guard = installing()
    with run("r"):
        look("a")

    assert processors_of(provider) == [AgentGuardSpanProcessor]
    guard.shutdown()
    assert processors_of(provider) == [AgentGuardSpanProcessor]


@pytest.mark.parametrize("sampler", [ALWAYS_OFF, TraceIdRatioBased(0.0)], ids=["always off", "ratio 0"])
def test_the_guard_does_not_depend_on_sampling(installing: Installing, sampler: Any) -> None:
    trace.set_tracer_provider(TracerProvider(sampler=sampler))
    installing()

    with pytest.raises(RunAborted), run("r"):
        loop()


def test_the_guard_works_with_the_sdk_disabled() -> None:
    program = """
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        trace.set_tracer_provider(TracerProvider())
        from otel_agentguard import RunAborted, install, run, tool

        @tool
        def look(word):
            return word

        install()
        answered = 0
        try:
            with run("r"):
                while True:
                    try:
                        look("x")
                        answered += 1
                    except Exception:
                        pass
        except RunAborted:
            print(answered)
    """
    environ = {**os.environ, "OTEL_SDK_DISABLED": "true"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=environ, capture_output=True, text=True, check=True
    )

    assert done.stdout == "4\n"


class BrokenCheck:
    name = "broken"

    def open(self, run: object) -> BrokenCheck:
        return self

    def before(self, event: Event) -> list[Finding]:
        raise RuntimeError("broken")

    after = before


class UnopenableCheck:
    name = "unopenable"

    def open(self, run: object) -> BrokenCheck:
        raise RuntimeError("broken")


@pytest.mark.parametrize("check", [BrokenCheck(), UnopenableCheck()])
def test_with_a_broken_check_the_application_runs_and_the_failure_is_counted(
    installing: Installing, check: Any, caplog: pytest.LogCaptureFixture
) -> None:
    sink = RecordingSink()
    installing(checks=[check], sinks=[sink])

    with run("r"):
        assert loop(2) == 2

    assert any(check.name in where for where in sink.failures)
    assert len([record for record in caplog.records if record.exc_info]) == 1


def test_a_check_of_the_program_runs_beside_the_default_ones_unless_it_names_others(installing: Installing) -> None:
    guard = installing(checks=[SchemaCheck({})])
    assert [name for name in ("loop", "budget", "schema") if guard.engine.has_check(name)] == [
        "loop",
        "budget",
        "schema",
    ]
    guard.shutdown()

    guard = installing(checks=[SchemaCheck({}), "loop"])
    assert [name for name in ("loop", "budget", "schema") if guard.engine.has_check(name)] == ["loop", "schema"]


def test_a_broken_check_does_not_disturb_the_others(installing: Installing) -> None:
    installing(checks=[BrokenCheck(), "loop"])

    with pytest.raises(RunAborted), run("r"):
        loop()


def test_with_a_broken_sink_the_application_is_guarded_and_the_failure_is_counted(installing: Installing) -> None:
    class BrokenSink:
        def __getattr__(self, name: str) -> Any:
            return self._raise

        def _raise(self, *_: object) -> None:
            raise RuntimeError("broken")

    guard = installing(sinks=[BrokenSink()])

    with pytest.raises(RunAborted), run("r"):
        loop()

    counted = guard.registry.get_sample_value("agentguard_guard_errors_total", {"where": "sink BrokenSink"})
    assert counted is not None
    assert counted > 0


def test_with_a_broken_exporter_the_application_runs(installing: Installing) -> None:
    class BrokenExporter(InMemorySpanExporter):
        def export(self, spans: Any) -> Any:
            raise RuntimeError("broken")

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(BrokenExporter()))
    trace.set_tracer_provider(provider)
    installing()

    with run("r"):
        assert look("x") == "x"


def test_on_finding_can_change_what_is_done(installing: Installing) -> None:
    asked: list[tuple[str, Action]] = []

    def only_hints(finding: Finding, proposed: Action) -> Action:
        asked.append((finding.kind, proposed))
        return min(proposed, Action.HINT)

    installing(on_finding=only_hints)

    with run("r"):
        assert loop() == 20

    assert ("loop", Action.STOP) in asked


def test_an_approved_stop_is_none(installing: Installing) -> None:
    requests: list[str] = []

    def approve(request: Any) -> bool:
        requests.append(request.run_id)
        return len(requests) < 3

    installing(approve=approve, attended=True)

    with pytest.raises(RunAborted), run("r"):
        loop(100)

    assert requests == ["r"] * 3


def test_metrics_are_served_on_the_port_that_was_asked_for(installing: Installing) -> None:
    guard = installing(metrics_port=0)
    with run("r"):
        look("x")

    assert guard.metrics_url is not None
    with urllib.request.urlopen(guard.metrics_url) as page:  # noqa: S310
        assert b'agentguard_steps_total{agent="agent",kind="tool",tool="look"} 1.0' in page.read()
    guard.shutdown()
    with pytest.raises(URLError):
        urllib.request.urlopen(guard.metrics_url)  # noqa: S310


def test_a_taken_port_is_a_warning_and_not_the_end(installing: Installing, caplog: pytest.LogCaptureFixture) -> None:
    first = installing(metrics_port=0)
    port = int((first.metrics_url or "").split(":")[2].split("/")[0])
    sink = RecordingSink()
    installed_elsewhere = first.guard
    try:
        other = _second_guard(port, sink)
        assert other.metrics_url is None
        assert "metrics server" in sink.failures
        assert "is taken" in caplog.text
        other.shutdown()
    finally:
        installed.guard = installed_elsewhere


def _second_guard(port: int, sink: RecordingSink) -> AgentGuard:
    """One more guard in this process, as another process would make it."""
    module = sys.modules["otel_agentguard.install"]
    kept, module._current = module._current, None  # type: ignore[attr-defined]
    try:
        return install(metrics_port=port, sinks=[sink])
    finally:
        module._current = kept  # type: ignore[attr-defined]


def test_a_registry_of_the_program_is_used_and_given_back(installing: Installing) -> None:
    registry = CollectorRegistry()
    for _ in range(2):
        guard = installing(registry=registry)
        with run("r"):
            look("x")
        assert guard.registry is registry
        assert registry.get_sample_value("agentguard_runs_total", {"outcome": "completed"}) == 1
        guard.shutdown()

    assert list(registry.collect()) == []


def test_runs_that_are_open_are_closed_by_shutdown_only_where_they_are_implicit(installing: Installing) -> None:
    guard = installing()
    look("x")
    with run("r"):
        guard.shutdown()
        assert [one.run_id for one in guard.engine.runs()] == ["r"]
    assert guard.engine.runs() == []


def test_limits_can_be_given_as_one_row_or_many(installing: Installing) -> None:
    for limits in (Limits(2, 3, 4), {"same": Limits(2, 3, 4)}, {"same": {"hint": 2, "block": 3, "stop": 4}}):
        guard = installing(limits=limits)
        with pytest.raises(RunAborted), run():
            loop()
        assert guard.settings.loop.same == Limits(2, 3, 4)
        guard.shutdown()


def test_a_tool_registry_tells_effects_and_schemas(installing: Installing) -> None:
    registry = ToolRegistry([ToolSpec(name="look", effect=Effect.READ)])
    sink = RecordingSink()
    guard = installing(tools=registry, sinks=[sink])

    with run("r"):
        look("x")
        running = guard.engine.find("r")

    assert running is not None
    assert running.info.tools["look"].effect is Effect.READ
    assert sink.events[0].effect is Effect.READ  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"mode": "loud"}, "loud"),
        ({"checks": ["telepathy"]}, "no check 'telepathy'; known: loop"),
        ({"checks": "loop"}, "give a list"),
        ({"store": "ftp://x"}, "no store for 'ftp'; known:"),
        ({"tools": ["look"]}, "give settings by name of the tool"),
        ({"limits": {"other": Limits(3)}}, "other"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(installing: Installing, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        installing(**arguments)

    assert installed.guard is None


@pytest.mark.parametrize(
    ("argument", "given", "expected"),
    [
        ("mode", 3, "known: enforce, observe, off"),
        ("store", 3, "text"),
        ("metrics_port", "x", "whole number"),
        ("registry", 5, "CollectorRegistry"),
        ("registry", CollectorRegistry, "CollectorRegistry"),
        ("otlp", 5, "endpoint"),
        ("on_finding", 3, "function"),
        ("approve", "x", "function"),
        ("attended", "perhaps", "true or false"),
        ("store_content", 3, "true or false"),
        ("redact", "x", "function"),
        ("checks", 3, "list of names or checks"),
        ("checks", SchemaCheck({}), "list of names or checks"),
        ("checks", [object()], "name and open"),
        ("checks", [5], "name and open"),
        ("checks", [SchemaCheck], "name and open"),
        ("limits", 3, "same, failing"),
        ("tools", 3, "by name of the tool"),
        ("tools", {"look": 3}, "effect, ignore"),
        ("budget", 3, "steps, tool_calls"),
        ("embedder", 3, "a function or an Embedder"),
        ("embedder", CallableEmbedder, "a function or an Embedder"),
        ("judge", 3, "a function"),
        ("judge", JudgeDesk, "a function"),
        ("people", "bob", "list of names"),
        ("people", 5, "list of names"),
        ("people", [5], "list of names"),
        ("trust_baggage", 3, "true or false"),
        ("inject_hints", [], "true or false"),
        ("namespace", 3, "text"),
        ("sinks", 3, "list of sinks"),
        ("sinks", RecordingSink(), "list of sinks"),
        ("sinks", [object()], "run_opened, stepped"),
        ("sinks", [RecordingSink], "run_opened, stepped"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_name_and_what_is_expected(
    installing: Installing, argument: str, given: Any, expected: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        installing(**{argument: given})

    told = str(refused.value)
    assert told.startswith(argument)
    assert expected in told
    assert installed.guard is None


def test_a_secret_that_cannot_be_used_is_not_told(installing: Installing) -> None:
    with pytest.raises(ConfigError, match=r"fingerprint_key cannot be \*\*\*"):
        installing(fingerprint_key=12345)


def test_a_sink_needs_no_more_than_the_methods_of_the_protocol(installing: Installing) -> None:
    class Counting:
        steps = 0

        def stepped(self, *_: object) -> None:
            Counting.steps += 1

        def _nothing(self, *_: object) -> None: ...

        run_opened = found = run_closed = failed = executed_after_block = timed = _nothing

    guard = installing(sinks=[Counting()])
    with run("r"), unguarded():
        look("x")
    with run("r"):
        look("x")

    assert Counting.steps == 1
    assert not guard.registry.get_sample_value("agentguard_guard_errors_total", {"where": "sink Counting"})


@pytest.mark.parametrize("target", ["builtins:object", "nowhere_at_all:Sink"])
def test_a_sink_of_somebody_else_that_cannot_be_used_is_left_out(
    installing: Installing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, target: str
) -> None:
    entry = EntryPoint(name="theirs", value=target, group="otel_agentguard_sinks")
    monkeypatch.setattr(sys.modules[AgentGuard.__module__], "entry_points", lambda group: EntryPoints([entry]))
    installing()

    with pytest.raises(RunAborted), run("r"):
        loop()

    assert "the sink theirs cannot be loaded" in caplog.text
    assert len([record for record in caplog.records if record.exc_info]) == 1


def test_an_install_that_fails_leaves_nothing_behind(installing: Installing) -> None:
    registry = CollectorRegistry()

    with pytest.raises(ConfigError):
        installing(registry=registry, store="ftp://x")

    assert list(registry.collect()) == []
    assert installing(registry=registry).registry is registry


def test_the_environment_and_the_file_are_read(
    installing: Installing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "agentguard.toml").write_text('namespace = "from the file"\n[loop.same]\nstop = 9\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTGUARD_NAMESPACE", "from the environment")

    guard = installing()

    assert guard.settings.namespace == "from the environment"
    assert guard.settings.loop.same.stop == 9


def test_an_instrumentation_lets_own_seams_enforce_and_others_observe() -> None:
    with install_for_instrumentation() as guard:
        assert guard.guard is not None
        assert (guard.guard.enforce, guard.guard.enforce_auto) == (True, False)


def test_a_program_that_installs_takes_the_place_of_an_instrumentation(installing: Installing) -> None:
    automatic = install_for_instrumentation()
    guard = installing()

    assert guard is not automatic
    assert guard.guard is not None
    assert (guard.guard.enforce, guard.guard.enforce_auto) == (True, True)
    assert install_for_instrumentation() is guard


def test_functions_can_be_put_under_guard_without_a_decorator(installing: Installing) -> None:
    guard = installing()

    def read(path: str) -> str:
        return path

    one = guard.instrument(read)
    listed = guard.instrument([read, look])
    named = guard.instrument({"read": read})

    assert one("a") == "a"
    assert one.__agentguard__.name == "read"
    assert listed[1] is look
    assert named["read"]("a") == "a"


def test_a_guard_that_is_off_is_there_all_the_same(installing: Installing) -> None:
    guard = installing(mode="off")

    assert loop() == 20
    assert list(guard.registry.collect()) == []
    assert guard.release("r") is False
    guard.shutdown()
