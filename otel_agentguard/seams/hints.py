"""What the model of a run should know before its next turn."""

from __future__ import annotations

from collections.abc import Sequence

from otel_agentguard import words
from otel_agentguard.findings import Action, Finding
from otel_agentguard.runs import Run


def hints_of(run: Run, max_chars: int = 2000) -> str:
    """What the model of a run should know before its next turn; see `RunHandle.hints`."""
    with run.lock:
        findings = list(run.findings)
    latest = {(finding.check, finding.signature): finding for finding in findings if finding.message}
    repeats = [_hint(finding) for finding in latest.values() if finding.limits is not None]
    notes = [finding.message for finding in latest.values() if finding.limits is None]
    while (repeats or notes) and len(_joined(repeats, notes)) > max_chars:
        del (repeats or notes)[0]
    return _joined(repeats, notes)


def _joined(repeats: Sequence[str], notes: Sequence[str]) -> str:
    head = f"{words.SIGNATURE} Repeated in this run so far, with the same outcome each time:"
    return "\n".join((*((head, *repeats) if repeats else ()), *notes))


def _hint(finding: Finding) -> str:
    what = finding.tool or finding.agent or "message"
    refused = ", refused since" if finding.action >= Action.BLOCK else ""
    return f"- {what}: {finding.count} times, {words.steps(finding.evidence)}{refused}"
