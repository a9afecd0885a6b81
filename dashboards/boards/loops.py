"""The board for the one who looks into a loop."""

from board import Board, line, looping_now, repeat_rate_now
from panels import CALM, HIGH, LOW, lines, listing, number, ranking
from queries import (
    ACTED,
    AGENT,
    FOUND,
    FOUND_OF_ROW,
    LOOPS,
    STOPS,
    TOOL,
    Query,
    grown,
    or_zero,
    per_minute,
    quantiles,
    repeat_rate,
    tool_repeats,
)

from otel_agentguard import semconv

_NUMBERS = line(
    4,
    looping_now(),
    repeat_rate_now(AGENT, TOOL),
    number(
        "Notes to the model",
        "Times that the model was told that it repeats itself.",
        or_zero(grown(semconv.FINDINGS_TOTAL, LOOPS, 'action="hint"', AGENT)),
        calm=CALM,
    ),
    number(
        "Refusals",
        "Times that a loop reached the step at which the guard refuses the call.",
        or_zero(grown(semconv.FINDINGS_TOTAL, LOOPS, 'action="block"', AGENT)),
        steps=((0.5, LOW),),
    ),
    number(
        "Stops",
        "Times that a loop went on through everything, so that the guard ended the run.",
        or_zero(grown(semconv.FINDINGS_TOTAL, LOOPS, 'action="stop"', AGENT)),
        steps=((0.5, HIGH),),
        traces=STOPS,
    ),
    number(
        "Observed only",
        "Findings of guards that only observe, and so did nothing about them.",
        or_zero(grown(semconv.FINDINGS_TOTAL, LOOPS, ACTED, 'mode="observe"', AGENT)),
        calm=CALM,
    ),
)

_WHICH = line(
    9,
    listing(
        "Who repeats what, and how",
        "Repeats by agent, tool and likeness, in the time shown. A message has no tool.",
        f"sort_desc({grown(semconv.REPEATS_TOTAL, AGENT, TOOL, by='agent, tool, similarity')} > 0)",
        columns=("agent", "tool", "similarity"),
        value="repeats",
        empty="Nobody repeats anything",
        traces=FOUND_OF_ROW,
    ),
    ranking(
        "Tools repeated most",
        "Calls that repeat an earlier one without progress, by tool, in the time shown.",
        Query(f"topk(10, {tool_repeats(AGENT, TOOL, by='tool')})", "{{tool}}"),
    ),
    lines(
        "Repeat rate, by tool",
        "Share of the calls of a tool that repeat an earlier one without progress.",
        Query(repeat_rate(AGENT, TOOL, by="tool"), "{{tool}}"),
        unit="percentunit",
        steps=((0.1, LOW), (0.3, HIGH)),
        highest=1,
    ),
)

_HOW = line(
    8,
    lines(
        "Loops a minute, by kind",
        "One call again and again, a cycle of several, two agents in turn. Near and semantic: the same in other words.",
        Query(per_minute(semconv.FINDINGS_TOTAL, LOOPS, AGENT, by="kind"), "{{kind}}"),
        bars=True,
        exemplars=True,
        traces=FOUND,
    ),
    lines(
        "What the guard did, a minute",
        "A note, a refusal, the end of the run. Many notes and few stops: the models listen.",
        Query(per_minute(semconv.FINDINGS_TOTAL, LOOPS, ACTED, AGENT, by="action"), "{{action}}"),
        bars=True,
        traces=FOUND,
    ),
    lines(
        "Repeats a minute, by likeness",
        "Exactly equal, equal but for ids and times, nearly equal wording, equal meaning.",
        Query(per_minute(semconv.REPEATS_TOTAL, AGENT, TOOL, by="similarity"), "{{similarity}}"),
        bars=True,
    ),
)

_LENGTH = line(
    7,
    lines(
        "Tool calls a run",
        "One observation a run, when it ends. A long end that grows is a loop that no limit catches.",
        *quantiles(semconv.INVOKE_AGENT_TOOL_CALLS),
    ),
    lines(
        "Model calls a run", "One observation a run, when it ends.", *quantiles(semconv.INVOKE_AGENT_INFERENCE_CALLS)
    ),
    lines("Steps a run", "Everything that happens in a run, when it ends.", *quantiles(semconv.RUN_STEPS)),
)

_OTHER = line(
    7,
    lines(
        "Cache, calls a minute",
        "Hit and coalesced were answered without running. Invalidated: something had changed in between.",
        Query(or_zero(per_minute(semconv.DEDUP_TOTAL, TOOL, by="outcome"), by="outcome", like="hit"), "{{outcome}}"),
        bars=True,
    ),
    listing(
        "What is wrong with plans",
        "Errors that the check of plans found before anything was carried out, in the time shown.",
        f"sort_desc({grown(semconv.PLAN_ERRORS_TOTAL, by='code')})",
        columns=("code",),
        value="errors",
        empty="No plans yet",
    ),
    lines(
        "Drift from the plan",
        "How far runs stray from their plan, when they end: 0 is as planned, 1 is something else altogether.",
        *quantiles(semconv.PLAN_DRIFT_RATIO),
        unit="percentunit",
        highest=1,
    ),
    lines(
        "Memories a minute, by verdict",
        "What agents write to long-term memory. Unsupported and contradicted are guesses kept out.",
        Query(per_minute(semconv.MEMORY_WRITES_TOTAL, by="verdict"), "{{verdict}}"),
        bars=True,
    ),
)

LOOP_BOARD = Board(
    name="loops",
    title="AgentGuard / Loops",
    description="Which agent repeats which tool, how, and what did the guard do about it?",
    rows={
        "Loops": (_NUMBERS, _WHICH, _HOW),
        "How long runs are": (_LENGTH,),
        "Answers from the cache, plans and memory": (_OTHER,),
    },
    variables={"agent": semconv.STEPS_TOTAL, "tool": semconv.STEPS_TOTAL},
)
