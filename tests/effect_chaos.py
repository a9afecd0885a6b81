"""Workers that are killed at random while they cause many effects."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from effect_workers import EffectFile, records

from otel_agentguard.effects.calls import Applied, EffectSpec, RunEffects
from otel_agentguard.effects.execution import EffectExecutor
from otel_agentguard.effects.ledger import State
from otel_agentguard.errors import CallBlocked, NotApplied
from otel_agentguard.stores import open_ledger


@dataclass(frozen=True)
class Report:
    """What came of it.

    Attributes:
        kills: How many workers were killed.
        effects: How often each effect happened, by the key that its callee was handed.
        possible: Possible duplicates that the ledger counted, by key.
        confirmed: Confirmed ones, in all.
        states: How many records ended in which state.
        seconds: How long it took.
    """

    kills: int
    effects: Mapping[str, int]
    possible: Mapping[str, int]
    confirmed: int
    states: Mapping[State, int]
    seconds: float

    @property
    def repeated(self) -> int:
        """Effects beyond the first of each key."""
        return sum(count - 1 for count in self.effects.values())

    @property
    def uncounted(self) -> int:
        """Keys with more effects than 1 + possible duplicates."""
        return sum(count > 1 + self.possible.get(key, 0) for key, count in self.effects.items())


def rage(url: str, policy: str, folder: Path, *, keys: int, kills: int, workers: int = 3, seed: int = 0) -> Report:
    """Cause `keys` effects in `workers` processes, of which `kills` are killed and replaced."""
    world = EffectFile(folder / "effects")
    chance = random.Random(seed)  # noqa: S311 - chaos must be repeatable, not secret
    started = time.monotonic()
    open_ledger(url).close()
    living = [_spawn(url, policy, world, keys, chance.random()) for _ in range(workers)]
    killed = 0
    while killed < kills:
        time.sleep(chance.uniform(0.005, 0.08))
        victim = chance.randrange(workers)
        if _ended(living[victim]):
            # It was through before its turn came; a new one goes through all keys again.
            living[victim] = _spawn(url, policy, world, keys, chance.random())
            continue
        os.kill(living[victim], signal.SIGKILL)
        os.waitpid(living[victim], 0)
        killed += 1
        living[victim] = _spawn(url, policy, world, keys, chance.random())
    for pid in living:
        with contextlib.suppress(ChildProcessError):
            _, status = os.waitpid(pid, 0)
            assert status == 0, "a worker failed; its traceback is on stderr"
    found = records(url)
    return Report(
        kills=killed,
        effects=Counter(world.keys()),
        possible={record.key: record.maybe_duplicates for record in found},
        confirmed=sum(record.confirmed_duplicates for record in found),
        states=Counter(record.state for record in found),
        seconds=time.monotonic() - started,
    )


def _ended(pid: int) -> bool:
    gone, status = os.waitpid(pid, os.WNOHANG)
    assert status == 0, "a worker failed; its traceback is on stderr"
    return gone != 0


def _spawn(url: str, policy: str, world: EffectFile, keys: int, seed: float) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        _work(url, policy, world, keys, random.Random(seed))  # noqa: S311 - as above
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _work(url: str, policy: str, world: EffectFile, keys: int, chance: random.Random) -> None:
    executor = EffectExecutor(open_ledger(url))

    def body(key: str) -> str:
        time.sleep(chance.uniform(0, 0.004))
        world.happen(key)
        time.sleep(chance.uniform(0, 0.004))
        return key

    def verify(key: str, arguments: Mapping[str, object]) -> object:
        return Applied(key) if key in set(world.keys()) else NotApplied()

    spec = EffectSpec(tool="charge", on_unknown=policy, verify=verify, wait_s=20)  # type: ignore[arg-type]
    order = list(range(keys))
    chance.shuffle(order)
    for invoice in order:
        run = RunEffects(run_id=f"run {invoice}")
        with contextlib.suppress(CallBlocked):
            executor.run(run.call(spec, {"invoice": invoice}), body)
