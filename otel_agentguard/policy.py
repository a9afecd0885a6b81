"""From findings to actions: the ladder of one run.

Each (check, signature) climbs on its own. Every repeat, or round of repeats, adds one to its level;
every new thing that the run learns elsewhere takes a tenth off, so a loop inside productive work
escalates slowly and a relapse after little progress goes on where it was.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import assert_never

from otel_agentguard.errors import ConfigError
from otel_agentguard.findings import Action, Finding, Severity

_MAX_SIGNATURES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How findings lead to actions.

    Attributes:
        decay: What is left of a level after one new answer elsewhere, above 0 and at most 1.
        highest: Actions above it are lowered to it.

    Raises:
        ConfigError: `decay` is out of range.
    """

    decay: float = 0.9
    highest: Action = Action.STOP

    def __post_init__(self) -> None:
        if not 0 < self.decay <= 1:
            raise ConfigError(f"decay={self.decay} is not above 0 and at most 1; 1 forgets nothing")


@dataclass(slots=True)
class _Rung:
    level: float
    count: int
    progress: int
    step: int
    said: Action
    answer: Action | None = None


_DEFAULT = Policy()


class Ladder:
    """Where each signature of one run stands; memory only, bounded, least recently used dropped."""

    __slots__ = ("_policy", "_rungs")

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy or _DEFAULT
        self._rungs: OrderedDict[tuple[str, bytes], _Rung] = OrderedDict()

    def judge(self, finding: Finding, progress: int, *, upcoming: bool) -> tuple[Finding, bool]:
        """Decide what a finding leads to.

        Args:
            finding: What a check says.
            progress: How much the run has learned so far (`RunInfo.progress`).
            upcoming: The event has not happened yet. Then nothing below `BLOCK` is recorded, because
                its result may still be new.

        Returns:
            The finding with its action and severity, and whether this step of the ladder is new.
        """
        if finding.action > self._policy.highest:
            finding = replace(finding, action=self._policy.highest)
        limits = finding.limits
        key = (finding.check, finding.signature)
        rung = self._rungs.get(key)
        if limits is None:
            new = self._say(key, rung, finding, progress)
            if not new and rung is not None and rung.answer is not None:
                finding = replace(finding, action=rung.answer)
            return finding, new
        level = float(finding.count)
        if rung is not None and rung.step != finding.step:
            climbed = finding.count - rung.count if finding.count >= rung.count else 1
            level = rung.level * self._policy.decay ** max(0, progress - rung.progress) + climbed
        elif rung is not None:
            level = rung.level
        action = limits.action_at(level)
        if action is Action.ALLOW:
            action = limits.action_at(finding.count)
            if action > Action.HINT:
                action = Action.HINT
        action = min(action, self._policy.highest)
        if upcoming and action < Action.BLOCK:
            return replace(finding, action=Action.ALLOW), False
        new = rung is None or action > rung.said
        said = action if rung is None else max(action, rung.said)
        answer = None if new or rung is None else rung.answer
        self._rungs[key] = _Rung(level, finding.count, progress, finding.step, said, answer)
        if answer is not None:
            action = answer
        self._rungs.move_to_end(key)
        self._trim()
        return replace(finding, action=action, severity=severity_of(action)), new

    def _say(self, key: tuple[str, bytes], rung: _Rung | None, finding: Finding, progress: int) -> bool:
        if rung is not None and finding.action <= rung.said:
            return False
        self._rungs[key] = _Rung(float(finding.count), finding.count, progress, finding.step, finding.action)
        self._trim()
        return True

    def _trim(self) -> None:
        while len(self._rungs) > _MAX_SIGNATURES:
            self._rungs.popitem(last=False)

    def answer(self, finding: Finding, action: Action) -> None:
        """Keep what the application said to this step of the ladder; it holds until the next step."""
        rung = self._rungs.get((finding.check, finding.signature))
        if rung is not None:
            rung.answer = action

    def forgive(self, finding: Finding) -> None:
        """Let the signature of a finding climb from the bottom again, after a person allowed it."""
        key = (finding.check, finding.signature)
        progress = self._rungs[key].progress if key in self._rungs else 0
        self._rungs[key] = _Rung(0.0, finding.count, progress, finding.step, Action.ALLOW)
        self._trim()

    def remember(self, earlier: Ladder, *, most: int = 64) -> None:
        """Take over the latest signatures of an earlier run of the conversation.

        Args:
            earlier: The ladder of that run.
            most: How many signatures are taken.
        """
        for key in list(earlier._rungs)[-most:]:
            rung = earlier._rungs[key]
            self._rungs[key] = _Rung(rung.level, rung.count, 0, 0, Action.ALLOW)


def severity_of(action: Action) -> Severity:
    """How bad it is that the ladder has come to `action`."""
    match action:
        case Action.ALLOW:
            return Severity.INFO
        case Action.HINT | Action.REUSE:
            return Severity.WARN
        case Action.BLOCK | Action.STOP:
            return Severity.ERROR
        case _:
            assert_never(action)
