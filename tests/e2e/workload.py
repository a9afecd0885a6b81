"""Agents at work for the end-to-end test and for the pictures: most do well, some loop, some do things twice.

    python workload.py METRICS_PORT OTLP_ENDPOINT SECONDS [CALM_SECONDS [PAUSE_SECONDS]]

Prints one line of JSON when it listens. Nothing goes wrong during the first CALM_SECONDS; PAUSE_SECONDS are
between two runs.
"""

from __future__ import annotations

import json
import random
import sys
import time
from contextlib import suppress

from otel_agentguard import CallBlocked, Effect, RunAborted, install, message, model_call, run, tool, unguarded
from otel_agentguard.errors import AgentGuardError
from otel_agentguard.findings import Action, Finding

FAULTY_CALLBACK_EVERY = 7

_random = random.Random(7)  # noqa: S311 - a workload that is the same each time
_asked = 0
_sent: set[str] = set()


def on_finding(finding: Finding, action: Action) -> Action | None:
    """A callback that fails now and then, which the guard has to bear."""
    global _asked
    _asked += 1
    if _asked % FAULTY_CALLBACK_EVERY == 0:
        raise RuntimeError("the callback of this application has a fault")
    return None


@tool(effect=Effect.READ)
def search(query: str) -> str:
    return f"{len(query)} results for {query}"


@tool(effect=Effect.READ)
def read_file(path: str) -> str:
    return f"content of {path}"


@tool(effect=Effect.READ)
def get_ticket(ticket: int) -> str:
    return f"ticket {ticket}: the invoice is wrong"


@tool(effect=Effect.SIDE_EFFECT, identity=("invoice",))
def charge(invoice: str, amount: int, *, idempotency_key: str) -> str:
    return f"charged {amount} for {invoice}"


@tool(effect=Effect.SIDE_EFFECT, identity=("to", "subject"), on_duplicate="warn")
def send_mail(to: str, subject: str, *, idempotency_key: str) -> str:
    return f"sent {subject} to {to}"


@tool(effect=Effect.SIDE_EFFECT, identity=("order",), on_unknown="retry")
def ship(order: str, *, idempotency_key: str) -> str:
    if order not in _sent:
        _sent.add(order)
        raise ConnectionResetError("the carrier hung up after the order was sent")
    _sent.remove(order)
    return f"shipped {order}"


@tool(effect=Effect.SIDE_EFFECT)
def refund(order: str) -> str:
    raise TimeoutError("the bank did not say whether it had heard")


def ask(model: str, about: str, tokens: int) -> None:
    with model_call(model=model, messages=[{"role": "user", "content": about}]) as request:
        request.record(f"next: {about}", input_tokens=tokens, output_tokens=40)


def good_run(agent: str, number: int) -> None:
    """Work that makes progress."""
    with suppress(RunAborted, AgentGuardError), run(agent=agent):
        for part in range(_random.randint(3, 7)):
            ask("scripted", f"{agent} {number} part {part}", 400)
            search(f"{agent} {number} {part}")
            get_ticket(number * 10 + part)
        if _random.random() < 0.5:
            charge(f"inv-{agent}-{number}", 20)


def stuck_run(agent: str) -> None:
    """The same call, whatever comes back: noted, refused, stopped."""
    with suppress(RunAborted), run(agent=agent):
        for _ in range(20):
            with suppress(CallBlocked):
                ask("scripted", "which hash does auth.py use?", 900)
            with suppress(CallBlocked):
                read_file("auth.py")


def mutual_run() -> None:
    """Two agents that send each other the same two messages."""
    with suppress(RunAborted), run(agent="coder"):
        for _ in range(20):
            for agent, said in (("coder", "line 5 is fixed"), ("reviewer", "line 5 still uses md5")):
                with suppress(CallBlocked):
                    message(said, agent=agent)


def careless_run(number: int) -> None:
    """Effects that are asked for again: prevented, done all the same, and of unknown outcome."""
    with suppress(RunAborted, AgentGuardError), run(agent="billing"):
        charge(f"inv-{number}", 20)
        charge(f"inv-{number}", 20)
        send_mail("ann@example.com", f"invoice {number}")
        if number % 24 == 0:
            send_mail("ann@example.com", f"invoice {number}")
        with suppress(ConnectionResetError):
            ship(f"order-{number}")
        ship(f"order-{number}")
        if number % 24 == 0:
            with suppress(TimeoutError):
                refund(f"order-{number}")


def main(port: int, otlp: str, seconds: float, calm_s: float = 0.0, pause_s: float = 0.25) -> None:
    with install(metrics_port=port, otlp=otlp, on_finding=on_finding) as guard:
        print(json.dumps({"url": guard.metrics_url}), flush=True)
        began = time.monotonic()
        number = 0
        while (elapsed := time.monotonic() - began) < seconds:
            number += 1
            good_run(_random.choice(("support", "researcher", "coder")), number)
            if elapsed > calm_s:
                go_wrong(number)
            time.sleep(pause_s)


def go_wrong(number: int) -> None:
    if number % 3 == 0:
        stuck_run("stubborn")
    if number % 5 == 0:
        mutual_run()
    if number % 8 == 0:
        careless_run(number)
    if number % 6 == 0:
        with unguarded():
            search("whatever")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], *map(float, sys.argv[3:]))
