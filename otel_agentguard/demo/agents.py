"""An agent as many are written by hand: a model, tools, a loop, and a catch-all around the call.

The model is a script. It is a generator that yields what it wants to do, is sent what came of it, and
returns its last words; so it can react, or fail to, without anybody having to be paid for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field

from otel_agentguard import model_call

MODEL = "scripted"

_CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Use:
    """The model wants a tool to be called.

    Attributes:
        tool: Its name.
        arguments: What to call it with.
    """

    tool: str
    arguments: Mapping[str, object] = field(default_factory=dict)


Script = Generator[Use, str | None, str]
Tools = Mapping[str, Callable[..., str]]


def work(task: str, script: Script, tools: Tools) -> str:
    """Let a model work with tools until it has said its last words.

    Args:
        task: What it is asked to do.
        script: The model.
        tools: What it may call, by name.

    Returns:
        The last words.
    """
    messages = [{"role": "system", "content": task}]
    heard = None
    while True:
        answer = _ask(script, messages, heard)
        if isinstance(answer, str):
            return answer
        messages.append({"role": "assistant", "content": f"{answer.tool} {dict(answer.arguments)}"})
        heard = _call(tools, answer)
        messages.append({"role": "tool", "content": heard})


def _ask(script: Script, messages: list[dict[str, str]], heard: str | None) -> Use | str:
    with model_call(model=MODEL, messages=messages) as request:
        answer: Use | str
        try:
            answer = script.send(heard)
        except StopIteration as end:
            answer = str(end.value)
        request.record(
            str(answer),
            input_tokens=sum(len(message["content"]) for message in messages) // _CHARS_PER_TOKEN,
            output_tokens=len(str(answer)) // _CHARS_PER_TOKEN,
        )
        return answer


def _call(tools: Tools, use: Use) -> str:
    try:
        return tools[use.tool](**use.arguments)
    # The model is told of every failure and goes on: no Exception gets out of a loop like this one.
    except Exception as exc:
        return f"error: {exc}"
