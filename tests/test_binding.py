"""Positional and keyword forms of a call become one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_agentguard.binding import Binder


def read(path: str, start: int = 1, *, follow: bool = False) -> None:
    """A function with what most tools have."""


def spread(first: int, *rest: int, last: int = 0, **options: int) -> None:
    """A function that takes anything."""


def strict(a: int, b: int = 2, /, c: int = 3, *, d: int) -> None:
    """A function with all kinds of named parameters."""


def mixed(a: int, /, b: int, *args: int, c: int = 3, **kw: int) -> None:
    """A function with every kind of parameter."""


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("a",), {}),
        ((), {"path": "a"}),
        (("a", 1), {}),
        (("a",), {"start": 1}),
        (("a",), {"follow": False, "start": 1}),
        ((), {"follow": False, "start": 1, "path": "a"}),
    ],
)
def test_every_form_of_one_call_binds_to_the_same_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert Binder(read).bind(args, kwargs) == {"path": "a", "start": 1, "follow": False}


def test_collected_arguments_have_their_own_name_and_options_stand_among_the_others() -> None:
    binder = Binder(spread)

    assert binder.bind((1, 2, 3), {"x": 4}) == {"first": 1, "rest": [2, 3], "last": 0, "x": 4}
    assert binder.bind((), {"first": 1}) == {"first": 1, "rest": [], "last": 0}


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        (("a", 1, True), {}),
        (("a",), {"path": "b"}),
        (("a",), {"unknown": 1}),
        ((), {"start": 1}),
    ],
    ids=["missing", "too many", "twice", "unknown", "missing with others"],
)
def test_a_call_that_python_refuses_has_no_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert Binder(read).bind(args, kwargs) is None


NAMES = ("a", "b", "c", "d", "x", "args", "kw", "first", "rest", "last", "path", "start", "follow")


@given(
    st.sampled_from([read, spread, strict, mixed]),
    st.lists(st.integers(), max_size=5),
    st.dictionaries(st.sampled_from(NAMES), st.integers(), max_size=4),
)
def test_binding_agrees_with_the_signature(fn: Callable[..., Any], args: list[int], kwargs: dict[str, int]) -> None:
    signature = inspect.signature(fn)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        expected = None
    else:
        bound.apply_defaults()
        expected = {name: list(v) if isinstance(v, tuple) else v for name, v in bound.arguments.items()}

    found = Binder(fn).bind(tuple(args), kwargs)

    if expected is None or found is None:
        assert found is expected
    else:
        options = {name: expected.pop(name) for name in ("options", "kw") if name in expected}
        for name, extra in options.items():
            clashing = {key: value for key, value in extra.items() if key in expected}
            expected |= {key: value for key, value in extra.items() if key not in clashing}
            if clashing:
                expected[f"**{name}"] = clashing
        assert found == expected


def test_an_option_named_like_a_positional_parameter_is_not_confused_with_it() -> None:
    binder = Binder(mixed)

    assert binder.bind((1, 2), {"a": 9, "args": 8}) == {
        "a": 1,
        "b": 2,
        "args": [],
        "c": 3,
        "**kw": {"a": 9, "args": 8},
    }


def test_self_is_no_argument_of_a_method() -> None:
    class Tools:
        def get(self, item: str, size: int = 1) -> None: ...

        def gather(*args: str) -> None: ...

    assert Binder(Tools.get, skip_first=True).bind((Tools(), "tea"), {}) == {"item": "tea", "size": 1}
    assert Binder(Tools.get, skip_first=True).bind((), {}) is None
    assert Binder(Tools.gather, skip_first=True).bind((Tools(), "tea"), {}) == {"args": ["tea"]}
    assert Binder(Tools().get).bind(("tea",), {}) == {"item": "tea", "size": 1}


def test_a_hidden_parameter_is_neither_needed_nor_shown() -> None:
    def charge(invoice: str, *, idempotency_key: str) -> None: ...

    binder = Binder(charge, hidden={"idempotency_key"})

    assert binder.bind(("i-1",), {}) == {"invoice": "i-1"}
    assert binder.bind(("i-1",), {"idempotency_key": "k"}) == {"invoice": "i-1"}
    assert binder.bind((), {}) is None


def test_a_hidden_parameter_may_stand_anywhere() -> None:
    def leading(key: str, invoice: str) -> None: ...

    def swallowed(invoice: str, **options: str) -> None: ...

    assert Binder(leading, hidden={"key"}).bind((), {"invoice": "i-1"}) == {"invoice": "i-1"}
    assert Binder(leading, hidden={"key"}).bind(("k", "i-1"), {}) == {"invoice": "i-1"}
    assert Binder(leading, hidden={"key"}).bind((), {}) is None
    assert Binder(swallowed, hidden={"key"}).bind(("i-1",), {"key": "k"}) == {"invoice": "i-1"}


def test_a_callable_without_a_signature_gets_numbered_names() -> None:
    binder = Binder(max)

    assert binder.bind((3, 4), {"default": 0}) == {"0": 3, "1": 4, "default": 0}
    assert Binder(max, skip_first=True, hidden={"default"}).bind((3, 4), {"default": 0}) == {"0": 4}


def test_partials_wrapped_functions_and_callable_objects_have_their_own_parameters() -> None:
    class Tool:
        def __call__(self, path: str) -> None: ...

    @functools.wraps(read)
    def wrapped(*args: Any, **kwargs: Any) -> None: ...

    assert Binder(functools.partial(read, start=5)).bind(("a",), {}) == {"path": "a", "start": 5, "follow": False}
    assert Binder(wrapped).bind(("a",), {}) == {"path": "a", "start": 1, "follow": False}
    assert Binder(Tool()).bind(("a",), {}) == {"path": "a"}


def test_names_of_parameters_cannot_disturb_the_binding() -> None:
    def odd(default_0: int, default_1: int = 7, args: int = 1, kwargs: int = 2, self: int = 3, _: int = 4) -> None: ...

    assert Binder(odd).bind((5,), {"self": 6}) == {
        "default_0": 5,
        "default_1": 7,
        "args": 1,
        "kwargs": 2,
        "self": 6,
        "_": 4,
    }


def test_values_come_through_as_they_are() -> None:
    marker = object()

    def tool(value: object, other: object = marker) -> None: ...

    bound = Binder(tool).bind((marker,), {})

    assert bound is not None
    assert bound["value"] is marker is bound["other"]
