"""Results that are written down and come back as what they were."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import threading
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import PosixPath
from typing import Annotated, Any, NamedTuple, NewType, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_agentguard.effects.values import NotRebuilt, Unstorable, decode, encode

pydantic = pytest.importorskip("pydantic", reason="pip install pydantic")


class Colour(enum.Enum):
    RED = 1


class Line(NamedTuple):
    item: str
    price: decimal.Decimal


@dataclass
class Receipt:
    number: int
    lines: list[Line] = field(default_factory=list)
    paid: dt.date | None = None


class Customer(pydantic.BaseModel):
    name: str = pydantic.Field(alias="fullName")
    since: dt.date


class Order(TypedDict):
    receipt: Receipt
    note: str


Number = NewType("Number", int)

CASES: list[tuple[object, object]] = [
    (value, None)
    for value in [
        *(None, True, 0, -1, 2**63, -(2**63), 2**200, 1.5, float("inf"), "", "é", "\ud800", b"\x00\xff"),
        *([], [1, [2]], {}, {"a": {"b": 1}}, {1: 2}, {(1, 2): {3}}, {"$t": "int", "v": "1"}, {"é": 1}),
        *((1, 2), {1, 2}, frozenset({"a"}), decimal.Decimal("1.10"), uuid.UUID(int=7), PosixPath("/etc")),
        *(dt.date(2026, 2, 3), dt.time(1, 2), dt.timedelta(days=-1, microseconds=5)),
        *(dt.datetime(2026, 2, 3, tzinfo=dt.UTC), dt.datetime(2026, 2, 3)),  # noqa: DTZ001 - naive ones come back too
    ]
] + [
    (Colour.RED, Colour),
    (Receipt(1, [Line("tea", decimal.Decimal("2.5"))], dt.date(2026, 1, 1)), Receipt),
    ([Receipt(1)], list[Receipt]),
    ({"a": Receipt(1)}, dict[str, Receipt]),
    ({1: Receipt(1)}, dict[int, Receipt]),
    ((Receipt(1), 2), tuple[Receipt, int]),
    ((Receipt(1), Receipt(2)), tuple[Receipt, ...]),
    ({"receipt": Receipt(1), "note": "x"}, Order),
    (Receipt(1), Receipt | None),
    (None, Receipt | None),
    (Receipt(1), Customer | Receipt),
    (Receipt(1), Annotated[Receipt, "paid"]),
    (Line("tea", decimal.Decimal(1)), Line),
    (Customer(fullName="Ann", since=dt.date(2026, 1, 1)), Customer),
    ([Customer(fullName="Ann", since=dt.date(2026, 1, 1))], list[Customer]),
    (7, Number),
    ("x", Any),
    ([1], list),
    ({"a": 1}, "an annotation that was not resolved"),
]


@pytest.mark.parametrize(("value", "annotation"), CASES)
def test_a_value_comes_back_as_it_was(value: object, annotation: object) -> None:
    again = decode(encode(value), annotation)

    assert again == value
    assert type(again) is type(value)


def test_a_nan_comes_back() -> None:
    again = decode(encode(float("nan")))

    assert again != again


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_every_json_value_comes_back(value: object) -> None:
    assert decode(encode(value)) == value


@pytest.mark.parametrize("value", [object(), threading.Lock(), OrderedDict(a=1), [object()], {"a": object()}, iter([])])
def test_a_value_without_json_form_is_refused(value: object) -> None:
    with pytest.raises(Unstorable):
        encode(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)

    with pytest.raises(Unstorable, match="deep or in itself"):
        encode(value)


def test_a_value_over_the_limit_is_refused() -> None:
    with pytest.raises(Unstorable, match="over the limit of 10"):
        encode("x" * 20, max_bytes=10)


@pytest.mark.parametrize("annotation", [None, Any, dict, int, list[int]])
def test_an_object_without_a_fitting_annotation_is_not_returned_as_something_else(annotation: object) -> None:
    with pytest.raises(NotRebuilt, match=r"Receipt.*@tool\(decode="):
        decode(encode(Receipt(1)), annotation)


def test_a_decoder_gets_the_plain_form() -> None:
    seen = decode(encode({"r": Receipt(1, paid=dt.date(2026, 1, 1))}), decoder=lambda plain: plain)

    assert seen == {"r": {"number": 1, "lines": [], "paid": dt.date(2026, 1, 1)}}


def test_a_tag_of_a_newer_version_is_refused() -> None:
    with pytest.raises(NotRebuilt, match="newer version"):
        decode(b'{"$t":"tensor","v":1}')


def test_a_stored_name_is_never_called() -> None:
    with pytest.raises(NotRebuilt):
        decode(b'{"$t":"dataclass","n":"os.system","v":{"command":"true"}}')
