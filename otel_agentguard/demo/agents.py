"""An agent as many are written by hand: a model, tools, a loop, and a catch-all around the call.

The model is a script. It is a generator that yields what it wants to do, is sent what came of it, and
returns its last words; so it can react, or fail to, without anybody having to be paid for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Use:
    """The model wants a tool to be called.

    Attributes:
        tool: Its name.
        arguments: What to call it with.
    """

    tool: str
    arguments: Mapping[str, object] = field(default_factory=dict)


Script = Generator[Use, str, str]
Tools = Mapping[str, Callable[..., str]]


def work(script: Script, tools: Tools) -> str:
    """Let a model work with tools until it has said its last words.

    Args:
        script: The model.
        tools: What it may call, by name.

    Returns:
        The last words.
    """
    heard = None
    while True:
        try:
            use = script.send(heard) if heard is not None else next(script)
        except StopIteration as end:
            return str(end.value)
        try:
            heard = tools[use.tool](**use.arguments)
        # The model is told of every failure and goes on: no Exception gets out of a loop like this one.
        except Exception as exc:
            heard = f"error: {exc}"
