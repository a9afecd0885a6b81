"""Names of tools and arguments: when two are the same, and which are near."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from rapidfuzz import fuzz

SAME_TOOL: tuple[tuple[str, ...], ...] = (
    ("shell", "terminal", "bash", "command", "run_command", "execute_command", "exec", "cmd", "powershell"),
    ("python", "run_python", "execute_python", "code_interpreter", "execute_code", "run_code", "python_repl"),
    ("web_search", "search_web", "internet_search", "google", "google_search", "bing", "tavily", "duckduckgo"),
    ("fetch", "fetch_url", "web_fetch", "http_get", "curl", "download", "open_url", "scrape", "visit", "get_page"),
    ("read_file", "open_file", "view_file", "cat", "read", "view", "get_file_contents"),
    ("write_file", "write_to_file", "create_file", "save_file", "write", "put_file"),
    ("edit_file", "str_replace", "replace_in_file", "apply_patch", "patch_file", "edit", "modify_file"),
    ("delete_file", "remove_file", "rm", "unlink"),
    ("list_files", "list_directory", "list_dir", "ls", "dir"),
    ("grep", "search_files", "search_code", "ripgrep", "find_in_files"),
    ("send_email", "send_mail", "email", "mail", "mailer"),
    ("sql", "run_sql", "execute_sql", "query_database", "sql_query", "db_query"),
    ("calculator", "calculate", "math", "eval_math"),
    ("ask_user", "ask_human", "human_input", "request_input", "clarify"),
    ("summarize", "summarise", "summary", "tldr"),
)
"""Whole names under which frameworks offer one and the same tool."""

SAME_WORD: tuple[tuple[str, ...], ...] = (
    ("get", "fetch", "retrieve", "list", "read", "show", "load", "view"),
    ("search", "find", "lookup", "query"),
    ("create", "add", "new", "make", "insert", "open"),
    ("update", "edit", "modify", "change", "set", "patch"),
    ("delete", "remove", "drop", "erase"),
    ("send", "post", "submit", "publish"),
    ("run", "execute", "exec", "invoke", "start"),
    ("cancel", "abort", "revoke", "stop"),
    ("charge", "debit", "bill", "pay"),
    ("file", "document", "doc"),
    ("path", "filepath", "filename"),
    ("mail", "email"),
    ("customer", "client", "user"),
    ("issue", "ticket"),
    ("id", "identifier", "key"),
    ("max", "limit", "count", "num", "top"),
    ("text", "content", "body", "message"),
    ("directory", "dir", "folder"),
    ("url", "uri", "link"),
)
"""Words within names that stand for one another."""

_PREFIX = re.compile(r"(?:mcp__.+?__|functions[.:]|default_api[.:]|tools[.:])", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[^\W_]+")
_FOLDED = str.maketrans("", "", "-_. \t\n")
_VERBS = frozenset({"get", "search", "create", "update", "delete", "send", "run"})
_LONGEST = 128


def fold(name: str) -> str:
    """The form in which case, `-`, `_`, `.` and spaces make no difference."""
    return name[:_LONGEST].translate(_FOLDED).casefold()


def split_prefix(name: str) -> tuple[str, str]:
    """Take the prefix of a server or an API off a name.

    Returns:
        The prefix (`mcp__github__`, `functions.` or nothing) and the rest.
    """
    match = _PREFIX.match(name[:_LONGEST])
    if match is None or match.end() == len(name):
        return "", name
    return match[0], name[match.end() :]


class NameIndex:
    """A closed set of names that can be asked for others.

    Args:
        names: The names there are, in the order in which they are told to people.
    """

    __slots__ = ("_bare", "_folded", "_near", "names")

    def __init__(self, names: Iterable[str]) -> None:
        self.names: tuple[str, ...] = tuple(dict.fromkeys(names))
        self._folded: dict[str, list[str]] = {}
        self._bare: dict[str, list[str]] = {}
        for name in self.names:
            self._folded.setdefault(fold(name), []).append(name)
            self._bare.setdefault(fold(split_prefix(name)[1]), []).append(name)
        self._near: dict[tuple[str, int], tuple[str, ...]] = {}

    def resolve(self, name: str) -> str | None:
        """The name of this set that `name` is only another spelling of.

        Returns:
            None when there is none, or more than one.
        """
        same = self._folded.get(fold(name))
        if same is not None:
            return name if name in same else same[0] if len(same) == 1 else None
        prefix, bare = split_prefix(name)
        same = self._bare.get(fold(bare), [])
        if prefix:
            same = [known for known in same if not split_prefix(known)[0]]
        return same[0] if len(same) == 1 else None

    def near(self, name: str, most: int = 3) -> tuple[str, ...]:
        """Names that `name` may have been meant for, nearest first; one set answers one name the same way."""
        name = name[:_LONGEST]
        known = self._near.get((name, most))
        if known is None:
            if len(self._near) >= 256:
                self._near.clear()
            known = self._near[name, most] = nearest(name, self.names, most)
        return known


def nearest(name: str, choices: Sequence[str], most: int = 3) -> tuple[str, ...]:
    """The choices that are like `name`, by spelling, by words and by synonyms.

    Args:
        name: What was written.
        choices: What there is.
        most: How many are returned at most.
    """
    bare = split_prefix(name)[1]
    asked = _Shape(bare)
    scored = [(_likeness(asked, _shape(split_prefix(choice)[1])), -place) for place, choice in enumerate(choices)]
    best = sorted((pair for pair in scored if pair[0] >= _CUTOFF), reverse=True)[:most]
    return tuple(choices[-place] for _, place in best)


_CUTOFF = 60.0


class _Shape:
    __slots__ = ("folded", "group", "words")

    def __init__(self, name: str) -> None:
        self.folded = fold(name)
        self.group = _TOOL_GROUPS.get(self.folded)
        self.words = frozenset(_plain(word) for word in _WORD.findall(_CAMEL.sub("_", name[:_LONGEST])))


def _likeness(a: _Shape, b: _Shape) -> float:
    if a.group is not None and a.group == b.group:
        return 95.0
    return max(fuzz.ratio(a.folded, b.folded) * 0.98 - 5.0, _words_in_common(a.words, b.words))


def _words_in_common(a: frozenset[str], b: frozenset[str]) -> float:
    shared = a & b
    if not shared or (shared <= _VERBS and not (a <= _VERBS or b <= _VERBS)):
        return 0.0
    weight = len(shared) + (0.5 if (a - b) & _VERBS and (b - a) & _VERBS else 0.0)
    return 50.0 * weight * (2.0 / (len(a) + len(b)) + 1.0 / min(len(a), len(b)))


def _plain(word: str) -> str:
    word = word.casefold()
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    return _WORD_GROUPS.get(word, word)


def _first_of_each(groups: Iterable[Sequence[str]]) -> Mapping[str, str]:
    return {fold(name): group[0] for group in groups for name in group}


_TOOL_GROUPS = _first_of_each(SAME_TOOL)
_WORD_GROUPS = _first_of_each(SAME_WORD)
_shape = lru_cache(maxsize=4096)(_Shape)
