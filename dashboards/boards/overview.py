"""The board that people watch."""

from board import Board, done_twice, line, looping_now, perhaps_done_twice, repeat_rate_now
from panels import CALM, HIGH, LOW, lines, listing, number
from queries import (
    ACTED,
    DUPLICATES,
    FOUND,
    FOUND_OF_ROW,
    LOOPS,
    STOPPED,
    STOPS,
    Query,
    grown,
    or_zero,
    per_minute,
    repeat_rate,
)

from otel_agentguard import semconv

_GLANCE = line(
    4,
    looping_now(),
    repeat_rate_now(),
    number(
        "Runs stopped",
        "Runs that the guard ended in the time shown. Each is a task that was not finished.",
        or_zero(grown(semconv.RUNS_TOTAL, STOPPED)),
        steps=((0.5, LOW),),
        traces=STOPS,
    ),
    done_twice(),
    perhaps_done_twice(),
    number(
        "Tokens wasted",
        "Tokens of model requests that repeat an earlier one or led to nothing but repeats.",
        or_zero(grown(semconv.WASTED_TOKENS_TOTAL)),
        steps=((1, LOW),),
    ),
    number(
        "Calls wasted",
        "Tool calls that ran although nothing had changed since the same call before.",
        or_zero(grown(semconv.WASTED_CALLS_TOTAL)),
        steps=((1, LOW),),
    ),
    number(
        "Calls saved",
        "Tool calls that the guard answered or refused, so that they did not run.",
        or_zero(grown(semconv.SAVED_CALLS_TOTAL)),
        calm=CALM,
    ),
)

_WHO = line(
    9,
    listing(
        "Who is looping",
        "Loops by agent, kind and what the guard did, in the time shown. A loop is counted when it reaches a step of "
        "the ladder: once for the hint, once for the block, once for the stop.",
        f"sort_desc({grown(semconv.FINDINGS_TOTAL, LOOPS, ACTED, by='agent, kind, action')} > 0)",
        columns=("agent", "kind", "action"),
        value="times",
        empty="Nobody is looping",
        traces=FOUND_OF_ROW,
    ),
    lines(
        "Loops a minute, by agent",
        "When it began, and whether it still goes on. The diamonds are exemplars: each leads to a trace.",
        Query(per_minute(semconv.FINDINGS_TOTAL, LOOPS, ACTED, by="agent"), "{{agent}}"),
        bars=True,
        exemplars=True,
        traces=FOUND,
    ),
)

_HOW_MUCH = line(
    8,
    lines(
        "Repeat rate, by agent",
        "Share of an agent's tool calls that repeat an earlier one without progress. "
        "Below the lower line it is ordinary work.",
        Query(repeat_rate(by="agent"), "{{agent}}"),
        unit="percentunit",
        steps=((0.1, LOW), (0.3, HIGH)),
        highest=1,
    ),
    lines(
        "How runs end, a minute",
        "Completed, failed, or stopped by the guard.",
        Query(per_minute(semconv.RUNS_TOTAL, by="outcome"), "{{outcome}}"),
        bars=True,
        traces=STOPS,
    ),
)

_COST = line(
    7,
    lines(
        "Calls a minute, wasted and saved",
        "Wasted: they ran for nothing. Saved: the guard answered or refused them.",
        Query(per_minute(semconv.WASTED_CALLS_TOTAL), "wasted"),
        Query(per_minute(semconv.SAVED_CALLS_TOTAL), "saved"),
    ),
    lines(
        "Tokens wasted a minute",
        "What repetition costs at the model.",
        Query(per_minute(semconv.WASTED_TOKENS_TOTAL), "wasted"),
    ),
    lines(
        "Tool time saved, seconds a minute",
        "How long the calls would have run that the guard answered or refused.",
        Query(per_minute(semconv.SAVED_SECONDS_TOTAL), "saved"),
        unit="s",
    ),
    lines(
        "Side effects asked for again, a minute",
        "Prevented is the guard at work. Possible needs a look, confirmed is an incident.",
        Query(
            or_zero(per_minute(semconv.DUPLICATE_SIDE_EFFECTS_TOTAL, by="certainty"), by="certainty", like="prevented"),
            "{{certainty}}",
        ),
        bars=True,
        exemplars=True,
        traces=DUPLICATES,
    ),
)

OVERVIEW = Board(
    name="overview",
    title="AgentGuard / Overview",
    description="Is something looping, who is it, what does it cost, and did anything happen twice?",
    rows={
        "At a glance": (_GLANCE,),
        "Who": (_WHO, _HOW_MUCH),
        "What it costs, and what the guard saves": (_COST,),
    },
)
