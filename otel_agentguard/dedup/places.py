"""What a recorded call reads or writes, as far as the call itself tells."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from otel_agentguard.events import ToolCall

_MAX_CHARS = 4_000
_MAX_PLACES = 32
_PATH = re.compile(r"(?:file://)?[^\s\0*?\"'`<>|;]{1,512}")
_PATH_NAMES = frozenset("path file filename file_path filepath dir directory folder root cwd workdir".split())
_EXTENSION = re.compile(r"\.\w{1,8}$")
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_VERBS = frozenset(
    """
    add append apply call change check close copy create ctx delete do download drop edit execute exec fetch
    find get grep insert list load look lookup make mcp modify move open patch post push put query read reload
    remove rename replace run save search select send set show store sync tool touch update upload view write
    """.split()
)

_TARGET = r"['\"]?(?P<place>[^\s'\"|;&<>]+)"
_WRITING = (
    re.compile(rf"(?<![<>&\d])(?:&|\d)?>{{1,2}}\|?\s*(?!&){_TARGET}"),
    re.compile(rf"\btee\b(?:\s+-\S+)*\s+{_TARGET}"),
    re.compile(rf"\bdd\b[^|;&]*\bof={_TARGET}"),
)
_WRITING_COMMAND = re.compile(
    r"(?:^|[|;&(]|\bsudo\s|\bthen\s|\bdo\s)\s*"
    r"(?:(?:mv|cp|rm|truncate|patch|install|ln|rsync|unlink|shred)\b|(?:sed|perl|ruby|yq)\s(?:[^|;&]*\s)?-\w*i)"
    r"(?P<rest>[^|;&\n]*)",
    re.MULTILINE,
)
_GIT_COMMAND = re.compile(
    r"\bgit\s+(?:-\S+\s+(?:\S+=\S+\s+)?)*"
    r"(?:checkout|restore|switch|pull|merge|rebase|reset|stash|apply|am|revert|cherry-pick|clean|mv|rm)\b"
    r"(?P<rest>[^|;&\n]*)"
)
_ARGUMENT = re.compile(r"[^\s'\"]+")


@dataclass(frozen=True, slots=True)
class Places:
    """Where a call acts.

    Attributes:
        paths: Paths and other names of resources.
        subject: All its arguments that name something, to be compared with those of another call.
        nouns: What the name of its tool is about.
    """

    paths: tuple[str, ...] = ()
    subject: frozenset[tuple[str, str | int]] = frozenset()
    nouns: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.paths or self.subject)

    def reach(self, reads: Places) -> bool:
        """Whether a change here changes what is read there.

        A path reaches what lies below it and what it lies in. Where the reader names no path, a change
        reaches it that was given all of its arguments, by a tool about the same things.
        """
        if any(_overlap(mine, theirs) for mine in self.paths for theirs in reads.paths):
            return True
        if reads.paths or not reads.subject or not reads.subject <= self.subject:
            return False
        return not self.nouns or not reads.nouns or bool(self.nouns & reads.nouns)


def places_of(call: ToolCall) -> Places:
    """Where a call acts: what it was declared to touch, else what its arguments name."""
    if call.touches:
        return Places(tuple(_plain(name) for name in call.touches[:_MAX_PLACES]))
    arguments = call.arguments or {}
    paths = [
        _plain(value)
        for name, value in arguments.items()
        if isinstance(value, str) and (_is_path(value) or (name.lower() in _PATH_NAMES and _PATH.fullmatch(value)))
    ]
    return Places(tuple(paths[:_MAX_PLACES]), _subject(arguments), _nouns(call.tool))


def written_by(call: ToolCall) -> Places:
    """What a call of unknown effect surely writes: the targets of a shell command whose form is writing.

    A version control command also writes what its answer lists.
    """
    found: list[str] = []
    for value in (call.arguments or {}).values():
        if not isinstance(value, str) or len(value) > _MAX_CHARS:
            continue
        for form in _WRITING:
            found += (match["place"] for match in form.finditer(value))
        for match in _WRITING_COMMAND.finditer(value):
            found += _targets(match["rest"])
        for match in _GIT_COMMAND.finditer(value):
            found += _targets(match["rest"])
            if isinstance(call.result, str):
                found += _targets(call.result[:_MAX_CHARS])
    return Places(tuple(_plain(name) for name in dict.fromkeys(found) if name != "/dev/null")[:_MAX_PLACES])


def _targets(text: str) -> Iterable[str]:
    return (word for word in _ARGUMENT.findall(text) if not word.startswith("-") and _is_path(word))


def _is_path(text: str) -> bool:
    if len(text) > 512 or not _PATH.fullmatch(text):
        return False
    return "/" in text or _EXTENSION.search(text) is not None


def _plain(name: str) -> str:
    return posixpath.normpath(name.removeprefix("file://"))


def _overlap(one: str, other: str) -> bool:
    if one == other or one == "." or other == ".":
        return True
    if one.startswith("/") != other.startswith("/"):
        absolute, relative = (one, other) if one.startswith("/") else (other, one)
        return f"{absolute}/".endswith(f"/{relative}/") or f"/{relative}/" in f"{absolute}/"
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _subject(arguments: Mapping[str, object]) -> frozenset[tuple[str, str | int]]:
    """The arguments, where they name something; nothing where one is of another kind."""
    subject: set[tuple[str, str | int]] = set()
    for name, value in arguments.items():
        if isinstance(value, bool) or value is None:
            continue
        if isinstance(value, str | int):
            subject.add((name, value))
    names_something = any(isinstance(value, str) and len(value) > 1 for _, value in subject)
    return frozenset(subject) if names_something or any(name.endswith("id") for name, _ in subject) else frozenset()


def _nouns(tool: str) -> frozenset[str]:
    return frozenset(word for word in map(str.lower, _WORD.findall(tool)) if word not in _VERBS)
