from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from otel_agentguard.config import Settings
from otel_agentguard.errors import ReadError
from otel_agentguard.readers.steps import StepDecoder

NAMES = (
    *("agent", "tool", "args", "result", "is_error", "effect", "t", "call_id", "batch", "outcome", "served_from"),
    *("replayed", "hints", "content", "role", "to", "from", "model", "request", "input_tokens", "trigger", "event"),
    *("replay", "steps", "op", "key", "value", "source", "supersedes", "confidence", "status", "attempt", "run"),
)
KINDS = (
    *("tool", "message", "model", "handoff", "turn", "plan", "memory", "crash", "resume", "compaction", "thought"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just({"__bytes__": "AA=="}),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(kind=st.sampled_from(KINDS) | JSON, fields=st.dictionaries(st.sampled_from(NAMES), JSON))
def test_any_step_is_an_event_or_an_error_that_names_the_step(kind, fields):
    decoder = StepDecoder(Settings(), Counter())

    try:
        events = decoder.events([{**fields, "kind": kind}], {})
    except ReadError as exc:
        assert str(exc).startswith("step 1: ")
    else:
        assert len(events) == 1


@given(tools=JSON | st.dictionaries(st.text(), st.dictionaries(st.sampled_from(["required", "optional"]), JSON)))
def test_any_description_of_tools_is_read_or_refused(tools):
    decoder = StepDecoder(Settings(), Counter())

    try:
        specs = decoder.specs(tools)
    except ReadError:
        return

    assert all(spec.name == name for name, spec in specs.items())
