"""What makes two effects the same."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import dataclass
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_agentguard.effects.keys import (
    arguments_fingerprint,
    as_uuid,
    effect_key,
    identity_arguments,
    record_key,
    scope_value,
    step_key,
)
from otel_agentguard.errors import ConfigError

RUN = ("run", "r1")


class Level(Enum):
    HIGH = "high"


@dataclass
class Address:
    street: str


def key(arguments: dict[str, object]) -> str:
    return effect_key("", RUN, "charge", identity_arguments(arguments))


def test_a_key_is_the_same_in_every_process() -> None:
    assert key({"invoice": 7}) == "12e2352ad7f5fd0d45711be648551904"


def test_parts_that_would_join_to_one_string_give_two_keys() -> None:
    assert step_key("a|b", "c", "s", "t") != step_key("a", "b|c", "s", "t")
    assert effect_key('a","b', RUN, "t", {}) != effect_key("a", RUN, '","bt', {})


def test_step_keys_effect_keys_and_record_keys_never_meet() -> None:
    keys = {step_key("", "r", 1, "t"), effect_key("", RUN, "t", {}), record_key("", RUN, "t", {})}

    assert len(keys) == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 1}, {"a": 1, "b": None}),
        ({"a": 1}, {"a": 1.0}),
        ({"a": [1, 2]}, {"a": (1, 2)}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}),
        ({"a": {1, 2}}, {"a": {2, 1}}),
        ({"a": "high"}, {"a": Level.HIGH}),
        ({"a": {"street": "x"}}, {"a": Address("x")}),
    ],
)
def test_equal_arguments_give_one_key(one: dict[str, object], other: dict[str, object]) -> None:
    assert key(one) == key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": True}),
        ({"a": 0}, {"a": None}),
        ({"a": ""}, {"a": None}),
        ({"a": [None]}, {"a": []}),
        ({"a": "x"}, {"a": "X"}),
        ({"a": "x"}, {"a": "x "}),
        ({"a": 0.1}, {"a": 0.10000000000000002}),
        ({"a": 2**70}, {"a": 2**70 + 1}),
        ({"a": dt.date(2026, 1, 1)}, {"a": dt.datetime(2026, 1, 1)}),  # noqa: DTZ001 - naive times are compared too
        ({"a": b"x"}, {"a": "x"}),
    ],
)
def test_different_arguments_give_two_keys(one: dict[str, object], other: dict[str, object]) -> None:
    assert key(one) != key(other)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=5))
def test_the_order_of_arguments_never_matters(arguments: dict[str, object]) -> None:
    backwards = dict(reversed(arguments.items()))

    assert key(arguments) == key(backwards)
    assert arguments_fingerprint("t", arguments) == arguments_fingerprint("t", backwards)


def test_only_the_arguments_that_are_named_count() -> None:
    arguments = {"invoice": 7, "amount": 10, "memo": None}

    assert identity_arguments(arguments, ("invoice", "memo")) == {"invoice": 7}


def test_an_argument_without_json_form_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match=r"type object has no JSON form.*@tool\(identity="):
        key({"client": object()})


def test_the_fingerprint_takes_any_argument() -> None:
    assert arguments_fingerprint("t", {"client": object()}) == arguments_fingerprint("t", {"client": object()})


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (None, ("run", "r1")),
        ("run", ("run", "r1")),
        ("global", ("global", "")),
        ("session", ("session", "s1")),
        (lambda tenant: tenant, ("own", "acme")),
        (lambda **arguments: len(arguments), ("own", 2)),
    ],
)
def test_a_scope_is_resolved(scope: object, expected: object) -> None:
    found = scope_value(scope, {"tenant": "acme", "x": 1}, run_id="r1", session="s1")  # type: ignore[arg-type]

    assert found == expected


def test_an_event_is_the_scope_where_the_run_serves_one() -> None:
    assert scope_value(None, {}, run_id="r1", event="mail-7") == ("event", "mail-7")
    assert scope_value("run", {}, run_id="r1", event="mail-7") == ("run", "r1")


def test_a_run_and_a_session_of_one_name_are_two_scopes() -> None:
    assert effect_key("", ("run", "x"), "t", {}) != effect_key("", ("session", "x"), "t", {})


@pytest.mark.parametrize("scope", ["session", "event", "planet"])
def test_a_scope_that_does_not_resolve_is_refused(scope: str) -> None:
    with pytest.raises(ConfigError):
        scope_value(scope, {}, run_id="r1")  # type: ignore[arg-type]


def test_intents_and_copies_have_keys_of_their_own() -> None:
    keys = {record_key("", RUN, "t", {}, intent=intent, repeat=repeat) for intent in (1, 2) for repeat in (1, 2)}

    assert len(keys) == 4


@pytest.mark.parametrize("version", [4, 5, 8])
def test_a_key_as_uuid_is_one_of_that_version(version: int) -> None:
    form = uuid.UUID(as_uuid("ff" * 16, version))

    assert form.version == version or (version == 8 and str(form)[14] == "8")
    assert form.variant == uuid.RFC_4122
