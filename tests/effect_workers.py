"""Processes that cause effects and die while they do.

A worker is a fork of the test process: it opens a ledger of its own, makes one call and may be told to
kill itself at one point of it. Effects are counted in a file that every worker appends to and syncs.
"""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_agentguard.effects.calls import Applied, EffectSpec, RunEffects
from otel_agentguard.effects.execution import EffectExecutor
from otel_agentguard.effects.ledger import Claimed, EffectRecord, Ledger
from otel_agentguard.errors import AgentGuardError, NotApplied
from otel_agentguard.stores import open_ledger

POINTS = (
    "before claim",
    "after claim",
    "before effect",
    "after effect",
    "before complete",
    "after complete",
    "after return",
)


class EffectFile:
    """The outside world: a line for each time that the effect happened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def happen(self, key: str) -> None:
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(handle, f"{key}\n".encode())
        os.fsync(handle)
        os.close(handle)

    def keys(self) -> list[str]:
        return self.path.read_text().split() if self.path.exists() else []

    def count(self) -> int:
        return len(self.keys())


@dataclass
class Job:
    """One call in a process of its own.

    Attributes:
        url: The ledger.
        world: Where the effect happens.
        policy: `on_unknown`.
        die_at: The point at which the process kills itself; empty for never.
        freeze_at: The point at which it stops itself until it is continued.
        wait_s: `wait_s` of the tool.
        run_id: The run.
        arguments: Of the call.
        hook: Called in the worker, with the executor, before the call.
        in_body: Called in the worker's body, before the effect.
    """

    url: str
    world: EffectFile
    policy: str = "block"
    die_at: str = ""
    freeze_at: str = ""
    wait_s: float = 10.0
    run_id: str = "run"
    arguments: Mapping[str, object] = field(default_factory=lambda: {"invoice": 7})
    hook: Callable[[EffectExecutor], None] | None = None
    in_body: Callable[[], None] | None = None

    def reach(self, point: str) -> None:
        if point == self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if point == self.freeze_at:
            self.freeze_at = ""
            os.kill(os.getpid(), signal.SIGSTOP)

    def perform(self) -> dict[str, Any]:
        """Make the call in this process."""
        ledger = Watched(open_ledger(self.url), self)
        executor = EffectExecutor(ledger, retry_delays_s=(0.05, 0.1))
        if self.hook is not None:
            self.hook(executor)

        def body(key: str) -> str:
            self.reach("before effect")
            if self.in_body is not None:
                self.in_body()
            self.world.happen(key)
            self.reach("after effect")
            return f"by {os.getpid()}"

        def verify(key: str, arguments: Mapping[str, object]) -> object:
            self.reach("in verify")
            return Applied("verified") if self.world.count() else NotApplied()

        spec = EffectSpec(tool="charge", on_unknown=self.policy, verify=verify, wait_s=self.wait_s)  # type: ignore[arg-type]
        call = RunEffects(run_id=self.run_id).call(spec, self.arguments)
        try:
            answer = executor.run(call, body)
        except AgentGuardError as error:
            return {"error": type(error).__name__, "text": str(error)}
        finally:
            self.reach("after return")
        return {"value": answer.value, "outcome": answer.outcome.value, "attempt": answer.attempt}


class Watched:
    """A ledger that tells a job where it is."""

    def __init__(self, ledger: Ledger, job: Job) -> None:
        self._ledger = ledger
        self._job = job
        if hasattr(ledger, "heartbeat"):
            beat = ledger.heartbeat

            def watched_beat() -> None:
                job.reach("in heartbeat")
                beat()

            ledger.heartbeat = watched_beat

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def claim(self, request: Any, *, over: Any = None) -> Any:
        self._job.reach("before takeover" if over is not None else "before claim")
        answer = self._ledger.claim(request, over=over)
        if isinstance(answer, Claimed):
            self._job.reach("after takeover" if over is not None else "after claim")
        return answer

    def complete(self, claim: Any, result: Any) -> Any:
        self._job.reach("before complete")
        answer = self._ledger.complete(claim, result)
        self._job.reach("after complete")
        return answer


class Process:
    """A fork of this process that performs a job."""

    def __init__(self, job: Job) -> None:
        self._reader, writer = os.pipe()
        with warnings.catch_warnings():
            # Python 3.12 warns of forks beside threads; the child touches none of theirs.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid:
            os.close(writer)
            return
        status = 1
        try:
            os.close(self._reader)
            os.write(writer, json.dumps(job.perform()).encode())
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def wait(self) -> dict[str, Any]:
        """Its answer; `{"killed": True}` where it died on the way."""
        _, status = os.waitpid(self.pid, 0)
        try:
            if os.WIFSIGNALED(status):
                assert os.WTERMSIG(status) == signal.SIGKILL
                return {"killed": True}
            assert status == 0, "the worker failed; its traceback is on stderr"
            # One read, as children of the worker may hold the pipe open.
            answer: dict[str, Any] = json.loads(os.read(self._reader, 65_536))
            return answer
        finally:
            os.close(self._reader)

    def wait_until_frozen(self) -> None:
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def perform(job: Job) -> dict[str, Any]:
    """Perform a job in a process of its own and wait for it."""
    return Process(job).wait()


def records(url: str) -> Sequence[EffectRecord]:
    """What a ledger holds."""
    ledger = open_ledger(url)
    try:
        return ledger.list(limit=10_000)
    finally:
        ledger.close()


def eventually(holds: Callable[[], bool], *, within_s: float = 10.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
