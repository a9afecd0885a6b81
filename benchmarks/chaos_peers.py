"""The random kills of chaos.py for other packages, to compare; needs none of ours.

    python -m venv /tmp/peers && /tmp/peers/bin/pip install agent-once agent-outbox dbos
    /tmp/peers/bin/python benchmarks/chaos_peers.py [--keys 300] [--kills 60]

Each stores in SQLite and runs with its defaults, but for leases short enough to lapse within the run. A key
is stuck when no call brings its result any more, though nobody is at it.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

Effect = Callable[[int], str]
Ask = Callable[[int], object]
"""Asks a peer for the effect of one key; raises when it is refused."""


def agent_once(folder: Path, effect: Effect) -> Ask:
    from once import Once

    once = Once(path=str(folder / "once.db"), wait=1.0)
    return lambda key: once.execute(fn=effect, key=f"key-{key}", number=key)


def agent_once_verify(folder: Path, effect: Effect) -> Ask:
    from once import NOT_HAPPENED, Once

    once = Once(path=str(folder / "once.db"), wait=1.0, stale_after=0.5)

    def verify(key: str, arguments: dict[str, int]) -> object:
        number = arguments["number"]
        return f"done {number}" if number in happened(folder) else NOT_HAPPENED

    return lambda key: once.execute(fn=effect, key=f"key-{key}", number=key, verify=verify)


def agent_outbox(folder: Path, effect: Effect) -> Ask:
    from agent_outbox import OutboxStore, ToolExecutor

    executor = ToolExecutor(OutboxStore(folder / "outbox.db"), lease_seconds=0.5)

    def ask(key: int) -> object:
        done = executor.run("charge", effect, {"number": key}, "session")
        if not done.ok:
            raise RuntimeError(done.error)
        return done.result

    return ask


def dbos(folder: Path, effect: Effect) -> Ask:
    from dbos import DBOS, SetWorkflowID

    DBOS(config={"name": "chaos", "system_database_url": f"sqlite:///{folder}/dbos.sqlite", "log_level": "CRITICAL"})

    @DBOS.step()
    def charge(number: int) -> str:
        return effect(number)

    @DBOS.workflow()
    def order(number: int) -> str:
        return charge(number)

    DBOS.launch()

    def ask(key: int) -> object:
        with SetWorkflowID(f"key-{key}"):
            return order(key)

    return ask


PEERS = {
    "agent-once": ("once", agent_once),
    "agent-once, verify": ("once", agent_once_verify),
    "agent-outbox": ("agent_outbox", agent_outbox),
    "dbos": ("dbos", dbos),
}


def happened(folder: Path) -> Counter[int]:
    file = folder / "effects"
    return Counter(map(int, file.read_text().split())) if file.exists() else Counter()


def work(folder: Path, open_peer: Callable[[Path, Effect], Ask], keys: int, seed: float) -> int:
    """Ask for all keys in an order of its own; how many were refused."""
    chance = random.Random(seed)

    def effect(number: int) -> str:
        time.sleep(chance.uniform(0, 0.004))
        handle = os.open(folder / "effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(handle, f"{number}\n".encode())
        os.fsync(handle)
        os.close(handle)
        time.sleep(chance.uniform(0, 0.004))
        return f"done {number}"

    ask = open_peer(folder, effect)
    order = list(range(keys))
    chance.shuffle(order)
    refused = 0
    for key in order:
        try:
            ask(key)
        except Exception:
            refused += 1
    return refused


def spawn(folder: Path, open_peer: Callable[[Path, Effect], Ask], keys: int, seed: float) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        refused = work(folder, open_peer, keys, seed)
        (folder / "refused").write_text(str(refused))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def rage(open_peer: Callable[[Path, Effect], Ask], folder: Path, keys: int, kills: int) -> tuple[Counter[int], int]:
    chance = random.Random(1)
    os.waitpid(spawn(folder, open_peer, 0, 0), 0)
    living = [spawn(folder, open_peer, keys, chance.random()) for _ in range(3)]
    killed = 0
    while killed < kills:
        time.sleep(chance.uniform(0.02, 0.3))
        victim = chance.randrange(3)
        if os.waitpid(living[victim], os.WNOHANG)[0] == 0:
            os.kill(living[victim], signal.SIGKILL)
            os.waitpid(living[victim], 0)
            killed += 1
        living[victim] = spawn(folder, open_peer, keys, chance.random())
    for pid in living:
        os.waitpid(pid, 0)
    time.sleep(1)
    os.waitpid(spawn(folder, open_peer, keys, 0), 0)
    return happened(folder), int((folder / "refused").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", nargs="*", default=list(PEERS))
    parser.add_argument("--keys", type=int, default=300)
    parser.add_argument("--kills", type=int, default=60)
    chosen = parser.parse_args()
    print(f"{'peer':<20}{'kills':>7}{'effects':>9}{'keys':>6}{'repeated':>10}{'stuck':>7}{'s':>7}")
    for name in chosen.peers:
        module, open_peer = PEERS[name]
        if importlib.util.find_spec(module) is None:
            print(f"{name:<20} not installed")
            continue
        with tempfile.TemporaryDirectory() as folder:
            started = time.monotonic()
            effects, stuck = rage(open_peer, Path(folder), chosen.keys, chosen.kills)
            seconds = time.monotonic() - started
        total = sum(effects.values())
        row = f"{chosen.kills:>7}{total:>9}{len(effects):>6}{total - len(effects):>10}{stuck:>7}{seconds:>7.1f}"
        print(f"{name:<20}{row}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
