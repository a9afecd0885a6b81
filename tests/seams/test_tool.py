from __future__ import annotations

import asyncio
import functools
import inspect
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, get_type_hints

import pytest

from otel_agentguard import AgentGuard, CallBlocked, ConfigError, Effect, Limits, RunAborted, run, tool
from otel_agentguard.events import Outcome, ToolCall
from otel_agentguard.seams.declare import declaration_of
from otel_agentguard.testing import RecordingSink


@tool
def at_module_level(path: str, depth: int = 1) -> str:
    """Read a file.

    With more to say.
    """
    return f"{path} {depth}"


def calls_of(sink: RecordingSink) -> list[ToolCall]:
    return [event for event in sink.events if isinstance(event, ToolCall)]


def test_a_plain_function_keeps_its_name_signature_and_docstring() -> None:
    assert at_module_level.__name__ == "at_module_level"
    assert str(inspect.signature(at_module_level)) == "(path: 'str', depth: 'int' = 1) -> 'str'"
    assert inspect.getdoc(at_module_level) == "Read a file.\n\nWith more to say."
    assert get_type_hints(at_module_level) == {"path": str, "depth": int, "return": str}


def test_a_declared_function_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(at_module_level)) is at_module_level  # noqa: S301


def test_a_declared_function_carries_its_declaration() -> None:
    @tool(effect=Effect.READ, ignore="trace", ttl_s=5, version=2)
    def search(query: str, trace: str = "") -> str:
        """Search the web."""
        return query

    declared = declaration_of(search)

    assert declared is not None
    assert (declared.name, declared.effect, declared.ignore) == ("search", Effect.READ, ("trace",))
    assert (declared.ttl_s, declared.version, declared.description) == (5.0, "2", "Search the web.")


def test_without_a_guard_a_call_goes_straight_through() -> None:
    assert [at_module_level("a") for _ in range(20)] == ["a 1"] * 20


def test_positional_and_keyword_forms_are_one_call(guard: AgentGuard, sink: RecordingSink) -> None:
    with run("r"):
        at_module_level("a")
        at_module_level(path="a")
        at_module_level("a", depth=1)

    assert len({call.fingerprint for call in calls_of(sink)}) == 1
    assert calls_of(sink)[0].arguments == {"path": "a", "depth": 1}


def test_what_is_ignored_is_no_part_of_the_identity(guard: AgentGuard, sink: RecordingSink) -> None:
    @tool(ignore=("request_id",))
    def look(path: str, request_id: str) -> str:
        return path

    with run("r"):
        look("a", "1")
        look("a", "2")

    assert len({call.fingerprint for call in calls_of(sink)}) == 1


def test_another_version_is_another_call(guard: AgentGuard, sink: RecordingSink) -> None:
    def look(path: str) -> str:
        return path

    with run("r"):
        tool(version="1")(look)("a")
        tool(version="2")(look)("a")

    assert len({call.fingerprint for call in calls_of(sink)}) == 2


def test_touches_gets_the_arguments_whose_names_it_takes(guard: AgentGuard, sink: RecordingSink) -> None:
    @tool(effect=Effect.READ, touches=lambda path: [path])
    def read(path: str, encoding: str = "utf-8") -> str:
        return path

    with run("r"):
        read("a.py")

    assert calls_of(sink)[0].touches == ("a.py",)


def test_a_touches_that_fails_leaves_the_call_alone(guard: AgentGuard, sink: RecordingSink) -> None:
    @tool(effect=Effect.READ, touches=lambda path: [path.missing])
    def read(path: str) -> str:
        return path

    with run("r"):
        assert read("a.py") == "a.py"

    assert sink.failures == ["touches"]


class Desk:
    """Has a tool of every kind that a class can have."""

    def __init__(self, name: str = "desk") -> None:
        self.name = name

    @tool
    def method(self, word: str) -> str:
        return f"{self.name} {word}"

    @tool
    @classmethod
    def made_by_class(cls, word: str) -> str:
        return f"{cls.__name__} {word}"

    @classmethod
    @tool
    def made_by_class_inside(cls, word: str) -> str:
        return f"{cls.__name__} {word}"

    @tool
    @staticmethod
    def static(word: str) -> str:
        return f"static {word}"

    @staticmethod
    @tool
    def static_inside(word: str) -> str:
        return f"static {word}"


class Callee:
    """A callable object."""

    def __call__(self, word: str) -> str:
        return f"callee {word}"


async def coroutine(word: str) -> str:
    await asyncio.sleep(0)
    return f"coroutine {word}"


def generator(word: str) -> Iterator[str]:
    yield "generator"
    yield word


async def async_generator(word: str) -> AsyncIterator[str]:
    yield "async generator"
    await asyncio.sleep(0)
    yield word


