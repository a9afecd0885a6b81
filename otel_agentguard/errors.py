"""The exceptions of the package.

::

    BaseException
    ├── RunStopped                    raised at a plain tool seam inside a run that must end
    └── Exception
        └── AgentGuardError           what callers handle
            ├── RunAborted            how a stopped run ends
            ├── CallBlocked           this call was refused; the run goes on
            ├── NotApplied            raised by a tool: the effect did not happen
            ├── EffectError
            │   ├── EffectMismatch         one key, other arguments
            │   ├── EffectInProgress       another caller holds the claim
            │   ├── CompletionNotRecorded  the effect happened, its record did not
            │   └── ResultNotStored        the effect happened, its result was not kept
            ├── EndpointError         an endpoint of a model cannot be reached or understood
            ├── StoreError            a store or ledger cannot be reached or read
            ├── ConfigError           a setting has no such name or value
            ├── ReadError             a recorded run cannot be read
            └── MissingExtraError     an optional library is not installed

Every class survives pickling, so that process pools hand it on unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_agentguard.findings import Finding


class AgentGuardError(Exception):
    """Base of everything that callers are meant to handle."""


class RunAborted(AgentGuardError):
    """The run was ended by the guard.

    Attributes:
        finding: Why; None where only the mark of an earlier stop is known.
        run_id: The run that ended.
        outcome: Always `"stopped_by_guard"`.
    """

    outcome = "stopped_by_guard"

    def __init__(self, finding: Finding | None = None, *, run_id: str | None = None) -> None:
        self.finding = finding
        self.run_id = run_id
        why = finding.explanation if finding is not None else "the run was stopped earlier"
        super().__init__(f"run {run_id!r} stopped: {why}" if run_id else f"run stopped: {why}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), (self.finding,), {"run_id": self.run_id})


class RunStopped(BaseException):
    """Unwinds plain code out of a stopped run; the run's exit turns it into `RunAborted`.

    It is no `Exception`, because hand-written agent loops catch those around their tools.

    Attributes:
        finding: Why; None where only the mark of an earlier stop is known.
        run_id: The run that ends.
    """

    def __init__(self, finding: Finding | None = None, *, run_id: str | None = None) -> None:
        self.finding = finding
        self.run_id = run_id
        super().__init__(finding.explanation if finding is not None else "the run was stopped earlier")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), (self.finding,), {"run_id": self.run_id})


class CallBlocked(AgentGuardError):
    """One call was refused; `str()` of it is the text for the model.

    Attributes:
        finding: Why.
        earlier_result: What the call answered before; None where it is not kept.
        message: Text for the model, with the earlier result.
    """

    def __init__(self, message: str, *, finding: Finding | None = None, earlier_result: object = None) -> None:
        self.message = message
        self.finding = finding
        self.earlier_result = earlier_result
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (
            type(self),
            (self.message,),
            {"finding": self.finding, "earlier_result": self.earlier_result},
        )


class NotApplied(AgentGuardError):
    """Raised by a side-effect tool: the effect certainly did not happen, the call may be retried."""


class EffectError(AgentGuardError):
    """A claim of a side effect could not be settled.

    Attributes:
        key: The effect key, or None.
    """

    def __init__(self, message: str, *, key: str | None = None) -> None:
        self.key = key
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, {"key": self.key})


class EffectMismatch(EffectError):
    """The key is known with other arguments; nothing was run and nothing replayed."""


class EffectInProgress(EffectError):
    """Another caller holds the claim and did not finish within `wait_s`."""


class CompletionNotRecorded(EffectError):
    """The tool ran, but the ledger could not be told; the effect is settled by `ledger resolve`."""


class ResultNotStored(EffectError):
    """The effect happened once and is not repeated, but its result was not kept."""


class EndpointError(AgentGuardError):
    """An endpoint of a model cannot be reached, or answers something else than it should."""


class StoreError(AgentGuardError):
    """A store or ledger cannot be reached, opened or read."""


class ConfigError(AgentGuardError, ValueError):
    """A setting has no such name or value."""


class ReadError(AgentGuardError):
    """A recorded run cannot be read."""


class MissingExtraError(AgentGuardError, ImportError):
    """An optional library is not installed.

    Attributes:
        extra: Name of the extra that brings it.
    """

    def __init__(self, extra: str) -> None:
        self.extra = extra
        super().__init__(f"this needs an optional library: pip install 'otel-agentguard[{extra}]'")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), (self.extra,), {})


def _rebuild(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return cls(*args, **kwargs)
