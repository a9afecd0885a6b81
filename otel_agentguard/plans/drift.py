"""How what is done compares with what was planned.

The measure follows arXiv 2604.12147: coverage, order and fidelity, and their geometric mean.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from otel_agentguard.events import PlanStep, ToolCall
from otel_agentguard.plans.names import fold, split_prefix
from otel_agentguard.plans.references import StepIndex, scan_plan
from otel_agentguard.plans.shapes import MODEL_TOOLS, Hint

_LONGEST_TOKEN = 200
_TELLING = re.compile(r"[\d@/.]")
_WORD = re.compile(r"\w+")


class Standing(StrEnum):
    """How a call stands to the plan."""

    ON_PLAN = "on_plan"
    SKIPPED = "skipped"
    REORDERED = "reordered"
    EXTRA = "extra"
    ARGUMENT_DRIFT = "argument_drift"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a call belongs in a plan.

    Attributes:
        standing: How it stands to the plan.
        step: The planned step that it carries out; None for an extra call.
        passed_over: Ids of planned steps that should have come before it and have not.
        differing: Names of arguments that are another thing than planned, not only other words.
        repeat: It is the same as a call that carried out a step before.
    """

    standing: Standing
    step: PlanStep | None = None
    passed_over: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class Drift:
    """How far a run has strayed from its plan.

    Attributes:
        planned: Steps of the plan that call a tool and are not optional.
        matched: Planned steps that were carried out.
        executed: Calls that succeeded since the plan was made.
        coverage: matched / planned.
        order: Longest increasing subsequence of the matched steps / matched.
        fidelity: Calls that carry out a planned step / executed.
        drift: 1 - geometric mean of the three; 0 is to the letter.
    """

    planned: int
    matched: int
    executed: int
    coverage: float
    order: float
    fidelity: float
    drift: float


class _Step:
    """A planned step that calls a tool."""

    __slots__ = (
        "carried",
        "done",
        "drifted",
        "known",
        "names",
        "open_ended",
        "place",
        "planned",
        "requires",
        "reserved",
    )

    def __init__(self, place: int, planned: PlanStep, names: frozenset[str]) -> None:
        self.place = place
        self.planned = planned
        self.names = names
        self.done = False
        self.drifted = False
        self.reserved = False
        self.carried = False
        self.requires: frozenset[int] = frozenset()
        self.open_ended = planned.arguments is None
        self.known: dict[str, object] = {}

    @property
    def needed(self) -> bool:
        return not (self.planned.optional or self.carried)