def returns_a_coroutine(word: str) -> Any:
    return coroutine(word)


def two_words(first: str, word: str) -> str:
    return f"{first} {word}"


async def answer(returned: Any) -> Any:
    if inspect.isawaitable(returned):
        return await returned
    if inspect.isgenerator(returned):
        return " ".join(returned)
    if inspect.isasyncgen(returned):
        return " ".join([item async for item in returned])
    return returned


EVERY_KIND: list[tuple[str, Callable[..., Any], str]] = [
    ("a method", Desk().method, "desk x"),
    ("a classmethod", Desk.made_by_class, "Desk x"),
    ("a classmethod around the tool", Desk.made_by_class_inside, "Desk x"),
    ("a staticmethod", Desk.static, "static x"),
    ("a staticmethod around the tool", Desk.static_inside, "static x"),
    ("a bound method", tool(Desk("own").method), "own x"),
    ("a coroutine", tool(coroutine), "coroutine x"),
    ("a generator", tool(generator), "generator x"),
    ("an async generator", tool(async_generator), "async generator x"),
    ("a function that returns a coroutine", tool(returns_a_coroutine), "coroutine x"),
    ("a partial", tool(functools.partial(two_words, "partial")), "partial x"),
    ("a partial of a coroutine", tool(functools.partial(coroutine)), "coroutine x"),
    ("a callable object", tool(Callee()), "callee x"),
    ("a lambda", tool(lambda word: f"lambda {word}"), "lambda x"),
]


@pytest.mark.parametrize(("kind", "function", "expected"), EVERY_KIND, ids=[kind for kind, _, _ in EVERY_KIND])
async def test_every_kind_of_function_is_one_call_with_its_result(
    kind: str, function: Callable[..., Any], expected: str, guard: AgentGuard, sink: RecordingSink
) -> None:
    with run("r"):
        first = await answer(function("x"))
        second = await answer(function(word="x"))

    assert (first, second) == (expected, expected)
    one, two = calls_of(sink)
    assert one.outcome is Outcome.OK
    assert one.fingerprint == two.fingerprint is not None
    assert one.result_digest == two.result_digest is not None
    assert (one.arguments or {})["word"] == "x"
    assert "self" not in (one.arguments or {})


@pytest.mark.parametrize(("kind", "function", "expected"), EVERY_KIND, ids=[kind for kind, _, _ in EVERY_KIND])
async def test_every_kind_of_function_works_without_a_guard(
    kind: str, function: Callable[..., Any], expected: str
) -> None:
    assert await answer(function("x")) == expected


@pytest.mark.parametrize(("kind", "function", "expected"), EVERY_KIND, ids=[kind for kind, _, _ in EVERY_KIND])
async def test_every_kind_of_function_is_refused_at_the_fifth_equal_call(
    kind: str, function: Callable[..., Any], expected: str, guard: AgentGuard
) -> None:
    with run("r"):
        for _ in range(4):
            await answer(function("x"))
        with pytest.raises(CallBlocked, match="Same call as step 1"):
            await answer(function("x"))


def test_functions_of_each_kind_are_still_seen_as_such() -> None:
    assert inspect.iscoroutinefunction(tool(coroutine))
    assert inspect.isgeneratorfunction(tool(generator))
    assert inspect.isasyncgenfunction(tool(async_generator))
    assert not inspect.iscoroutinefunction(tool(two_words))


def test_a_tool_is_not_put_under_guard_twice(guard: AgentGuard, sink: RecordingSink) -> None:
    twice = tool(tool(two_words))

    with run("r"):
        twice("a", "b")

    assert len(calls_of(sink)) == 1


def test_the_third_equal_call_leaves_a_note_and_its_result_alone(guard: AgentGuard) -> None:
    with run("r") as r:
        results = [at_module_level("a") for _ in range(3)]

        assert results == ["a 1"] * 3
        assert [note[:12] for note in r.notes()] == ["[agentguard]"]
        assert r.notes() == []


def test_a_refusal_carries_what_the_call_returned_whatever_its_caller_made_of_it(
    installing: Callable[..., AgentGuard],
) -> None:
    installing(limits=Limits(hint=2, block=3, stop=9))

    @tool
    def ls(path: str) -> list[str]:
        return ["a", "b"]

    with run("r"):
        for _ in range(2):
            ls("src").append("spoilt")
        with pytest.raises(CallBlocked) as first:
            ls("src")
        first.value.earlier_result.append("spoilt")  # type: ignore[attr-defined]
        with pytest.raises(CallBlocked) as second:
            ls("src")

    assert second.value.earlier_result == ["a", "b"]
    assert second.value.message.endswith('["a","b"]')


