"""`otel-agentguard demo`: real small agents, and what the guard makes of them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import groupby

import click
from rich.console import Console
from rich.table import Table

from otel_agentguard.cli.provider import late_provider
from otel_agentguard.config import Budget, LoopSettings, Settings
from otel_agentguard.demo.scenes import SCENES
from otel_agentguard.demo.stage import Played, Stage
from otel_agentguard.findings import Action, Finding
from otel_agentguard.install import AgentGuard, install
from otel_agentguard.sinks.exposition import MetricsServer

DEFAULT_PORT = 9464

_SHOWN, _NOT_SHOWN = 0, 1
_PAUSE_S = 5.0
_CAUGHT, _LEFT_ALONE, _WRONG = "green", "cyan", "red"


@click.command("demo", short_help="Run small agents that repeat themselves, and show what is caught.")
@click.option("--once", is_flag=True, help="Play every scene once and end; opens no port unless --port is given.")
@click.option("--port", type=click.IntRange(0, 65535), help=f"Serve /metrics here; {DEFAULT_PORT} without --once.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address that /metrics is served on.")
def command(once: bool, port: int | None, host: str) -> int:
    """Run small agents with a scripted model and real tools, and show what the guard makes of them.

    Exit code: 0 when it caught what it should and left the rest alone, 1 when not, 2 when the port is
    taken. Without --once the scenes repeat until Ctrl-C.
    """
    port = DEFAULT_PORT if port is None and not once else port
    stage = Stage()
    # What is set for other programs in this directory is not what the scenes are made for.
    guard = install(
        mode="enforce",
        store="memory://",
        checks=Settings().checks,
        limits=LoopSettings(),
        budget=Budget(),
        on_finding=stage.on_finding,
    )
    try:
        with _serving(guard, host, port), _traced(guard, served=port is not None):
            return _play(stage) if once else _play_on(stage)
    finally:
        guard.shutdown()


def _play(stage: Stage) -> int:
    played = [stage.play(scene) for scene in SCENES]
    Console().print(_table(played))
    faults = [f"{one.scene.name}: {fault}" for one in played for fault in one.faults]
    for fault in faults:
        click.echo(fault, err=True)
    return _NOT_SHOWN if faults else _SHOWN


def _play_on(stage: Stage) -> int:
    code = _SHOWN
    with _ending_on_sigterm(), suppress(KeyboardInterrupt):
        code = _play(stage)
        click.echo("The scenes repeat until Ctrl-C.", err=True)
        pause = threading.Event()
        while not pause.wait(_PAUSE_S):
            code = max(code, *(_NOT_SHOWN if stage.play(scene).faults else _SHOWN for scene in SCENES))
    return code


@contextmanager
def _serving(guard: AgentGuard, host: str, port: int | None) -> Iterator[None]:
    if port is None:
        yield
        return
    server = MetricsServer(port, guard.registry, host)
    server.start()
    click.echo(f"metrics at {server.url}", err=True)
    try:
        yield
    finally:
        server.stop()


def _traced(guard: AgentGuard, *, served: bool) -> AbstractContextManager[None]:
    """Spans behind the metrics, for exemplars and for a collector that the environment names."""
    if guard.guard is None or not served:
        return nullcontext()
    return late_provider(os.environ, guard.guard.meet_provider)


@contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """Let a container be stopped as Ctrl-C stops it: as process 1 it would not hear SIGTERM otherwise."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _table(played: list[Played]) -> Table:
    table = Table(title="What the guard makes of these agents")
    for column in ("agent", "what it did", "the guard"):
        table.add_column(column)
    for one in played:
        table.add_row(one.scene.agents, one.scene.does, _verdict(one))
    return table


def _verdict(played: Played) -> str:
    if played.faults:
        return f"[{_WRONG}]{'; '.join(played.faults)}"
    if played.scene.kind is None and not played.scene.told:
        return f"[{_LEFT_ALONE}]left alone"
    lines = [played.scene.told] if played.scene.told else []
    lines += [f"{kind}: {_actions(list(found))}" for kind, found in groupby(played.findings, key=lambda one: one.kind)]
    if played.stopped is not None:
        lines.append("the run ended in RunAborted")
    return f"[{_CAUGHT}]" + "\n".join(lines)


def _actions(findings: list[Finding]) -> str:
    return ", ".join(f"{_DONE[finding.action]} at step {finding.step} (time {finding.count})" for finding in findings)


_DONE = {
    Action.HINT: "hint",
    Action.REUSE: "answered from cache",
    Action.BLOCK: "blocked",
    Action.STOP: "stopped",
}
