"""What earlier sessions read and called, kept in a store and told as a hint, never as an answer."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from otel_agentguard import words
from otel_agentguard.dedup.identity import (
    age_of,
    content_of,
    likeness_of,
    place_of,
    stamp_of,
    unchanged_content,
    version_of,
    words_of,
)
from otel_agentguard.dedup.journal import read_by
from otel_agentguard.dedup.patience import Patience
from otel_agentguard.events import Effect, Event, Outcome, ToolCall
from otel_agentguard.fingerprint import exported
from otel_agentguard.forks import in_child, new_lock
from otel_agentguard.notes import (
    MAX_EXCERPT_CHARS,
    MAX_NAME_CHARS,
    MAX_PURPOSE_CHARS,
    MAX_RESOURCES,
    MAX_SUMMARY_CHARS,
    MAX_TOKENS,
    Audience,
    LoggedCall,
    Visit,
)
from otel_agentguard.protocols import Clock, RunInfo, Store
from otel_agentguard.text import text_of

MIN_LIKENESS = 0.8
_MAX_BUFFERED = 1_000
_MAX_SIGNATURES = 2_048
_MAX_RUNS = 20_000
_COMPARED = 200
_ARGUMENT_CHARS = 2_000
_READING = frozenset({Effect.PURE, Effect.READ, Effect.CURSOR, Effect.UNKNOWN})

AudienceOf = Callable[[RunInfo], Audience]
Redact = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class EarlierCall:
    """A call of an earlier session that is like one of this run.

    Attributes:
        call: What is known of it.
        match: `same`, `resource` or `similar`.
        freshness: Whether what it was made from is `fresh`, `stale` or `unknown`.
        visit: What was said of the resource, where something was.
    """

    call: LoggedCall
    match: str
    freshness: str
    visit: Visit | None = None


@dataclass(frozen=True, slots=True)
class _Signed:
    """A call as it goes into the store or is looked for there, taken from the event in its own thread."""

    run_id: str
    audience: str
    fingerprint: bytes
    tool: str
    arguments: str
    touched: tuple[str, ...]
    stamps: tuple[tuple[int, ...] | None, ...]
    read: frozenset[str]
    pure: bool
    status: str
    result: bytes | None
    excerpt: str | None
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What the agent says of something that it read."""

    audience: str
    place: str
    run_id: str
    at_s: float
    count: int
    name: str | None
    purpose: str | None
    summary: str | None


