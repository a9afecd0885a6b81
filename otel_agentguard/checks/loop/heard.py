"""What was said to the agents of a run lately: where the values of a fan-out come from."""

from __future__ import annotations

from collections.abc import Collection

_TEXT_CHARS = 3000
_MAX_CHARS = 8000
_MAX_TEXTS = 32


class Heard:
    """The latest results and messages, as far as they are kept."""

    __slots__ = ("_chars", "_texts")

    def __init__(self) -> None:
        self._texts: list[tuple[str, bool]] = []
        self._chars = 0

    def add(self, content: str, *, from_tool: bool) -> None:
        """Note a result of a tool, or a text of a person or an agent."""
        content = content[:_TEXT_CHARS]
        texts = self._texts
        texts.append((content, from_tool))
        chars = self._chars + len(content)
        while chars > _MAX_CHARS or len(texts) > _MAX_TEXTS:
            chars -= len(texts.pop(0)[0])
        self._chars = chars

    def told(self, values: Collection[str], *, by_tools: bool = False) -> bool:
        """Whether all these values came up before, so that whoever uses them works on a list.

        Of a path its last part is enough, since a list of a directory holds no more.

        Args:
            values: What is asked about; none at all were not told.
            by_tools: Only results count.
        """
        texts = [content for content, from_tool in self._texts if from_tool or not by_tools]
        return bool(values) and all(any(_last_part(value) in content for content in texts) for value in values)


def _last_part(value: str) -> str:
    return value.rstrip("/").rsplit("/", 1)[-1] or value
