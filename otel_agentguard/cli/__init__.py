"""The command `otel-agentguard`: one module a command, loaded when it is called.

Data goes to stdout, talk to stderr. Exit codes: 0 clean, 1 findings, 2 misuse, 3 a run was stopped.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

import click

from otel_agentguard.errors import AgentGuardError

PROGRAM = "otel-agentguard"
MISUSE = 2

_MODULES = {
    "dashboards": "otel_agentguard.cli.dashboards",
    "demo": "otel_agentguard.cli.demo",
    "doctor": "otel_agentguard.cli.doctor",
    "ledger": "otel_agentguard.cli.ledger",
    "run": "otel_agentguard.cli.run",
    "runs": "otel_agentguard.cli.runs",
    "scan": "otel_agentguard.cli.scan",
}
_INTERRUPTED = 130
_READER_GONE = 141


class _Commands(click.Group):
    """Imports the module of a command only when it is needed: `run` must not import what `scan` needs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        command: click.Command = import_module(_MODULES[cmd_name]).command
        return command


def _show_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(f"{PROGRAM} {version(PROGRAM)}")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Print the version.",
)
def cli() -> None:
    """Sees LLM agents that repeat themselves, stops them, and shows it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments without the name of the program; those of the process when None.

    Returns:
        The exit code.
    """
    try:
        code = cli.main(args=None if argv is None else list(argv), prog_name=PROGRAM, standalone_mode=False)
    except click.ClickException as exc:
        exc.show()
        return exc.exit_code
    except click.Abort:
        return _INTERRUPTED
    except AgentGuardError as exc:
        click.echo(f"{PROGRAM}: {exc}", err=True)
        return MISUSE
    except SystemExit:
        # click leaves this way when whoever read our output has gone; its code would read as findings.
        return _READER_GONE
    except Exception:
        # A fault of ours must not read as "findings", which is what Python's own exit code would say.
        traceback.print_exc()
        return MISUSE
    return code if isinstance(code, int) else 0