class FollowedPlan:
    """One version of a plan, and how far it has been carried out.

    A step whose arguments the plan leaves open, or fills from an earlier step, stands for any number of
    calls of its tool. Steps that say the same as a finished step of the version before need not be done
    again. Keeps references to the steps and 16 bytes for each of them; no arguments of calls.

    Args:
        steps: The plan.
        known_as: For names of tools that do not exist, the names that were meant.
        before: The version that it replaces.
    """

    def __init__(
        self,
        steps: Sequence[PlanStep],
        *,
        known_as: Mapping[str, Sequence[str]] | None = None,
        before: FollowedPlan | None = None,
    ) -> None:
        self.steps = tuple(steps)
        self.version: int = 1 if before is None else before.version + 1
        index = StepIndex([step.id for step in steps])
        self._by_place: dict[int, _Step] = {}
        finished = [] if before is None else before.finished()
        links: dict[int, set[int]] = {}
        for place, planned in enumerate(steps):
            links[place] = {found for target in planned.depends_on if (found := index.find(target)) is not None}
            if planned.tool is None or planned.tool in MODEL_TOOLS:
                continue
            meant = (known_as or {}).get(planned.tool, ())
            step = _Step(place, planned, frozenset(map(_key, (planned.tool, *meant))))
            links[place] |= _read_arguments(step, index)
            step.carried = any(planned.tool == old.tool and planned.arguments == old.arguments for old in finished)
            self._by_place[place] = step
        ordered = any(links.values())
        for place, step in self._by_place.items():
            step.requires = _all_before(place, links) if ordered else frozenset(range(place))
        self.binding = 2 * len(self._by_place) >= len(steps) > 0
        self._order: list[tuple[str | None, int]] = []
        self._pending: dict[int, tuple[_Step | None, Placement]] = {}
        self._done_calls: set[bytes] = set()
        self._executed = 0
        self._on_plan = 0

    def place(self, call: ToolCall) -> Placement:
        """Say where a call belongs, and keep the place for it until `settle`; asked again, it says the same."""
        held = self._pending.get(id(call))
        if held is not None:
            return held[1]
        arguments = call.arguments or {}
        asked = _key(call.tool)
        mine = [(step, _differing(step, arguments)) for step in self._by_place.values() if asked in step.names]
        step, differing = self._choose(mine, call)
        if step is not None:
            placement = self._placement(step, differing)
            step.reserved = True
        elif (again := next((s for s, differing in mine if s.open_ended and not differing), None)) is not None:
            placement = Placement(standing=Standing.ON_PLAN, step=again.planned)
        else:
            repeat = call.fingerprint is not None and call.fingerprint in self._done_calls
            placement = Placement(standing=Standing.EXTRA, repeat=repeat)
        self._pending[id(call)] = (step, placement)
        return placement

    def settle(self, call: ToolCall, *, happened: bool) -> None:
        """Count a call that was placed; one that did not happen gives its place back."""
        held = self._pending.pop(id(call), None)
        if held is None:
            return
        step, placement = held
        if step is not None:
            step.reserved = False
        if not happened:
            return
        self._executed += 1
        if step is None:
            self._on_plan += placement.standing is not Standing.EXTRA
            return
        step.drifted = bool(placement.differing)
        if not step.done:
            step.done = True
            self._on_plan += 1
            self._order.append((call.batch, step.place))
        if call.fingerprint is not None and len(self._done_calls) < 2 * len(self.steps):
            self._done_calls.add(call.fingerprint)

    def release(self) -> None:
        """Give back the places of calls that nobody will finish, after a crash."""
        for step, _ in self._pending.values():
            if step is not None:
                step.reserved = False
        self._pending.clear()

    def finished(self) -> list[PlanStep]:
        """The steps that were carried out."""
        return [step.planned for step in self._by_place.values() if step.done]

    def next_step(self) -> PlanStep | None:
        """The first step that is still to be carried out; None when the plan has come to its end."""
        return next((s.planned for s in self._by_place.values() if s.needed and not s.done and not s.reserved), None)

    def drift(self) -> Drift:
        """How far the run has strayed so far; coverage is low while it is still under way."""
        steps = self._by_place.values()
        planned = sum(step.needed or step.done for step in steps)
        matched = sum(step.done for step in steps)
        coverage = matched / planned if planned else 1.0
        order = _longest_rise(_places(self._order)) / matched if matched else 1.0
        fidelity = self._on_plan / self._executed if self._executed else 1.0
        return Drift(
            planned=planned,
            matched=matched,
            executed=self._executed,
            coverage=coverage,
            order=order,
            fidelity=fidelity,
            drift=1.0 - (coverage * order * fidelity) ** (1 / 3),
        )

    def _choose(
        self, mine: Sequence[tuple[_Step, tuple[str, ...]]], call: ToolCall
    ) -> tuple[_Step | None, tuple[str, ...]]:
        """The step that a call carries out: one that it fits, also where another call had taken its place."""
        free = [pair for pair in mine if not pair[0].done and not pair[0].reserved]
        taken = [pair for pair in mine if pair[0].done and pair[0].drifted]
        fitting = [pair for pair in (*free, *taken) if not pair[1]]
        if fitting:
            return max(fitting, key=lambda pair: _fit(pair[0], call))
        return min(free, key=lambda pair: len(pair[1]), default=(None, ()))

    def _placement(self, step: _Step, differing: tuple[str, ...]) -> Placement:
        earlier = (self._by_place.get(place) for place in sorted(step.requires))
        late = [one for one in earlier if one is not None and one.needed and not one.done and not one.reserved]
        if differing:
            standing = Standing.ARGUMENT_DRIFT
        elif any(step.place in one.requires for one in self._by_place.values() if one.done):
            standing = Standing.REORDERED
        else:
            standing = Standing.SKIPPED if late else Standing.ON_PLAN
        return Placement(
            standing=standing,
            step=step.planned,
            passed_over=tuple(one.planned.id for one in late),
            differing=differing,
        )


