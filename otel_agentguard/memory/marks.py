"""The marks around recalled text, by which it is known again when it comes back as a result or a message."""

from __future__ import annotations

import re

_OPENING = "[agentguard recalled"
_CLOSING = "[/agentguard recalled]"
_MARKED = re.compile(rf"{re.escape(_OPENING)}[^\]]*\].*?(?:{re.escape(_CLOSING)}|\Z)", re.DOTALL)


def marked(text: str, note: str) -> str:
    """A recalled text with the note that tells what it is worth.

    Args:
        text: What was recalled; marks inside of it are taken out, so that it cannot close its own.
        note: A few words without brackets, such as `verified, run r1`.
    """
    inner = text.replace(_CLOSING, "").replace(_OPENING, "")
    return f"{_OPENING}: {note}] {inner} {_CLOSING}"


def without_marked(text: str) -> str:
    """A text without everything that was recalled into it; a mark that is never closed reaches to the end."""
    return _MARKED.sub(" ", text) if _OPENING in text else text
