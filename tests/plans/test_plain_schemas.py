"""The quick look at a schema never passes what the meta-schema refuses."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_agentguard.plans.plain_schemas import is_plainly_sound

PATIENT = settings(deadline=None)
KEYWORDS = st.sampled_from(
    [
        "type", "properties", "required", "items", "enum", "anyOf", "minimum", "minLength", "uniqueItems", "title",
        "additionalProperties", "$ref", "$defs", "const", "format", "pattern", "maxItems", "dependentRequired",
    ]
)  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(["string", "object", "array", "objekt", "#/$defs/a", "a"]),
    st.booleans(),
    st.integers(-2, 3),
    st.floats(allow_nan=False),
    st.none(),
)
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    VALUES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(KEYWORDS, inner, max_size=4),
        st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    ),
    max_leaves=10,
)


@PATIENT
@given(st.dictionaries(KEYWORDS, SCHEMAS, max_size=5))
def test_what_passes_the_quick_look_passes_the_full_check(schema: dict[str, Any]) -> None:
    if is_plainly_sound(schema):
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": ["string", "null"], "description": "d"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "integer", "minimum": 1}, {"enum": ["x"]}]}}},
        {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "array", "items": {"type": "string"}}}},
    ],
    ids=["flat", "branches", "definitions"],
)
def test_the_schemas_of_ordinary_tools_pass_the_quick_look(schema: dict[str, Any]) -> None:
    assert is_plainly_sound(schema)
