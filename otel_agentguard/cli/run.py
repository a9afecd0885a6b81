"""`otel-agentguard run`: an application under guard, unchanged."""

from __future__ import annotations

import os
from importlib.util import find_spec

import click

from otel_agentguard.cli.instrumentors import find_instrumentors, turn_on
from otel_agentguard.cli.program import Program, execute
from otel_agentguard.cli.provider import late_provider
from otel_agentguard.config import Mode
from otel_agentguard.install import install
from otel_agentguard.loading import load

DEFAULT_METRICS_PORT = 9464

_TAKES_VALUE = frozenset({"--mode"})


class _ProgramCommand(click.Command):
    """Leaves everything behind the program to the program, as `python` does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] != "--":
            if args[at].startswith("-m"):
                end = at + (1 if len(args[at]) > 2 else 2)
                args = [*args[:end], "--", *args[end:]]
                break
            at += 2 if args[at] in _TAKES_VALUE else 1
        return super().parse_args(ctx, args)


@click.command(
    "run",
    cls=_ProgramCommand,
    context_settings={"allow_interspersed_args": False},
    short_help="Run an application under guard.",
    options_metavar="[--mode MODE]",
)
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in Mode]),
    help="How far the guard may go; the settings decide where it is not given.",
)
@click.option("-m", "module", metavar="MODULE", help="Run a module as a script, as python -m does.")
@click.argument("words", nargs=-1, metavar="SCRIPT|-m MODULE [ARGS]...", type=click.UNPROCESSED)
def command(mode: str | None, module: str | None, words: tuple[str, ...]) -> int:
    """Run a Python application under guard, with every instrumentation that is installed.

    Metrics are at http://127.0.0.1:9464/metrics unless AGENTGUARD_METRICS_PORT says otherwise. Exit
    code: that of the application, and 3 when the guard stopped it.
    """
    program = _program(module, words)
    settings = load({"mode": mode}, defaults={"metrics_port": DEFAULT_METRICS_PORT})
    guard = install(mode=settings.mode, metrics_port=settings.metrics_port)
    try:
        if guard.guard is None:
            return execute(program)
        with late_provider(os.environ, guard.guard.meet_provider):
            turn_on(find_instrumentors(os.environ))
            return execute(program)
    finally:
        guard.shutdown()


def _program(module: str | None, words: tuple[str, ...]) -> Program:
    if module is not None:
        return Program(module, True, words)
    if not words:
        raise click.UsageError("name a SCRIPT, or a module with -m")
    script, *arguments = words
    if not os.path.exists(script):
        known = " (did you mean -m?)" if script.isidentifier() and find_spec(script) is not None else ""
        raise click.UsageError(f"there is no script '{script}'{known}")
    return Program(script, False, arguments)
