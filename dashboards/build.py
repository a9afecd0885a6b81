"""Makes the Grafana boards: `python dashboards/build.py` writes them, with `--check` it says what is out of date.

Needs `pip install 'otel-agentguard[dashboards]'`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from board import Board
from boards.guard_health import GUARD_BOARD
from boards.loops import LOOP_BOARD
from boards.overview import OVERVIEW
from boards.side_effects import SIDE_EFFECT_BOARD
from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from panels import PROMETHEUS
from queries import SELECT, STOPPED, series

from otel_agentguard import semconv

FOLDER = Path(__file__).parent
TAG = "agentguard"
COLUMNS = 24

BOARDS = (OVERVIEW, LOOP_BOARD, SIDE_EFFECT_BOARD, GUARD_BOARD)


def drawn(board: Board) -> models.Dashboard:
    """The board as Grafana reads it."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(f"agentguard-{board.name.replace('_', '-')}")
        .description(board.description)
        .tags([TAG])
        .readonly()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .with_variable(_datasource("prometheus", "Prometheus data source"))
        .with_variable(_datasource("tempo", "Tempo data source"))
        .with_variable(_values("job", f"label_values({semconv.ACTIVE_RUNS}, job)", ".+"))
        .with_variable(_values("instance", f'label_values({semconv.ACTIVE_RUNS}{{job=~"$job"}}, instance)', ".+"))
        .annotation(_stopped_runs())
        .link(
            dashboard.DashboardLink("AgentGuard")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .include_vars(True)
            .keep_time(True)
        )
    )
    for label, metric in board.variables.items():
        # Messages and other steps without a tool have an empty label, which `.+` would hide.
        made = made.with_variable(_values(label, f"label_values({metric}{{{SELECT}}}, {label})", ".*"))
    top = ids = 0
    for title, below in board.rows.items():
        ids += 1
        made = made.with_row(dashboard.Row(title).id(ids).grid_pos(models.GridPos(h=1, w=COLUMNS, x=0, y=top)))
        top += 1
        for one in below:
            width = COLUMNS // len(one.panels)
            for place, panel in enumerate(one.panels):
                ids += 1
                spot = models.GridPos(h=one.height, w=width, x=place * width, y=top)
                made = made.with_panel(panel.id(ids).grid_pos(spot))
            top += one.height
    return made.build()


def text(board: Board) -> str:
    """The file of a board."""
    return json.dumps(json.loads(JSONEncoder(sort_keys=True).encode(drawn(board))), indent=1, sort_keys=True) + "\n"


def _datasource(kind: str, label: str) -> dashboard.DatasourceVariable:
    return dashboard.DatasourceVariable(f"{kind}_datasource").label(label).type(kind)


def _values(name: str, query: str, every: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(name.title())
        .datasource(PROMETHEUS)
        .query({"query": query, "refId": name})
        .definition(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(every)
        .current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def _stopped_runs() -> dashboard.AnnotationQuery:
    return (
        dashboard.AnnotationQuery()
        .name("Stopped runs")
        .datasource(PROMETHEUS)
        .enable(True)
        .icon_color("red")
        .expr(f"sum by (job) (increase({series(semconv.RUNS_TOTAL, STOPPED)}[$__rate_interval])) > 0")
        .title_format("Run stopped by the guard")
        .text_format("{{job}}")
    )


def main(arguments: Sequence[str]) -> int:
    """Write the boards, or say which are out of date."""
    stale = []
    for board in BOARDS:
        path = FOLDER / f"{board.name}.json"
        if arguments == ["--check"]:
            if not path.exists() or path.read_text(encoding="utf-8") != text(board):
                stale.append(path.name)
        else:
            path.write_text(text(board), encoding="utf-8")
    if stale:
        print(f"out of date: {', '.join(stale)}; run python dashboards/build.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
