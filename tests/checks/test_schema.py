"""The schema check: what agents send one another fits what the receiver expects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from otel_agentguard import CallBlocked, install, message, run
from otel_agentguard.checks.registry import default_checks
from otel_agentguard.checks.schema import SchemaCheck
from otel_agentguard.config import Settings
from otel_agentguard.engine import Engine
from otel_agentguard.errors import ConfigError
from otel_agentguard.events import Handoff, Message
from otel_agentguard.findings import Action, Kind, Severity
from otel_agentguard.loading import load, with_values
from otel_agentguard.runs import Decision
from otel_agentguard.testing import RecordingSink

REVIEW = {
    "type": "object",
    "properties": {
        "verdict": {"enum": ["approve", "reject"]},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"number": {"type": "integer"}}}},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
    },
    "required": ["verdict"],
    "additionalProperties": False,
}


def send(schemas: Mapping[Any, Any], content: object, sender: str = "coder", to: str | None = "reviewer") -> Decision:
    """What is decided about a message before it is sent."""
    engine = Engine(checks=[SchemaCheck(schemas)])
    text = content if isinstance(content, str) else None
    event = Message(agent=sender, to=to, text=text, payload=None if text is not None else content)
    return engine.before(engine.open("r"), event)


def said(decision: Decision) -> str:
    assert decision.finding is not None
    return decision.finding.message


def test_a_message_that_fits_is_sent() -> None:
    decision = send({("coder", "reviewer"): REVIEW}, {"verdict": "approve", "lines": [{"number": 3}], "score": 0.5})

    assert decision.action is Action.ALLOW


def test_a_malformed_message_is_refused_so_that_the_next_agent_does_not_see_it() -> None:
    decision = send({("coder", "reviewer"): REVIEW}, {"lines": []})

    assert decision.action is Action.BLOCK
    assert decision.finding is not None
    assert (decision.finding.kind, decision.finding.severity) == (Kind.SCHEMA, Severity.WARN)
    assert decision.finding.agent == "coder"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({}, "$.verdict: got nothing, expected a value"),
        ({"verdict": "maybe"}, '$.verdict: got another string of 5 characters, expected "approve" or "reject"'),
        (
            {"verdict": "approve", "lines": [{"number": 1}, {"number": "two"}]},
            "$.lines[1].number: got string of 3 characters, expected integer",
        ),
        ({"verdict": "approve", "score": 7}, "$.score: got integer, expected at most 1"),
        ({"verdict": "approve", "note": "x"}, "$.note: got a field, expected only verdict or lines or score"),
        ([1, 2], "$: got array of 2 items, expected object"),
        ("looks good to me", "$: got text that is no JSON, expected object"),
    ],
)
def test_it_is_said_where_what_was_got_and_what_was_expected(content: object, told: str) -> None:
    decision = send({("coder", "reviewer"): REVIEW}, content)

    assert told in said(decision)
    assert said(decision).startswith("[agentguard]")


def test_every_fault_is_named_up_to_five() -> None:
    schema = {"type": "object", "required": [f"f{n}" for n in range(9)]}

    decision = send({("coder", "reviewer"): schema}, {})

    assert said(decision).count("got nothing") == 5
    assert "and 4 more" in said(decision)


def test_the_content_of_a_message_is_not_repeated_to_anybody() -> None:
    decision = send({("coder", "reviewer"): REVIEW}, {"verdict": "sk-secret-9", "lines": "sk-secret-9"})

    assert decision.finding is not None
    assert "sk-secret" not in decision.finding.message + decision.finding.explanation


@pytest.mark.parametrize(
    "text",
    [
        '{"verdict": "approve"}',
        ' {"verdict": "approve"}\n',
        '```json\n{"verdict": "approve"}\n```',
        '```\n{"verdict":"reject"}```',
    ],
)
def test_text_is_read_as_json_also_in_a_code_block(text: str) -> None:
    assert send({("coder", "reviewer"): REVIEW}, text).action is Action.ALLOW


def test_text_is_text_where_text_is_expected() -> None:
    schema = {"type": "string", "minLength": 2}

    assert send({("coder", "reviewer"): schema}, "42").action is Action.ALLOW
    assert send({("coder", "reviewer"): schema}, "4").action is Action.BLOCK


def test_the_nearest_of_several_forms_explains_what_is_wrong() -> None:
    schema = {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"n": {"type": "integer"}}}]}

    assert "$.n: got null, expected integer" in said(send({("coder", "reviewer"): schema}, {"n": None}))


@dataclass
class Review:
    verdict: str


def test_dataclasses_and_models_are_judged_by_their_fields() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Verdict", verdict=(str, ...))

    assert send({("coder", "reviewer"): REVIEW}, Review("approve")).action is Action.ALLOW
    assert send({("coder", "reviewer"): REVIEW}, model(verdict="never")).action is Action.BLOCK


class TestModels:
    """Forms that are given as pydantic models."""

    @pytest.fixture
    def model(self) -> Any:
        pydantic = pytest.importorskip("pydantic")
        line = pydantic.create_model("Line", number=(int, ...))
        return pydantic.create_model("Review", verdict=(str, ...), lines=(list[line], []))  # type: ignore[valid-type]

    def test_a_model_says_what_fits(self, model: Any) -> None:
        assert (
            send({("coder", "reviewer"): model}, '{"verdict": "x", "lines": [{"number": "3"}]}').action is Action.ALLOW
        )

    def test_a_model_says_what_does_not_fit_and_where(self, model: Any) -> None:
        told = said(send({("coder", "reviewer"): model}, {"lines": [{"number": 1}, {"number": "two"}]}))

        assert "$.verdict: got nothing, expected Field required" in told
        assert "$.lines[1].number: got string of 3 characters, expected Input should be a valid integer" in told

    def test_a_validator_that_fails_for_another_reason_lets_the_message_pass_and_is_counted(self) -> None:
        class Broken:
            @classmethod
            def model_validate(cls, value: object) -> None:
                raise RuntimeError("no database")

        sink = RecordingSink()
        engine = Engine(checks=[SchemaCheck({("a", "b"): Broken})], sinks=[sink])

        decision = engine.before(engine.open("r"), Message(agent="a", to="b", text="x"))

        assert decision.action is Action.ALLOW
        assert sink.failures == ["check schema"]


class TestEdges:
    """Which schema holds for a message."""

    def test_other_edges_are_left_alone(self) -> None:
        assert send({("coder", "reviewer"): REVIEW}, "hello", sender="tester").action is Action.ALLOW
        assert send({("coder", "reviewer"): REVIEW}, "hello", to="tester").action is Action.ALLOW

    def test_a_message_to_nobody_known_meets_only_an_edge_to_everybody(self) -> None:
        assert send({("coder", "reviewer"): REVIEW}, "hello", to=None).action is Action.ALLOW
        assert send({("coder", "*"): REVIEW}, "hello", to=None).action is Action.BLOCK

    def test_the_most_specific_edge_holds(self) -> None:
        schemas = {"*->reviewer": {"type": "integer"}, "coder->*": {"type": "array"}, "coder -> reviewer": REVIEW}

        assert send(schemas, {"verdict": "approve"}).action is Action.ALLOW
        assert send(schemas, [], to="tester").action is Action.ALLOW
        assert send(schemas, 3, sender="tester").action is Action.ALLOW

    def test_a_handoff_is_a_message_too(self) -> None:
        engine = Engine(checks=[SchemaCheck({("coder", "reviewer"): REVIEW})])

        decision = engine.before(engine.open("r"), Handoff(agent="coder", to="reviewer", text="over to you"))

        assert decision.action is Action.BLOCK

    def test_what_was_not_captured_is_not_judged(self) -> None:
        engine = Engine(checks=[SchemaCheck({("coder", "reviewer"): REVIEW})])

        assert engine.before(engine.open("r"), Handoff(agent="coder", to="reviewer")).action is Action.ALLOW


def test_the_same_fault_is_reported_once_and_refused_each_time() -> None:
    sink = RecordingSink()
    engine = Engine(checks=[SchemaCheck({("coder", "reviewer"): REVIEW})], sinks=[sink])
    opened = engine.open("r")

    actions = [engine.before(opened, Message(agent="coder", to="reviewer", text="{}")).action for _ in range(3)]

    assert actions == [Action.BLOCK] * 3
    assert len(sink.findings) == 1


def test_a_malformed_message_may_be_let_through_with_a_note() -> None:
    engine = Engine(checks=[SchemaCheck({("coder", "reviewer"): REVIEW}, action=Action.HINT)])

    assert engine.before(engine.open("r"), Message(agent="coder", to="reviewer", text="{}")).action is Action.HINT


@pytest.mark.parametrize(
    ("schemas", "told"),
    [
        ({"coder": {}}, "no edge"),
        ({("a", "b", "c"): {}}, "no edge"),
        ({("a", ""): {}}, "no edge"),
        ({("a", "b"): {"type": "strin"}}, "no JSON Schema"),
        ({("a", "b"): 3}, "give a JSON Schema or a pydantic model"),
        ({("a", "b"): {"$ref": "https://example.test/x.json"}}, "outside of itself"),
    ],
)
def test_what_is_no_schema_is_refused_at_once(schemas: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        SchemaCheck(schemas)


class TestSettings:
    """Schemas named in `agentguard.toml`."""

    def test_a_schema_file_is_found_beside_the_settings(self, tmp_path: Path) -> None:
        (tmp_path / "review.json").write_text(json.dumps(REVIEW), encoding="utf-8")
        file = tmp_path / "agentguard.toml"
        file.write_text('[schema."coder->reviewer"]\nfile = "review.json"\n', encoding="utf-8")

        settings = load(environ={}, file=file)
        checks = default_checks(settings)

        assert settings.schemas == {"coder->reviewer": str(tmp_path / "review.json")}
        assert checks[-1].name == "schema"
        engine = Engine(checks=checks)
        decision = engine.before(engine.open("r"), Message(agent="coder", to="reviewer", text="{}"))
        assert decision.action is Action.BLOCK

    @pytest.mark.parametrize(
        ("content", "told"), [(None, "cannot read"), ("{", "is not JSON"), ("[]", "no JSON Schema")]
    )
    def test_a_file_that_holds_no_schema_is_refused_by_name(
        self, tmp_path: Path, content: str | None, told: str
    ) -> None:
        file = tmp_path / "x.json"
        if content is not None:
            file.write_text(content, encoding="utf-8")

        with pytest.raises(ConfigError, match=rf"'a->b'.*{told}|{told}.*'a->b'|x\.json.*{told}"):
            default_checks(Settings(schemas={"a->b": str(file)}))

    def test_a_name_with_dots_can_be_set_on_a_command_line(self) -> None:
        settings = with_values(Settings(), {"schema.coder.v2->reviewer.file": "x.json"})

        assert settings.schemas == {"coder.v2->reviewer": "x.json"}

    def test_a_misspelt_key_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"schema\.a->b\.fil"):
            with_values(Settings(), {"schema.a->b.fil": "x.json"})


def test_a_program_gets_the_refusal_as_an_error_with_the_text_for_the_model() -> None:
    guard = install(checks=[SchemaCheck({("coder", "reviewer"): REVIEW})])
    try:
        with run("r"):
            message({"verdict": "approve"}, agent="coder", to="reviewer")
            with pytest.raises(CallBlocked, match=r"\$\.verdict: got nothing"):
                message({}, agent="coder", to="reviewer")
    finally:
        guard.shutdown()
