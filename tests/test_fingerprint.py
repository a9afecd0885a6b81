"""The identity of values, calls and results."""

from __future__ import annotations

import array
import dataclasses
import datetime as dt
import enum
import json
import math
import subprocess
import sys
import threading
import unicodedata
import uuid
from ast import literal_eval
from collections import OrderedDict, UserDict, UserList, UserString, defaultdict, deque, namedtuple
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_agentguard.errors import ConfigError
from otel_agentguard.fingerprint import (
    call_digest,
    digest,
    exported,
    is_unknown,
    new_key,
    result_digest,
    text_digest,
)

NAN = float("nan")
TEXT = st.text(st.characters(exclude_categories=()), max_size=8)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    TEXT,
    st.integers(min_value=2**60, max_value=2**70),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1


class Mode(enum.StrEnum):
    READ = "read"


@dataclasses.dataclass
class Order:
    item: str
    amount: float
    seen_at: float = dataclasses.field(default=0.0, compare=False)


@dataclasses.dataclass
class Customer:
    item: str
    amount: float


class Plain:
    def __init__(self, name: str) -> None:
        self.name = name


class Slotted:
    __slots__ = ("__hidden", "name")

    def __init__(self, name: str, hidden: int) -> None:
        self.name = name
        self.__hidden = hidden


class Client:
    def __init__(self, host: str) -> None:
        self.host = host
        self.lock = threading.Lock()


class Cursed:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


def shuffled(value: Any, respell: Callable[[Any], Any]) -> Any:
    """The same value, written another way: other key order, other containers, other number types."""
    if isinstance(value, dict):
        return OrderedDict((respell(key), shuffled(child, respell)) for key, child in reversed(value.items()))
    if isinstance(value, list):
        return tuple(shuffled(child, respell) for child in value)
    return respell(value)


def decomposed(value: Any) -> Any:
    return unicodedata.normalize("NFD", value) if isinstance(value, str) else value


def as_float_where_exact(value: Any) -> Any:
    if type(value) is int and abs(value) < 2**53:
        return float(value)
    return value


def keys_stay_apart(value: Any) -> bool:
    """Whether no two keys of one mapping become one in NFC."""
    if isinstance(value, dict):
        keys = {unicodedata.normalize("NFC", key) for key in value}
        return len(keys) == len(value) and all(map(keys_stay_apart, value.values()))
    return not isinstance(value, list) or all(map(keys_stay_apart, value))


@given(JSON)
def test_any_json_value_has_one_digest_of_16_bytes(value: Any) -> None:
    assert len(digest(value)) == 16
    assert digest(value) == digest(value)


@given(JSON)
def test_order_of_keys_and_kind_of_container_make_no_difference(value: Any) -> None:
    assert digest(shuffled(value, lambda leaf: leaf)) == digest(value)


@given(JSON.filter(keys_stay_apart))
def test_composed_and_decomposed_text_is_the_same_text(value: Any) -> None:
    assert digest(shuffled(value, decomposed)) == digest(value)


@given(JSON)
def test_whole_floats_are_their_integers_at_all_depths(value: Any) -> None:
    assert digest(shuffled(value, as_float_where_exact)) == digest(value)


@given(JSON)
def test_a_value_that_needs_the_walk_agrees_with_its_plain_twin(value: Any) -> None:
    """A subclass of dict at the root keeps the fast path out, all below it is walked."""
    assert digest(defaultdict(None, key=value)) == digest({"key": value})
    assert digest(deque([value, value])) == digest([value, value])


@given(JSON, JSON)
def test_values_that_differ_as_data_differ_in_digest(left: Any, right: Any) -> None:
    if oracle(left) == oracle(right):
        assert digest(left) == digest(right)
    else:
        assert digest(left) != digest(right)


