"""Panels in the manner of these boards: a title, a description that says how to read it, one unit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.parse import quote

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from queries import Query

PROMETHEUS = common_models.DataSourceRef(type_val="prometheus", uid="${prometheus_datasource}")

OK, LOW, HIGH, CALM = "green", "orange", "red", "blue"
COLORS = {
    "completed": "green",
    "stopped_by_guard": "red",
    "prevented": "green",
    "possible": "orange",
    "confirmed": "red",
    "executed": "green",
    "replayed": "blue",
    "waited": "light-blue",
    "blocked": "orange",
    "mismatch": "dark-orange",
    "failed": "yellow",
    "not_applied": "purple",
    "unknown": "red",
    "late": "dark-red",
    "wasted": "orange",
    "saved": "green",
    "hint": "blue",
    "reuse": "green",
    "block": "orange",
    "stop": "red",
}
"""Series whose name has a meaning have the color of that meaning on every board."""

Panel = stat.Panel | timeseries.Panel | bargauge.Panel | table.Panel


def number(
    title: str,
    description: str,
    expr: str,
    *,
    unit: str = "short",
    steps: Sequence[tuple[float, str]] = (),
    calm: str = OK,
    traces: str = "",
) -> Panel:
    """One number, as large as its panel.

    Args:
        title: What it is.
        description: How to read it, and what to do about it.
        expr: PromQL of one series.
        unit: Grafana's unit.
        steps: From which values on it has which color.
        calm: Its color below.
        traces: TraceQL of the traces behind it.
    """
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(PROMETHEUS)
        .unit(unit)
        .thresholds(_thresholds(steps, calm))
        .color_mode(common_models.BigValueColorMode.BACKGROUND)
        .graph_mode(common_models.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(_instant(Query(expr)))
    )
    return panel.data_links([_to_traces(traces)]) if traces else panel


def lines(
    title: str,
    description: str,
    *queries: Query,
    unit: str = "short",
    steps: Sequence[tuple[float, str]] = (),
    bars: bool = False,
    exemplars: bool = False,
    traces: str = "",
    highest: float | None = None,
) -> Panel:
    """Curves over time, or stacked bars.

    Args:
        title: What they are.
        description: How to read them, and what to do about it.
        queries: What is drawn.
        unit: Grafana's unit.
        steps: Values at which a dashed line is drawn, and its color.
        bars: Draw bars on one another.
        exemplars: Show exemplars, which lead to their traces.
        traces: TraceQL of the traces behind them.
        highest: Upper end of the axis.
    """
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(PROMETHEUS)
        .unit(unit)
        .min(0)
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(common_models.LegendDisplayMode.LIST)
            .placement(common_models.LegendPlacement.BOTTOM)
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_models.TooltipDisplayMode.MULTI)
            .sort(common_models.SortOrder.DESCENDING)
        )
        .show_points(common_models.VisibilityMode.NEVER)
        .color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    )
    panel = panel.axis_soft_max(1) if unit == "short" else panel
    panel = panel.max(highest) if highest is not None else panel
    if bars:
        panel = (
            panel.draw_style(common_models.GraphDrawStyle.BARS)
            .fill_opacity(70)
            .line_width(0)
            .stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A"))
        )
    else:
        panel = panel.draw_style(common_models.GraphDrawStyle.LINE).fill_opacity(10).line_width(2)
    if steps:
        panel = panel.thresholds(_thresholds(steps, OK)).thresholds_style(
            common.GraphThresholdsStyleConfig().mode(common_models.GraphThresholdsStyleMode.DASHED)
        )
    for name, color in COLORS.items():
        if any(name == query.legend or "{{" in query.legend for query in queries):
            panel = panel.override_by_name(name, [_fixed(color)])
    for place, query in enumerate(queries):
        panel = panel.with_target(_ranged(query, place).exemplar(exemplars))
    return panel.data_links([_to_traces(traces)]) if traces else panel


def ranking(title: str, description: str, query: Query, *, unit: str = "short", calm: str = CALM) -> Panel:
    """The largest of something, as bars with their names."""
    return (
        bargauge.Panel()
        .title(title)
        .description(description)
        .datasource(PROMETHEUS)
        .unit(unit)
        .decimals(0)
        .min(0)
        .thresholds(_thresholds((), calm))
        .display_mode(common_models.BarGaugeDisplayMode.GRADIENT)
        .orientation(common_models.VizOrientation.HORIZONTAL)
        .max_viz_height(40)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(_instant(query))
    )


def listing(
    title: str, description: str, expr: str, *, columns: Sequence[str], value: str, empty: str, traces: str = ""
) -> Panel:
    """A table of labels and one number, largest first.

    Args:
        title: What it lists.
        description: How to read it.
        expr: PromQL, aggregated to the labels that are columns.
        columns: Those labels from left to right.
        value: Head of the column of numbers.
        empty: Shown where there is nothing to list.
        traces: TraceQL of the traces behind a row; `${__data.fields.agent}` stands for its agent.
    """
    organized = {
        "excludeByName": {"Time": True},
        "indexByName": {name: place for place, name in enumerate((*columns, "Value"))},
        "renameByName": {"Value": value},
    }
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(PROMETHEUS)
        .unit("short")
        .decimals(0)
        .no_value(empty)
        .with_transformation(models.DataTransformerConfig(id_val="organize", options=organized))
        .sort_by([common.TableSortByFieldState().display_name(value).desc(True)])
        .with_target(_instant(Query(expr)).format(PromQueryFormat.TABLE))
    )
    return panel.data_links([_to_traces(traces)]) if traces else panel


def _instant(query: Query) -> prometheus.Dataquery:
    return (
        prometheus.Dataquery().ref_id("A").expr(query.expr).legend_format(query.legend).datasource(PROMETHEUS).instant()
    )


def _ranged(query: Query, place: int) -> prometheus.Dataquery:
    return (
        prometheus.Dataquery()
        .ref_id("ABCDEF"[place])
        .expr(query.expr)
        .legend_format(query.legend)
        .datasource(PROMETHEUS)
        .range()
    )


def _thresholds(steps: Sequence[tuple[float, str]], calm: str) -> dashboard.ThresholdsConfig:
    every = [
        models.Threshold(value=None, color=calm),
        *(models.Threshold(value=at, color=color) for at, color in steps),
    ]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(every)


def _fixed(color: str) -> models.DynamicConfigValue:
    return models.DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": color})


def _to_traces(traceql: str) -> dashboard.DashboardLink:
    """A link to Explore with a TraceQL query, over the time that is shown."""
    query = {
        "refId": "A",
        "datasource": {"type": "tempo", "uid": "${tempo_datasource}"},
        "queryType": "traceql",
        "query": traceql,
        "tableType": "traces",
        "limit": 20,
    }
    pane = {
        "datasource": "${tempo_datasource}",
        "queries": [query],
        "range": {"from": "${__from}", "to": "${__to}"},
    }
    # Grafana fills in variables before it reads the URL: their braces must stay as they are.
    panes = quote(json.dumps({"agentguard": pane}, separators=(",", ":")), safe="${}_.")
    return dashboard.DashboardLink("Traces").url(f"/explore?schemaVersion=1&panes={panes}").target_blank(True)
