"""What was observed verifies, word for word; with another number, name or denial it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_runs import tool, user, verdict, write

from otel_agentguard.events import Event, Evidence, Memory, MemoryOperation
from otel_agentguard.memory import MemoryGate, Verdict

NAMES = ["Alice", "Mildred", "Priya", "Lisbon", "Okafor", "Zorblatt", "Kestrel"]
NOUNS = ["server", "garden", "report", "bicycle", "window", "parcel", "kitchen", "recipe"]
VERBS = ["holds", "carries", "paints", "measures", "follows"]

names = st.sampled_from(NAMES)
nouns = st.sampled_from(NOUNS)
numbers = st.integers(min_value=20, max_value=99_999)


@st.composite
def sentences(draw: st.DrawFn) -> tuple[str, str, int]:
    """A sentence, the name in it and the number in it."""
    name, number = draw(names), draw(numbers)
    form = draw(
        st.sampled_from(
            [
                "the {noun} of {name} {verb} {number} parts",
                "today {name} {verb} the {noun} with {number} tools",
                "in room {number} the {noun} {verb} what {name} left",
            ]
        )
    )
    return form.format(name=name, number=number, noun=draw(nouns), verb=draw(st.sampled_from(VERBS))), name, number


runs = st.lists(st.tuples(sentences(), st.booleans()), min_size=1, max_size=8)


def observed(run: list[tuple[tuple[str, str, int], bool]]) -> list[Event]:
    return [user(sentence) if by_user else tool(f"result: {sentence}.") for (sentence, _, _), by_user in run]


@given(runs, st.data())
def test_a_quote_from_any_observed_event_verifies(
    run: list[tuple[tuple[str, str, int], bool]], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(run) - 1))
    sentence = run[at][0][0]

    assert verdict(*observed(run), write(sentence)) == "verified"
    assert verdict(*observed(run), write(sentence, evidence=[Evidence(step=at + 1, quote=sentence)])) == "verified"


@given(runs, st.data())
def test_a_part_of_what_was_observed_verifies_as_a_quote(
    run: list[tuple[tuple[str, str, int], bool]], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(run) - 1))
    words = run[at][0][0].split()
    begin = data.draw(st.integers(0, len(words) - 3))
    part = " ".join(words[begin : begin + 3])

    assert verdict(*observed(run), write(run[at][0][0], evidence=[Evidence(step=at + 1, quote=part)])) == "verified"


@given(runs, numbers, st.data())
def test_another_number_does_not_verify(
    run: list[tuple[tuple[str, str, int], bool]], other: int, data: st.DataObject
) -> None:
    (sentence, _, number), _ = run[data.draw(st.integers(0, len(run) - 1))]
    if other in {one for (_, _, one), _ in run}:
        return

    altered = sentence.replace(str(number), str(other))

    assert verdict(*observed(run), write(altered)) == "unsupported"
    assert verdict(*observed(run), write(sentence, evidence=[Evidence(step=99, quote=altered)])) == "unsupported"


@given(runs, names, st.data())
def test_another_name_does_not_verify(
    run: list[tuple[tuple[str, str, int], bool]], other: str, data: st.DataObject
) -> None:
    (sentence, name, _), _ = run[data.draw(st.integers(0, len(run) - 1))]
    if other in {one for (_, one, _), _ in run}:
        return

    altered = sentence.replace(name, other)

    assert verdict(*observed(run), write(altered)) == "unsupported"


@given(runs, st.data())
def test_the_denial_does_not_verify(run: list[tuple[tuple[str, str, int], bool]], data: st.DataObject) -> None:
    (sentence, _, _), _ = run[data.draw(st.integers(0, len(run) - 1))]
    verb = next(verb for verb in VERBS if f" {verb} " in sentence)

    altered = sentence.replace(f" {verb} ", f" does not {verb} ")

    assert verdict(*observed(run), write(altered)) == "unsupported"


@given(st.lists(st.text(max_size=200), max_size=6), st.text(max_size=200), st.text(max_size=60))
def test_no_text_makes_the_gate_fail(texts: list[str], claim: str, quote: str) -> None:
    gate = MemoryGate("run")
    for place, text in enumerate(texts):
        gate.submit(user(text) if place % 2 else tool(text))

    gate.submit(write(claim, "k"))
    gate.submit(write(claim, evidence=[Evidence(step=1, quote=quote)]))

    assert gate.failures == 0


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=20) | st.binary(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=12,
    )
)
def test_no_value_makes_the_gate_fail(value: object) -> None:
    gate = MemoryGate("run")
    gate.submit(tool(value))

    judgement = gate.submit(Memory(operation=MemoryOperation.UPDATE, key="k", value=value))

    assert gate.failures == 0
    assert judgement is not None
    assert judgement.verdict in set(Verdict)


@pytest.mark.parametrize("digit", ["²", "❶", "①", "½", "Ⅷ", "四", "٣", "৪", "𝟜"])
@pytest.mark.parametrize("shape", ["{}", "{}5", "5{}", "1.{}", "{}k", "v{}.{}", "on {} May", "in {}"])
def test_digits_of_every_script_can_be_stored(digit: str, shape: str) -> None:
    value = shape.replace("{}", digit)
    gate = MemoryGate("run")
    gate.submit(tool({value: value}))

    judgement = gate.submit(Memory(operation=MemoryOperation.UPDATE, key=value, value={value: f"It is {value}."}))

    assert gate.failures == 0
    assert judgement is not None
