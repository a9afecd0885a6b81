"""Looks in what was observed for what a claim says."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from otel_agentguard.memory.claims import Claim, Clause
from otel_agentguard.memory.intake import subjects_of
from otel_agentguard.memory.lexicon import CJK_DEEDS, DEED_WORDS
from otel_agentguard.memory.matching import Match, Reading, coverage, match, missing, shows
from otel_agentguard.memory.observations import Hit, Observations
from otel_agentguard.memory.passages import index_keys, quotable
from otel_agentguard.memory.shelves import EVIDENCE, Producer

TOLERATED = 0.25
"""Share of a claim, by what has to be found, whose words may be missing when all its numbers and names are there."""

_HOME = 3
_MOST_HITS = 4
_LANGUAGE_SAMPLE = 12
_RECALLED_WORDS = 4
_SHORT_LINE = 60
_LEAST_SPACES = 2


@dataclass(slots=True)
class Support:
    """What the observations say to a claim.

    Attributes:
        holds: They show it.
        steps: The steps that do, oldest first.
        missing: Numbers, dates, ids, paths and names of the claim that they do not show.
        opposed: They say the opposite.
        swapped: Its numbers belong to something else.
        undone: They do not show that what it says was done, was done.
        touched: Share of the claim that they mention, 0 to 1.
        guessed: What comes closest only guesses.
        recalled: What shows it is only the long-term memory itself, read back.
    """

    holds: bool = False
    steps: tuple[int, ...] = ()
    missing: tuple[str, ...] = ()
    opposed: bool = False
    swapped: bool = False
    undone: bool = False
    touched: float = 0.0
    guessed: bool = False
    recalled: bool = False


@dataclass(slots=True)
class _Seen:
    """How one clause fares, over all passages that were looked at."""

    shown_by: list[int] = field(default_factory=list)
    closest: Match | None = None
    undone: bool = False
    recalled: bool = False


@dataclass(frozen=True, slots=True)
class _Context:
    """What is the same for all clauses of a claim.

    Attributes:
        plain: Its text in `quotable` form.
        recalled: What was recalled like it, with the step.
        home: The passages that share most with all of it.
    """

    plain: str
    recalled: list[tuple[str, int]]
    home: list[Hit]


@dataclass(frozen=True, slots=True)
class Scope:
    """Where to look.

    Attributes:
        producers: Whose words count.
        steps: The cited steps; None for all.
        after: Only later steps than this one.
        quoted: The cited steps were quoted word for word, so the words of the claim may differ more.
        strict: The writer says that it inferred the claim, so nearly all of it has to be found.
    """

    producers: Collection[Producer] = EVIDENCE
    steps: frozenset[int] | None = None
    after: int = 0
    quoted: bool = False
    strict: bool = False


def find_support(claim: Claim, observations: Observations, scope: Scope) -> Support:
    """Whether what was observed shows a claim.

    Args:
        claim: What is claimed.
        observations: What was observed.
        scope: Where to look.
    """
    if not claim.clauses:
        return _verbatim(claim, observations, scope)
    keys = set().union(*map(_keys, claim.clauses))
    context = _Context(
        quotable(claim.text), observations.recalls_like(claim.text), _hits(keys, observations, scope, most=_HOME)
    )
    support = Support()
    weights: list[tuple[int, bool, float]] = []
    steps: set[int] = set()
    lacking: list[str] = []
    for clause in claim.clauses:
        seen = _look(clause, observations, scope, context)
        closest = seen.closest or Match(frozenset(), frozenset())
        shown = bool(seen.shown_by)
        touched = 1.0 if shown else coverage(clause, closest)
        if not shown and scope.quoted and not _conflicts(clause, closest) and touched > 0 and not seen.undone:
            shown = True
            seen.shown_by = sorted(scope.steps or ())
        if not shown:
            lacking += missing(clause, closest)
            support.opposed |= bool(closest.opposed)
            support.swapped |= bool(closest.swapped)
            support.undone |= seen.undone
            support.guessed |= closest.guessed
            support.recalled |= seen.recalled
        steps.update(seen.shown_by)
        weights.append((len(clause.items), shown, touched))
    total = sum(weight for weight, _, _ in weights)
    unshown = sum(weight for weight, shown, _ in weights if not shown)
    support.touched = sum(weight * touched for weight, _, touched in weights) / total
    support.missing = tuple(dict.fromkeys(lacking))
    support.steps = tuple(sorted(steps))
    denied = support.opposed or support.swapped or support.undone or support.recalled
    support.holds = bool(steps) and not support.missing and not denied and unshown <= TOLERATED * total
    return support


def _look(clause: Clause, observations: Observations, scope: Scope, context: _Context) -> _Seen:
    seen = _Seen()
    if clause.deed is not None:
        _look_for_deed(clause, observations, scope, seen)
        if seen.shown_by:
            return seen
    by_step: dict[int, Match] = {}
    opposing: Match | None = None
    for hit in _passages(clause, observations, scope, context.home):
        reading = observations.reading(hit)
        if _is_echo(hit, reading, context.recalled):
            seen.recalled = True
            continue
        step = hit.observation.step
        matched = match(clause, reading, subjects_of(hit.observation.about))
        if clause.deed is not None and not reading.tells_done(clause.deed):
            seen.undone = True
        elif shows(clause, matched, strict=scope.strict) or _is_quoted(context, matched, reading):
            seen.shown_by = [step]
            seen.undone = seen.recalled = False
            return seen
        by_step[step] = matched if step not in by_step else by_step[step].joined(matched)
        if seen.closest is None or coverage(clause, matched) > coverage(clause, seen.closest):
            seen.closest = matched
        if matched.opposed or matched.swapped:
            opposing = opposing or matched
    if clause.deed is None:
        _join(clause, by_step, seen, scope)
        if not seen.shown_by and opposing is None:
            _look_for_change(clause, observations, scope, seen)
    if not seen.shown_by and opposing is not None:
        seen.closest = opposing
    return seen


def _passages(clause: Clause, observations: Observations, scope: Scope, home: list[Hit]) -> Iterator[Hit]:
    """Where the whole claim has its home, then where the clause has; searched for only when it is needed."""
    yield from home
    known = {(hit.observation, hit.place) for hit in home}
    for hit in _hits(_keys(clause), observations, scope, most=_MOST_HITS):
        if (hit.observation, hit.place) not in known:
            yield hit


def _hits(keys: set[int], observations: Observations, scope: Scope, *, most: int) -> list[Hit]:
    if scope.steps is not None:
        return observations.search_in(keys, scope.steps, most=most)
    if not scope.after:
        return observations.search(keys, scope.producers, most=most)
    hits = observations.search(keys, scope.producers, most=4 * most)
    return [hit for hit in hits if hit.observation.step > scope.after][:most]


def _keys(clause: Clause) -> set[int]:
    keys: set[int] = set()
    for item in clause.items:
        keys |= index_keys(item.word.text)
        if item.word.forms:
            keys |= index_keys(" ".join(item.word.forms))
    return keys


def _join(clause: Clause, by_step: dict[int, Match], seen: _Seen, scope: Scope) -> None:
    """One step, or several that each show a part, may show together what no passage shows alone."""
    for step, matched in by_step.items():
        if shows(clause, matched, strict=scope.strict):
            seen.shown_by = [step]
            return
    useful = {
        step: matched
        for step, matched in by_step.items()
        if len(matched.own) > 1 or any(clause.items[place].hard for place in matched.own)
    }
    if len(useful) < 2 or any(matched.opposed or matched.swapped for matched in useful.values()):
        return
    joined = Match(frozenset(), frozenset())
    steps = []
    for step, matched in useful.items():
        if _alone(clause, matched):
            continue
        if matched.own - joined.own:
            joined = joined.joined(matched)
            steps.append(step)
    if len(steps) > 1 and shows(clause, joined, strict=scope.strict):
        seen.shown_by = steps
    elif seen.closest is None or coverage(clause, joined) > coverage(clause, seen.closest):
        seen.closest = joined


def _alone(clause: Clause, matched: Match) -> bool:
    """Only numbers of the clause are there: they may be numbers of anything."""
    return (
        all(clause.items[place].hard and not clause.items[place].name for place in matched.own) and len(matched.own) < 2
    )


def _look_for_change(clause: Clause, observations: Observations, scope: Scope, seen: _Seen) -> None:
    """What a call was declared to change, and changed, is so: its short arguments say what."""
    wanted = _keys(clause)
    for done in reversed(observations.deeds):
        if not done.declared or done.step <= scope.after or len(wanted & done.keys()) * 2 < len(clause.items):
            continue
        if scope.steps is not None and done.step not in scope.steps:
            continue
        said = "\n".join(line for line in done.text.split("\n") if len(line) <= _SHORT_LINE)
        if shows(clause, match(clause, Reading(said)), strict=True):
            seen.shown_by = [done.step]
            return


def _look_for_deed(clause: Clause, observations: Observations, scope: Scope, seen: _Seen) -> None:
    deed = clause.deed
    wanted = [item for item in clause.items if item.hard]
    for done in reversed(observations.deeds):
        if scope.steps is not None and done.step not in scope.steps:
            continue
        words = set(quotable(done.text).split())
        named = any(DEED_WORDS.get(word) == deed for word in words)
        if not named and not any(of == deed and phrase in done.text for phrase, of in CJK_DEEDS.items()):
            continue
        reading = Reading(done.text)
        matched = match(clause, reading)
        if all(place in matched.found for place, item in enumerate(clause.items) if item in wanted):
            seen.shown_by = [done.step]
            return
        seen.closest = matched


def _is_echo(hit: Hit, reading: Reading, recalled: list[tuple[str, int]]) -> bool:
    """The passage holds what was read from the long-term memory before, so it may only repeat that."""
    observation = hit.observation
    for text, step in recalled:
        if step >= observation.step:
            continue
        if observation.producer is Producer.USER and len(text.split()) < _RECALLED_WORDS:
            continue
        if f" {text} " in f" {quotable(reading.text)} ":
            return True
    return False


def _is_quoted(context: _Context, matched: Match, reading: Reading) -> bool:
    """The whole claim stands there word for word, and what the clause says is not denied or guessed there."""
    found = matched.own or matched.swapped
    if matched.opposed or matched.guessed or not found or context.plain.count(" ") < _LEAST_SPACES:
        return False
    return f" {context.plain} " in f" {quotable(reading.text)} "


def _conflicts(clause: Clause, matched: Match) -> bool:
    return bool(matched.opposed or matched.swapped or missing(clause, matched))


def _verbatim(claim: Claim, observations: Observations, scope: Scope) -> Support:
    """A claim without content of its own holds where its very words were said."""
    plain = quotable(claim.text)
    for hit in observations.search(index_keys(claim.text), scope.producers):
        step = hit.observation.step
        if (scope.steps is not None and step not in scope.steps) or step <= scope.after:
            continue
        if hit.observation.contains(plain):
            return Support(holds=True, steps=(step,), touched=1.0)
    return Support()


def in_other_language(claim: Claim, observations: Observations, producers: Collection[Producer] = EVIDENCE) -> bool:
    """Whether nothing that was observed lately is in the language of the claim, so that words cannot show it."""
    if not claim.language:
        return False
    spoken = {observation.language for observation in observations.latest(producers, most=_LANGUAGE_SAMPLE)} - {""}
    return bool(spoken) and claim.language not in spoken