def oracle(value: Any) -> Any:
    """What makes two JSON values the same, said independently of bytes."""
    if isinstance(value, bool) or value is None:
        return ("constant", value)
    if isinstance(value, float) and not math.isfinite(value):
        return ("not a number", repr(value))
    if isinstance(value, (int, float)):
        return ("number", int(value) if value == int(value) else value)
    if isinstance(value, str):
        return ("text", unicodedata.normalize("NFC", value))
    if isinstance(value, list):
        return ("list", tuple(map(oracle, value)))
    return ("dict", tuple(sorted((oracle(key), key, repr(oracle(child))) for key, child in value.items())))


DIFFERENT = {
    "true, one, text of one": (True, 1, "1", "true", [1], b"1"),
    "false, zero, none, empties": (False, 0, None, "", [], {}, (set(),), set(), b"", "null", [None], {"": None}),
    "not a number": (NAN, math.inf, -math.inf, None, "nan", "NaN", "!fnan"),
    "large integers": (2**64 - 1, 2**64, 2**64 + 1, -(2**63), -(2**63) - 1, 10**400, 10**400 + 1, float(2**70) + 2**30),
    "floats near integers": (1, 1.0000000000000002, 0.1, 0.1 + 0.2, 0.3, 1e-7, 5e-324),
    "decimals": (
        Decimal("1.1"),
        Decimal("1.10000000000000000000000000001"),
        1.1,
        "1.1",
        Decimal(-1),
        Decimal("NaN"),
        Decimal(0),
    ),
    "keys": ({1: "a"}, {"1": "a"}, {True: "a"}, {None: "a"}, {"true": "a"}, {(1,): "a"}, [[1, "a"]], {b"1": "a"}),
    "bytes": (b"ab", "ab", [97, 98], bytearray(b"abc"), {"!b": "ab"}),
    "sets": ({1, 2}, [1, 2], {1: None, 2: None}, {1, 2, 3}, {"1", "2"}),
    "enums": (Color.RED, Color.GREEN, "red", "RED", ["Color", "RED"], {"Color": "RED"}),
    "dates": (
        dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC),
        dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC).replace(tzinfo=None),
        dt.datetime(2024, 5, 1, 12, 0, 0, 1, tzinfo=dt.UTC),
        dt.date(2024, 5, 1),
        dt.time(12),
        dt.time(12, tzinfo=dt.UTC),
        dt.timedelta(hours=12),
        "2024-05-01T12:00:00+00:00",
        "2024-05-01",
    ),
    "objects": (
        Order("tea", 1),
        Order("tea", 2),
        Customer("tea", 1),
        {"item": "tea", "amount": 1},
        ["Order", {"item": "tea", "amount": 1}],
        Plain("tea"),
        Plain("milk"),
        Slotted("tea", 1),
        Slotted("tea", 2),
        Exception("tea"),
        ValueError("tea"),
    ),
    "others": (
        Path("a/b"),
        "a/b",
        uuid.UUID(int=1),
        str(uuid.UUID(int=1)),
        1j,
        Fraction(1, 3),
        range(3),
        range(4),
        [0, 1, 2],
    ),
    "imitations of tagged forms": (
        {1, 2},
        "!S{1,2}",
        ["!S{", 1, 2],
        {"!S": [1, 2]},
        {"$set": [1, 2]},
        {"__type__": "set", "items": [1, 2]},
    ),
    "white space is identity": ("a b", "a  b", "a b ", "a\tb", "a\nb", "a\r\nb"),
    "nesting": ([1, [2]], [[1], 2], [1, 2], [[1, 2]], [1, 2, []], {"a": {"b": 1}}, {"a": 1, "b": 1}),
    "surrogates": ("\ud800", "\udc00", "?", "\\ud800", "\ud800\udc00"),
}


@pytest.mark.parametrize("values", DIFFERENT.values(), ids=DIFFERENT.keys())
def test_values_that_mean_different_things_never_meet(values: tuple[object, ...]) -> None:
    digests = [digest(value) for value in values]

    assert len(set(digests)) == len(values)
    assert len({digest([value]) for value in values}) == len(values)
    assert len({digest({"key": value, "float": 0.5}) for value in values}) == len(values)


