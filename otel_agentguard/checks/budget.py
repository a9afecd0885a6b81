"""The budget check: what a run and its agents may use, with a hint on the way and a stop before it is exceeded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Self
from weakref import WeakValueDictionary

from xxhash import xxh3_128_digest

from otel_agentguard import words
from otel_agentguard.config import Budget, Settings
from otel_agentguard.events import Event, Handoff, Message, ModelCall, Outcome, ToolCall
from otel_agentguard.findings import Action, CheckName, Finding, Kind, Severity
from otel_agentguard.forks import new_lock
from otel_agentguard.protocols import RunInfo

_NOTHING: tuple[Finding, ...] = ()
_SEAMS = (ToolCall, ModelCall, Message, Handoff)
_COUNTED = frozenset({"steps", "tool_calls", "model_calls", "handoffs"})
_MAX_UNPRICED = 16

Price = Callable[[str, int, int], "float | None"]


def load_prices(budget: Budget) -> None:
    """Load the price lists, where the budget or one of its agents' has a cost limit.

    Raises:
        MissingExtraError: There is a cost limit, and the library with the prices is not installed.
    """
    if any(one.cost_usd is not None for one in (budget, *budget.agents.values())):
        _prices()


@cache
def _prices() -> Price:
    price: Price = import_module("otel_agentguard.prices").price_usd
    return price


class BudgetCheck:
    """Counts what runs use against `Settings.budget`, and what their children use too.

    A limit on steps, calls or handoffs is kept to exactly: the event that would go over does not
    happen. Tokens, cost and time are known only afterwards, so the next event is the one that does not.
    """

    name = CheckName.BUDGET.value

    def __init__(self) -> None:
        self._runs: WeakValueDictionary[str, BudgetRun] = WeakValueDictionary()

    @classmethod
    def for_settings(cls, settings: Settings) -> Self:
        """The check for these settings.

        Raises:
            MissingExtraError: See `load_prices`.
        """
        load_prices(settings.budget)
        return cls()

    def open(self, run: RunInfo) -> BudgetRun | None:
        """The counters of one run; None where neither it nor a run above it has a limit."""
        above = self._runs.get(run.parent) if run.parent is not None else None
        opened = BudgetRun(run, above)
        if not opened.accounts:
            return None
        load_prices(run.settings.budget)
        self._runs[run.run_id] = opened
        return opened


class BudgetRun:
    """The budget check in one run.

    Args:
        run: The run.
        above: The same check in its parent, where that has a limit.

    Attributes:
        accounts: Everything that this run draws on: its own budget, those of its agents, and what its parent
            draws on.
    """

    __slots__ = ("__weakref__", "_run", "_spent", "_unpriced", "accounts")

    def __init__(self, run: RunInfo, above: BudgetRun | None = None) -> None:
        self._run = run
        budget = run.settings.budget
        own = [_Account(run, one, agent) for agent, one in ((None, budget), *budget.agents.items()) if one.limits()]
        self.accounts: tuple[_Account, ...] = (*own, *(above.accounts if above is not None else ()))
        self._spent: dict[bytes, _Spent] = {}
        self._unpriced: set[str] = set()

    def before(self, event: Event) -> Sequence[Finding]:
        """Count an event that is about to happen; a stop where a limit does not allow it."""
        spent = [one for account in self.accounts if account.covers(event) for one in account.begin(event)]
        return [self._stop(event, one) for one in spent] if spent else _NOTHING

    def after(self, event: Event) -> Sequence[Finding]:
        """Count what an event has used; a hint where most of a limit is gone."""
        if event.refused:
            for account in self.accounts:
                if account.covers(event):
                    account.undo(event)
            return _NOTHING
        found: list[Finding] = []
        cost = 0.0
        if isinstance(event, ModelCall):
            cost = self._cost(event, found)
        for account in self.accounts:
            if account.covers(event):
                found += [_finding(event, one, Action.HINT, Severity.WARN) for one in account.end(event, cost)]
        return found or _NOTHING

    def approved(self, finding: Finding, share: float) -> Finding:
        """A person allows more: the limit that ran out grows by this share of what it was at first.

        Returns:
            The finding with what the model is to be told now.
        """
        spent = self._spent.pop(finding.signature, None)
        if spent is None:
            return finding
        more = spent.account.extend(spent.limit, spent.extensions, share)
        return replace(finding, message=words.budget_extended(spent.limit, more, spent.whose))

    def _stop(self, event: Event, spent: _Spent) -> Finding:
        overshot = spent.used > spent.most and spent.limit not in _COUNTED
        finding = _finding(event, spent, Action.STOP, Severity.ERROR if overshot else Severity.WARN)
        self._spent[finding.signature] = spent
        return finding

    def _cost(self, call: ModelCall, found: list[Finding]) -> float:
        """Price of a model call, where somebody asks for it; a finding where it cannot be told."""
        asks = {name for account in self.accounts if account.covers(call) for name in account.asks}
        if not asks & {"tokens", "cost_usd"} or call.outcome is not Outcome.OK:
            return 0.0
        if call.input_tokens is None and call.output_tokens is None:
            self._tell_blind(call, found, words.tokens_unknown(call.model), "tokens")
            return 0.0
        if "cost_usd" not in asks:
            return 0.0
        price = _prices()(call.model, call.input_tokens or 0, call.output_tokens or 0)
        if price is None:
            self._tell_blind(call, found, words.price_unknown(call.model), "price")
        return price or 0.0

    def _tell_blind(self, call: ModelCall, found: list[Finding], explanation: str, what: str) -> None:
        """Say once for each model that a limit does not see its calls."""
        key = f"{what} {call.model}"
        if key in self._unpriced or len(self._unpriced) >= _MAX_UNPRICED:
            return
        self._unpriced.add(key)
        found.append(
            Finding(
                check=CheckName.BUDGET.value,
                kind=Kind.BUDGET,
                severity=Severity.WARN,
                step=call.step,
                signature=xxh3_128_digest(key.encode("utf-8", "surrogatepass")),
                message="",
                explanation=explanation,
                evidence=(call.step,),
                agent=call.agent,
                count=1,
            )
        )


@dataclass(frozen=True, slots=True)
class _Spent:
    """A limit that is used up, or nearly so."""

    account: _Account
    limit: str
    used: float
    most: float
    extensions: int

    @property
    def whose(self) -> str:
        agent = self.account.agent
        return "this run" if agent is None else f"the agent {agent}"

    @property
    def setting(self) -> str:
        agent = self.account.agent
        return f"budget.{self.limit}" if agent is None else f"budget.agents.{agent}.{self.limit}"


class _Account:
    """One budget and what was used of it; a run and its children share it, in whatever threads they are.

    Attributes:
        agent: The agent that it is for; None for the whole run.
        run_id: The run that was given the budget.
        asks: Names of its limits.
    """

    __slots__ = (
        "_budget",
        "_extensions",
        "_latest_s",
        "_limits",
        "_lock",
        "_opened_s",
        "_told",
        "_used",
        "agent",
        "asks",
        "run_id",
    )

    def __init__(self, run: RunInfo, budget: Budget, agent: str | None) -> None:
        self.agent = agent
        self.run_id = run.run_id
        self.asks = frozenset(budget.limits())
        self._budget = budget
        self._limits = budget.limits()
        self._extensions = dict.fromkeys(self._limits, 0)
        self._used = dict.fromkeys(self._limits, 0.0)
        self._told: set[str] = set()
        self._opened_s = run.opened_s
        self._latest_s = run.opened_s
        self._lock = new_lock()

    def covers(self, event: Event) -> bool:
        """Whether the event is paid from here."""
        return self.agent is None or self.agent == event.agent

    def begin(self, event: Event) -> list[_Spent]:
        """Count an event before it happens, so that calls at the same time cannot share the last one."""
        with self._lock:
            self._count(event, 1)
            self._at(event.at_s)
            if not isinstance(event, _SEAMS):
                return []
            return [self._spent(name) for name, most in self._limits.items() if self._over(name, most, event)]

    def undo(self, event: Event) -> None:
        """Take back what did not happen; the attempt remains a step."""
        with self._lock:
            self._count(event, -1, attempt=True)

    def end(self, event: Event, cost: float) -> list[_Spent]:
        """Count what is known afterwards; the limits that are nearly used up by now, each told once."""
        with self._lock:
            if isinstance(event, ToolCall) and (event.outcome is Outcome.NOT_EXECUTED or event.served_from is not None):
                self._count(event, -1, attempt=True)
            if isinstance(event, ModelCall):
                self._add("tokens", (event.input_tokens or 0) + (event.output_tokens or 0))
                self._add("cost_usd", cost)
            self._at(event.ended_s if isinstance(event, ToolCall | ModelCall) else event.at_s)
            near = [name for name, most in self._limits.items() if self._nearly(name, most)]
            self._told.update(near)
            return [self._spent(name) for name in near]

    def extend(self, name: str, extensions: int, share: float) -> float:
        """Raise a limit, unless somebody did so since `extensions` was read; the limit as it is now."""
        with self._lock:
            if self._extensions[name] == extensions:
                self._extensions[name] += 1
                self._limits[name] += share * self._budget.limits()[name]
                self._told.discard(name)
            return self._limits[name]

    def _count(self, event: Event, one: int, *, attempt: bool = False) -> None:
        if not attempt:
            self._add("steps", one)
        match event:
            case ToolCall():
                self._add("tool_calls", one)
            case ModelCall():
                self._add("model_calls", one)
            case Handoff():
                self._add("handoffs", one)
            case _:
                pass

    def _add(self, name: str, amount: float) -> None:
        if name in self._used:
            self._used[name] += amount

    def _at(self, at_s: float | None) -> None:
        """Let time pass; a record whose clock is behind that of the guard begins with its first event."""
        if at_s is None or "seconds" not in self._used:
            return
        if self._opened_s is None or at_s < self._opened_s:
            self._opened_s = self._latest_s = at_s
        self._latest_s = max(self._latest_s or at_s, at_s)
        self._used["seconds"] = self._latest_s - self._opened_s

    def _over(self, name: str, most: float, event: Event) -> bool:
        used = self._used[name]
        match name:
            case "steps":
                return used > most
            case "tool_calls":
                return used > most and isinstance(event, ToolCall)
            case "model_calls":
                return used > most and isinstance(event, ModelCall)
            case "handoffs":
                return used > most and isinstance(event, Handoff)
            case "seconds":
                return used >= most
            case _:
                return used > most or (used == most and isinstance(event, ModelCall))

    def _nearly(self, name: str, most: float) -> bool:
        return name not in self._told and 0 < self._budget.soft * most <= self._used[name]

    def _spent(self, name: str) -> _Spent:
        most = self._limits[name]
        used = min(self._used[name], most) if name in _COUNTED else self._used[name]
        return _Spent(self, name, used, most, self._extensions[name])


def _finding(event: Event, spent: _Spent, action: Action, severity: Severity) -> Finding:
    account = spent.account
    over = action is Action.STOP
    key = f"{account.run_id} {account.agent or ''} {spent.limit} {spent.extensions} {'spent' if over else 'nearly'}"
    return Finding(
        check=CheckName.BUDGET.value,
        kind=Kind.BUDGET,
        severity=severity,
        step=event.step,
        signature=xxh3_128_digest(key.encode("utf-8", "surrogatepass")),
        message=words.budget(spent.limit, spent.used, spent.most, spent.whose, over=over),
        explanation=words.budget_to_people(
            spent.limit, spent.used, spent.most, f"{spent.whose} ({account.run_id})", spent.setting
        ),
        action=action,
        evidence=(event.step,),
        agent=event.agent,
        tool=event.tool if isinstance(event, ToolCall) else None,
        count=int(spent.used),
    )
