import base64
import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from otel_agentguard.config import Settings, ToolSettings
from otel_agentguard.errors import ReadError
from otel_agentguard.events import (
    Compaction,
    Crash,
    Effect,
    Event,
    Handoff,
    Memory,
    MemoryOperation,
    Message,
    ModelCall,
    Outcome,
    Plan,
    Resume,
    ToolCall,
    Trigger,
    Turn,
)
from otel_agentguard.readers.runlog import RecordedRun, UnreadableRun, find_files, read_file


@pytest.fixture
def read(tmp_path):
    def read(*records, settings=None, unknown=None, name="runs.jsonl"):
        path = tmp_path / name
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        data = "\n".join(lines).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return list(read_file(path, settings=settings or Settings(), unknown=Counter() if unknown is None else unknown))

    return read


@pytest.fixture
def decode(read):
    def decode(step, *, settings=None, unknown=None, tools=None):
        record = {"id": "r", "steps": [step]}
        if tools is not None:
            record["tools"] = tools
        [run] = read(record, settings=settings, unknown=unknown)
        assert isinstance(run, RecordedRun), run
        [event] = run.events
        return event

    return decode


def call(**fields):
    return {"kind": "tool", "agent": "a", "tool": "ls", "args": {}, "result": "x", "is_error": False, **fields}


def test_a_tool_call_keeps_what_the_record_says_of_it(decode):
    event = decode(call(agent="coder", tool="read", args={"path": "a"}, effect="read", t=3, call_id="c1", batch=2))

    assert isinstance(event, ToolCall)
    assert (event.agent, event.tool, event.arguments) == ("coder", "read", {"path": "a"})
    assert (event.effect, event.outcome, event.result) == (Effect.READ, Outcome.OK, "x")
    assert (event.at_s, event.call_id, event.batch) == (3.0, "c1", "2")


def test_equal_calls_have_one_fingerprint_whatever_the_order_of_their_arguments(read):
    [run] = read({"id": "r", "steps": [call(args={"a": 1, "b": 2}), call(args={"b": 2, "a": 1}), call(args={"a": 1})]})

    first, second, third = (event.fingerprint for event in run.events)

    assert first == second != third


def test_a_failure_is_another_result_than_a_success_with_the_same_text(read):
    [run] = read({"id": "r", "steps": [call(), call(is_error=True), call(is_error=True)]})

    good, bad, again = run.events

    assert (good.outcome, bad.outcome) == (Outcome.OK, Outcome.FAILED)
    assert good.result_digest != bad.result_digest == again.result_digest


@pytest.mark.parametrize("outcome", ["unknown", "not_executed", "failed", "denied"])
def test_a_recorded_outcome_says_more_than_the_error_flag(decode, outcome):
    event = decode(call(outcome=outcome, is_error=True))

    assert event.outcome is Outcome(outcome)


def test_a_call_without_a_result_has_an_unknown_one(decode):
    step = call()
    del step["result"]

    event = decode(step)

    assert not event.result_known
    assert event.result_digest is None


def test_a_withheld_result_or_argument_is_unknown(decode):
    event = decode(call(args={"q": "__REDACTED__"}, result="__REDACTED__"))

    assert event.fingerprint is None
    assert event.result_digest is None


def test_arguments_that_are_raw_json_text_are_parsed(read):
    [run] = read({"id": "r", "steps": [call(args='{"b": 2, "a": 1}'), call(args={"a": 1, "b": 2})]})

    raw, plain = run.events

    assert raw.arguments == {"a": 1, "b": 2}
    assert raw.fingerprint == plain.fingerprint


def test_arguments_that_are_broken_json_are_kept_as_text(decode):
    event = decode(call(args='{"a": '))

    assert event.arguments == {"input": '{"a": '}
    assert event.fingerprint is not None


def test_bytes_in_a_record_are_real_bytes(decode):
    encoded = {"__bytes__": base64.b64encode(b"\x00\xff").decode()}

    event = decode(call(args={"data": [encoded]}, result=encoded))

    assert event.arguments == {"data": [b"\x00\xff"]}
    assert event.result == b"\x00\xff"


