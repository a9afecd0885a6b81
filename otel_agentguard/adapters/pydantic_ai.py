"""The adapter of Pydantic AI: a capability in each run of an agent, for its tools and model requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import NoneType
from typing import Any

from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, SkipToolExecution
from pydantic_ai.messages import InstructionPart, ToolCallPart, ToolReturn

from otel_agentguard.adapters.contract import EntryRequest, ModelAnswer, ModelRequest, Reading, ToolRequest
from otel_agentguard.adapters.entries import RunEntry
from otel_agentguard.adapters.models import ModelSeam
from otel_agentguard.adapters.patching import Patches
from otel_agentguard.adapters.talk import arguments_of
from otel_agentguard.adapters.tools import ToolSeam
from otel_agentguard.errors import RunAborted

# No part of the framework takes an ordinary exception for anything else, so the carrier is the stop itself.
TOOLS = ToolSeam(RunAborted, pauses=(CallDeferred, ApprovalRequired))
MODELS = ModelSeam(RunAborted)
ENTRY = RunEntry(RunAborted)


def hook(patches: Patches) -> None:
    """Put the entry around `iter`, which all run methods come through; it brings the capability along."""
    from pydantic_ai.agent import Agent

    patches.wrap(Agent, "iter", _iter)


@dataclass
class GuardCapability(AbstractCapability[Any]):
    """Asks the guard before each tool and each model request of a run."""

    def get_ordering(self) -> CapabilityOrdering:
        """Outside of others: an answer that another capability gives is an answer to a call all the same."""
        return CapabilityOrdering(position="outermost")

    async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
        """The seam in the tool path; output tools do not come here."""

        async def body() -> Any:
            try:
                return await handler(args)
            except SkipToolExecution as skipped:
                return skipped.result

        return await TOOLS.call_async(partial(_tool_request, ctx, call), Returns(), body)

    async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
        """The seam in the model path, streamed or not."""

        async def body(hints: str) -> Any:
            return await handler(_hinted(request_context, hints) if hints else request_context)

        return await MODELS.call_async(partial(_model_request, ctx, request_context), _answer, body)


def _iter(wrapped: Any, agent: Any, args: Any, kwargs: Any) -> AbstractAsyncContextManager[Any]:
    return _entered(wrapped, agent, args, kwargs)


@asynccontextmanager
async def _entered(wrapped: Any, agent: Any, args: Any, kwargs: Any) -> AsyncIterator[Any]:
    entered = ENTRY.open(lambda: _entry(agent, *args, **kwargs))
    if entered is None:
        async with wrapped(*args, **kwargs) as run:
            yield run
        return
    kwargs = {**kwargs, "capabilities": [*(kwargs.get("capabilities") or ()), GuardCapability()]}
    entered.resume()
    try:
        async with wrapped(*args, **kwargs) as run:
            yield run
    except BaseException as exc:
        entered.raised(exc)
        raise
    entered.returned()


def _entry(
    agent: Any,
    user_prompt: Any = None,
    *,
    conversation: Any = None,
    message_history: Sequence[Any] | None = None,
    conversation_id: str | None = None,
    **_: Any,
) -> EntryRequest:
    known = conversation_id or getattr(conversation, "conversation_id", None)
    if known is None:
        found = (getattr(one, "conversation_id", None) for one in reversed(message_history or ()))
        known = next(filter(None, found), None)
    return EntryRequest(
        agent=agent.name,
        conversation=None if known == "new" else known,
        user_text=_text(user_prompt),
        is_user_turn=user_prompt is not None,
    )


def _text(prompt: Any) -> str | None:
    if prompt is None or isinstance(prompt, str):
        return prompt
    parts = (part if isinstance(part, str) else getattr(part, "content", None) for part in prompt)
    return "\n".join(part for part in parts if isinstance(part, str)) or None


def _tool_request(ctx: Any, call: ToolCallPart) -> ToolRequest:
    return ToolRequest(
        tool=call.tool_name,
        arguments=arguments_of(call.args),
        call_id=call.tool_call_id,
        agent=getattr(ctx.agent, "name", None),
        batch=f"{ctx.run_id}:{ctx.run_step}",
    )


class Returns:
    """`Results` of a tool: any value, or a `ToolReturn` around one."""

    def read(self, result: Any) -> Reading:
        """See `Results`."""
        if not isinstance(result, ToolReturn):
            return Reading(result)
        return Reading(result.return_value if result.content is None else [result.return_value, result.content])

    def refusal(self, text: str) -> Any:
        """See `Results`."""
        return text

    def again(self, value: object) -> Any:
        """See `Results`."""
        return value

    def with_note(self, result: Any, note: str) -> Any:
        """See `Results`."""
        if isinstance(result, ToolReturn):
            noted = self.with_note(result.return_value, note)
            return None if noted is None else replace(result, return_value=noted)
        return f"{note}\n\n{result}" if type(result) is str else None


def _model_request(ctx: Any, context: Any) -> ModelRequest:
    parameters = context.model_request_parameters
    tools = [*parameters.function_tools, *parameters.output_tools]
    return ModelRequest(
        model=context.model.model_name,
        messages=[
            [part.content for part in parameters.instruction_parts or ()],
            *(_plain(part) for message in context.messages for part in message.parts),
        ],
        tools=[tool.name for tool in tools],
        agent=getattr(ctx.agent, "name", None),
    )


def _hinted(context: Any, hints: str) -> Any:
    """The context of one request with more instructions; the history stays as it is."""
    parameters = context.model_request_parameters
    parts = [*(parameters.instruction_parts or ()), InstructionPart(content=hints, dynamic=True)]
    return replace(context, model_request_parameters=replace(parameters, instruction_parts=parts))


def _answer(response: Any) -> ModelAnswer:
    usage = response.usage
    return ModelAnswer(
        content=[_plain(part) for part in response.parts],
        # Nothing reported is nought here, and no request reads nothing.
        input_tokens=usage.input_tokens or None,
        output_tokens=usage.output_tokens or None,
    )


# Asked first, since most content is one of these and asking an abstract class takes long.
_WHOLE = (str, bytes, dict, NoneType)


def _plain(part: Any) -> Any:
    """What a part of a message says, without ids and times that differ from call to call."""
    if isinstance(part, ToolCallPart):
        return [part.part_kind, part.tool_name, arguments_of(part.args)]
    content = getattr(part, "content", None)
    if not isinstance(content, _WHOLE) and isinstance(content, Sequence):
        content = [one if isinstance(one, str) else _fields(one) for one in content]
    return [getattr(part, "part_kind", type(part).__name__), getattr(part, "tool_name", None), content]


def _fields(thing: Any) -> Any:
    if isinstance(thing, Mapping):
        return thing
    for name in ("url", "identifier", "content"):
        if isinstance(value := getattr(thing, name, None), str):
            return [getattr(thing, "kind", type(thing).__name__), value]
    return type(thing).__name__
