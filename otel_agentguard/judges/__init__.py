"""A second look at what the near and semantic layers suspect, out of band; nothing leaves the process without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from otel_agentguard.errors import ConfigError
from otel_agentguard.judges.desk import JudgeDesk
from otel_agentguard.protocols import Judge, Suspicion, Verdict

__all__ = ["JudgeDesk", "open_judge"]


def open_judge(given: object) -> JudgeDesk | None:
    """The desk of what `install(judge=...)` was given.

    Args:
        given: A judge, a function that takes a `Suspicion` and returns a `Verdict` or a bool, a
            `JudgeDesk` with limits of its own, or None.

    Raises:
        ConfigError: It is none of these.
    """
    if given is None or isinstance(given, JudgeDesk):
        return given
    if callable(getattr(given, "judge", None)) and not isinstance(given, type):
        judge: Judge = given  # type: ignore[assignment]  # the protocol has this one method
        return JudgeDesk(judge)
    if callable(given) and not isinstance(given, type):
        return JudgeDesk(_Function(given))
    raise ConfigError(f"judge is {given!r}; give a function, an object with judge(question), or a JudgeDesk")


@dataclass(frozen=True, slots=True)
class _Function:
    function: Callable[[Suspicion], Verdict | bool]

    def judge(self, question: Suspicion) -> Verdict:
        verdict = self.function(question)
        return Verdict(loop=verdict) if isinstance(verdict, bool) else verdict