@pytest.mark.parametrize(
    ("fields", "served_from"),
    [({}, None), ({"served_from": "cache"}, "cache"), ({"replayed": True}, "replay"), ({"replayed": False}, None)],
)
def test_a_call_that_was_answered_without_running_says_so(decode, fields, served_from):
    assert decode(call(**fields)).served_from == served_from


@pytest.mark.parametrize(
    ("hints", "effect"),
    [
        ({"readOnlyHint": True}, Effect.READ),
        ({"readOnlyHint": False, "openWorldHint": True}, Effect.SIDE_EFFECT),
        ({"readOnlyHint": False, "openWorldHint": False}, Effect.WRITE),
        ({"idempotentHint": True}, Effect.UNKNOWN),
    ],
)
def test_hints_give_the_effect_where_nobody_else_does(decode, hints, effect):
    assert decode(call(hints=hints)).effect is effect
    assert decode(call(hints=hints, effect="unknown")).effect is effect


def test_a_declared_effect_beats_the_hints(decode):
    assert decode(call(effect="side_effect", hints={"readOnlyHint": True})).effect is Effect.SIDE_EFFECT


def test_the_effect_in_the_settings_beats_that_of_the_record(decode):
    settings = Settings(tools={"ls": ToolSettings(effect=Effect.PURE)})

    assert decode(call(effect="write"), settings=settings).effect is Effect.PURE


def test_arguments_that_the_settings_ignore_are_no_part_of_the_identity(read):
    settings = Settings(tools={"ls": ToolSettings(ignore=("request_id",))})

    [run] = read({"id": "r", "steps": [call(args={"request_id": 1}), call(args={"request_id": 2})]}, settings=settings)

    assert run.events[0].fingerprint == run.events[1].fingerprint


def test_a_call_without_an_agent_is_of_the_agent(decode):
    assert decode(call(agent=None)).agent == "agent"


def test_a_message_of_an_agent_is_a_message(decode):
    event = decode({"kind": "message", "agent": "coder", "role": "assistant", "content": "hello"})

    assert isinstance(event, Message)
    assert (event.agent, event.text) == ("coder", "hello")
    assert event.digest is not None


@pytest.mark.parametrize(
    "step",
    [
        {"kind": "message", "agent": None, "role": "user", "content": "hello"},
        {"kind": "message", "agent": "somebody", "role": "user", "content": "hello"},
        {"kind": "message", "agent": "user", "content": "hello"},
        {"kind": "message", "agent": "Human", "content": "hello"},
    ],
)
def test_a_message_of_a_person_is_a_user_turn(decode, step):
    event = decode(step)

    assert isinstance(event, Turn)
    assert event.trigger is Trigger.USER
    assert event.text == "hello"


def test_the_settings_name_who_opens_a_turn(decode):
    settings = Settings(people=frozenset({"boss"}))

    assert isinstance(decode({"kind": "message", "agent": "boss", "content": "x"}, settings=settings), Turn)
    assert isinstance(decode({"kind": "message", "agent": "user", "content": "x"}, settings=settings), Message)


def test_a_message_in_text_parts_is_its_text(read):
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]

    [run] = read(
        {
            "id": "r",
            "steps": [
                {"kind": "message", "agent": "a", "content": parts},
                {"kind": "message", "agent": "a", "content": "one\ntwo"},
            ],
        }
    )

    assert run.events[0].digest == run.events[1].digest


def test_a_structured_message_keeps_its_payload(decode):
    event = decode({"kind": "message", "agent": "a", "content": {"verdict": "no"}})

    assert event.payload == {"verdict": "no"}
    assert event.digest is not None


def test_a_model_call_has_its_digests_and_tokens(decode):
    event = decode(
        {
            "kind": "model",
            "agent": "a",
            "model": "m",
            "request": ["x"],
            "result": "y",
            "input_tokens": 5,
            "output_tokens": 2,
        }
    )

    assert isinstance(event, ModelCall)
    assert (event.model, event.input_tokens, event.output_tokens) == ("m", 5, 2)
    assert event.request_digest is not None
    assert event.answer_digest is not None


