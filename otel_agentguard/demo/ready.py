"""Waits until servers answer: `python -m otel_agentguard.demo.ready URL...`, for images that have no health check."""

from __future__ import annotations

import time
import urllib.request

import click

_PAUSE_S = 0.5


def wait_for(url: str, timeout_s: float) -> bool:
    """Whether a server answers with success before the time is over; it is asked twice a second."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        try:
            with urllib.request.urlopen(url, timeout=_PAUSE_S * 4):  # noqa: S310 - the URL is the user's own
                return True
        except OSError:
            time.sleep(_PAUSE_S)
    return False


@click.command()
@click.argument("urls", nargs=-1, required=True)
@click.option("--timeout", "timeout_s", type=float, default=120.0, show_default=True, help="Most seconds to wait.")
def main(urls: tuple[str, ...], timeout_s: float) -> None:
    """Wait until each of URLS answers; exit code 1 when one does not."""
    silent = [url for url in urls if not wait_for(url, timeout_s)]
    if silent:
        raise click.ClickException(f"no answer from {', '.join(silent)} in {timeout_s:g} s")


if __name__ == "__main__":
    main()