class Past:
    """The notes of earlier sessions, and those that this one leaves. Thread safe.

    Nothing here makes a caller wait for longer than the patience says, and what it writes is written in
    another thread. Digests are keyed, so that names and words cannot be guessed from the store.

    Args:
        store: Where notes are kept.
        patience: How the store is asked.
        key: Secret of the digests; the store's own where it is None.
        now_s: Wall clock, seconds since the epoch.
        store_content: Whether names, excerpts, purposes and summaries are kept too.
        redact: Applied to each of those before it is kept.
        audience_of: Who may see what a run leaves.
        failed: Told where a part of the guard failed.
    """

    def __init__(
        self,
        store: Store,
        patience: Patience,
        *,
        key: bytes | None = None,
        now_s: Clock = time.time,
        store_content: bool = False,
        redact: Redact | None = None,
        audience_of: AudienceOf | None = None,
        failed: Callable[[str, BaseException], object] | None = None,
    ) -> None:
        self._store = store
        self._patience = patience
        self._key = key
        self._now_s = now_s
        self._store_content = store_content
        self._redact = redact
        self._audience_of = audience_of or (lambda run: Audience(namespace=run.settings.namespace))
        self._failed = failed
        self._lock = new_lock()
        self._calls: deque[_Signed] = deque(maxlen=_MAX_BUFFERED)
        self._visits: deque[_Said] = deque(maxlen=_MAX_BUFFERED)
        self._asked: OrderedDict[str, OrderedDict[bytes, None]] = OrderedDict()
        self._writing = False
        in_child(self._forget_unwritten)

    def stepped(self, run: RunInfo, event: Event) -> None:
        """An event is over: a call whose body ran is noted. See `Sink`."""
        if not isinstance(event, ToolCall) or event.fingerprint is None or event.refused:
            return
        if event.served_from is not None or event.outcome in (None, Outcome.NOT_EXECUTED):
            return
        signed = self._signed(run, event, event.fingerprint)
        with self._lock:
            self._calls.append(signed)
        self._write_soon()

    def visit(
        self, run: RunInfo, name: str, *, purpose: str | None = None, summary: str | None = None, count: int = 1
    ) -> None:
        """Note what the agent says of something that it read; without content only that it was read.

        Args:
            run: The run.
            name: What it read.
            purpose: Why.
            summary: What it found.
            count: How often it read it, beyond the calls that were noted.
        """
        said = _Said(
            audience=self._audience_of(run).text,
            place=place_of(name),
            run_id=run.run_id,
            at_s=self._now_s(),
            count=count,
            name=self._content(name, MAX_NAME_CHARS),
            purpose=self._content(purpose, MAX_PURPOSE_CHARS),
            summary=self._content(summary, MAX_SUMMARY_CHARS),
        )
        with self._lock:
            self._visits.append(said)
        self._write_soon()

    def earlier(self, run: RunInfo, call: ToolCall) -> EarlierCall | None:
        """What an earlier session knows of a call, where it is the first of its kind in this run."""
        signed = self._first(run, call)
        return None if signed is None else self._patience.ask(lambda: self._look_up(signed), None)

    async def earlier_async(self, run: RunInfo, call: ToolCall) -> EarlierCall | None:
        """`earlier` without blocking the event loop."""
        signed = self._first(run, call)
        return None if signed is None else await self._patience.ask_async(lambda: self._look_up(signed), None)

    def note(self, earlier: EarlierCall | None) -> str:
        """What the model is told of an earlier call; empty for none."""
        if earlier is None:
            return ""
        call, visit = earlier.call, earlier.visit
        return words.from_earlier_session(
            age_of(self._now_s() - call.at_s),
            call.status,
            call.count,
            match=earlier.match,
            freshness=earlier.freshness,
            excerpt=call.excerpt,
            purpose=None if visit is None else visit.purpose,
            summary=None if visit is None else visit.summary,
        )

    def visits(self, run: RunInfo, names: Sequence[str] | None = None, *, limit: int = 100) -> Sequence[Visit]:
        """What earlier sessions of this run's audience read, the latest first.

        Args:
            run: The run.
            names: Only these; None for all.
            limit: Most that are given.
        """
        audience = self._audience_of(run).text
        places = None if names is None else [place_of(name) for name in names]

        def ask() -> Sequence[Visit]:
            resources = None if places is None else [self._keyed("resource", place) for place in places]
            return self._store.visits(self._keyed("audience", audience), resources=resources, limit=limit)

        return self._patience.ask(ask, ())

    def forget(self, run_id: str) -> None:
        """The run is over."""
        self._asked.pop(run_id, None)

    def close(self, timeout_s: float = 1.0) -> None:
        """Write what is left, for at most so many seconds, and let go of the store."""
        self._patience.later(self._write)
        self._patience.later(self._store.close)
        self._patience.close(timeout_s)

    def _first(self, run: RunInfo, call: ToolCall) -> _Signed | None:
        """The call, where this run has not asked about it before."""
        if call.fingerprint is None or call.effect not in _READING:
            return None
        with self._lock:
            asked = self._asked.get(run.run_id)
            if asked is None:
                while len(self._asked) >= _MAX_RUNS:
                    self._asked.popitem(last=False)
                asked = self._asked[run.run_id] = OrderedDict()
            if call.fingerprint in asked:
                return None
            asked[call.fingerprint] = None
            if len(asked) > _MAX_SIGNATURES:
                asked.popitem(last=False)
        return None if self._patience.is_resting else self._signed(run, call, call.fingerprint)

    def _signed(self, run: RunInfo, call: ToolCall, fingerprint: bytes) -> _Signed:
        read = {place_of(name) for name in read_by(call)[:MAX_RESOURCES]}
        touched = tuple(dict.fromkeys(map(place_of, (*(call.touches or ()), *sorted(read)))))[:MAX_RESOURCES]
        excerpt = None
        if self._store_content and call.outcome is not None and call.result_known:
            excerpt = self._content(text_of(call.result, 4 * MAX_EXCERPT_CHARS), MAX_EXCERPT_CHARS)
        return _Signed(
            run_id=run.run_id,
            audience=self._audience_of(run).text,
            fingerprint=fingerprint,
            tool=call.tool,
            arguments=text_of(call.arguments, _ARGUMENT_CHARS) if call.arguments else "",
            touched=touched,
            stamps=tuple(stamp_of(place) for place in touched),
            read=frozenset(read),
            pure=call.effect is Effect.PURE,
            status=(call.outcome or Outcome.UNKNOWN).value,
            result=call.result_digest,
            excerpt=excerpt,
            at_s=self._now_s(),
        )

    def _forget_unwritten(self) -> None:
        """In a forked child: what was noted before, the parent writes."""
        self._calls.clear()
        self._visits.clear()
        self._writing = False

    def _write_soon(self) -> None:
        with self._lock:
            if self._writing:
                return
            self._writing = True
        if not self._patience.later(self._write):
            self._writing = False

    def _write(self) -> None:
        """In the store's thread: keep what has come together."""
        with self._lock:
            self._writing = False
            calls, visits = list(self._calls), list(self._visits)
            self._calls.clear()
            self._visits.clear()
        read = [self._visit(said) for said in visits]
        logged = []
        for signed in calls:
            contents = [unchanged_content(*one) for one in zip(signed.touched, signed.stamps, strict=True)]
            logged.append(self._logged(signed, contents))
            read += [
                self._read(signed, place, content)
                for place, content in zip(signed.touched, contents, strict=True)
                if place in signed.read
            ]
        if read or logged:
            self._store.record(read, logged)

    def _logged(self, signed: _Signed, contents: Sequence[str | None]) -> LoggedCall:
        return LoggedCall(
            audience=self._keyed("audience", signed.audience),
            call=exported(signed.fingerprint, self._secret()),
            tool=signed.tool,
            at_s=signed.at_s,
            status=signed.status,
            resources=tuple(self._keyed("resource", place) for place in signed.touched),
            tokens=self._tokens(signed.arguments),
            run_id=signed.run_id,
            result=None if signed.result is None else exported(signed.result, self._secret()),
            version=version_of(contents),
            pure=signed.pure,
            excerpt=signed.excerpt,
        )

    def _visit(self, said: _Said) -> Visit:
        return Visit(
            audience=self._keyed("audience", said.audience),
            resource=self._keyed("resource", said.place),
            version=content_of(said.place),
            last_s=said.at_s,
            count=said.count,
            run_id=said.run_id,
            name=said.name,
            purpose=said.purpose,
            summary=said.summary,
        )

    def _read(self, signed: _Signed, place: str, content: str | None) -> Visit:
        return Visit(
            audience=self._keyed("audience", signed.audience),
            resource=self._keyed("resource", place),
            name=self._content(place, MAX_NAME_CHARS),
            version=content,
            last_s=signed.at_s,
            run_id=signed.run_id,
        )

    def _look_up(self, signed: _Signed) -> EarlierCall | None:
        """In the store's thread: the call itself, else another one on the same thing, else one in like words."""
        found = self._match(signed)
        if found is None:
            return None
        call, match = found
        visit = None
        if self._store_content and call.resources:
            audience = self._keyed("audience", signed.audience)
            visit = next(iter(self._store.visits(audience, resources=call.resources[:1], limit=1)), None)
        return EarlierCall(call, match, self._freshness(call, signed), visit)

    def _match(self, signed: _Signed) -> tuple[LoggedCall, str] | None:
        def of_others(calls: Sequence[LoggedCall]) -> list[LoggedCall]:
            return [call for call in calls if call.run_id != signed.run_id]

        audience = self._keyed("audience", signed.audience)
        same = of_others(self._store.calls(audience, call=exported(signed.fingerprint, self._secret()), limit=1))
        if same:
            return same[0], "same"
        for place in signed.touched[:4]:
            about = of_others(self._store.calls(audience, resource=self._keyed("resource", place), limit=8))
            if about:
                return about[0], "resource"
        tokens = self._tokens(signed.arguments)
        alike = [
            (likeness_of(tokens, call.tokens), call)
            for call in of_others(self._store.calls(audience, tool=signed.tool, limit=_COMPARED))
        ]
        likeness, call = max(alike, key=lambda one: one[0], default=(0.0, None))
        return None if call is None or likeness < MIN_LIKENESS else (call, "similar")

    def _freshness(self, call: LoggedCall, signed: _Signed) -> str:
        if call.pure:
            return "fresh"
        same_places = call.resources == tuple(self._keyed("resource", place) for place in signed.touched)
        if call.version is None or not same_places:
            return "unknown"
        now = version_of([content_of(place) for place in signed.touched])
        return "unknown" if now is None else "fresh" if now == call.version else "stale"

    def _secret(self) -> bytes:
        """In the store's thread: the key of the digests."""
        if self._key is None:
            self._key = self._store.secret()
        return self._key

    def _tokens(self, text: str) -> frozenset[int]:
        """Keyed digests of the words; of many words those with the smallest ones, which compare like the whole."""
        found = {int(self._keyed("token", token)[:8], 16) for token in words_of(text)}
        return frozenset(sorted(found)[:MAX_TOKENS])

    def _keyed(self, kind: str, text: str) -> str:
        data = f"{kind}\0{text}".encode("utf-8", "surrogatepass")
        return blake2b(data, digest_size=16, key=self._secret()[:64]).hexdigest()

    def _content(self, text: str | None, most: int) -> str | None:
        """A text as it may be kept; None where it may not."""
        if not text or not self._store_content:
            return None
        if self._redact is not None:
            try:
                text = self._redact(text)
            except Exception as exc:
                if self._failed is not None:
                    self._failed("redact", exc)
                return None
        # Databases keep neither NUL nor half of a character.
        return text[:most].replace("\0", "").encode("utf-8", "replace").decode() or None