def test_a_handoff_goes_from_one_agent_to_another(decode):
    event = decode({"kind": "handoff", "from": "a", "to": "b"})

    assert isinstance(event, Handoff)
    assert (event.agent, event.to) == ("a", "b")


def test_a_turn_has_its_trigger_and_its_event(decode):
    event = decode({"kind": "turn", "trigger": "queue", "event": "ev-9", "replay": True})

    assert (event.trigger, event.event, event.replay) == (Trigger.QUEUE, "ev-9", True)


def test_a_turn_that_does_not_say_who_opened_it_is_not_the_users(decode):
    assert decode({"kind": "turn"}).trigger is Trigger.UNKNOWN


def test_a_plan_has_its_steps(decode):
    event = decode(
        {
            "kind": "plan",
            "agent": "p",
            "steps": [{"n": 1, "tool": "ls", "args": {"a": 1}, "agent": "x"}, {"n": 2, "tool": None, "deps": [1]}],
        }
    )

    assert isinstance(event, Plan)
    first, second = event.steps
    assert (first.id, first.tool, first.arguments, first.agent) == ("1", "ls", {"a": 1}, "x")
    assert (second.tool, second.depends_on) == (None, ("1",))


def test_a_memory_step_says_what_was_done_and_who_stated_it(decode):
    event = decode({"kind": "memory", "agent": "a", "op": "write", "key": "city", "value": "Tomsk", "source": "user"})

    assert isinstance(event, Memory)
    assert (event.operation, event.key, event.value, event.source) == (MemoryOperation.WRITE, "city", "Tomsk", "user")
    assert not event.hypothesis


def test_a_memory_that_is_marked_as_unproven_is_a_hypothesis(decode):
    step = {"kind": "memory", "agent": "a", "op": "write", "key": "k", "value": "v", "source": "inferred"}

    assert decode({**step, "status": "unverified"}).hypothesis
    assert decode({**step, "confidence": "low"}).hypothesis


def test_crash_resume_and_compaction_are_events(read):
    [run] = read(
        {"id": "r", "steps": [{"kind": "crash"}, {"kind": "resume", "attempt": 2, "run": "r2"}, {"kind": "compaction"}]}
    )

    crash, resume, compaction = run.events

    assert isinstance(crash, Crash)
    assert (resume.attempt, resume.run) == (2, "r2")
    assert isinstance(resume, Resume)
    assert isinstance(compaction, Compaction)


def test_values_that_no_open_set_knows_are_read_as_unknown_and_counted(read):
    unknown = Counter()

    [run] = read(
        {
            "id": "r",
            "steps": [
                call(effect="magic"),
                call(effect="magic", outcome="odd"),
                {"kind": "turn", "trigger": "moon"},
                {"kind": "memory", "op": "write", "key": "k", "value": 1, "source": "oracle"},
            ],
        },
        unknown=unknown,
    )

    first, second, turn, memory = run.events
    assert (first.effect, second.outcome) == (Effect.UNKNOWN, Outcome.UNKNOWN)
    assert (turn.trigger, memory.source) == (Trigger.UNKNOWN, "unknown")
    assert unknown == {"effect 'magic'": 2, "outcome 'odd'": 1, "trigger 'moon'": 1, "source 'oracle'": 1}


def test_a_step_of_an_unknown_kind_keeps_its_place(read):
    unknown = Counter()

    [run] = read({"id": "r", "steps": [{"kind": "thought", "agent": "a"}, call()]}, unknown=unknown)

    assert len(run.events) == 2
    assert type(run.events[0]) is Event
    assert unknown == {"kind 'thought'": 1}


def test_unknown_fields_are_ignored(decode):
    assert decode(call(note="a remark", bytes_total=3, kind_detail="x")).outcome is Outcome.OK


def test_the_tools_of_a_record_become_schemas(read):
    [run] = read(
        {
            "id": "r",
            "steps": [],
            "tools": {
                "save": {
                    "required": ["items"],
                    "optional": ["note"],
                    "repeatable": True,
                    "identity": ["items"],
                    "items_schema": {"items": {"required": ["sku"]}},
                }
            },
        }
    )

    spec = run.tools["save"]

    assert spec.schema["required"] == ["items"]
    assert set(spec.schema["properties"]) == {"items", "note"}
    assert spec.schema["properties"]["items"]["items"]["required"] == ["sku"]
    assert (spec.repeatable, spec.identity) == (True, ("items",))


