"""What an answer owes to the question: the caller's own words in it are no information."""

from __future__ import annotations

from collections.abc import Mapping

from otel_agentguard import text

_MIN_CHARS = 3
_ECHO_WORDS = 8
_NEW_SHARE = 0.15


def own_words(arguments: Mapping[str, object] | None) -> str:
    """The texts among the arguments."""
    return " ".join(value for value in (arguments or {}).values() if isinstance(value, str))


def without_arguments(content: str, arguments: Mapping[str, object] | None) -> str:
    """The answer with the arguments taken out; the same object where it holds none."""
    rest = content
    for value in (arguments or {}).values():
        if isinstance(value, str) and len(value) >= _MIN_CHARS and value in rest:
            rest = rest.replace(value, "\0")
    return rest


def echoes(content: str, asked: str) -> bool:
    """Whether a longer answer says little but the caller's own words."""
    if len(asked) < _ECHO_WORDS * 2 or len(content) > 4 * len(asked):
        return False
    told = text.content_words(content)
    return len(told) >= _ECHO_WORDS and len(told - text.content_words(asked)) <= _NEW_SHARE * len(told)
