"""What a type checker says of the public surface; checked by mypy, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import assert_type

from otel_agentguard import (
    Action,
    AgentGuard,
    Effect,
    Finding,
    Limits,
    RunAborted,
    agent,
    install,
    message,
    model_call,
    run,
    tool,
    unguarded,
)


@tool
def bare(path: str, depth: int = 1) -> str:
    return path


@tool(effect=Effect.READ, touches=lambda path: [path], limits=Limits(3, 5, 7))
def with_options(path: str) -> bytes:
    return b""


@tool
async def coroutine(path: str) -> str:
    return path


@tool
def generator(path: str) -> Iterator[str]:
    yield path


@tool(ttl_s=5)
async def async_generator(path: str) -> AsyncIterator[str]:
    yield path


@tool(effect=Effect.SIDE_EFFECT, identity=("invoice",), on_unknown="block")
def charge(invoice: str, amount: int, *, idempotency_key: str) -> int:
    return amount


@agent("coder")
def coder(task: str) -> str:
    return task


@agent
async def reviewer(task: str) -> str:
    return task


class Desk:
    @tool
    def look(self, word: str) -> str:
        return word


def on_finding(finding: Finding, proposed: Action) -> Action | None:
    return None


assert_type(bare("a", depth=2), str)
assert_type(with_options("a"), bytes)
assert_type(generator("a"), Iterator[str])
assert_type(async_generator("a"), AsyncIterator[str])
assert_type(charge("i-1", 5), int)
assert_type(charge, Callable[..., int])
assert_type(coder("a"), str)
assert_type(Desk().look("a"), str)

bare(7)  # type: ignore[arg-type]
coder()  # type: ignore[call-arg]
tool(effect=Effect.READ, identity=("a",))  # type: ignore[call-overload]


async def main() -> None:
    assert_type(await coroutine("a"), str)
    assert_type(await reviewer("a"), str)
    with install(mode="enforce", metrics_port=0, on_finding=on_finding) as guard:
        assert_type(guard, AgentGuard)
        assert_type(guard.release("r"), bool)
        try:
            async with run("r", agent="coder") as r:
                assert_type(r.run_id, str)
                assert_type(r.notes(), list[str])
                assert_type(r.hints(max_chars=100), str)
                assert_type(r.finding, Finding | None)
                assert_type(r.bind(bare)("a"), str)
                r.turn("user", text="hello", event=None, replay=False)
                message("done", agent="coder", to="user")
                with unguarded(), r.attach():
                    pass
                async with model_call(model="m", messages=[], tools=[]) as call:
                    call.record(answer="a", input_tokens=1, output_tokens=2)
        except RunAborted as stop:
            assert_type(stop.finding, Finding | None)
            assert_type(stop.outcome, str)
