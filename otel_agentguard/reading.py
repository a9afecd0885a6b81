"""Which shell commands and SQL statements only read.

A dry table: general knowledge of POSIX tools, git and SQL, judged by the form of the argument and
never by the name of the tool that takes it. Where a form is not certain to only read, the answer is
no. Sources: POSIX.1-2024 utilities, the GNU coreutils manual, git's command list ("ancillary and
plumbing interrogators"), ISO SQL statement classes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import NoneType

from otel_agentguard.events import Form, ToolCall

_READERS = frozenset(
    """
    [ b2sum base32 base64 basename bzcat bzgrep cal cat cksum cmp column comm cut date df diff dig dirname
    du echo egrep env expand expr factor false fgrep file find fold free getconf getent grep groups head
    hexdump host hostname iconv id join jq less locale ls lsblk lscpu lsof man md5sum more nl nm nproc
    nslookup numfmt objdump od paste pgrep pr printenv printf ps pwd readelf readlink realpath rev rg sed
    seq sha1sum sha224sum sha256sum sha384sum sha512sum sleep sort ss stat strings sum tac tail test tr
    tree true tsort tty type uname unexpand uniq uptime users w wc whereis which who whoami xargs xxd
    xzcat xzgrep yq zcat zgrep awk gawk mawk cd
    """.split()
)
_GIT_READERS = frozenset(
    """
    annotate blame cat-file check-ignore cherry count-objects describe diff diff-files diff-index diff-tree
    for-each-ref fsck grep log ls-files ls-remote ls-tree merge-base name-rev range-diff rev-list rev-parse
    shortlog show show-branch show-ref status var verify-commit version whatchanged
    """.split()
)
_WRITING_FLAGS = {
    "sed": re.compile(r"(?:^|\s)(?:-[A-Za-z]*i|--in-place)"),
    "sort": re.compile(r"(?:^|\s)(?:-[A-Za-z]*o|--output)"),
    "find": re.compile(r"(?:^|\s)-(?:delete|ok|okdir|execdir|fprint|fprintf|fls)\b"),
    "awk": re.compile(r"system\s*\(|print[^|\n]*[>|]"),
    "date": re.compile(r"(?:^|\s)(?:-s|--set)\b"),
    "hostname": re.compile(r"^\s*[A-Za-z0-9]"),
    "tree": re.compile(r"(?:^|\s)-o\b"),
    "yq": re.compile(r"(?:^|\s)(?:-[A-Za-z]*i|--inplace)"),
    "base64": re.compile(r"(?:^|\s)(?:-o|--output)\b"),
    "xxd": re.compile(r"(?:^|\s)-r\b"),
}
_WRITING_FLAGS["gawk"] = _WRITING_FLAGS["mawk"] = _WRITING_FLAGS["awk"]
_RUNS_ANOTHER = {"xargs", "env"}
_EXEC = re.compile(r"\s-exec\s+(\S+)")
_HARMLESS_REDIRECT = re.compile(r"(?:[12&]?>{1,2}\s*/dev/null|2>&1|<\s*[\w./~-]+)")
_ASSIGNMENT = re.compile(r"^[A-Za-z_]\w*=\S*$")
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"")
_SEPARATORS = re.compile(r"\|\||&&|[|;\n]")
_SQL_READER = re.compile(r"\s*(?:select|show|describe|desc|explain|with|values)\b", re.IGNORECASE)
_SQL_SHOWS = re.compile(r"\s*(?:show|describe|desc)\s[^;]*;?\s*$", re.IGNORECASE)
_SQL_WRITER = re.compile(
    r"\b(?:insert|update|delete|merge|replace\s+into|create|alter|drop|truncate|grant|revoke|call|into\s+outfile|lock|set)\b",
    re.IGNORECASE,
)
_LONGEST = 4000
_MOST_ARGUMENTS = 4
_BESIDE_TEXT = (int, float, NoneType)
_WRITERS = frozenset(
    """
    apt apt-get bunzip2 bzip2 chgrp chmod chown cp dd gunzip gzip install ln make mkdir mkfifo mktemp mv npm
    patch pip pip3 rm rmdir shred split tee touch truncate unlink unzip xz yarn zip
    """.split()
)
_GIT_WRITERS = frozenset(
    """
    add am apply bisect checkout cherry-pick clean clone commit fetch init merge mv pull push rebase reset
    restore revert rm stash switch tag worktree
    """.split()
)
_LINE_COMMANDS = (_READERS | _WRITERS | {"git"}) - {"[", "awk", "gawk", "mawk"}
_COMMANDS = (
    _READERS
    | _WRITERS
    | frozenset("bash cargo curl docker git go kubectl node perl php python python3 ruby sh tar wget".split())
)
_SQL_OBJECTS = r"(?:table|view|index|database|schema|sequence|trigger|function|procedure|user|role|type)\b"
_SQL_WRITES = re.compile(
    r"\s*(?:insert\s+(?:or\s+\w+\s+)?into\s|update\s+[\w.`\"]+\s+set\s|delete\s+from\s|(?:replace|merge)\s+into\s"
    rf"|(?:create|alter|drop)\s+(?:or\s+replace\s+|unique\s+|temp(?:orary)?\s+|materialized\s+)*{_SQL_OBJECTS}"
    r"|truncate\s+(?:table\s|[\w.]+\s*;?\s*$))",
    re.IGNORECASE,
)
_SQL_SIGNS = "*=(;_"
_SQL_OBJECT = re.compile(
    r"(?:tables|databases|schemas|columns|create|index(?:es)?|variables|status|processlist|grants|full)\b"
    r"|(?:analyze\s+)?(?:select|insert|update|delete|with)\b|[\w.`]+\s*;?\s*$",
    re.IGNORECASE,
)
_MAYBE_HEAD = re.compile(r"\s*[\w./'\"-]+(?:[\s<>&12]|$)")
_WRAPPED = re.compile(  # as agents write an action: run[ls -l]
    r"\s*(?:bash|cmd|command|exec|execute|query|run|sh|shell|sql|terminal)\[(.*)\]\s*$", re.DOTALL | re.IGNORECASE
)
_SHELL_HEAD = re.compile(r"\s*(?:sudo\s+)?([\w./-]+)(?:\s|$)")
_REDIRECT_TO_FILE = re.compile(r"(?<![0-9&=<>-])1?>{1,2}\s*[^\s&>|;]")


def form_of(arguments: Mapping[str, object] | None) -> Form:
    """What a call does, by the form of its one text argument.

    Args:
        arguments: The arguments by name; numbers, booleans and nulls beside the text do not matter.

    Returns:
        `READS` for a shell pipeline of reading commands or a reading SQL statement, `WRITES` for one that
        surely changes files or tables where it succeeds, else `UNSURE`.
    """
    found = _only_text(arguments)
    return Form.UNSURE if found is None else _form_of_text(found[:_LONGEST], len(found) > _LONGEST)


def form_of_call(call: ToolCall) -> Form:
    """`form_of` the arguments of a call, found out once for each."""
    if call.form is None:
        call.form = form_of(call.arguments)
    return call.form


def only_reads(call: ToolCall) -> bool:
    """Whether a call surely only reads, by the form of its one text argument."""
    return form_of_call(call) is Form.READS


def surely_writes(call: ToolCall) -> bool:
    """Whether a call, where it succeeds, surely changes files or tables, by the form of its one text argument."""
    return form_of_call(call) is Form.WRITES


def is_command_line(text: str) -> bool:
    """Whether a text is one line that begins with a well-known command that is no interpreter of code."""
    head = _SHELL_HEAD.match(text)
    return head is not None and "\n" not in text.strip() and head.group(1) in _LINE_COMMANDS


def _only_text(arguments: Mapping[str, object] | None) -> str | None:
    """The one text among the arguments; None where there are several, or anything but plain values beside it."""
    if not arguments or len(arguments) > _MOST_ARGUMENTS:
        return None
    found = None
    for value in arguments.values():
        if isinstance(value, str):
            if found is not None:
                return None
            found = value
        elif not isinstance(value, _BESIDE_TEXT):
            return None
    return found


@lru_cache(maxsize=256)
def _form_of_text(text: str, cut: bool) -> Form:
    if (wrapped := _WRAPPED.match(text)) is not None:
        text = wrapped.group(1)
    if not cut and _text_only_reads(text):
        return Form.READS
    return Form.WRITES if _text_surely_writes(text) else Form.UNSURE


def _text_only_reads(text: str) -> bool:
    if _SQL_READER.match(text) and _looks_like_sql(text):
        return _SQL_SHOWS.match(text) is not None or not _SQL_WRITER.search(_QUOTED.sub("''", text))
    return _shell_only_reads(text)


def _text_surely_writes(text: str) -> bool:
    if _SQL_WRITES.match(text):
        return True
    if not _MAYBE_HEAD.match(text):
        return False
    bare = _HARMLESS_REDIRECT.sub(" ", _QUOTED.sub("_", text.split("<<", 1)[0]))
    head = _SHELL_HEAD.match(bare)
    if head is None or not _is_command(head.group(1)):
        return False
    if _REDIRECT_TO_FILE.search(bare) or ("<<" in text and _REDIRECT_TO_FILE.search(text.split("\n", 1)[0])):
        return True
    return any(_command_surely_writes(part.split()) for part in _SEPARATORS.split(bare))


def _is_command(word: str) -> bool:
    """Whether a word is a command as far as anybody can tell, and no word of a programming language."""
    return word in _COMMANDS or word.startswith(("/", "./", "../"))


def _command_surely_writes(words: list[str]) -> bool:
    if words and words[0] == "sudo":
        words = words[1:]
    if not words:
        return False
    head = words[0].rsplit("/", 1)[-1]
    if head == "git":
        verbs = [word for word in words[1:] if not word.startswith("-")]
        return bool(verbs) and verbs[0] in _GIT_WRITERS and verbs[1:2] not in (["list"], ["show"])
    if head in ("sed", "find"):
        rest = " ".join(words[1:])
        runs = _EXEC.findall(f" {rest}")
        return bool(_WRITING_FLAGS[head].search(rest)) or any(command in _WRITERS for command in runs)
    return head in _WRITERS


def _looks_like_sql(text: str) -> bool:
    """Whether a text that begins like SQL is no sentence: by capitals, by its signs, or by the words that follow."""
    head, *rest = text.split(None, 1)
    if head.isupper():
        return True
    if head.lower() in ("select", "with", "values"):
        from_somewhere = " from " in f" {text.lower().replace(chr(10), ' ')} "
        return from_somewhere and any(sign in text for sign in _SQL_SIGNS)
    return bool(rest) and _SQL_OBJECT.match(rest[0]) is not None


def _shell_only_reads(text: str) -> bool:
    words = text.split(None, 1)
    if not words or (words[0] not in _READERS and words[0] != "git" and not _ASSIGNMENT.match(words[0])):
        return False
    if "`" in text or "$(" in text or "<(" in text or "<<" in text:
        return False
    bare = _QUOTED.sub(lambda quoted: "_" * len(quoted.group()), text)
    bare = _HARMLESS_REDIRECT.sub(lambda redirect: " " * len(redirect.group()), bare)
    if ">" in bare or "&" in bare.replace("&&", ""):
        return False
    start = 0
    parts = []
    for separator in _SEPARATORS.finditer(bare):
        parts.append((text[start : separator.start()], bare[start : separator.start()]))
        start = separator.end()
    parts.append((text[start:], bare[start:]))
    parts = [part for part in parts if part[1].strip()]
    if [part[1].split()[0] for part in parts] == ["cd"] * len(parts):
        return False
    return all(_command_only_reads(full, hidden) for full, hidden in parts)


def _command_only_reads(full: str, hidden: str) -> bool:
    words = hidden.split()
    while words and (_ASSIGNMENT.match(words[0]) or words[0] in ("time", "command", "!")):
        words = words[1:]
    if not words:
        return False
    head = words[0].rsplit("/", 1)[-1]
    if head == "git":
        verbs = [word for word in words[1:] if not word.startswith("-") and "/" not in word]
        return bool(verbs) and verbs[0] in _GIT_READERS
    if head not in _READERS:
        return False
    rest = full.split(words[0], 1)[1]
    writing = _WRITING_FLAGS.get(head)
    if writing is not None and writing.search(rest):
        return False
    if head == "find":
        return all(command in _READERS - _RUNS_ANOTHER for command in _EXEC.findall(rest))
    if head in _RUNS_ANOTHER:
        called = [word for word in words[1:] if not word.startswith("-") and not word[0].isdecimal() and word != "{}"]
        return not called or (called[0] in _READERS - _RUNS_ANOTHER and called[0] not in _WRITING_FLAGS)
    return True
