"""What the guard costs, as ratios within one run: machines differ, and this one is never quiet.

    python benchmarks/overhead.py [--quick]

Variants are interleaved; a ratio is the median over rounds of what it was in each.
"""

from __future__ import annotations

import argparse
import gc
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count

from opentelemetry import trace
from opentelemetry.context import detach
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from otel_agentguard import Effect, install, run, tool
from otel_agentguard.checks.loop import LoopCheck
from otel_agentguard.checks.loop.near import NEAR_ROWS
from otel_agentguard.config import LoopSettings, Settings
from otel_agentguard.current import Scope, attach
from otel_agentguard.engine import Engine
from otel_agentguard.events import Outcome, ToolCall
from otel_agentguard.findings import Limits
from otel_agentguard.fingerprint import call_digest, result_digest

ATTRIBUTES = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "read_file",
    "gen_ai.agent.name": "coder",
    "agentguard.effect": "read",
    "agentguard.fingerprint": "0" * 32,
    "agentguard.run.id": "overhead",
    "agentguard.step": 1,
}
PATH = "services/accounts/src/session/store/keys/rotation/of_devices/handlers/sign_in_from_another_device.py"
NUMBER = count()
RESULTS = 1009


def results() -> list[str]:
    """Texts of 1 KB that have nothing in common, as the pages of a real file."""
    letters = random.Random(7)
    words = ["".join(letters.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(20_000)]
    return [" ".join(letters.choices(words, k=128)) for _ in range(RESULTS)]


PAGES = results()
DIGESTS_ONLY = {row: Limits(None) for row in (*NEAR_ROWS, "semantic")}


class NoExporter(SpanExporter):
    def export(self, spans: Sequence[object]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def body(path: str, page: int, limit: int = 20) -> str:
    return PAGES[page % RESULTS]


guarded = tool(effect=Effect.READ)(body)


def call_bare() -> None:
    body(PATH, next(NUMBER))


def call_guarded() -> None:
    guarded(PATH, next(NUMBER))


def spans_of(provider: TracerProvider) -> Callable[[], None]:
    tracer = provider.get_tracer("bare")

    def call_in_span() -> None:
        with tracer.start_as_current_span("execute_tool read_file", attributes=ATTRIBUTES):
            body(PATH, next(NUMBER))

    return call_in_span


def timed(function: Callable[[], None], times: int) -> float:
    """Microseconds a call."""
    gc.collect()
    began = time.perf_counter_ns()
    for _ in range(times):
        function()
    return (time.perf_counter_ns() - began) / times / 1000


def medians(variants: dict[str, Callable[[], None]], *, rounds: int, times: int) -> dict[str, float]:
    took: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, variant in variants.items():
            took[name].append(timed(variant, times))
    return {name: statistics.median(values) for name, values in took.items()}


def measure_off(rounds: int) -> None:
    took = medians({"bare": call_bare, "declared": call_guarded}, rounds=rounds, times=20_000)
    print(f"off, or before install     {took['declared'] - took['bare']:8.2f} us over the bare function (target < 1)")


def measure_call(rounds: int) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(NoExporter()))
    trace.set_tracer_provider(provider)
    plain = TracerProvider()
    plain.add_span_processor(SimpleSpanProcessor(NoExporter()))
    in_span = spans_of(plain)
    for name, given in (
        ("no check", {"checks": ()}),
        ("loop check, equal digests only", {"checks": ("loop",), "limits": DIGESTS_ONLY}),
        ("loop check", {"checks": ("loop",)}),
        ("all default checks", {}),
    ):
        with install(**given), run("overhead", agent="coder"):  # type: ignore[arg-type]
            spans, calls = [], []
            for _ in range(rounds):
                before = timed(in_span, 100)
                calls.append(timed(call_guarded, 200))
                spans.append((before + timed(in_span, 100)) / 2)
        ratio = statistics.median(call / span for call, span in zip(calls, spans, strict=True))
        span, call = statistics.median(spans), statistics.median(calls)
        print(f"guarded, {name:31} {call:8.2f} us, a bare span {span:.2f}: {ratio:.2f}")
    print("                                    (target of the ratio with equal digests <= 1.6, hoped for 1.4)")


def steps_alone(engine: Engine, numbers: Sequence[int]) -> list[int]:
    """Nanoseconds of each step in the engine, digests included."""
    opened = engine.open()
    took = []
    for number in numbers:
        began = time.perf_counter_ns()
        step_alone(engine, opened, number)
        took.append(time.perf_counter_ns() - began)
    engine.close(opened)
    return took


def step_alone(engine: Engine, opened: object, number: int) -> None:
    arguments = {"path": PATH, "page": number, "limit": 20}
    call = ToolCall(
        tool="read_file",
        arguments=arguments,
        fingerprint=call_digest("read_file", arguments),
        effect=Effect.READ,
        at_s=engine.now_s(),
    )
    engine.before(opened, call)  # type: ignore[arg-type]
    call.outcome = Outcome.OK
    call.result = PAGES[number % RESULTS]
    call.result_digest = result_digest(False, call.result)
    engine.after(opened, call)  # type: ignore[arg-type]


def measure_engine(rounds: int, deep: int) -> None:
    engine = Engine(checks=[LoopCheck()])
    digests_only = Engine(checks=[LoopCheck()], settings=Settings(loop=LoopSettings(**DIGESTS_ONLY)))
    for name, one in (("equal digests only", digests_only), ("loop check", engine)):
        took: list[int] = []
        for start in range(rounds):
            took += steps_alone(one, range(start * 2000, start * 2000 + 2000))
        cuts = statistics.quantiles(took, n=100)
        print(f"engine alone, {name:18}   p50 {cuts[49] / 1000:.1f} us, p99 {cuts[98] / 1000:.1f} us")
    print("                                    (target with equal digests 10 and 50, at a bare span of 20)")
    early, late = [], []
    shallow_run, deep_run = engine.open(), engine.open()
    for number in range(deep):
        step_alone(engine, deep_run, number)
    for number in range(100):
        step_alone(engine, shallow_run, number)
    for block in range(40):
        for opened, into in ((deep_run, late), (shallow_run, early)):
            if opened is shallow_run:
                opened = engine.open()
                for number in range(100):
                    step_alone(engine, opened, number)
            began = time.perf_counter_ns()
            for number in range(deep + block * 50, deep + block * 50 + 50):
                step_alone(engine, opened, number)
            into.append((time.perf_counter_ns() - began) / 50)
    ratio = statistics.median(late) / statistics.median(early)
    print(f"step {deep:,} / step 100  {ratio:8.2f}    (target within 0.8 and 1.2)")


def measure_memory(runs: int, steps: int) -> None:
    """Memory of runs that are alive, with all that an installed guard keeps of them."""
    with install() as guard:
        gc.collect()
        before = _resident_bytes()
        opened = [guard.engine.open(f"run-{number}") for number in range(runs)]
        for one in opened:
            token = attach(Scope(run=one, run_id=one.run_id))
            for number in range(steps):
                guarded(PATH, number)
            detach(token)
        grown = _resident_bytes() - before
    print(f"{runs:,} live runs           {grown / 1e6:8.0f} MB after {steps} steps each (target < 1000)")


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few seconds, rougher figures")
    quick = parser.parse_args().quick
    print(f"Python {sys.version.split()[0]}")
    measure_off(5 if quick else 21)
    measure_call(21 if quick else 101)
    measure_engine(3 if quick else 10, 50_000 if quick else 1_000_000)
    measure_memory(1_000 if quick else 10_000, 100)


if __name__ == "__main__":
    main()
