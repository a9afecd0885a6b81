"""Plays scenes under the installed guard, and judges what it did."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from otel_agentguard.demo.scenes import NotShown, Scene
from otel_agentguard.demo.workshop import Workshop
from otel_agentguard.errors import RunAborted
from otel_agentguard.findings import Action, Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of a scene.

    Attributes:
        scene: The scene.
        findings: What the guard found and did something about, in order.
        stopped: The end that the guard made of the run; None where it came to its own.
        faults: What was not as it should be.
    """

    scene: Scene
    findings: tuple[Finding, ...]
    stopped: RunAborted | None
    faults: tuple[str, ...]


class Stage:
    """Plays one scene at a time; `on_finding` is given to `install()`."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []

    def on_finding(self, finding: Finding, action: Action) -> Action | None:
        """Take down a finding; the action stays as it is."""
        if action > Action.ALLOW:
            self._findings.append(finding)
        return None

    def play(self, scene: Scene) -> Played:
        """Play a scene in a fresh directory, and judge it."""
        self._findings = []
        stopped = None
        unshown = []
        with tempfile.TemporaryDirectory(prefix="agentguard-demo-") as root:
            workshop = Workshop(Path(root))
            try:
                scene.play(workshop)
            except RunAborted as exc:
                stopped = exc
            except NotShown as exc:
                unshown.append(str(exc))
        faults = [*unshown, *_faults(scene, self._findings, stopped, workshop)]
        return Played(scene=scene, findings=tuple(self._findings), stopped=stopped, faults=tuple(faults))


def _faults(scene: Scene, findings: list[Finding], stopped: RunAborted | None, workshop: Workshop) -> list[str]:
    faults = []
    kinds = {finding.kind for finding in findings}
    if scene.kind is None and kinds:
        faults.append(f"took it for {', '.join(sorted(kinds))}")
    if scene.kind is not None and scene.kind not in kinds:
        faults.append(f"no {scene.kind} was found")
    if scene.stops and stopped is None:
        faults.append("the run was not stopped")
    if stopped is not None and not scene.stops:
        faults.append("the run was stopped")
    for tool, most in scene.most_runs:
        if workshop.runs[tool] > most:
            faults.append(f"{tool} ran {workshop.runs[tool]} times")
    return faults