def _key(tool: str) -> str:
    return fold(split_prefix(tool)[1])


def _read_arguments(step: _Step, index: StepIndex) -> set[int]:
    """Split what the plan says of arguments into what is known and what is open; the steps that it names."""
    arguments = step.planned.arguments
    if arguments is None:
        return set()
    scan = scan_plan(arguments, index)
    open_names: set[object] = set()
    links: set[int] = set()
    if scan is not None:
        open_names = {path[0] for path in (*scan.untyped, *scan.partial) if path}
        links = {found for one in scan.references if (found := index.find(one.target)) is not None}
    step.open_ended = bool(open_names)
    step.known = {name: value for name, value in arguments.items() if name not in open_names}
    return links


def _differing(step: _Step, arguments: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(
        name for name, value in step.known.items() if name in arguments and not _compatible(value, arguments[name])
    )


def _fit(step: _Step, call: ToolCall) -> tuple[int, bool]:
    """How well a call fits a step that it can carry out: values to the letter, then the agent."""
    arguments = call.arguments or {}
    exact = sum(name in arguments and arguments[name] == value for name, value in step.known.items())
    return exact, step.planned.agent in (None, call.agent)


def _compatible(planned: object, given: object) -> bool:
    """Whether a value can be what the plan meant: words may be others (`customer`), ids and numbers may not."""
    if planned is None or isinstance(planned, Hint) or planned == given:
        return True
    if isinstance(planned, bool) or isinstance(given, bool):
        return False
    if isinstance(planned, str | int | float) and isinstance(given, str | int | float):
        a, b = str(planned).strip().casefold(), str(given).strip().casefold()
        if not _is_identifier(a) or len(b) > _LONGEST_TOKEN:
            return True
        number_a, number_b = _number(a), _number(b)
        if number_a is not None and number_b is not None:
            return number_a == number_b
        parts_a, parts_b = set(_WORD.findall(a)), set(_WORD.findall(b))
        return parts_a <= parts_b or parts_b <= parts_a
    if isinstance(planned, list | tuple) and isinstance(given, list | tuple):
        return len(planned) == len(given) and all(map(_compatible, planned, given))
    if isinstance(planned, Mapping) and isinstance(given, Mapping):
        return all(name in given and _compatible(value, given[name]) for name, value in planned.items())
    return type(planned) is not type(given)


def _is_identifier(text: str) -> bool:
    """Numbers, ids, addresses, paths: what has no other wording."""
    return len(text) <= _LONGEST_TOKEN and len(text.split()) == 1 and _TELLING.search(text) is not None


def _number(text: str) -> float | None:
    try:
        return float(text.strip("$€£%").replace(",", ""))
    except ValueError:
        return None


def _all_before(place: int, links: Mapping[int, Iterable[int]]) -> frozenset[int]:
    seen: set[int] = set()
    todo = list(links[place])
    while todo:
        one = todo.pop()
        if one not in seen and one != place:
            seen.add(one)
            todo += links[one]
    return frozenset(seen)


def _places(order: Sequence[tuple[str | None, int]]) -> list[int]:
    """The places of matched steps as executed; calls of one model turn have no order among themselves."""
    places: list[int] = []
    begin = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or order[end][0] is None or order[end][0] != order[begin][0]:
            places += sorted(place for _, place in order[begin:end])
            begin = end
    return places


def _longest_rise(places: Sequence[int]) -> int:
    tails: list[int] = []
    for place in places:
        at = bisect_left(tails, place)
        tails[at : at + 1] = [place]
    return len(tails)
