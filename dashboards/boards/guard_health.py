"""The board on the guard itself."""

from board import Board, line
from panels import CALM, HIGH, LOW, lines, number
from queries import REFUSED, Query, grown, grown_and_born, or_zero, per_minute, series, share

from otel_agentguard import semconv


def _durations(part: str, by: str) -> str:
    return f"sum by ({by}) (rate({series(f'{semconv.CHECK_DURATION_SECONDS}_{part}')}[$__rate_interval]))"


# A check that took no sample has no quantile: NaN is no answer to "what does it cost".
_P99 = f"histogram_quantile(0.99, {_durations('bucket', 'check, le')}) >= 0"

_NUMBERS = line(
    4,
    number(
        "Ran after a block",
        "Bodies that started although the guard had refused them or had stopped the run. "
        "Must be 0: anything else is a fault of the guard.",
        grown_and_born(semconv.EXECUTED_AFTER_BLOCK_TOTAL),
        steps=((0.5, HIGH),),
        traces=REFUSED,
    ),
    number(
        "Errors of the guard",
        "Times that a part of the guard failed and the application went on without it.",
        grown_and_born(semconv.GUARD_ERRORS_TOTAL),
        steps=((0.5, LOW),),
    ),
    number(
        "Slowest check, p99",
        "What the slowest check adds to one step in a hundred. Ordinary is below a millisecond.",
        or_zero(f"max({_P99})"),
        unit="s",
        steps=((0.001, LOW), (0.01, HIGH)),
    ),
    number("Active runs", "Runs that are alive now.", or_zero(f"sum({series(semconv.ACTIVE_RUNS)})"), calm=CALM),
    number(
        "Labels over the cap",
        "Counts that went to __other__, since there are too many agents, tools or pairs of them. "
        "They are counted, but no longer by name.",
        or_zero(grown(semconv.LABEL_OVERFLOW_TOTAL)),
        steps=((0.5, LOW),),
    ),
    number(
        "State dropped early",
        "Results and observed texts that a cap dropped: refusals come without the earlier result, "
        "and memories are judged by less.",
        or_zero(grown(semconv.STATE_DROPPED_TOTAL)),
        steps=((0.5, LOW),),
    ),
)

_COST = line(
    8,
    lines(
        "Check latency, p99",
        "Time that each check takes for one step; a sample of the steps.",
        Query(_P99, "{{check}}"),
        unit="s",
        steps=((0.001, HIGH),),
    ),
    lines(
        "Check latency, average",
        "Time that each check takes for one step, on average.",
        Query(share(_durations("sum", "check"), _durations("count", "check")), "{{check}}"),
        unit="s",
    ),
)

_LOAD = line(
    7,
    lines(
        "Active runs, by instance",
        "Runs that are alive, by instance. A curve that only grows: runs are opened and never closed.",
        Query(f"sum by (instance) ({series(semconv.ACTIVE_RUNS)})", "{{instance}}"),
    ),
    lines(
        "State of runs",
        "Memory that results which are kept (values) and observed texts take, of live runs.",
        Query(f"sum by (part) ({series(semconv.STATE_BYTES)})", "{{part}}"),
        unit="bytes",
    ),
    lines(
        "Steps a minute, by kind",
        "What the guard sees. Nothing here while agents work: see the runbook, GuardSilent.",
        Query(per_minute(semconv.STEPS_TOTAL, by="kind"), "{{kind}}"),
        bars=True,
    ),
)

_MISSED = line(
    7,
    lines(
        "Errors of the guard a minute",
        "Where it failed. The application went on without that part.",
        Query(
            or_zero(f"{per_minute(semconv.GUARD_ERRORS_TOTAL, by='where')} > 0", by="where", like="none"), "{{where}}"
        ),
        bars=True,
    ),
    lines(
        "Ran after a block, a minute",
        "Must stay empty.",
        Query(
            or_zero(per_minute(semconv.EXECUTED_AFTER_BLOCK_TOTAL, by="agent, tool"), by="tool", like="none"),
            "{{agent}} {{tool}}",
        ),
    ),
    lines(
        "Passed the guard, calls a minute",
        "Calls that the program let past the guard, with unguarded() or guard=False.",
        Query(or_zero(per_minute(semconv.UNGUARDED_CALLS_TOTAL, by="tool"), by="tool", like="none"), "{{tool}}"),
    ),
    lines(
        "Caps that bite, a minute",
        "Labels that went to __other__, by metric, and state that was dropped, by part.",
        Query(
            or_zero(f"{per_minute(semconv.LABEL_OVERFLOW_TOTAL, by='metric')} > 0", by="metric", like="labels"),
            "{{metric}}",
        ),
        Query(
            or_zero(f"{per_minute(semconv.STATE_DROPPED_TOTAL, by='part')} > 0", by="part", like="dropped"),
            "state: {{part}}",
        ),
    ),
)

GUARD_BOARD = Board(
    name="guard_health",
    title="AgentGuard / Guard health",
    description="Does the guard itself work, and what does it cost?",
    rows={
        "Is it well?": (_NUMBERS,),
        "What it costs": (_COST, _LOAD),
        "What it misses": (_MISSED,),
    },
)
