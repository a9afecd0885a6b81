"""What one session leaves for later ones: what was read, what was called, which runs were stopped.

These are hints, not answers: nothing here says what a tool would return now. What they hold of content
is decided before they are made; by default that is digests only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import orjson

from otel_agentguard.errors import ConfigError
from otel_agentguard.findings import Action, Finding, Kind, Limits, Severity

MAX_NAME_CHARS = 500
MAX_PURPOSE_CHARS = 200
MAX_SUMMARY_CHARS = 1_000
MAX_EXCERPT_CHARS = 500
MAX_RESOURCES = 32
MAX_TOKENS = 64

MAX_STOPS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long notes are kept, and how many.

    Attributes:
        seconds: How long visits and calls are shown, seconds.
        visits: Most visits that a store keeps.
        calls: Most calls that a store keeps.
    """

    seconds: float = 30 * 24 * 3600.0
    visits: int = 10_000
    calls: int = 50_000

    def __post_init__(self) -> None:
        if min(self.seconds, self.visits, self.calls) <= 0:
            raise ConfigError(f"{self} keeps nothing; give numbers above 0")


DEFAULT_RETENTION = Retention()


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """Who may see a note: only sessions of the same application, tenant and principal.

    Attributes:
        namespace: The application.
        tenant: The customer, where the application serves several.
        principal: The user or service in whose name the run acts.
    """

    namespace: str = ""
    tenant: str = ""
    principal: str = ""

    @property
    def text(self) -> str:
        """One text for all three; no two audiences share one."""
        return orjson.dumps([self.namespace, self.tenant, self.principal]).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A resource was read.

    Attributes:
        audience: Digest of the audience.
        resource: Digest of its name, 32 hex characters.
        name: Its name; None unless content is stored.
        version: Digest of the content that was read; None when unknown.
        count: How often it was read.
        first_s: When it was first read, seconds since the epoch.
        last_s: When it was last read.
        run_id: The run that read it last.
        purpose: Why it was read; None unless content is stored.
        summary: What was found; None unless content is stored.
    """

    audience: str
    resource: str
    last_s: float
    first_s: float = 0.0
    name: str | None = None
    version: str | None = None
    count: int = 1
    run_id: str = ""
    purpose: str | None = None
    summary: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCall:
    """A tool was called.

    Attributes:
        audience: Digest of the audience.
        call: Exported fingerprint of tool and arguments, 32 hex characters.
        tool: Its name.
        resources: Digests of what it touched.
        tokens: Keyed 32-bit digests of the words of its arguments.
        status: How it ended, an `Outcome`.
        at_s: When it was last called, seconds since the epoch.
        count: How often it was called.
        run_id: The run that called it last.
        result: Exported digest of its outcome and result; None when unknown.
        version: Digest of the content of what it touched; None when unknown.
        pure: Its result depends on the arguments alone.
        excerpt: The first characters of its result; None unless content is stored.
    """

    audience: str
    call: str
    tool: str
    at_s: float
    status: str
    resources: tuple[str, ...] = ()
    tokens: frozenset[int] = frozenset()
    count: int = 1
    run_id: str = ""
    result: str | None = None
    version: str | None = None
    pure: bool = False
    excerpt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopMark:
    """A run was stopped, and was not released since.

    Attributes:
        namespace: The application.
        run_id: The run.
        conversation: Its conversation, where one was known.
        event: The outside event that it served, where one was given.
        finding: Why it was stopped.
        stopped_s: When, seconds since the epoch.
    """

    run_id: str
    finding: Finding
    stopped_s: float
    namespace: str = ""
    conversation: str | None = None
    event: str | None = None


def finding_to_json(finding: Finding) -> str:
    """A finding as JSON text."""
    plain = asdict(finding) | {"signature": finding.signature.hex(), "action": int(finding.action)}
    return orjson.dumps(plain).decode()


def finding_from_json(text: str) -> Finding:
    """The finding of `finding_to_json`.

    Raises:
        ValueError: The text is none.
    """
    try:
        plain: Mapping[str, object] = orjson.loads(text)
        limits = plain["limits"]
        finding = Finding(**{**plain, "limits": None})  # type: ignore[arg-type]
        return replace(
            finding,
            kind=Kind(finding.kind),
            severity=Severity(finding.severity),
            action=Action(finding.action),
            signature=bytes.fromhex(str(plain["signature"])),
            evidence=tuple(finding.evidence),
            limits=Limits(**limits) if isinstance(limits, dict) else None,
        )
    except (KeyError, TypeError) as exc:
        raise ValueError(f"no finding: {text[:80]!r}") from exc
