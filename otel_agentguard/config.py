"""Settings: frozen, checked when they are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from otel_agentguard.errors import ConfigError
from otel_agentguard.events import Effect
from otel_agentguard.findings import Limits


class Mode(StrEnum):
    """How far a seam may go."""

    ENFORCE = "enforce"
    OBSERVE = "observe"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """Limits of the loop check; docs/defaults.md gives the reason of each.

    For `cycle` and `pingpong` the ordinal counts rounds, else calls.

    Attributes:
        same: Same call, same result.
        failing: Same call that fails.
        denied: Same call that a person refused.
        numbers: Same call whose result changes in numbers only, back to back.
        spaced: Same call and result with a real wait in between.
        alike: Same call whose long result is nearly the one before, as when a screen is read again.
        near_words: Near call, same result; words added, removed, reordered or cosmetic.
        near_token: Near call, same result; one token replaced.
        near_entity_error: Another host, id or page, same masked error.
        near_entity: Another host, id or page, same answer.
        same_error: Unrelated arguments, same masked error.
        cycle: Period 2 to 16 with the same results.
        pingpong: Agents that take turns with no effect in between.
        semantic: No new information on one subject.
        wait_s: A gap of this many seconds between two calls is a real wait.
        dry_commands: Whether the table of reading commands classifies shell and SQL arguments.
    """

    same: Limits = Limits(3, 5, 7)
    failing: Limits = Limits(3, 4, 6)
    denied: Limits = Limits(2, 4, 6)
    numbers: Limits = Limits(8, 11, 14)
    spaced: Limits = Limits(8, 11, None)
    alike: Limits = Limits(5)
    near_words: Limits = Limits(3)
    near_token: Limits = Limits(5)
    near_entity_error: Limits = Limits(5)
    near_entity: Limits = Limits(9)
    same_error: Limits = Limits(6)
    cycle: Limits = Limits(3, 4, 5)
    pingpong: Limits = Limits(3, 4, 5)
    semantic: Limits = Limits(6)
    wait_s: float = 10.0
    dry_commands: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings:
    """What the user says of one tool; None leaves it to the decorator or the default.

    Attributes:
        effect: What it does to the world.
        ignore: Arguments that are no part of its identity.
        ttl_s: How long an answer may be served again, seconds.
        cache: Whether answers may be served again at all.
        limits: Rows of `LoopSettings` by name that this tool has for itself.
    """

    effect: Effect | None = None
    ignore: tuple[str, ...] = ()
    ttl_s: float | None = None
    cache: bool | None = None
    limits: Mapping[str, Limits] = field(default_factory=dict)


BUDGET_LIMITS = ("steps", "tool_calls", "model_calls", "tokens", "cost_usd", "seconds", "handoffs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Most that one run may use; None means no limit.

    Attributes:
        steps: Events of any kind.
        tool_calls: Tool calls.
        model_calls: Requests to a model.
        tokens: Input and output tokens together.
        cost_usd: Price of those, US dollars.
        seconds: Wall time.
        handoffs: Handoffs between agents.
        soft: Share of a limit at which a hint is given.
        agents: What single agents of the run may use of it, by name.

    Raises:
        ConfigError: A limit is no number from 0 on, `soft` is no share, or a budget of an agent names agents.
    """

    steps: int | None = None
    tool_calls: int | None = None
    model_calls: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    seconds: float | None = None
    handoffs: int | None = None
    soft: float = 0.8
    agents: Mapping[str, Budget] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, limit in self.limits().items():
            if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 <= limit < float("inf"):
                raise ConfigError(f"budget.{name} is {limit!r}; give a number from 0 on, or None for no limit")
        if not 0 < self.soft <= 1:
            raise ConfigError(f"budget.soft is {self.soft!r}; give a share above 0 and at most 1")
        for agent, own in self.agents.items():
            if not isinstance(own, Budget) or own.agents:
                raise ConfigError(f"budget.agents[{agent!r}] is {own!r}; give a Budget without agents of its own")

    def limits(self) -> dict[str, float]:
        """The limits that are set, by name, without those of single agents."""
        return {name: limit for name in BUDGET_LIMITS if (limit := getattr(self, name)) is not None}

    @property
    def limited(self) -> bool:
        """Whether any limit is set, of the run or of an agent."""
        return bool(self.limits()) or any(own.limited for own in self.agents.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set without code.

    Attributes:
        mode: How far seams may go that the program did not put in itself.
        mode_forced: The mode of all seams, from `AGENTGUARD_MODE`; None where it is not set.
        store: URL of the store; `memory://`, `sqlite:///`, `postgresql://` or `redis://`.
        metrics_port: Port of the metrics server; None for no server.
        attended: Whether a person can answer questions.
        fingerprint_key: Secret of exported fingerprints; None for a random one per process.
        store_content: Whether excerpts of content may be stored.
        trust_baggage: Whether a run id that arrives in baggage is believed.
        inject_hints: Whether adapters may add hints to a model request.
        adapters_off: Names of adapters that are left out; `*` for all.
        namespace: Keeps keys of several applications on one store apart.
        people: Who opens a turn when a message names no role.
        checks: Names of the checks that run.
        loop: Limits of the loop check.
        tools: What the user says of single tools, by name.
        budget: Most that one run may use.
        schemas: Files with the JSON Schema of what one agent sends another, by `"FROM->TO"`.
        embedder: Name of what tells the meaning of texts, such as `wordllama`; None compares their words.
    """

    mode: Mode = Mode.ENFORCE
    mode_forced: Mode | None = None
    store: str = "memory://"
    metrics_port: int | None = None
    attended: bool = False
    fingerprint_key: bytes | None = None
    store_content: bool = False
    trust_baggage: bool = False
    inject_hints: bool = False
    adapters_off: tuple[str, ...] = ()
    namespace: str = ""
    people: frozenset[str] = frozenset({"user", "human"})
    checks: tuple[str, ...] = ("loop", "dedup", "plan", "memory", "effects", "budget")
    loop: LoopSettings = LoopSettings()
    tools: Mapping[str, ToolSettings] = field(default_factory=dict)
    budget: Budget = Budget()
    schemas: Mapping[str, str] = field(default_factory=dict)
    embedder: str | None = None

    def limits(self, row: str, tool: str | None = None) -> Limits:
        """Limits of one row of the loop check, the tool's own before the general ones.

        Raises:
            ConfigError: There is no such row.
        """
        if tool is not None and (own := self.tools.get(tool)) is not None and row in own.limits:
            return own.limits[row]
        limits = getattr(self.loop, row, None)
        if not isinstance(limits, Limits):
            raise ConfigError(f"no row {row!r} in the loop check; known: {', '.join(LOOP_ROWS)}")
        return limits

    def hints_at(self, *rows: str) -> bool:
        """Whether one of these rows of the loop check ever gives a hint, for whatever tool."""
        every = [self.limits(row) for row in rows]
        every += [own.limits[row] for own in self.tools.values() for row in rows if row in own.limits]
        return any(limits.hint is not None for limits in every)


LOOP_ROWS = tuple(
    name for name, default in LoopSettings.__dataclass_fields__.items() if isinstance(default.default, Limits)
)
