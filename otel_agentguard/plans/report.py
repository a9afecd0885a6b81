"""What the plan check says of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from otel_agentguard.events import PlanStep

SIGNATURE = "from the plan check, not from the user"
_MOST_NAMES = 20
_MOST_ERRORS = 20


class ErrorCode(StrEnum):
    """What can be wrong with a step."""

    UNKNOWN_TOOL = "unknown_tool"
    UNKNOWN_AGENT = "unknown_agent"
    MISSING_ARGUMENT = "missing_argument"
    UNKNOWN_ARGUMENT = "unknown_argument"
    WRONG_TYPE = "wrong_type"
    ENUM = "enum"
    CONSTRAINT = "constraint"
    BAD_REFERENCE = "bad_reference"
    CYCLE = "cycle"
    PLACEHOLDER = "placeholder"
    DENIED_TOOL = "denied_tool"
    DUPLICATE_EFFECT = "duplicate_effect"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanError:
    """One thing that keeps a step from being executed as it stands.

    Attributes:
        code: What kind of error.
        step: Id of the step; `""` where a single call was checked.
        tool: The tool as the plan names it; None for prose.
        path: Where in the step: `tool`, `agent`, `depends_on`, or `args.items[0].sku`.
        got: What stands there: a name, a JSON type, or a shortened value. May hold content.
        expected: What was to stand there.
        did_you_mean: Known names or values that are near, nearest first.
        fix: The way out, in one line and without content of the plan.
        available: What there is to choose from; cut after 20.
    """

    code: ErrorCode
    step: str
    tool: str | None
    path: str
    got: str
    expected: str
    did_you_mean: tuple[str, ...] = ()
    fix: str = ""
    available: tuple[str, ...] = ()

    def line(self, *, content: bool = True) -> str:
        """The error in one line.

        Args:
            content: Whether what the plan holds may be quoted; names of tools and arguments always are.
        """
        names = [f"step {self.step}"] if self.step else []
        names += [f"`{shorten(self.tool)}`"] if self.tool and self.code is not ErrorCode.UNKNOWN_TOOL else []
        where = f"{', '.join(names)}: " if names else ""
        return f"{where}{self._what(content=content)} ({self.code}). Fix: {self.fix}."

    def _what(self, *, content: bool) -> str:
        match self.code:
            case ErrorCode.UNKNOWN_TOOL:
                return f"there is no tool `{shorten(self.tool or '')}`"
            case ErrorCode.MISSING_ARGUMENT:
                return f"{self.path} is missing, it takes {self.expected}"
            case ErrorCode.UNKNOWN_ARGUMENT:
                takes = f"; there are {', '.join(self.available)}" if self.available else ""
                return f"{self.path} is no argument of it{takes}"
            case ErrorCode.DUPLICATE_EFFECT:
                return self.got
            case _:
                got = f", got {self.got}" if content and self.got else ""
                return f"{self.path}: expected {self.expected}{got}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """The verdict on one plan.

    Attributes:
        plan: The plan in the neutral shape, tools under the names of the registry.
        errors: Everything that is wrong, in the order of the steps; empty when it can be executed.
    """

    plan: tuple[PlanStep, ...]
    errors: tuple[PlanError, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every step can be executed as it stands."""
        return not self.errors

    def feedback(self) -> str:
        """Text for the planner: what is wrong, what exists, and the one-line fix of each error.

        Returns:
            Empty when the plan is fine.
        """
        return feedback(self.errors)


def feedback(errors: Sequence[PlanError], *, content: bool = True) -> str:
    """Text for whoever made the plan or the call.

    Args:
        errors: What is wrong.
        content: Whether what the plan holds may be quoted.

    Returns:
        A heading, a line for each of the first 20 errors, and the names there are to choose from.
    """
    if not errors:
        return ""
    count = f"{len(errors)} error{'s' if len(errors) > 1 else ''}"
    lines = [f"[agentguard] ({SIGNATURE}) This cannot be executed as it stands, {count}:"]
    lines += [f"- {error.line(content=content)}" for error in errors[:_MOST_ERRORS]]
    if len(errors) > _MOST_ERRORS:
        lines.append(f"- and {len(errors) - _MOST_ERRORS} more.")
    tools = next((e.available for e in errors if e.code is ErrorCode.UNKNOWN_TOOL), ())
    if tools:
        lines.append(f"Tools there are: {', '.join(tools)}.")
    return "\n".join(lines)


def cut(names: Sequence[str]) -> tuple[str, ...]:
    """The first 20 of what there is, and how many more."""
    if len(names) <= _MOST_NAMES:
        return tuple(names)
    return (*names[:_MOST_NAMES], f"... and {len(names) - _MOST_NAMES} more")


def shorten(text: str, most: int = 80) -> str:
    """One line of at most `most` characters."""
    flat = " ".join(text[: most * 2].split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"
