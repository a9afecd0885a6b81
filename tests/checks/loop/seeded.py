"""Prints what is found in a run that is full of words; the output must not depend on the hash seed."""

from __future__ import annotations

import json
import random

from otel_agentguard.checks.loop import LoopCheck
from otel_agentguard.engine import Engine
from otel_agentguard.events import Effect, Message, Outcome
from otel_agentguard.fingerprint import text_digest
from otel_agentguard.testing import tool_call

PLACES = "harbour ferry museum garden market tower bridge station library mill".split()
QUESTIONS = ["where is the {}", "the {}, where is it", "please tell me where the {} is", "what is known of the {}"]


def main() -> None:
    """Print steps, kinds and actions as JSON."""
    pick = random.Random(7)  # noqa: S311
    engine = Engine(checks=[LoopCheck()])
    run = engine.open("r")
    found = []
    for number in range(1500):
        place = pick.choice(PLACES)
        question = pick.choice(QUESTIONS).format(place)
        words = " ".join(pick.sample(PLACES, 6))
        answer = pick.choice([f"It is near the {words}.", "Nothing is known of it.", f"{words} {number % 9}"])
        failed = pick.random() < 0.2
        call = tool_call(
            pick.choice(["ask", "search"]),
            {"question": question, "limit": pick.randrange(3)},
            answer,
            agent=pick.choice("abc"),
            effect=pick.choice([Effect.READ, Effect.UNKNOWN]),
            outcome=Outcome.FAILED if failed else Outcome.OK,
        )
        said = f"{question}? {words}"
        for event in (call, Message(agent=pick.choice("abc"), text=said, digest=text_digest(said))):
            found += [(f.step, f.kind, int(f.action), f.count) for f in engine.observe(run, event).findings]
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main()
