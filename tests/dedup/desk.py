"""One run of an agent with tools of all kinds, whose bodies count how often they ran."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from otel_agentguard.config import Settings
from otel_agentguard.dedup import resources
from otel_agentguard.dedup.answers import Answers
from otel_agentguard.dedup.resources import Resources
from otel_agentguard.dedup.rules import rule_for
from otel_agentguard.events import Compaction, Effect, Outcome, ToolCall
from otel_agentguard.fingerprint import call_digest
from otel_agentguard.protocols import RunInfo
from otel_agentguard.testing import ManualClock


class FileTime:
    """The clock of the file system, which may run ahead: then all files look old."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> int:
        return time.time_ns() + int(self.ahead_s * 1e9)


class Desk:
    """Calls tools as a seam does."""

    def __init__(
        self, answers: Answers, clock: ManualClock, told: Counter[str], failures: list[str], file_time: FileTime
    ) -> None:
        self.file_time = file_time
        self.answers = answers
        self.clock = clock
        self.told = told
        self.failures = failures
        self.run = RunInfo(run_id="run-1", agent="agent", settings=Settings())
        self.executed: Counter[str] = Counter()
        self.notes: list[str] = []
        self.step = 0

    def event(
        self,
        tool: str,
        arguments: Mapping[str, object],
        effect: Effect,
        touches: tuple[str, ...] | None = None,
        scope: str = "",
    ) -> ToolCall:
        self.step += 1
        return ToolCall(
            tool=tool,
            arguments=dict(arguments),
            fingerprint=call_digest(tool, dict(arguments), scope=scope),
            effect=effect,
            touches=touches,
            scope=scope,
            step=self.step,
        )

    def ask(
        self,
        tool: str,
        body: Callable[[], Any],
        *,
        arguments: Mapping[str, object] | None = None,
        effect: Effect = Effect.READ,
        touches: tuple[str, ...] | None = None,
        ttl_s: float | None = None,
        cache: bool | None = None,
        fresh: bool = False,
        scope: str = "",
        run: RunInfo | None = None,
    ) -> Any:
        """Call a tool; its body runs where it must."""
        call = self.event(tool, arguments or {}, effect, touches, scope)
        rule = rule_for(tool, effect, ttl_s=ttl_s, cache=cache)
        where = run or self.run

        def counted() -> Any:
            self.executed[tool] += 1
            return body()

        try:
            if rule is None:
                self.answers.began(where, call)
                value = counted()
            else:
                answer = self.answers.answer(where, call, rule, counted, fresh=fresh)
                self.notes += [answer.note] if answer.note else []
                value = answer.value
            call.outcome = Outcome.OK
            return value
        except Exception:
            call.outcome = Outcome.FAILED
            raise
        finally:
            self.answers.stepped(where, call)

    async def ask_async(
        self,
        tool: str,
        body: Callable[[], Awaitable[Any]],
        *,
        arguments: Mapping[str, object] | None = None,
        effect: Effect = Effect.READ,
        touches: tuple[str, ...] | None = None,
        ttl_s: float | None = None,
    ) -> Any:
        """`ask` for coroutines."""
        call = self.event(tool, arguments or {}, effect, touches)
        rule = rule_for(tool, effect, ttl_s=ttl_s)
        assert rule is not None

        async def counted() -> Any:
            self.executed[tool] += 1
            return await body()

        try:
            return (await self.answers.answer_async(self.run, call, rule, counted)).value
        finally:
            self.answers.stepped(self.run, call)

    def read(self, path: str | Path, *, fresh: bool = False, **arguments: object) -> str:
        """Read a file through the guard."""
        return str(
            self.ask(
                "read",
                lambda: Path(path).read_text(),
                arguments={"path": str(path), **arguments},
                touches=(str(path),),
                fresh=fresh,
            )
        )

    def write(self, path: str | Path, text: str) -> None:
        """Write a file through the guard."""
        self.ask(
            "write",
            lambda: Path(path).write_text(text),
            arguments={"path": str(path), "text": text},
            effect=Effect.WRITE,
            touches=(str(path),),
        )

    def shell(self, command: str) -> int:
        """Run a shell command through the guard, which does not know what it does."""
        return int(
            self.ask("shell", lambda: os.system(command), arguments={"command": command}, effect=Effect.UNKNOWN)  # noqa: S605 - that is what a shell tool does
        )

    def compact(self) -> None:
        """The model's context is summarised."""
        self.step += 1
        self.answers.stepped(self.run, Compaction(step=self.step))


def make_desk() -> Desk:
    """A desk in an empty run, with clocks that the test moves."""
    told: Counter[str] = Counter()
    failures: list[str] = []

    def tell(what: str, *args: object) -> None:
        if what in ("state", "dropped"):
            return
        told[f"{what} {args[-1]}" if what == "dedup" else what] += 1

    clock, file_time = ManualClock(), FileTime()
    answers = Answers(
        now_s=clock,
        resources=Resources(now_ns=file_time),
        tell=tell,
        failed=lambda where, exc: failures.append(f"{where}: {exc!r}"),
    )
    return Desk(answers, clock, told, failures, file_time)


def coarsen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let times of files be multiples of ten seconds, and a file be young for an hour, so more than one tick."""
    exact = resources.file_stamp

    def rounded(found: os.stat_result) -> tuple[int, ...]:
        device, inode, size, modified, changed = exact(found)
        return (device, inode, size, modified // 10**10, changed // 10**10)

    monkeypatch.setattr(resources, "file_stamp", rounded)
    monkeypatch.setattr(resources, "YOUNG_NS", 3600 * 10**9)
