"""A stand-in for a pager: prints the alerts that Alertmanager posts to it, one line each.

`python -m otel_agentguard.demo.pager --port 8080`
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import click

_MOST_BYTES = 4_000_000


def lines_of(notification: Mapping[str, Any]) -> list[str]:
    """What to print of one notification, in the form that Alertmanager's webhook has.

    Returns:
        One line an alert: its state, severity, name, what it is about, summary and runbook.
    """
    return [_line(alert) for alert in notification.get("alerts", ())]


def pager(port: int, host: str, say: Callable[[str], None]) -> ThreadingHTTPServer:
    """A server that takes notifications by POST and answers any GET, so that its health can be checked.

    Args:
        port: Port to listen on; 0 for any free one.
        host: Address to listen on.
        say: Called with each line.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            if size > _MOST_BYTES:
                self._answer(413)
                return
            try:
                lines = lines_of(json.loads(self.rfile.read(size)))
            except (ValueError, AttributeError, TypeError):
                self._answer(400)
                return
            for line in lines:
                say(line)
            self._answer(200)

        def do_GET(self) -> None:
            self._answer(200)

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing of the requests themselves."""

    return ThreadingHTTPServer((host, port), Handler)


def _line(alert: Mapping[str, Any]) -> str:
    labels, notes = alert.get("labels", {}), alert.get("annotations", {})
    about = " ".join(f"{name}={labels[name]}" for name in sorted(labels) if name not in {"alertname", "severity"})
    words = (
        str(alert.get("status", "")).upper(),
        labels.get("severity", ""),
        labels.get("alertname", ""),
        f"[{about}]",
        notes.get("summary", ""),
        f"({notes.get('runbook_url', 'no runbook')})",
    )
    return " ".join(word for word in words if word)


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Port to listen on.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
def main(port: int, host: str) -> None:
    """Print the alerts that Alertmanager posts here."""
    with pager(port, host, click.echo) as server:
        click.echo(f"listening on http://{host}:{server.server_port}/", err=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
