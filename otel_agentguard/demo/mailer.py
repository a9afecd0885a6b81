"""A program that mails a customer and may be killed right after.

`python -m otel_agentguard.demo.mailer DIR [--die]`
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import click

from otel_agentguard import Effect, install, run, tool
from otel_agentguard.effects.calls import Applied, StillUnknown

OUTBOX = "outbox.txt"


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--die", is_flag=True, help="Be killed once the mail is out, before that is on record.")
def main(directory: Path, die: bool) -> None:
    """Mail the customer of invoice 7, once."""
    outbox = directory / OUTBOX

    def was_sent(key: str, arguments: object) -> Applied | StillUnknown:
        sent = outbox.exists() and key in outbox.read_text(encoding="utf-8")
        return Applied("sent") if sent else StillUnknown()

    @tool(effect=Effect.SIDE_EFFECT, identity=("to",), on_unknown="verify", verify=was_sent)
    def send_mail(to: str, *, idempotency_key: str) -> str:
        with outbox.open("a", encoding="utf-8") as letters:
            letters.write(f"{to} {idempotency_key}\n")
            letters.flush()
            os.fsync(letters.fileno())
        if die:
            os.kill(os.getpid(), signal.SIGKILL)
        return "sent"

    with install(store=f"sqlite:///{directory / 'effects.db'}"), run("invoice-7", agent="mailer"):
        click.echo(send_mail("pat@example.test"))


if __name__ == "__main__":
    main()