BERLIN = ZoneInfo("Europe/Berlin")
Point = namedtuple("Point", "x y")

EQUAL = {
    "zero": (0, 0.0, -0.0, [-0.0][0], -0),
    "one": (1, 1.0, Level.LOW),
    "large": (2**80, float(2**80)),
    "an instant": (
        dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC),
        dt.datetime(2024, 5, 1, 14, tzinfo=BERLIN),
        dt.datetime(2024, 5, 1, 9, tzinfo=dt.timezone(dt.timedelta(hours=-3))),
    ),
    "decimals": (Decimal("1.5"), Decimal("1.50"), Decimal("15e-1")),
    "decimal zero": (Decimal(0), Decimal("-0.00"), Decimal("0e5")),
    "bytes": (b"ab", bytearray(b"ab"), memoryview(b"ab"), memoryview(b"a-b-")[::2]),
    "sets": ({1, 2, 3}, frozenset({3, 2, 1}), {1.0, 2, 3}, {1: 0, 2: 0, 3: 0}.keys()),
    "sequences": ([1, 2], (1, 2), deque([1, 2]), UserList([1, 2]), array.array("i", [1, 2]), Point(1, 2)),
    "mappings": ({"a": 1}, OrderedDict(a=1), UserDict(a=1), MappingProxyType({"a": 1}), defaultdict(int, a=1)),
    "mixed keys": ({1: "a", "1": "b", None: "c"}, {None: "c", "1": "b", 1: "a"}),
    "text": ("read", Mode.READ, UserString("read"), type("Text", (str,), {})("read")),
    "accents": ("é", "e\u0301", "\u00e9"),
    "keys with accents": ({"é": [0.5]}, {"e\u0301": [0.5]}),
    "a field that equality skips": (Order("tea", 1, seen_at=1), Order("tea", 1, seen_at=2)),
    "paths": (PurePosixPath("a/b"), PurePosixPath("a//b/")),
    "not a number": (NAN, -NAN, math.nan),
    "services": (Client("a"), Client("b")),
    "bare objects": (object(), object()),
}


@pytest.mark.parametrize("values", EQUAL.values(), ids=EQUAL.keys())
def test_spellings_of_one_value_have_one_digest(values: tuple[object, ...]) -> None:
    assert len({digest(value) for value in values}) == 1
    assert len({digest({"key": [value], "other": 0.5}) for value in values}) == 1


def test_models_of_pydantic_are_their_fields() -> None:
    pydantic = pytest.importorskip("pydantic", reason="pip install pydantic")

    class Item(pydantic.BaseModel):
        name: str
        price: float

    class Basket(pydantic.BaseModel):
        items: list[Item]

    a = Basket(items=[Item(name="tea", price=1)])
    same = Basket(items=[Item(name="tea", price=1.0)])
    other = Basket(items=[Item(name="tea", price=2)])

    assert digest(a) == digest(same) != digest(other)
    assert digest(a) != digest(a.model_dump())


def test_classes_of_attrs_are_the_fields_that_they_compare() -> None:
    attrs = pytest.importorskip("attrs")

    @attrs.define
    class Item:
        name: str
        seen: int = attrs.field(default=0, eq=False)

    assert digest(Item("tea", 1)) == digest(Item("tea", 2)) != digest(Item("milk"))


def test_scalars_of_numpy_are_their_numbers() -> None:
    numpy = pytest.importorskip("numpy")

    assert digest(numpy.int64(3)) == digest(numpy.float32(3)) == digest(3)
    assert digest(numpy.bool_(True)) == digest(True)
    assert digest(numpy.float64("nan")) == digest(NAN)
    assert digest(numpy.str_("a")) == digest("a")
    assert digest(numpy.longdouble("0.1")) == digest(numpy.longdouble("0.1")) != digest(numpy.longdouble("0.2"))
    assert digest(numpy.datetime64("2024-05-01")) != digest(numpy.datetime64("2024-05-02"))