@pytest.mark.parametrize("name", ["runs.jsonl", "runs.jsonl.gz", "packed-without-a-suffix.gz"])
def test_a_run_log_may_be_packed(read, name):
    runs = read({"id": "a", "steps": []}, {"id": "b", "steps": []}, name=name)

    assert [run.id for run in runs] == ["a", "b"]


def test_a_run_without_an_id_is_named_by_its_place(read):
    [run] = read({"steps": []})

    assert run.id.endswith("runs.jsonl:1")


@pytest.mark.parametrize(
    ("line", "run_id", "why"),
    [
        ('{"id": "bad", "steps": [', None, "not JSON"),
        ('{"id": "bad"}', "bad", "no 'steps'"),
        ('{"id": "bad", "steps": 3}', "bad", "list of objects"),
        ('{"id": "bad", "steps": [3]}', "bad", "step 1"),
        ('{"id": "bad", "steps": [{"kind": "tool"}]}', "bad", "names its 'tool'"),
        ('{"id": "bad", "steps": [], "tools": []}', "bad", "'tools'"),
        ("[1, 2]", None, "no 'steps'"),
        ("[" * 100_000, None, "not JSON"),
    ],
)
def test_a_run_that_cannot_be_read_does_not_keep_the_others_from_being_read(read, line, run_id, why):
    before, bad, after = read({"id": "a", "steps": []}, line, {"id": "b", "steps": []})

    assert (before.id, after.id) == ("a", "b")
    assert isinstance(bad, UnreadableRun)
    assert bad.id == run_id
    assert why in bad.error
    assert "runs.jsonl:2" in bad.error


def test_a_bad_first_line_does_not_hide_the_rest(read):
    bad, good = read("not json", {"id": "a", "steps": []})

    assert isinstance(bad, UnreadableRun)
    assert good.id == "a"


def test_a_file_of_another_format_is_one_error_that_names_the_formats(read):
    runs = read(*["<p>text</p>"] * 50, name="page.html")

    [error] = runs
    assert isinstance(error, UnreadableRun)
    assert "run log format" in error.error


def test_a_packed_file_that_breaks_off_gives_what_it_has_and_an_error(tmp_path):
    lines = "\n".join(json.dumps({"id": str(n), "steps": [call(result=str(n) * 50)]}) for n in range(2000))
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(gzip.compress(lines.encode())[:-100])

    *runs, last = read_file(path, settings=Settings(), unknown=Counter())

    assert runs[0].id == "0"
    assert isinstance(last, UnreadableRun)
    assert "cut.jsonl.gz" in last.error


@pytest.mark.parametrize("t", [None, "3", True, 10**400])
def test_a_time_that_is_no_number_is_not_recorded(decode, t):
    assert decode(call(t=t)).at_s is None


def test_numbers_of_any_size_stay_exact(decode):
    assert decode(call(args={"n": 2**70})).arguments == {"n": 2**70}


def test_blank_lines_are_no_runs(read):
    assert [run.id for run in read("", {"id": "a", "steps": []}, "   ")] == ["a"]


def test_a_directory_stands_for_the_run_logs_below_it(tmp_path):
    (tmp_path / "deep").mkdir()
    for name in ("b.jsonl", "a.jsonl.gz", "deep/c.ndjson", "notes.txt"):
        (tmp_path / name).touch()

    found = find_files(tmp_path)

    assert [path.relative_to(tmp_path) for path in found] == [
        Path("a.jsonl.gz"),
        Path("b.jsonl"),
        Path("deep/c.ndjson"),
    ]


def test_a_directory_without_run_logs_is_refused(tmp_path):
    with pytest.raises(ReadError, match="run log format"):
        find_files(tmp_path)


def test_a_path_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(ReadError, match="nowhere"):
        find_files(tmp_path / "nowhere")
