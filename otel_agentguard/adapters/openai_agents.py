"""The adapter of the OpenAI Agents SDK: function tools, models, handoffs and the run methods of `Runner`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any

from agents.exceptions import AgentsException
from agents.models.interface import Model
from agents.run_state import RunState
from agents.tool import ToolOutputText, _FunctionToolInvocationResult
from opentelemetry import context

from otel_agentguard.adapters.contract import EntryRequest, ModelAnswer, ModelRequest, Reading, ToolRequest
from otel_agentguard.adapters.entries import Entered, RunEntry, tell_handoff
from otel_agentguard.adapters.models import ModelSeam
from otel_agentguard.adapters.patching import Patches
from otel_agentguard.adapters.talk import arguments_of
from otel_agentguard.adapters.tools import ToolSeam
from otel_agentguard.current import attach, narrowed, scope
from otel_agentguard.errors import RunAborted
from otel_agentguard.forks import new_lock


class AgentsRunAborted(RunAborted, AgentsException):
    """A stop on its way through the SDK, which wraps what is not its own and feeds it to the model."""


TOOLS = ToolSeam(AgentsRunAborted)
MODELS = ModelSeam(AgentsRunAborted)
ENTRY = RunEntry(AgentsRunAborted)


def hook(patches: Patches) -> None:
    """Put the seams in.

    Function tools have one place that they all come through, so that those made earlier are guarded too. Models
    have none: the class of each is wrapped when the runner first asks for one.
    """
    from agents import run
    from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
    from agents.models.openai_responses import OpenAIResponsesModel
    from agents.run_internal import run_loop, tool_execution, turn_resolution

    models = _ModelClasses(patches)
    models.guard(OpenAIChatCompletionsModel)
    models.guard(OpenAIResponsesModel)
    patches.wrap(run_loop, "get_model", models.got)
    patches.wrap(tool_execution, "_invoke_function_tool_with_metadata", _invoke)
    patches.wrap(turn_resolution, "execute_handoffs", _hand_off)
    patches.wrap(run, "run_single_turn", _turn)
    patches.wrap(run_loop, "run_single_turn_streamed", _turn)
    patches.wrap(run.Runner, "run", _run)
    patches.wrap(run.Runner, "run_sync", _run_sync)
    patches.wrap(run.Runner, "run_streamed", _run_streamed)


async def _invoke(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
    return await TOOLS.call_async(partial(_tool_request, **kwargs), Outputs(), lambda: wrapped(*args, **kwargs))


def _tool_request(*, function_tool: Any, context: Any, arguments: str) -> ToolRequest:
    usage = context.usage
    return ToolRequest(
        tool=function_tool.name,
        arguments=arguments_of(arguments),
        call_id=context.tool_call_id,
        agent=getattr(context.agent, "name", None),
        # Each turn of a run adds one request to the usage that the calls of its turn share.
        batch=f"{id(usage)}:{usage.requests}",
    )


class Outputs:
    """`Results` of a function tool: what its function returned, or what the SDK made of its error."""

    def read(self, result: Any) -> Reading:
        """See `Results`."""
        return Reading(_plain_output(result.output), failed=result.is_sdk_generated_error)

    def refusal(self, text: str) -> Any:
        """See `Results`; said to be the SDK's own, since a declared output schema must not be asked of it."""
        return _FunctionToolInvocationResult(text, is_sdk_generated_error=True)

    def again(self, value: object) -> Any:
        """See `Results`."""
        return _FunctionToolInvocationResult(value)

    def with_note(self, result: Any, note: str) -> Any:
        """See `Results`."""
        output = result.output
        if type(output) is str:
            noted: Any = f"{note}\n\n{output}"
        elif isinstance(output, list) and output and all(map(_is_content, output)):
            noted = [ToolOutputText(text=note), *output]
        else:
            return None
        return _FunctionToolInvocationResult(noted, is_sdk_generated_error=result.is_sdk_generated_error)


