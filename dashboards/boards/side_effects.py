"""The board for the question whether anything happened twice."""

from board import Board, done_twice, duplicates_prevented, line, perhaps_done_twice
from panels import CALM, LOW, lines, listing, number
from queries import DUPLICATES, TOOL, Query, grown_and_born, or_zero, per_minute, series

from otel_agentguard import semconv

_REPLAYED = 'outcome=~"replayed|waited"'
_REFUSED = 'outcome=~"failed|not_applied|blocked|mismatch"'
# All instances on one store read the same count.
_UNSETTLED = f"max by (tool) ({series(semconv.SIDE_EFFECTS_UNSETTLED, TOOL)})"

_NUMBERS = line(
    4,
    done_twice(),
    perhaps_done_twice(),
    number(
        "Outcome unknown",
        "Effects that began and of which nobody knows whether they happened, now. See the runbook, SideEffectUnknown.",
        or_zero(f"sum({_UNSETTLED})"),
        steps=((0.5, LOW),),
    ),
    duplicates_prevented(),
    number(
        "Carried out",
        "Side effects whose body ran and came to an end.",
        grown_and_born(semconv.SIDE_EFFECTS_TOTAL, 'outcome="executed"', TOOL),
        calm=CALM,
    ),
    number(
        "Replayed",
        "Calls that got the recorded result of an effect that was done before, or waited for one under way.",
        grown_and_born(semconv.SIDE_EFFECTS_TOTAL, _REPLAYED, TOOL),
        calm=CALM,
    ),
)

_TWICE = line(
    9,
    listing(
        "Which tool",
        "Duplicates by tool and certainty, in the time shown.",
        f"sort_desc(({grown_and_born(semconv.DUPLICATE_SIDE_EFFECTS_TOTAL, TOOL, by='tool, certainty')}) > 0)",
        columns=("tool", "certainty"),
        value="effects",
        empty="Nothing was asked for twice",
        traces=DUPLICATES,
    ),
    lines(
        "Duplicates a minute, by certainty",
        "Prevented is the guard at work. Possible needs a look, confirmed is an incident.",
        Query(
            or_zero(
                per_minute(semconv.DUPLICATE_SIDE_EFFECTS_TOTAL, TOOL, by="certainty"), by="certainty", like="prevented"
            ),
            "{{certainty}}",
        ),
        bars=True,
        exemplars=True,
        traces=DUPLICATES,
    ),
)

_OUTCOMES = line(
    8,
    listing(
        "Tools and outcomes",
        "Side effects by tool and outcome, in the time shown.",
        f"sort_desc(({grown_and_born(semconv.SIDE_EFFECTS_TOTAL, TOOL, by='tool, outcome')}) > 0)",
        columns=("tool", "outcome"),
        value="calls",
        empty="No side effects",
    ),
    lines(
        "Side effects a minute, by outcome",
        "Executed and replayed are ordinary. Mismatch: the same effect with other arguments. "
        "Late: a result that arrived after the effect had been given up.",
        Query(
            or_zero(per_minute(semconv.SIDE_EFFECTS_TOTAL, TOOL, by="outcome"), by="outcome", like="executed"),
            "{{outcome}}",
        ),
        bars=True,
        exemplars=True,
    ),
)

_DETAILS = line(
    7,
    lines(
        "Outcome unknown, by tool",
        "Each of these waits for a person, or for a verify function.",
        Query(or_zero(_UNSETTLED, by="tool", like="none"), "{{tool}}"),
    ),
    lines(
        "Answered without running, a minute",
        "Replayed from the ledger, or waited for a call that was on its way.",
        Query(
            or_zero(per_minute(semconv.SIDE_EFFECTS_TOTAL, _REPLAYED, TOOL, by="tool"), by="tool", like="none"),
            "{{tool}}",
        ),
    ),
    lines(
        "Failed or refused, a minute",
        "Failed: the body raised. Not applied: it said that nothing happened. Blocked, mismatch: the guard refused.",
        Query(
            or_zero(per_minute(semconv.SIDE_EFFECTS_TOTAL, _REFUSED, TOOL, by="outcome"), by="outcome", like="failed"),
            "{{outcome}}",
        ),
    ),
)

SIDE_EFFECT_BOARD = Board(
    name="side_effects",
    title="AgentGuard / Side effects",
    description="Did anything happen twice, and is anything waiting to be settled?",
    rows={
        "Did anything happen twice?": (_NUMBERS, _TWICE),
        "What became of side effects": (_OUTCOMES, _DETAILS),
    },
    variables={"tool": semconv.SIDE_EFFECTS_TOTAL},
)
