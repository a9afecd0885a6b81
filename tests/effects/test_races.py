"""Several processes that want the same effects at the same time."""

from __future__ import annotations

import json
import os
import random
from collections import Counter

import pytest
from effect_workers import EffectFile, Job, Process, records

from otel_agentguard.effects.calls import EffectSpec, RunEffects
from otel_agentguard.effects.execution import EffectExecutor
from otel_agentguard.effects.ledger import State
from otel_agentguard.stores import open_ledger


class Racer(Job):
    """Calls a hundred effects in an order of its own."""

    def perform(self) -> dict[str, object]:
        executor = EffectExecutor(open_ledger(self.url))
        spec = EffectSpec(tool="charge", on_unknown="retry", wait_s=30, returns=str)  # type: ignore[arg-type]
        order = list(range(100))
        random.Random(os.getpid()).shuffle(order)  # noqa: S311 - an order, no secret
        results = {}
        outcomes: Counter[str] = Counter()
        for invoice in order:
            call = RunEffects(run_id=f"run {invoice}").call(spec, {"invoice": invoice})

            def body(key: str) -> str:
                self.world.happen(key)
                return f"{key} by {os.getpid()}"

            answer = executor.run(call, body)
            results[str(invoice)] = answer.value
            outcomes[answer.outcome.value] += 1
        return {"results": results, "outcomes": outcomes}


def test_eight_processes_that_race_for_a_hundred_keys_cause_each_effect_once(url: str, effects: EffectFile) -> None:
    open_ledger(url).close()

    racers = [Process(Racer(url, effects)) for _ in range(8)]
    answers = [racer.wait() for racer in racers]

    assert Counter(effects.keys()) == {record.key: 1 for record in records(url)}
    assert effects.count() == 100
    assert len({json.dumps(answer["results"], sort_keys=True) for answer in answers}) == 1
    assert sum(answer["outcomes"].get("executed", 0) for answer in answers) == 100
    assert {record.state for record in records(url)} == {State.SUCCEEDED}


def test_processes_that_open_a_new_store_at_once_all_get_it(url: str, effects: EffectFile) -> None:
    openers = [Process(Job(url, effects, run_id=f"run {place}")) for place in range(6)]

    assert [opener.wait()["outcome"] for opener in openers] == ["executed"] * 6


@pytest.mark.parametrize("policy", ["block", "retry", "verify"])
def test_many_heirs_of_one_dead_owner_cause_the_effect_once(url: str, effects: EffectFile, policy: str) -> None:
    Process(Job(url, effects, policy, die_at="after claim")).wait()

    heirs = [Process(Job(url, effects, policy)) for _ in range(4)]
    answers = [heir.wait() for heir in heirs]

    if policy == "block":
        assert [answer["error"] for answer in answers] == ["CallBlocked"] * 4
    else:
        assert sum(answer["outcome"] == "executed" for answer in answers) == 1
        assert len({answer["value"] for answer in answers}) == 1
    assert effects.count() == (policy != "block")