def test_a_refused_call_carries_its_finding_and_the_earlier_result(guard: AgentGuard) -> None:
    with run("r"):
        for _ in range(4):
            at_module_level("a")
        with pytest.raises(CallBlocked) as refused:
            at_module_level("a")

    assert refused.value.earlier_result == "a 1"
    assert refused.value.finding is not None
    assert refused.value.finding.evidence == (1, 2, 3, 4, 5)
    assert str(refused.value) == refused.value.message
    assert "a 1" in refused.value.message


def test_inline_notes_stand_at_the_head_of_text(guard: AgentGuard) -> None:
    @tool(notes="inline")
    def read(path: str) -> str:
        return "text"

    with run("r") as r:
        results = [read("a") for _ in range(5)]

        assert results[:2] == ["text", "text"]
        assert results[2].startswith("[agentguard] Same call as step 1")
        assert results[2].endswith("\n\ntext")
        assert results[3] == "text"
        assert "The call was not run again" in results[4]
        assert r.notes() == []


def test_inline_notes_never_change_what_is_no_text(guard: AgentGuard) -> None:
    @tool(notes="inline")
    def read(path: str) -> dict[str, int]:
        return {"a": 1}

    with run("r") as r:
        assert [read("a") for _ in range(3)] == [{"a": 1}] * 3
        assert len(r.notes()) == 1


def test_an_error_of_the_body_is_raised_unchanged(guard: AgentGuard, sink: RecordingSink) -> None:
    error = KeyError("gone")

    @tool
    def fetch(key: str) -> str:
        raise error

    with run("r"), pytest.raises(KeyError) as raised:
        fetch("a")

    assert raised.value is error
    (call,) = calls_of(sink)
    assert (call.outcome, call.result) == (Outcome.FAILED, "KeyError: 'gone'")


