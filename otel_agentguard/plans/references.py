"""References from one step to the output of another, and values that nobody filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from otel_agentguard.plans.names import fold

Path = tuple[str | int, ...]

_LONGEST_TEXT = 65_536
_LONGEST_PLACEHOLDER = 80
_MOST_VALUES = 10_000
_DEEPEST = 32

_BRACED = re.compile(r"\$?\{\{?\s*([^{}\n]{1,80}?)\s*\}\}?")
_DOLLAR = re.compile(r"\$(?:(?:steps?|tasks?)[._]?)?(\d{1,3})(?![\d,])(?:\.[A-Za-z_]\w*|\[\w+\])*")
_HASH = re.compile(r"#E(\d{1,3})\b(?:\.[A-Za-z_]\w*|\[\w+\])*")
_NUMBERED = re.compile(
    r"(?:(?:outputs?|results?)(?:[_ .]?of)?[_ .])?(?:steps?|tasks?|s|E|#E|\$)"
    r"[_.\- \[]{0,2}#?(\d{1,4})\]?(?:[_.\[ ].*)?",
    re.IGNORECASE,
)
_BARE_DOLLAR = re.compile(r"\$\{(\d{1,3})\}")
_HEAD = re.compile(r"(?:steps?|tasks?)?[.\[\"']*([A-Za-z_][\w\-]*)")
_TRAILING_NUMBER = re.compile(r"(?:step|task|s|e|#e)[_\- .]?(\d{1,4})", re.IGNORECASE)
_REFERENCE_KEYS = frozenset({"$ref", "path", "field", "output"})

_ANGLED = re.compile(r"<\s*([A-Za-z][\w \-']*)\s*>")
_IN_BRACES = re.compile(r"\{\{?\s*([A-Za-z_][\w .\-]*?)\s*\}?\}")
_BRACKETED = re.compile(r"\[[A-Z][A-Z0-9]*(?:[_ ][A-Z0-9]+)+\]")
_SHOUTED = re.compile(r"(?:YOUR|MY|INSERT|ENTER|REPLACE)[_ ][A-Z0-9_ ]+")
_BLANKS = frozenset({"tbd", "tba", "fixme", "placeholder", "???", "??", "...", "…", "<...>", "to be determined"})
_TEMPLATE_ARGUMENTS = frozenset({"template", "pattern", "prompt", "format", "regex", "formatstring", "replacement"})
_FIRST_OF_PLACEHOLDERS = frozenset(" \t\n<{[YMIERtTfFpP?.…")
_OPENING = frozenset("<{[YMIER")
_NUMBERS = frozenset({int, float, bool, type(None)})
_HINTS_IN_ANGLES = frozenset({"id", "url", "path", "name", "query", "value", "token", "date", "email", "filename"})


class Reference(NamedTuple):
    """One mention of another step's output; a tuple, since a plan makes many.

    Attributes:
        target: The step as the mention names it.
        path: Where in the arguments it stands.
        text: The mention itself.
        certain: It cannot be ordinary text; `$5` within a sentence may be a price.
    """

    target: str
    path: Path
    text: str
    certain: bool = True


@dataclass(slots=True)
class Scan:
    """What the values of one step's arguments hold.

    Attributes:
        references: Mentions of other steps, in order.
        placeholders: Paths and texts of values that nobody filled in.
        untyped: Paths of values whose type is not known yet: whole references, placeholders, objects
            that are no JSON.
        partial: Paths of strings that hold a reference: text, but not its final form.
    """

    references: list[Reference] = field(default_factory=list)
    placeholders: list[tuple[Path, str]] = field(default_factory=list)
    untyped: set[Path] = field(default_factory=set)
    partial: set[Path] = field(default_factory=set)


class StepIndex:
    """Finds the step that a reference means.

    Args:
        ids: The ids of the steps, in order.
    """

    __slots__ = ("_places", "hashed", "ids")

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = tuple(ids)
        places = {name: place for place, name in reversed(list(enumerate(ids)))}
        named = [name for name in ids if not name.isdecimal()]
        self.hashed = any(name[:1] == "E" and name[1:].isdecimal() for name in named)
        for name in named:
            places.setdefault(fold(name), places[name])
            match = _TRAILING_NUMBER.fullmatch(name)
            if match is not None:
                places.setdefault(match[1].lstrip("0") or "0", places[name])
        if named and not any(key.isdecimal() for key in places):
            for place in range(len(ids)):
                places.setdefault(str(place + 1), place)
        self._places = places

    def find(self, target: str) -> int | None:
        """Place of the step, from 0; None when there is no such step."""
        places = self._places
        place = places.get(target)
        if place is None and not target.isdecimal():
            place = places.get(fold(target))
            if place is None and (match := _TRAILING_NUMBER.fullmatch(target)):
                place = places.get(match[1].lstrip("0") or "0")
        return place


def scan_plan(arguments: Mapping[str, object], index: StepIndex) -> Scan | None:
    """Look through the arguments of a planned step.

    Returns:
        None when they hold neither references nor placeholders nor anything that is no JSON.
    """
    return _walk(arguments, index)


def scan_call(arguments: Mapping[str, object]) -> Scan | None:
    """Look through the arguments of a call that is about to run: nothing may be left to fill in.

    Only what is unmistakable counts here, since code, patterns and templates are full of braces.
    """
    return _walk(arguments, None)


def _walk(arguments: Mapping[str, object], index: StepIndex | None) -> Scan | None:
    suspects: list[tuple[Path, object]] = []
    for key, value in arguments.items():
        kind = type(value)
        if kind is str:
            text: str = value  # type: ignore[assignment]  # mypy does not narrow by `type()`
            if text[:1] in _FIRST_OF_PLACEHOLDERS or "{" in text or "$" in text or "#E" in text:
                suspects.append(((key,), value))
        elif kind not in _NUMBERS:
            suspects.append(((key,), value))
    if index is not None and "$ref" in arguments:
        suspects = [((), arguments)]
    return _look_into(suspects, index) if suspects else None


def _look_into(suspects: list[tuple[Path, object]], index: StepIndex | None) -> Scan | None:
    scan = Scan()
    todo = suspects[::-1]
    seen = 0
    while todo and seen < _MOST_VALUES:
        path, value = todo.pop()
        seen += 1
        if isinstance(value, str):
            if index is None:
                _scan_final(scan, path, value)
            else:
                _scan_text(scan, path, value, index)
        elif isinstance(value, Mapping):
            if index is not None and "$ref" in value and (target := _ref_target(value, index)) is not None:
                scan.references.append(Reference(target, path, f"$ref {target}"))
                scan.untyped.add(path)
            elif len(path) < _DEEPEST:
                todo += [((*path, str(key)), item) for key, item in reversed(list(value.items()))]
        elif isinstance(value, list | tuple):
            if len(path) < _DEEPEST:
                todo += [((*path, place), value[place]) for place in range(len(value) - 1, -1, -1)]
        elif type(value) not in _NUMBERS and not isinstance(value, int | float):
            scan.untyped.add(path)
    return scan if scan.references or scan.placeholders or scan.untyped else None


def _scan_text(scan: Scan, path: Path, text: str, index: StepIndex) -> None:
    if "{" in text or "$" in text or "#E" in text:
        found = _mentions(text[:_LONGEST_TEXT], path, index)
        if found:
            if len(found) == 1 and found[0].text == text.strip():
                scan.untyped.add(path)
            else:
                scan.partial.add(path)
            scan.references += found
            return
    if len(text) <= _LONGEST_PLACEHOLDER and _is_placeholder(text, path):
        scan.placeholders.append((path, text))
        scan.untyped.add(path)


def _mentions(text: str, path: Path, index: StepIndex) -> list[Reference]:
    found: list[Reference] = []
    if "{" in text:
        for match in _BRACED.finditer(text):
            target = _braced_target(match[0], match[1], index)
            if target is not None:
                found.append(Reference(target, path, match[0]))
    for sign, pattern, always in (("$", _DOLLAR, False), ("#E", _HASH, index.hashed)):
        if sign in text:
            for match in pattern.finditer(text):
                certain = always or not match[0][1:].isdecimal() or match[0] == text.strip()
                if certain or index.find(match[1]) is not None:
                    found.append(Reference(match[1], path, match[0], certain))
    return found


def _braced_target(mention: str, inner: str, index: StepIndex) -> str | None:
    if inner[:5] == "step_" and inner[5:].isdecimal():
        return inner[5:]
    numbered = _NUMBERED.fullmatch(inner) or _BARE_DOLLAR.fullmatch(mention)
    if numbered is not None:
        return numbered[1]
    head = _HEAD.match(inner)
    if head is not None and not head[1].isdecimal() and index.find(head[1]) is not None:
        return head[1]
    return None


def _ref_target(value: Mapping[str, object], index: StepIndex) -> str | None:
    """The step of `{"$ref": ...}`; a pointer of JSON Schema is none."""
    target = value["$ref"]
    if not _REFERENCE_KEYS.issuperset(value) or not isinstance(target, str | int):
        return None
    text = str(target).strip().strip("{}$ ")
    if text.startswith(("#/", "http:", "https:")):
        match = re.fullmatch(r"#/steps/([\w\-]+)(?:/.*)?", text)
        return match[1] if match else None
    if text.isdecimal():
        return text
    numbered = _NUMBERED.fullmatch(text)
    if numbered is not None:
        return numbered[1]
    head = _HEAD.match(text)
    return head[1] if head is not None else text


def _is_placeholder(text: str, path: Path) -> bool:
    bare = text.strip()
    if bare.casefold() in _BLANKS:
        return _name_of(path) not in _TEMPLATE_ARGUMENTS
    if bare[:1] not in _OPENING:
        return False
    unfilled = (
        _SHOUTED.fullmatch(bare) or _BRACKETED.fullmatch(bare) or _in_angles(bare, path) or _IN_BRACES.fullmatch(bare)
    )
    return bool(unfilled) and _name_of(path) not in _TEMPLATE_ARGUMENTS


def _scan_final(scan: Scan, path: Path, text: str) -> None:
    bare = text.strip() if len(text) <= _LONGEST_PLACEHOLDER else ""
    braced = _BRACED.fullmatch(bare)
    unfilled = (
        _SHOUTED.fullmatch(bare)
        or _in_angles(bare, path)
        or _HASH.fullmatch(bare)
        or (braced is not None and _NUMBERED.fullmatch(braced[1]))
    )
    if unfilled and _name_of(path) not in _TEMPLATE_ARGUMENTS:
        scan.placeholders.append((path, text))
        scan.untyped.add(path)


def _in_angles(bare: str, path: Path) -> bool:
    match = _ANGLED.fullmatch(bare)
    if match is None:
        return False
    inner = match[1].strip()
    return "_" in inner or " " in inner or inner.casefold() in _HINTS_IN_ANGLES or fold(inner) == _name_of(path)


def _name_of(path: Path) -> str:
    name = next((part for part in reversed(path) if isinstance(part, str)), "")
    return fold(name)