async def _hand_off(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
    asked = kwargs["run_handoffs"][0]
    text = asked.tool_call.arguments
    tell_handoff(
        asked.handoff.agent_name,
        agent=kwargs["public_agent"].name,
        text=text if text not in _NOTHING else None,
        carrier=AgentsRunAborted,
    )
    return await wrapped(*args, **kwargs)


_NOTHING = frozenset({"", "{}", "null", None})


async def _turn(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
    """One turn, as the agent that has control by then: a model is not told who asks it."""
    bindings = kwargs.get("bindings") or next((one for one in args if hasattr(one, "public_agent")), None)
    name = getattr(getattr(bindings, "public_agent", None), "name", None)
    if name is None or name == scope().agent:
        return await wrapped(*args, **kwargs)
    token = attach(narrowed(agent=name))
    try:
        return await wrapped(*args, **kwargs)
    finally:
        context.detach(token)


class _ModelClasses:
    """The classes of models that the runner has used, each guarded once."""

    def __init__(self, patches: Patches) -> None:
        self._patches = patches
        self._lock = new_lock()
        self._known: set[type] = {Model}

    def got(self, wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
        model = wrapped(*args, **kwargs)
        if type(model) not in self._known:
            self.guard(type(model))
        return model

    def guard(self, kind: type) -> None:
        # What a subclass asks of its base class is the same request, and the seam takes it as that.
        with self._lock:
            for owner in kind.__mro__:
                if owner in self._known or not issubclass(owner, Model):
                    continue
                self._known.add(owner)
                if "get_response" in vars(owner):
                    self._patches.wrap(owner, "get_response", _get_response)
                if "stream_response" in vars(owner):
                    self._patches.wrap(owner, "stream_response", _stream_response)


async def _get_response(wrapped: Any, model: Any, args: Any, kwargs: Any) -> Any:
    async def body(hints: str) -> Any:
        return await wrapped(*_hinted(args, kwargs, hints), **_hinted_names(args, kwargs, hints))

    return await MODELS.call_async(lambda: _model_request(model, *args, **kwargs), _answer_of_response, body)


def _stream_response(wrapped: Any, model: Any, args: Any, kwargs: Any) -> AsyncGenerator[Any, Any]:
    def body(hints: str) -> AsyncGenerator[Any, Any]:
        return _generator(wrapped(*_hinted(args, kwargs, hints), **_hinted_names(args, kwargs, hints)))

    return MODELS.stream_async(lambda: _model_request(model, *args, **kwargs), _answer_of_events, body)


def _hinted(args: tuple[Any, ...], kwargs: Mapping[str, Any], hints: str) -> tuple[Any, ...]:
    return (_longer(args[0], hints), *args[1:]) if hints and args else args


def _hinted_names(args: tuple[Any, ...], kwargs: Mapping[str, Any], hints: str) -> Mapping[str, Any]:
    if not hints or args:
        return kwargs
    return {**kwargs, "system_instructions": _longer(kwargs.get("system_instructions"), hints)}


def _longer(instructions: str | None, hints: str) -> str:
    return f"{instructions}\n\n{hints}" if instructions else hints


def _model_request(
    model: Any,
    system_instructions: Any,
    input: Any,
    model_settings: Any = None,
    tools: Sequence[Any] = (),
    output_schema: Any = None,
    handoffs: Sequence[Any] = (),
    *_: Any,
    previous_response_id: str | None = None,
    conversation_id: str | None = None,
    **__: Any,
) -> ModelRequest:
    name = getattr(model, "model", None)
    items = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
    return ModelRequest(
        model=name if isinstance(name, str) else type(model).__name__,
        messages=[system_instructions, previous_response_id, conversation_id, *map(_plain, items)],
        tools=[*(getattr(one, "name", "") for one in tools), *(getattr(one, "tool_name", "") for one in handoffs)],
    )


def _answer_of_response(response: Any) -> ModelAnswer:
    usage = response.usage
    return ModelAnswer(
        content=[_said(item) for item in response.output],
        input_tokens=getattr(usage, "input_tokens", None),
        output_tokens=getattr(usage, "output_tokens", None),
    )


def _answer_of_events(events: Sequence[Any]) -> ModelAnswer:
    for event in reversed(events):
        if (response := getattr(event, "response", None)) is not None and getattr(event, "type", "") in _ENDS:
            return _answer_of_response(response)
    return ModelAnswer()


_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


async def _generator(events: AsyncIterator[Any]) -> AsyncGenerator[Any, Any]:
    try:
        async for event in events:
            yield event
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


async def _run(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
    return await ENTRY.call_async(lambda: _entry(*args, **kwargs), lambda: wrapped(*args, **kwargs))


def _run_sync(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
    return ENTRY.call(lambda: _entry(*args, **kwargs), lambda: wrapped(*args, **kwargs))


def _run_streamed(wrapped: Any, _: Any, args: Any, kwargs: Any) -> Any:
    entered = ENTRY.open(lambda: _entry(*args, **kwargs))
    if entered is None:
        return wrapped(*args, **kwargs)
    entered.resume()
    try:
        result = wrapped(*args, **kwargs)
    except BaseException as exc:
        entered.raised(exc)
        raise
    entered.park()
    # The run goes on in a task that it was given here; whoever reads the events gets what that task raises.
    result.run_loop_task = asyncio.create_task(_followed(result.run_loop_task, entered))
    return result


async def _followed(task: asyncio.Task[Any], entered: Entered) -> Any:
    try:
        value = await task
    except BaseException as exc:
        entered.raised(exc)
        raise
    entered.returned()
    return value


def _entry(starting_agent: Any, input: Any, *_: Any, **options: Any) -> EntryRequest:
    is_resumption = isinstance(input, RunState)
    text, said = (None, False) if is_resumption else _user_text(input)
    return EntryRequest(
        agent=getattr(starting_agent, "name", None),
        conversation=_conversation(input if is_resumption else None, options),
        user_text=text,
        is_user_turn=said,
    )


def _conversation(state: Any, options: Mapping[str, Any]) -> str | None:
    session, configuration = options.get("session"), options.get("run_config")
    group = configuration.get("group_id") if isinstance(configuration, Mapping) else _of(configuration, "group_id")
    for found in (
        options.get("conversation_id"),
        _of(state, "_conversation_id"),
        _of(session, "session_id"),
        group,
    ):
        if isinstance(found, str) and found:
            return found
    return None


def _of(thing: Any, name: str) -> Any:
    return getattr(thing, name, None)


def _user_text(given: Any) -> tuple[str | None, bool]:
    """What the user says last in an input, and whether that is the newest thing in it."""
    if isinstance(given, str):
        return given, True
    last = given[-1] if isinstance(given, list) and given else None
    if not isinstance(last, Mapping) or last.get("role") != "user":
        return None, False
    content = last.get("content")
    if isinstance(content, str) or content is None:
        return content, True
    return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping)) or None, True


# Items of the Responses interface, and what tools return, without ids that differ from call to call.


def _plain(item: Any) -> Any:
    if type(item) is dict and "id" not in item:
        return item
    if isinstance(item, Mapping):
        return {name: value for name, value in item.items() if name != "id"}
    return item.model_dump(exclude={"id"}, exclude_unset=True) if hasattr(item, "model_dump") else item


def _said(item: Any) -> Any:
    match getattr(item, "type", None):
        case "function_call":
            return [item.name, item.arguments]
        case "message":
            return [getattr(part, "text", None) or getattr(part, "refusal", None) for part in item.content]
        case _:
            return _plain(item)


def _plain_output(output: Any) -> Any:
    if isinstance(output, list):
        return [_plain_output(one) for one in output]
    return output.model_dump() if _is_content(output) else output


def _is_content(output: Any) -> bool:
    return type(output).__module__ == ToolOutputText.__module__ and hasattr(output, "model_dump")
