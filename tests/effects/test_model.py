"""Every interleaving of three workers, with crashes, over the real state machine and the real decisions.

A world is one record, the number of effects so far, and where each worker stands. From each world every
worker makes every step that it could make; what holds in all worlds that can be reached holds always.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import ClassVar, NamedTuple

import pytest

from otel_agentguard.effects import ledger as table
from otel_agentguard.effects import machine
from otel_agentguard.effects.decisions import Decision, OnUnknown, decide
from otel_agentguard.effects.ledger import (
    AttemptRecord,
    Claimed,
    ClaimRequest,
    Counts,
    EffectRecord,
    Found,
    Liveness,
    Move,
    State,
    Verdict,
)
from otel_agentguard.effects.machine import Change, MachineLedger, first_record
from otel_agentguard.effects.ownership import Claims, process_of

REQUEST = ClaimRequest(key="k", effect="e", arguments="a", step="s", tool="t", run_id="r")


class At(StrEnum):
    IDLE = "idle"
    CLAIMED = "claimed"
    DONE_IT = "done it"
    RAISED = "raised"
    NOT_APPLIED = "not applied"
    TAKING_OVER = "taking over"
    LAPSING = "lapsing"
    VERIFYING = "verifying"
    VERIFIED = "verified"
    FINISHED = "finished"


RUNNING = {At.CLAIMED, At.DONE_IT, At.RAISED, At.NOT_APPLIED}


DEAD = "dead"


class Shared:
    """The one object of all equal records, so that worlds compare and hash fast."""

    __slots__ = ("record",)
    known: ClassVar[dict[EffectRecord, Shared]] = {}

    def __init__(self, record: EffectRecord) -> None:
        self.record = record


def shared(record: EffectRecord | None) -> Shared | None:
    if record is None:
        return None
    return Shared.known.get(record) or Shared.known.setdefault(record, Shared(record))


class Worker(NamedTuple):
    at: At = At.IDLE
    seen: Shared | None = None
    happened: bool = False


class World(NamedTuple):
    record: Shared | None
    effects: int
    troubles: int
    workers: tuple[Worker, ...]


class Step(NamedTuple):
    """What one worker can do next: how the record and the worker are afterwards, and what else changes."""

    name: str
    record: Shared | None
    worker: Worker
    effects: int = 0
    troubles: int = 0


class OwnClaims(Claims):
    """The claims of one worker.

    An attempt has one owner, so an owner is a worker and an attempt; that of a worker who died is called
    dead. So worlds that differ in nothing but their past are one.
    """

    def __init__(self, place: int, worker: Worker, attempt: int) -> None:
        self.process = str(place)
        self._running = {worker.seen.record.owner} if worker.at in RUNNING and worker.seen is not None else set()
        self._unanswered = {}
        self._attempt = attempt

    def owner_for(self, key: str) -> str:
        return f"{self.process}/{self._attempt + 1}"


class ModelLedger(MachineLedger):
    """The real machine as one worker of a world sees it."""

    def __init__(self, record: EffectRecord | None, place: int, worker: Worker, *, deaths_are_known: bool) -> None:
        self.record = record
        self._deaths_are_known = deaths_are_known
        self.claims = OwnClaims(place, worker, record.attempt if record is not None else 0)

    @property
    def url(self) -> str:
        return "model"

    def _create(self, request: ClaimRequest, owner: str) -> EffectRecord:
        if self.record is None:
            self.record = first_record(request, owner, 0.0)
        return self.record

    def _change(self, change: Change) -> EffectRecord | None:
        now = self.record
        if now is None or not change.fits(now):
            return None
        if change.gone and self._liveness_elsewhere(change.seen) is Liveness.ALIVE:
            return None
        self.record = change.applied(
            now_s=0.0,
            maybe_duplicates=now.maybe_duplicates + change.counted,
            confirmed_duplicates=now.confirmed_duplicates,
        )
        return self.record

    def _liveness_elsewhere(self, record: EffectRecord) -> Liveness:
        if not self._deaths_are_known:
            return Liveness.LAPSED
        return Liveness.DEAD if process_of(record.owner) == DEAD else Liveness.ALIVE

    def _count_late(self, key: str, attempt: int) -> None:
        assert self.record is not None
        counted = self.record.confirmed_duplicates + 1
        self.record = replace(self.record, confirmed_duplicates=counted)

    def get(self, key: str) -> EffectRecord | None:
        return self.record

    def history(self, effect: str) -> Sequence[EffectRecord]:
        raise NotImplementedError

    def attempts(self, key: str) -> Sequence[AttemptRecord]:
        raise NotImplementedError

    def list(
        self, *, state: State | None = None, tool: str | None = None, run_id: str | None = None, limit: int = 100
    ) -> Sequence[EffectRecord]:
        raise NotImplementedError

    def unsettled(self) -> Mapping[str, int]:
        raise NotImplementedError

    def renew(self, key: str) -> bool:
        raise NotImplementedError

    def gc(self, older_than_s: float) -> int:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Model:
    """Who there is and what may go wrong.

    Args:
        policy: What a worker does that finds an unknown outcome.
        deaths_are_known: Whether the dead are told from the living; else any owner may be taken for dead.
        troubles: How many deaths and errors there are at most, in all.
        errors: Whether bodies raise, besides that workers die.
    """

    def __init__(
        self, policy: OnUnknown, *, deaths_are_known: bool, workers: int = 3, troubles: int = 3, errors: bool = False
    ) -> None:
        self.policy = policy
        self.deaths_are_known = deaths_are_known
        self.workers = workers
        self.troubles = troubles
        self.errors = errors
        self._steps_known: dict[tuple[object, ...], list[Step]] = {}

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        record, effects, troubles, workers = world
        for place, worker in enumerate(workers):
            if worker.at is At.FINISHED:
                continue
            given = (record, place, worker, effects > 0)
            steps = self._steps_known.get(given)
            if steps is None:
                steps = self._steps_known[given] = list(self._steps_of(record, place, worker, happened=effects > 0))
            for step in steps:
                if troubles + step.troubles <= self.troubles:
                    after = (*workers[:place], step.worker, *workers[place + 1 :])
                    yield step.name, World(step.record, effects + step.effects, troubles + step.troubles, after)
            if troubles < self.troubles:
                yield f"{place} dies", _without(world, place)

    def _steps_of(self, record: Shared | None, place: int, worker: Worker, *, happened: bool) -> Iterator[Step]:
        ledger = ModelLedger(record.record if record else None, place, worker, deaths_are_known=self.deaths_are_known)
        match worker.at:
            case At.IDLE | At.TAKING_OVER:
                yield self._claim(place, ledger, worker.seen)
                return
            case At.VERIFYING:
                yield Step(f"{place} asks the callee: {happened}", record, Worker(At.VERIFIED, worker.seen, happened))
                return
            case At.CLAIMED:
                yield Step(f"{place} causes the effect", record, worker._replace(at=At.DONE_IT), effects=1)
                if self.errors:
                    yield Step(f"{place} raises", record, worker._replace(at=At.RAISED), troubles=1)
                    yield Step(f"{place} does nothing", record, worker._replace(at=At.NOT_APPLIED), troubles=1)
                return
        assert worker.seen is not None
        seen = worker.seen.record
        match worker.at:
            case At.DONE_IT:
                verdict = ledger.complete(Claimed(seen), b"%d" % seen.attempt).verdict
                assert verdict is not Verdict.LOST
                yield Step(f"{place} completes: {verdict}", shared(ledger.record), FINISHED)
                if self.errors:
                    yield Step(f"{place} raises after the effect", record, worker._replace(at=At.RAISED), troubles=1)
            case At.RAISED:
                ledger.mark_unknown(Claimed(seen))
                yield Step(f"{place} marks unknown", shared(ledger.record), Worker())
            case At.NOT_APPLIED:
                ledger.release(Claimed(seen))
                yield Step(f"{place} releases", shared(ledger.record), Worker())
            case At.LAPSING:
                marked = ledger.mark_unknown(Found(seen, ledger.liveness(seen)))
                yield Step(f"{place} lapses it: {marked}", shared(ledger.record), FINISHED if marked else Worker())
            case At.VERIFIED:
                written = ledger.resolve(seen, applied=worker.happened, result=b"verified")
                after = FINISHED if written and worker.happened else Worker()
                yield Step(f"{place} resolves: {written}", shared(ledger.record), after)

    def _claim(self, place: int, ledger: ModelLedger, seen: Shared | None) -> Step:
        answer = ledger.claim(REQUEST, over=seen.record if seen else None)
        if isinstance(answer, Claimed):
            return Step(f"{place} claims", shared(ledger.record), Worker(At.CLAIMED, shared(answer.record)))
        found = answer.record
        decision = decide(found, answer.liveness, step="s", arguments="a", on_unknown=self.policy)
        after = {
            Decision.REPLAY: FINISHED,
            Decision.WAIT: Worker(),
            Decision.CLAIM: Worker(),
            Decision.TAKE_OVER: Worker(At.TAKING_OVER, shared(found)),
            Decision.VERIFY: Worker(At.VERIFYING, shared(found)),
            Decision.BLOCK: Worker(At.LAPSING, shared(found)) if found.state is State.STARTED else FINISHED,
        }[decision]
        return Step(f"{place} finds it: {decision}", shared(ledger.record), after)


FINISHED = Worker(At.FINISHED)


def _without(world: World, place: int) -> World:
    """The world in which one worker has died and started again."""

    def renamed(seen: Shared | None) -> Shared | None:
        if seen is None or process_of(seen.record.owner) != str(place):
            return seen
        return shared(replace(seen.record, owner=f"{DEAD}/{seen.record.attempt}"))

    workers = tuple(
        Worker() if other == place else worker._replace(seen=renamed(worker.seen))
        for other, worker in enumerate(world.workers)
    )
    return World(renamed(world.record), world.effects, world.troubles + 1, workers)


def explore(model: Model) -> tuple[set[World], list[World], str]:
    """All worlds, those in which nothing can happen any more, and the shortest way to a wrong one."""
    first = World(None, 0, 0, (Worker(),) * model.workers)
    came_from: dict[World, tuple[World, str] | None] = {first: None}
    ends: list[World] = []
    todo = deque([first])
    while todo:
        world = todo.popleft()
        is_end = True
        for name, after in model.steps(world):
            if after == world:
                continue
            is_end = False
            if after in came_from:
                continue
            came_from[after] = (world, name)
            todo.append(after)
            wrong = what_is_wrong(model, world, after)
            if wrong:
                return set(came_from), ends, f"{wrong}: {_way(came_from, after)}"
        if is_end:
            ends.append(world)
    return set(came_from), ends, ""


def what_is_wrong(model: Model, before: World, after: World) -> str:
    """What the second of two worlds must not be, in words; empty where it is in order."""
    if model.policy is OnUnknown.BLOCK and after.effects > 1:
        return "at most once, yet twice"
    if after.record is None:
        return ""
    record, earlier = after.record.record, before.record.record if before.record else None
    if after.effects > 1 + record.maybe_duplicates:
        return "more effects than were counted"
    if record.confirmed_duplicates > record.maybe_duplicates:
        return "more duplicates confirmed than were thought possible"
    if record.state is State.SUCCEEDED and after.effects == 0:
        return "a success without an effect"
    was_settled = earlier is not None and earlier.state is State.SUCCEEDED
    if was_settled and (record.state, record.result) != (earlier.state, earlier.result):
        return "a recorded success was overwritten"
    return ""


def _way(came_from: dict[World, tuple[World, str] | None], world: World) -> str:
    names: list[str] = []
    while (origin := came_from[world]) is not None:
        world, name = origin
        names.append(name)
    return "; ".join(reversed(names))


@pytest.mark.parametrize("policy", OnUnknown)
@pytest.mark.parametrize("deaths_are_known", [True, False], ids=["deaths known", "leases"])
@pytest.mark.parametrize("errors", [False, True], ids=["deaths", "deaths and errors"])
def test_no_interleaving_breaks_a_promise(policy: OnUnknown, *, deaths_are_known: bool, errors: bool) -> None:
    workers = 2 if errors and not deaths_are_known else 3
    model = Model(policy, deaths_are_known=deaths_are_known, errors=errors, workers=workers)

    worlds, ends, wrong = explore(model)

    assert not wrong
    assert len(worlds) > 200
    allowed = {State.SUCCEEDED, State.UNKNOWN} if policy is OnUnknown.BLOCK else {State.SUCCEEDED}
    assert {end.record.record.state for end in ends if end.record is not None} <= allowed


def test_verification_never_repeats_an_effect_where_deaths_are_known() -> None:
    worlds, _, _ = explore(Model(OnUnknown.VERIFY, deaths_are_known=True))

    assert max(world.effects for world in worlds) == 1


@pytest.mark.parametrize(
    ("move", "broken", "model"),
    [
        (Move.TAKE_OVER, {"counts": Counts.NEVER}, Model(OnUnknown.RETRY, deaths_are_known=True)),
        (Move.RESOLVE_NOT_APPLIED, {"counts": Counts.NEVER}, Model(OnUnknown.VERIFY, deaths_are_known=False)),
        (Move.MARK_UNKNOWN, {"target": State.RETRYABLE}, Model(OnUnknown.BLOCK, deaths_are_known=True, errors=True)),
        (Move.LAPSE, {"target": State.RETRYABLE}, Model(OnUnknown.BLOCK, deaths_are_known=False)),
    ],
    ids=["takeover not counted", "verification not counted", "errors taken for not applied", "lapses retried"],
)
def test_the_model_notices_a_wrong_table(
    move: Move, broken: dict[str, object], model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tuple(replace(row, **broken) if row.move is move else row for row in table.TRANSITIONS)
    monkeypatch.setattr(table, "TRANSITIONS", rows)
    monkeypatch.setattr(machine, "TRANSITIONS", rows)

    _, _, wrong = explore(model)

    assert wrong