def test_arrays_of_numpy_differ_in_content_shape_and_type() -> None:
    numpy = pytest.importorskip("numpy")
    base = numpy.arange(6)

    arrays = [base, base.reshape(2, 3), base.astype("f8"), base + 1, base[:5], [0, 1, 2, 3, 4, 5]]

    assert len({digest(array) for array in arrays}) == len(arrays)
    assert digest(base.reshape(2, 3).T) == digest(base.reshape(2, 3).T.copy())
    assert digest(numpy.array([0.0])) == digest(numpy.array([-0.0]))
    assert digest(numpy.array([Plain("a")])) == digest(numpy.array([Plain("a")])) != digest(numpy.array([Plain("b")]))


def test_a_table_that_turns_into_an_array_is_known_by_content() -> None:
    numpy = pytest.importorskip("numpy")

    class Frame:
        columns = ("a", "b")

        def __init__(self, *rows: object) -> None:
            self._rows = rows
            self._lock = threading.Lock()

        def __array__(self) -> object:
            return numpy.array(self._rows)

    assert digest(Frame([1, 2])) == digest(Frame([1, 2])) != digest(Frame([1, 3]))


def test_values_that_refer_to_themselves_have_a_digest() -> None:
    def knot(content: int) -> list[Any]:
        made: list[Any] = [content]
        made.append({"self": made})
        return made

    assert digest(knot(1)) == digest(knot(1)) != digest(knot(2))
    assert digest([1.0, knot(1)]) == digest([1, knot(1)])


def test_objects_that_refer_to_each_other_have_a_digest() -> None:
    def pair(name: str) -> Plain:
        a, b = Plain(name), Plain("other")
        a.__dict__["peer"], b.__dict__["peer"] = b, a
        return a

    assert digest(pair("x")) == digest(pair("x")) != digest(pair("y"))


@pytest.mark.parametrize("bottom", [1, 1.0, {1}], ids=["plain", "float", "set"])
@pytest.mark.parametrize(
    "wrap", [lambda v: [v], lambda v: {"k": v}, lambda v: frozenset([v])], ids=["list", "dict", "set"]
)
def test_ten_thousand_levels_are_told_apart(wrap: Callable[[Any], Any], bottom: Any) -> None:
    def nested(levels: int) -> Any:
        value = frozenset(bottom) if isinstance(bottom, set) else bottom
        for _ in range(levels):
            value = wrap(value)
        return value

    assert digest(nested(10_000)) == digest(nested(10_000)) != digest(nested(9_999))


def test_a_chain_of_ten_thousand_objects_is_known_by_its_end() -> None:
    def chain(end: str) -> Order:
        head: Any = Order(end, 0)
        for _ in range(10_000):
            head = Order(head, 0)
        return head

    assert digest(chain("a")) == digest(chain("a")) != digest(chain("b"))


def test_shared_parts_do_not_multiply() -> None:
    def doubled(leaf: Any) -> Any:
        value: Any = [leaf]
        for _ in range(60):
            value = [value, value]
        return value

    assert digest(doubled(1)) == digest(doubled(1.0)) != digest(doubled(2))


def test_a_small_value_with_shared_parts_equals_its_copy() -> None:
    part = {"a": [1, 2.0]}

    assert digest([part, part]) == digest(json.loads(json.dumps([part, part])))