class Odd(Exception):
    """Nobody can print it."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def test_an_error_that_nobody_can_print_is_raised_unchanged(guard: AgentGuard, sink: RecordingSink) -> None:
    @tool
    def fail() -> None:
        raise Odd

    with run("r"), pytest.raises(Odd):
        fail()

    (call,) = calls_of(sink)
    assert (call.outcome, call.result) == (Outcome.FAILED, "Odd: <Odd>")


def test_values_that_nobody_can_print_come_out_of_a_generator(guard: AgentGuard) -> None:
    odd = Odd()

    @tool
    def items() -> Any:
        yield odd
        yield [odd]

    with run("r"):
        assert list(items()) == [odd, [odd]]


def test_a_refusal_can_carry_a_result_that_nobody_can_print(guard: AgentGuard) -> None:
    @tool
    def item() -> object:
        return {"odd": Odd()}

    with run("r"), pytest.raises(CallBlocked):
        for _ in range(9):
            item()


def test_a_call_that_keeps_failing_is_refused(guard: AgentGuard) -> None:
    @tool
    def fetch(key: str) -> str:
        raise ConnectionError("no route to host")

    with run("r"):
        for _ in range(3):
            with pytest.raises(ConnectionError):
                fetch("a")
        with pytest.raises(CallBlocked):
            fetch("a")


async def test_a_cancelled_call_has_an_unknown_outcome(guard: AgentGuard, sink: RecordingSink) -> None:
    @tool
    async def wait(seconds: float) -> None:
        await asyncio.sleep(seconds)

    async with run("r"):
        task = asyncio.create_task(wait(60))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    (call,) = calls_of(sink)
    assert (call.outcome, call.result_known) == (Outcome.UNKNOWN, False)


def test_an_interrupt_in_the_body_is_raised_unchanged(guard: AgentGuard, sink: RecordingSink) -> None:
    @tool
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), run("r"):
        interrupted()

    assert calls_of(sink)[0].outcome is Outcome.UNKNOWN


def test_arguments_that_do_not_fit_raise_what_python_raises(guard: AgentGuard, sink: RecordingSink) -> None:
    with run("r"), pytest.raises(TypeError, match="missing 1 required positional argument: 'path'"):
        at_module_level()

    assert calls_of(sink)[0].fingerprint is None


def test_a_generator_hands_on_what_is_sent_thrown_and_returned(guard: AgentGuard) -> None:
    @tool
    def echo() -> Any:
        heard = yield "ready"
        try:
            yield heard
        except ValueError as exc:
            yield f"caught {exc}"
        return "over"

    with run("r"):
        talk = echo()
        assert next(talk) == "ready"
        assert talk.send("hello") == "hello"
        assert talk.throw(ValueError("no")) == "caught no"
        with pytest.raises(StopIteration) as end:
            next(talk)

    assert end.value.value == "over"


async def test_an_async_generator_hands_on_what_is_sent_and_thrown(guard: AgentGuard) -> None:
    @tool
    async def echo() -> Any:
        heard = yield "ready"
        try:
            yield heard
        except ValueError as exc:
            yield f"caught {exc}"

    async with run("r"):
        talk = echo()
        assert await anext(talk) == "ready"
        assert await talk.asend("hello") == "hello"
        assert await talk.athrow(ValueError("no")) == "caught no"
        with pytest.raises(StopAsyncIteration):
            await anext(talk)


def test_a_generator_that_is_closed_early_is_a_call_that_ended(guard: AgentGuard, sink: RecordingSink) -> None:
    cleaned = []

    @tool
    def numbers() -> Iterator[int]:
        try:
            yield from range(1000)
        finally:
            cleaned.append(True)

    with run("r"):
        for number in numbers():
            if number == 3:
                break

    assert cleaned == [True]
    assert [call.outcome for call in calls_of(sink)] == [Outcome.OK]


async def test_an_async_generator_that_is_closed_early_is_closed_inside(guard: AgentGuard, sink: RecordingSink) -> None:
    cleaned = []

    @tool
    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(1000):
                yield number
        finally:
            cleaned.append(True)

    async with run("r"):
        stream = numbers()
        await anext(stream)
        await stream.aclose()

    assert cleaned == [True]
    assert [call.outcome for call in calls_of(sink)] == [Outcome.OK]


def test_generators_that_yield_other_things_are_no_repeat(guard: AgentGuard, sink: RecordingSink) -> None:
    pages = iter(range(100))

    @tool
    def poll(job: str) -> Iterator[str]:
        yield "state"
        yield f"page {'abcdefghijklmnop'[next(pages)] * 9}"

    with run("r"):
        for _ in range(10):
            list(poll("j"))

    assert sink.findings == []


def test_limits_of_a_tool_are_its_own(guard: AgentGuard) -> None:
    @tool(limits=Limits(2, 3, 4))
    def look(path: str) -> str:
        return path

    with pytest.raises(RunAborted), run("r") as r:
        look("a")
        look("a")
        assert len(r.notes()) == 1
        with pytest.raises(CallBlocked):
            look("a")
        look("a")


def test_the_settings_of_the_user_beat_the_declaration(installing: Callable[..., AgentGuard]) -> None:
    @tool(limits=Limits(2, 3, 4))
    def look(path: str) -> str:
        return path

    installing(tools={"look": {"same": {"hint": 9, "block": 10, "stop": 11}}})

    with run("r") as r:
        for _ in range(8):
            look("a")
        assert r.notes() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"effect": "magic"}, "no effect 'magic'; known: pure, read"),
        ({"ttl_s": -1}, "ttl_s is -1; give seconds"),
        ({"ignore": ("nope",)}, "ignore names 'nope', which it does not take; it takes path"),
        ({"notes": "loud"}, "notes cannot be 'loud'; known: inline"),
        ({"limits": {"other": Limits(3)}}, "no row 'other' in the loop check"),
        ({"limits": 3}, "limits is 3"),
        ({"cache": "yes"}, "cache is 'yes'; give True or False"),
        ({"identity": ("path",)}, "add effect=Effect.SIDE_EFFECT"),
        ({"scope": "global"}, "is for side effects"),
        ({"touches": 7}, "touches is 7"),
        ({"colour": "red"}, "@tool has no colour"),
        ({"effect": Effect.SIDE_EFFECT, "identity": ("nope",)}, "identity names 'nope'"),
        ({"effect": Effect.SIDE_EFFECT, "on_unknown": "shrug"}, "on_unknown cannot be 'shrug'"),
        ({"effect": Effect.SIDE_EFFECT, "on_unknown": "verify"}, "belong together"),
        ({"effect": Effect.SIDE_EFFECT, "on_duplicate": "maybe"}, "on_duplicate cannot be 'maybe'"),
        ({"effect": Effect.SIDE_EFFECT, "key_param": "token"}, "there is no such parameter"),
        ({"effect": Effect.SIDE_EFFECT, "permanent": ["x"]}, "give exception classes"),
        ({"effect": Effect.SIDE_EFFECT, "compensates": len}, "give a declared tool or its name"),
    ],
)
def test_an_option_that_cannot_be_is_refused_at_once(options: dict[str, Any], said: str) -> None:
    def look(path: str) -> str:
        return path

    with pytest.raises(ConfigError) as refused:
        tool(**options)(look)

    assert said in str(refused.value)


@pytest.mark.parametrize("function", [generator, async_generator])
def test_a_generator_cannot_be_a_side_effect(function: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="a generator cannot be a side effect"):
        tool(effect=Effect.SIDE_EFFECT)(function)


def test_what_cannot_be_called_cannot_be_a_tool() -> None:
    with pytest.raises(ConfigError, match="goes around a function, not 3"):
        tool(3)
