"""PromQL of the boards.

`SELECT` is in every selector, so that the variables `job` and `instance` narrow every panel.
"""

from __future__ import annotations

from dataclasses import dataclass

from otel_agentguard import semconv

SELECT = 'job=~"$job", instance=~"$instance"'

LOOPS = 'kind=~"loop|cycle|pingpong|near|semantic"'
ACTED = 'action!="allow"'
STOPPED = 'outcome="stopped_by_guard"'
AGENT, TOOL = 'agent=~"$agent"', 'tool=~"$tool"'
_TOOL_STEP, _OF_A_TOOL = 'kind="tool"', 'tool!=""'

# TraceQL of the traces behind a panel.
STOPS = '{ span.agentguard.action = "stop" }'
REFUSED = '{ span.agentguard.action =~ "block|stop" }'
FOUND = "{ span.agentguard.finding.kind != nil }"
FOUND_OF_ROW = '{ span.agentguard.finding.kind != nil && span.gen_ai.agent.name = "${__data.fields.agent}" }'
DUPLICATES = '{ span.agentguard.finding.kind = "duplicate_side_effect" }'


@dataclass(frozen=True, slots=True)
class Query:
    """One expression and the name of its series.

    Attributes:
        expr: PromQL.
        legend: Name of a series; `{{label}}` stands for the value of a label.
    """

    expr: str
    legend: str = "__auto"


def series(metric: str, *matchers: str) -> str:
    """A selector that follows the variables of the board."""
    return f"{metric}{{{', '.join((SELECT, *matchers))}}}"


def per_minute(metric: str, *matchers: str, by: str = "") -> str:
    """How often something happens a minute."""
    over = f" by ({by})" if by else ""
    return f"60 * sum{over} (rate({series(metric, *matchers)}[$__rate_interval]))"


def grown(metric: str, *matchers: str, by: str = "", window: str = "$__range") -> str:
    """How often something happened in the time that is shown, or in a window; a whole number."""
    over = f" by ({by})" if by else ""
    return f"round(sum{over} (increase({series(metric, *matchers)}[{window}])))"


def grown_and_born(metric: str, *matchers: str, by: str = "") -> str:
    """As `grown`, with the first count of a series that began within that time, which `increase` cannot see."""
    over = f" by ({by})" if by else ""
    selector = series(metric, *matchers)
    born = f"sum{over} (min_over_time({selector}[$__range]) unless {selector} offset $__range)"
    counted = grown(metric, *matchers, by=by)
    if not by:
        return f"({or_zero(counted)}) + ({or_zero(born)})"
    return f"({counted} + {born}) or {counted}"


def share(part: str, whole: str) -> str:
    """A ratio that is missing, not infinite, while nothing happens."""
    return f"({part}) / (({whole}) > 0)"


def or_zero(expr: str, *, by: str = "", like: str = "") -> str:
    """Show 0 where there is no series yet.

    Args:
        expr: PromQL.
        by: The label of its series.
        like: The value of that label on the series that is 0.
    """
    zero = f'label_replace(vector(0), "{by}", "{like}", "", "")' if by else "vector(0)"
    return f"({expr}) or {zero}"


def repeat_rate(*matchers: str, by: str = "") -> str:
    """Tool calls that repeat an earlier one without progress, as a share of all."""
    over = f" by ({by})" if by else ""
    repeats = series(semconv.REPEATS_TOTAL, _OF_A_TOOL, *matchers)
    steps = series(semconv.STEPS_TOTAL, _TOOL_STEP, *matchers)
    return share(f"sum{over} (rate({repeats}[$__rate_interval]))", f"sum{over} (rate({steps}[$__rate_interval]))")


def tool_repeats(*matchers: str, by: str) -> str:
    """Repeated tool calls in the time that is shown, by labels."""
    return grown(semconv.REPEATS_TOTAL, _OF_A_TOOL, *matchers, by=by)


def quantiles(metric: str) -> tuple[Query, ...]:
    """The middle and the long end of a histogram."""
    buckets = f"sum by (le) (rate({series(f'{metric}_bucket')}[$__rate_interval]))"
    return tuple(Query(f"histogram_quantile({q}, {buckets})", f"p{q * 100:g}") for q in (0.5, 0.9, 0.99))