@pytest.mark.parametrize("text", ["'x' * 20_000_000", "'ü' * 10_000_000", "'u\u0308' * 7_000_000"])
@pytest.mark.parametrize("beside", ["1", "{1}"], ids=["plain", "walked"])
def test_twenty_megabytes_need_a_small_multiple_of_memory(text: str, beside: str) -> None:
    code = f"""
import resource
from otel_agentguard.fingerprint import digest
text = {text}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
digest([text, {beside}])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""

    grown_kb = int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)

    assert grown_kb < 8 * 28_000


def test_a_long_list_is_known_by_its_last_element() -> None:
    zeros = [0.0] * 3_000_000

    assert digest(zeros) == digest([0] * 3_000_000) != digest([*zeros[:-1], 0.5])


def test_sequences_without_end_still_have_a_digest() -> None:
    class Endless(Sequence[Any]):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: Any) -> Any:
            if index:
                raise IndexError(index)
            return Endless()

    heard: list[str] = []

    assert len(digest(Endless(), on_fallback=heard.append)) == 16
    assert heard


UNSTABLE: dict[str, Callable[[], object]] = {
    "bare object": object,
    "service with a lock": lambda: Client("a"),
    "lock": threading.Lock,
    "generator": lambda: (n for n in range(3)),
    "iterator": lambda: iter([1]),
    "lambda": lambda: lambda: None,
    "method": lambda: Client("a").__init__,
    "class": lambda: Client,
    "cursed": Cursed,
    "broken mapping": lambda: type("Broken", (UserDict,), {"items": lambda self: 1 / 0})(),
    "bad zone": lambda: dt.datetime(2024, 5, 1, tzinfo=type("Zone", (dt.tzinfo,), {"utcoffset": lambda *_: 1 / 0})()),
}


@pytest.mark.parametrize("make", UNSTABLE.values(), ids=UNSTABLE.keys())
def test_what_has_no_stable_form_counts_as_its_type_and_is_reported(make: Callable[[], object]) -> None:
    heard: list[str] = []
    kept = make()  # so that the second one has another address

    first = digest({"value": kept}, on_fallback=heard.append)
    second = digest({"value": make()})

    assert first == second
    assert len(heard) == 1
    assert "0x" not in heard[0]


def test_a_type_is_reported_once_per_digest() -> None:
    heard: list[str] = []

    digest([object(), object(), threading.Lock()], on_fallback=heard.append)

    assert heard == ["builtins.object", f"{type(threading.Lock()).__module__}.lock"]


def test_a_reporter_that_fails_breaks_nothing() -> None:
    def fails(name: str) -> None:
        raise RuntimeError(name)

    assert digest(object(), on_fallback=fails) == digest(object())


def test_a_generator_is_not_consumed() -> None:
    numbers = (n for n in range(3))

    digest(numbers)

    assert list(numbers) == [0, 1, 2]


def test_digests_are_the_same_in_every_process() -> None:
    value = "{'s': {'a', 'b', 'c', 1, (2, 'x')}, 'f': 1.5, 'd': {1: {'x'}, 'y': None}, 'u': 'grün'}"
    code = f"from otel_agentguard.fingerprint import digest; print(digest({value}).hex())"

    seen = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2")
    }

    assert seen == {f"{digest(literal_eval(value)).hex()}\n".encode()}


def test_a_value_that_changes_while_it_is_read_raises_nothing() -> None:
    value: dict[str, Any] = {str(n): float(n) for n in range(200)}
    done = threading.Event()

    def change() -> None:
        n = 0
        while not done.is_set():
            n += 1
            value[f"new{n % 500}"] = [n]
            value.pop(f"new{(n + 250) % 500}", None)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(300):
            assert len(digest(value)) == 16
    finally:
        done.set()
        thread.join()


def test_a_call_is_its_tool_arguments_scope_and_version() -> None:
    calls = [
        call_digest("read", {"path": "a"}),
        call_digest("write", {"path": "a"}),
        call_digest("read", {"path": "b"}),
        call_digest("read", {"path": "a"}, scope="tenant-1"),
        call_digest("read", {"path": "a"}, version="2"),
        call_digest("read", {}),
        call_digest("", {"path": "a"}, scope="read"),
    ]

    assert None not in calls
    assert len(set(calls)) == len(calls)


@given(st.dictionaries(TEXT, JSON, max_size=4))
def test_a_call_is_the_same_however_its_arguments_are_held(arguments: dict[str, Any]) -> None:
    assert call_digest("t", MappingProxyType(arguments)) == call_digest("t", dict(reversed(arguments.items())))


def test_declared_arguments_are_left_out_of_the_identity_and_others_never() -> None:
    def call(**arguments: object) -> bytes | None:
        return call_digest("get", arguments, ignore=frozenset({"request_id"}))

    assert call(id=1, request_id="a") == call(id=1, request_id="b") == call(id=1)
    assert call(id=1) != call(id=2)


UNKNOWN: dict[str, Mapping[str, object] | None] = {
    "not captured": None,
    "redacted": {"path": "__REDACTED__"},
    "redacted deep": {"options": [{"path": "__REDACTED__"}]},
    "redacted beside what needs the walk": {"path": "__REDACTED__", "when": dt.date(2024, 5, 1)},
    "cut off": {"text": "x" * 128},
    "cut off deep": {"texts": ["x" * 128]},
    "bytes cut off": {"data": b"x" * 128},
}


@pytest.mark.parametrize("arguments", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_a_call_with_an_unknown_argument_has_no_identity(arguments: Mapping[str, object] | None) -> None:
    assert call_digest("read", arguments, length_limit=128) is None


def test_what_merely_looks_unknown_is_known() -> None:
    assert call_digest("read", {"text": "say __REDACTED__ here"}) is not None
    assert call_digest("read", {"__REDACTED__": 1}) is not None
    assert call_digest("read", {"text": "x" * 128}) is not None
    assert call_digest("read", {"text": "x" * 127}, length_limit=128) is not None
    assert call_digest("r" * 128, {"n": 128}, length_limit=128) is not None


def test_an_ignored_argument_may_be_unknown() -> None:
    assert call_digest("read", {"id": 1, "token": "__REDACTED__"}, ignore=frozenset({"token"})) is not None


def test_unknown_is_found_in_data_that_refers_to_itself() -> None:
    knot: list[Any] = []
    knot += [knot, "__REDACTED__"]

    harmless: list[Any] = []
    harmless += [harmless, "known"]

    assert is_unknown(knot)
    assert not is_unknown(harmless)


def test_a_result_is_its_outcome_and_value() -> None:
    results = [
        result_digest(False, "x"),
        result_digest(True, "x"),
        result_digest(False, "y"),
        result_digest(False, None),
    ]

    assert None not in results
    assert len(set(results)) == 4
    assert result_digest(True, {"a": 1.0}) == result_digest(True, {"a": 1})


def test_a_result_that_cannot_be_seen_is_unknown() -> None:
    heard: list[str] = []

    assert result_digest(False, "__REDACTED__") is None
    assert result_digest(False, "x" * 64, length_limit=64) is None
    assert result_digest(False, iter([1]), on_fallback=heard.append) is None
    assert heard == ["builtins.list_iterator"]
    assert result_digest(False, [1, object()]) is not None


@given(TEXT)
def test_a_text_has_the_digest_of_its_value(text: str) -> None:
    assert text_digest(text) == digest(text)


def test_an_exported_fingerprint_is_keyed_and_of_128_bits() -> None:
    one, other = new_key(), new_key()
    fingerprint = digest("x")

    text = exported(fingerprint, one)

    assert len(text) == 32
    assert set(text) <= set("0123456789abcdef")
    assert text == exported(fingerprint, one) != exported(fingerprint, other)
    assert text != exported(digest("y"), one)
    assert text != fingerprint.hex()


def test_a_key_may_be_of_any_length_but_none() -> None:
    assert exported(b"f", b"k" * 64) != exported(b"f", b"k" * 65) != exported(b"f", b"k" * 66)
    with pytest.raises(ConfigError, match="fingerprint_key"):
        exported(b"f", b"")


@given(st.lists(JSON, max_size=6), st.randoms(use_true_random=False))
def test_a_mapping_with_any_keys_does_not_depend_on_their_order(values: list[Any], random: Any) -> None:
    keys = [1, "1", 1.5, None, (1, "a"), frozenset({"x", 2}), b"1", Color.RED, dt.date(2024, 5, 1)]
    items = list(zip(keys, values, strict=False))
    mixed = random.sample(items, len(items))

    assert digest(dict(items)) == digest(dict(mixed))
