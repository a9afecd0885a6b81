"""`run()`: where a run begins, and where a stopped one always ends in `RunAborted`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Token
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar
from uuid import uuid4

from opentelemetry import baggage, context
from opentelemetry.context import Context

from otel_agentguard.checks.budget import load_prices
from otel_agentguard.config import Budget, Settings
from otel_agentguard.current import SCOPE_KEY, Scope, scope
from otel_agentguard.effects.calls import RunEffects
from otel_agentguard.errors import ConfigError, RunAborted
from otel_agentguard.events import Evidence, Memory, MemoryOperation, ToolSpec, Trigger, Turn
from otel_agentguard.findings import CheckName, Finding
from otel_agentguard.guard import Guard, installed
from otel_agentguard.loading import with_values
from otel_agentguard.runs import Run
from otel_agentguard.seams import memories, plans
from otel_agentguard.seams.hints import hints_of
from otel_agentguard.seams.step import stopped
from otel_agentguard.seams.stops import recall_stop, recall_stop_async
from otel_agentguard.seams.turns import take_turn
from otel_agentguard.semconv import BAGGAGE_RUN_ID

if TYPE_CHECKING:
    from otel_agentguard.memory.recall import Recalled
    from otel_agentguard.plans.report import PlanReport
    from otel_agentguard.plans.validate import Agents

_P = ParamSpec("_P")
_R = TypeVar("_R")
_LEAST_HINT_CHARS = 100
_INTENTS = frozenset({Trigger.USER, Trigger.TIMER, Trigger.CRON, Trigger.HEARTBEAT})

# What ends the process or a generator from outside is no outcome of the run.
_PASS_THROUGH = (KeyboardInterrupt, SystemExit, GeneratorExit)


def run(
    run_id: str | None = None,
    *,
    agent: str | None = None,
    conversation: str | None = None,
    event: str | None = None,
    tools: plans.Tools | None = None,
    plan: object = None,
    budget: Budget | Mapping[str, object] | None = None,
    attended: bool | None = None,
    propagate: bool = False,
) -> RunHandle:
    """Open a run; used with `with` or `async with`.

    Without an id inside of another run it is that run under another agent name. With an id it is a
    child: its own steps and its own ladder, stopped by its parent's stop. However a stopped run is
    left, it ends in `RunAborted`, with what arrived as its `__cause__`.

    Args:
        run_id: Its id; the same id joins the run while it is alive, and later resumes it.
        agent: Who acts.
        conversation: The conversation that it belongs to.
        event: The outside event that it serves; the same one delivered again is no new intent.
        tools: What is known of its tools.
        plan: What it is going to do, in any shape that `check_plan` reads.
        budget: Most that it may use. A `Budget` takes the place of the one that was installed; a mapping
            changes single limits of that: `{"steps": 50, "agents": {"coder": {"tool_calls": 20}}}`. It needs
            an id inside of another run, since without one this is that run, whose budget holds.
        attended: Whether a person can be asked; the settings say where it is None.
        propagate: Whether its id goes into baggage, to be believed where `trust_baggage` is set.

    Returns:
        The handle, which `with` gives again.

    Raises:
        ConfigError: An argument cannot be used.
        MissingExtraError: The budget has a cost limit, and the prices are not installed.
    """
    if run_id is not None and (not isinstance(run_id, str) or not run_id):
        raise ConfigError(f"run_id is {run_id!r}; give a text, or leave it out for a new one")
    return RunHandle(
        run_id=run_id,
        agent=agent,
        conversation=conversation,
        event=event,
        tools=None if tools is None else plans.specs_of(tools),
        plan=plan,
        budget=None if budget is None else _checked(budget),
        attended=attended,
        propagate=propagate,
    )


class RunHandle:
    """A run, as the code inside of it sees it; made by `run()`.

    While no guard is installed it lets everything happen and knows nothing.
    """

    def __init__(
        self,
        *,
        run_id: str | None,
        agent: str | None,
        conversation: str | None,
        event: str | None,
        tools: Mapping[str, ToolSpec] | None,
        plan: object,
        budget: Budget | Mapping[str, object] | None,
        attended: bool | None,
        propagate: bool,
    ) -> None:
        self._asked_id = run_id
        self._agent = agent
        self._conversation = conversation
        self._event = event
        self._tools = tools
        self._plan = plan
        self._budget = budget
        self._attended = attended
        self._propagate = propagate
        self._guard: Guard | None = None
        self._run: Run | None = None
        self._scope: Scope | None = None
        self._token: Token[Context] | None = None
        self._same_run = False

    @property
    def run_id(self) -> str:
        """Id of the run.

        Raises:
            ConfigError: It has not been entered yet, and no id was given.
        """
        known = self._asked_id if self._scope is None else self._scope.run_id
        if known is None:
            raise ConfigError("this run has no id yet; enter it first: with run(...) as r")
        return known

    @property
    def finding(self) -> Finding | None:
        """Why the run was stopped, else the latest finding, else None."""
        if self._run is None:
            return None
        stop = self._run.stop_reason()
        if stop is not None:
            return stop
        with self._run.lock:
            return self._run.findings[-1] if self._run.findings else None

    def turn(
        self, trigger: Trigger | str, text: str | None = None, *, event: str | None = None, replay: bool = False
    ) -> None:
        """Say that something from outside sets the agent to work.

        Args:
            trigger: Who or what: `"user"`, `"timer"`, `"event"` and so on, see `Trigger`.
            text: What a user said.
            event: Identity of the outside event.
            replay: The turn runs recorded steps again.

        Raises:
            ConfigError: There is no such trigger.
            RunStopped: The run was stopped.
        """
        kind = _trigger(trigger)
        turn = Turn(trigger=kind, text=text, event=event, replay=replay)
        if self._scope is None:
            return
        if self._guard is not None:
            take_turn(self._guard, self._scope, turn)
        elif self._scope.effects is not None:
            new = not replay and (kind in _INTENTS if event is None else event != self._scope.effects.event)
            self._scope.effects.turn(new_intent=new, event=event)

    def notes(self) -> list[str]:
        """Notes for the model that no seam has delivered, oldest first; each is given out once."""
        return [] if self._run is None else self._run.drain_notes()

    def hints(self, max_chars: int = 2000) -> str:
        """What the model should know before its next turn: what has been repeated so far, and other notes.

        Args:
            max_chars: Most characters; whole lines are left out beyond it, the latest ones stay.
        """
        if self._run is None:
            return ""
        repeated = hints_of(self._run, max_chars)
        left = max_chars - len(repeated) - 1
        known = ""
        if self._guard is not None and self._guard.dedup is not None and left > _LEAST_HINT_CHARS:
            known = self._guard.dedup.hints(self._run.info, max_chars=left)
        return "\n".join(part for part in (known, repeated) if part)

    def visit(self, name: str, *, purpose: str | None = None, summary: str | None = None) -> None:
        """Note that a file or another resource was looked at, for this run and for later sessions.

        Args:
            name: The path, or the name of the resource.
            purpose: Why it was looked at.
            summary: What came of it. Purpose and summary are stored only with `store_content`.
        """
        if self._run is not None and self._guard is not None and self._guard.dedup is not None:
            self._guard.dedup.visit(self._run.info, name, purpose=purpose, summary=summary)

    def check_plan(self, plan: object, *, tools: object = None, agents: Agents | None = None) -> PlanReport:
        """Check a plan before it runs, and follow it from here on where it can run.

        Args:
            plan: In any shape that `otel_agentguard.plans.parse_plan` reads.
            tools: The tools that there are, as a `ToolRegistry` or `ToolSpec`s; those of the run where it is None.
            agents: Names of the agents that there are; or for each agent the tools that it may use.

        Returns:
            `.ok`, `.errors` (all at once), `.plan` (normalised) and `.feedback()` for the planner.

        Raises:
            ConfigError: A plan cannot be read from it.
            RunStopped: The run was stopped.
        """
        known = tools
        if known is None:
            known = self._tools if self._run is None else self._run.info.tools
        report = plans.checked(plan, known, agents)
        if self._guard is not None and self._scope is not None:
            plans.tell(self._guard, self._scope, report.plan)
        return report

    def remember(
        self,
        value: object,
        *,
        kind: str = "fact",
        evidence: Sequence[Evidence] = (),
        key: str | None = None,
        source: str | None = None,
        supersedes: str | None = None,
        hypothesis: bool = False,
    ) -> Memory:
        """Judge what is to be remembered by what this run really observed.

        Args:
            value: What is to be stored.
            kind: `fact`, `intent`, `preference` or `procedure`.
            evidence: Steps of this run that show it, with their words.
            key: Name of the entry.
            source: Who is said to have stated it: `user` or `tool`.
            supersedes: The entry that it corrects.
            hypothesis: It is marked as unproven.

        Returns:
            The memory with `.verdict`, `.weight`, `.reasons` and `.stamp`; unmarked while no guard is installed.

        Raises:
            ConfigError: The memory check is off.
            RunStopped: The run was stopped.
        """
        memory = Memory(
            operation=MemoryOperation.WRITE,
            key=key,
            value=value,
            source=source,
            kind=kind,
            evidence=tuple(evidence),
            supersedes=supersedes,
            hypothesis=hypothesis,
        )
        if self._guard is not None and self._scope is not None and self._run is not None:
            memories.must_judge(self._run)
            memories.tell(self._guard, self._scope, memory)
        return memory

    def recall(self, query: str = "", *, limit: int = 10) -> list[Recalled]:
        """What was remembered that fits a query, what is proven first; a guess never comes as a premise.

        Raises:
            ConfigError: The memory check is off.
        """
        return [] if self._run is None else memories.recalled(self._run, query, limit)

    @contextmanager
    def attach(self) -> Iterator[Self]:
        """Be in this run here too: in a thread or a callback that Python gave no context."""
        token = context.attach(self._within(context.get_current()))
        try:
            yield self
        finally:
            context.detach(token)

    def bind(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """A function that is in this run wherever it is called: `pool.submit(r.bind(work), item)`."""
        there = self._within(context.get_current())

        @functools.wraps(function)
        def bound(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            token = context.attach(there)
            try:
                return function(*args, **kwargs)
            finally:
                context.detach(token)

        return bound

    def __enter__(self) -> Self:
        """Enter the run.

        Raises:
            RunAborted: A run of this id was stopped, and not released since.
            RunStopped: The run around it was stopped.
        """
        if (guard := installed.guard) is not None:
            recall_stop(guard, self._asked_id, self._conversation)
        return self._enter()

    def _enter(self) -> Self:
        if self._token is not None:
            raise ConfigError(f"run {self.run_id!r} is entered already; call run() again for another entry")
        around = scope()
        guard = self._guard = installed.guard
        if guard is None:
            self._scope = replace(
                around,
                agent=self._agent or around.agent,
                run_id=self._asked_id or around.run_id or uuid4().hex,
                explicit=True,
            )
            if around.effects is None or around.run_id != self._scope.run_id:
                effects = RunEffects(run_id=self.run_id, session=self._conversation, event=self._event)
                self._scope = replace(self._scope, effects=effects)
        else:
            self._scope = self._entered(guard, around)
        self._token = context.attach(self._within(context.get_current()))
        if guard is not None and self._plan is not None and self._run is not None:
            try:
                plans.follow(guard, self._scope, self._run, self._plan)
            except BaseException as exc:
                self.__exit__(type(exc), exc, exc.__traceback__)
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the run.

        Raises:
            RunAborted: The run was stopped, whatever arrived here.
        """
        if self._token is not None:
            context.detach(self._token)
            self._token = None
        guard, run_ = self._guard, self._run
        if guard is None or run_ is None:
            return
        reason = run_.stop_reason() or run_.awaits_user
        if not self._same_run:
            guard.leave_run(run_, failed=error is not None)
        if reason is None or not guard.enforce or isinstance(error, _PASS_THROUGH):
            return
        if isinstance(error, RunAborted) and error.run_id == run_.run_id:
            return
        raise RunAborted(reason, run_id=run_.run_id) from error

    async def __aenter__(self) -> Self:
        """See `__enter__`."""
        if (guard := installed.guard) is not None:
            await recall_stop_async(guard, self._asked_id, self._conversation)
        return self._enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """See `__exit__`."""
        self.__exit__(kind, error, traceback)

    def _entered(self, guard: Guard, around: Scope) -> Scope:
        outer = around.run
        self._same_run = outer is not None and self._asked_id in (None, outer.run_id)
        if outer is not None and guard.enforce and (reason := outer.stop_reason()) is not None:
            raise stopped(around, outer, reason)
        if self._same_run and outer is not None:
            if self._budget is not None and self._asked_id is None:
                raise ConfigError(
                    "run() without an id inside of a run is that run, and has no budget of its own; give it an id, "
                    "or give the outer run a budget for this agent: budget.agents.NAME"
                )
            self._run = outer
            if self._tools:
                outer.info.tools = {**outer.info.tools, **self._tools}
                outer.info.tools_complete = True
        else:
            self._run = guard.enter_run(self._opened(guard, outer))
        return replace(
            around,
            run=self._run,
            agent=self._agent or (around.agent if self._same_run else None),
            run_id=self._run.run_id,
            explicit=True if not self._same_run else around.explicit,
            left=None,
        )

    def _opened(self, guard: Guard, parent: Run | None) -> Callable[[], Run]:
        settings: Settings | None = None
        if self._budget is not None:
            if not guard.engine.has_check(CheckName.BUDGET):
                raise ConfigError("run() has a budget, and install() leaves its check out; add 'budget' to checks")
            settings = replace(guard.settings, budget=_budget(self._budget, guard.settings))
        return functools.partial(
            guard.engine.open,
            self._asked_id,
            agent=self._agent or "agent",
            conversation=self._conversation,
            event=self._event,
            tools={**guard.specs, **(self._tools or {})},
            tools_complete=self._tools is not None,
            parent=parent,
            settings=settings,
            attended=self._attended,
        )

    def _within(self, ctx: Context) -> Context:
        if self._scope is None:
            raise ConfigError("this run has not been entered yet: with run(...) as r")
        if self._propagate and self._scope.run_id is not None:
            ctx = baggage.set_baggage(BAGGAGE_RUN_ID, self._scope.run_id, ctx)
        return context.set_value(SCOPE_KEY, self._scope, ctx)


def _checked(budget: Budget | Mapping[str, object]) -> Budget | Mapping[str, object]:
    load_prices(_budget(budget, Settings()))
    return budget


def _budget(asked: Budget | Mapping[str, object], installed: Settings) -> Budget:
    return asked if isinstance(asked, Budget) else with_values(installed, {"budget": asked}).budget


def _trigger(trigger: Trigger | str) -> Trigger:
    try:
        return Trigger(trigger)
    except ValueError:
        raise ConfigError(f"no trigger {trigger!r}; known: {', '.join(Trigger)}") from None
