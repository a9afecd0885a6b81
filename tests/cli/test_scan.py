import gzip
import json

import pytest

from otel_agentguard.cli import main

KEYS = {
    "id",
    "steps",
    "findings",
    "first_step",
    "stopped_at",
    "redundant_steps",
    "duplicate_effect_steps",
    "wasted",
}


@pytest.fixture(autouse=True)
def _apart_from_other_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def scan(capsys):
    def scan(*argv):
        code = main(["scan", *map(str, argv)])
        out, err = capsys.readouterr()
        return code, out, err

    return scan


def call(**fields):
    return {
        "kind": "tool",
        "agent": "a",
        "tool": "ls",
        "args": {"path": "."},
        "result": "x",
        "is_error": False,
        **fields,
    }


def run_of(run_id, *steps, **fields):
    return {"id": run_id, "steps": list(steps), **fields}


HEALTHY = run_of("healthy", call(args={"path": "a"}), call(args={"path": "b"}, result="y"))
LOOPING = run_of("looping", *[call()] * 8)


@pytest.fixture
def log(tmp_path):
    def log(*records, name="runs.jsonl"):
        path = tmp_path / name
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        path.write_text("\n".join(lines), encoding="utf-8")
        return path

    return log


def objects(out):
    return [json.loads(line) for line in out.splitlines()]


def test_a_healthy_log_is_clean(scan, log):
    code, out, err = scan(log(HEALTHY))

    assert code == 0
    assert out == "1 run, 2 steps: 0 runs with a warning, 0 that would have been stopped or refused a call, " + (
        "0 redundant calls, 0 duplicate effects\n"
    )
    assert err == ""


def test_a_loop_is_told_with_its_step_and_makes_the_exit_code_one(scan, log):
    code, out, _ = scan(log(HEALTHY, LOOPING))

    assert code == 1
    assert "looping: 8 steps, first warning at step 3, refused from step 5 on" in out
    assert "healthy" not in out
    assert out.splitlines()[-1].startswith("2 runs, 10 steps: 1 run with a warning")


def test_json_lines_have_one_object_a_run_in_input_order(scan, log):
    code, out, _ = scan(log(LOOPING, HEALTHY), "--format", "jsonl")

    looping, healthy = objects(out)
    assert code == 1
    assert (looping["id"], healthy["id"]) == ("looping", "healthy")
    assert set(looping) == set(healthy) == KEYS


def test_a_finding_has_the_promised_shape(scan, log):
    _, out, _ = scan(log(LOOPING), "--format", "jsonl")

    [run] = objects(out)
    first = next(finding for finding in run["findings"] if finding["severity"] != "info")
    message = first.pop("message")
    assert first == {
        "step": 3,
        "check": "loop",
        "kind": "loop",
        "severity": "warn",
        "action": "hint",
        "agent": "a",
        "tool": "ls",
        "evidence": [1, 2, 3],
    }
    assert message.startswith("[agentguard]")
    assert (run["steps"], run["first_step"], run["stopped_at"]) == (8, 3, 5)
    assert run["redundant_steps"] == [2, 3, 4, 5, 6, 7, 8]
    assert run["wasted"] == {"calls": 7, "tokens": None}


def test_a_run_that_cannot_be_read_is_an_object_too_and_the_others_go_on(scan, log):
    code, out, err = scan(log(HEALTHY, {"id": "bad", "steps": 1}, LOOPING), "--format", "jsonl")

    first, bad, last = objects(out)
    assert code == 2
    assert (first["id"], bad["id"], last["id"]) == ("healthy", "bad", "looping")
    assert set(bad) == KEYS | {"error"}
    assert "runs.jsonl:2" in bad["error"]
    assert "runs.jsonl:2" in err


def test_a_warning_does_not_hide_that_something_could_not_be_read(scan, log):
    code, out, err = scan(log(LOOPING, "not json", HEALTHY))

    assert code == 2
    assert "1 that could not be read" in out
    assert "runs.jsonl:2" in err


def test_a_file_of_another_format_is_refused_with_the_formats_that_are_read(scan, tmp_path):
    path = tmp_path / "page.html"
    path.write_text("<p>no run</p>\n" * 3)

    code, _, err = scan(path)

    assert code == 2
    assert "run log format" in err
    assert ".jsonl" in err


def test_an_unknown_output_format_is_refused_with_those_that_exist(scan, log):
    code, out, err = scan(log(HEALTHY), "--format", "html")

    assert code == 2
    assert out == ""
    assert "text" in err
    assert "jsonl" in err


def test_a_path_that_is_not_there_is_misuse(scan):
    code, out, err = scan("nowhere.jsonl")

    assert (code, out) == (2, "")
    assert "nowhere.jsonl" in err


def test_paths_may_be_directories_and_packed_files(scan, tmp_path, log):
    folder = tmp_path / "runs"
    folder.mkdir()
    log(HEALTHY, name="runs/b.jsonl")
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(json.dumps(LOOPING).encode()))

    _, out, _ = scan(folder, log(run_of("last"), name="more.jsonl"), "--format", "jsonl")

    assert [run["id"] for run in objects(out)] == ["looping", "healthy", "last"]


def test_a_setting_can_be_changed_for_one_scan(scan, log):
    code, out, _ = scan(log(run_of("r", *[call()] * 3)), "--set", "loop.same.hint=4", "--format", "jsonl")

    assert code == 0
    assert objects(out)[0]["first_step"] is None


def test_several_settings_rise_together(scan, log):
    argv = [word for part in ("hint=8", "block=9", "stop=10") for word in ("--set", f"loop.same.{part}")]

    code, out, _ = scan(log(LOOPING), *argv, "--format", "jsonl")

    assert code == 1
    assert objects(out)[0]["first_step"] == 8


@pytest.mark.parametrize(
    ("assignment", "named"),
    [("loop.same.hint", "KEY=VALUE"), ("=4", "KEY=VALUE"), ("loop.same.hnt=4", "hnt"), ("loop.same.hint=few", "few")],
)
def test_a_setting_that_cannot_be_is_misuse(scan, log, assignment, named):
    code, out, err = scan(log(HEALTHY), "--set", assignment)

    assert (code, out) == (2, "")
    assert named in err


def test_settings_of_the_directory_hold_for_a_scan(scan, log, tmp_path):
    (tmp_path / "agentguard.toml").write_text('[tools.ls.same]\nhint = "never"\nblock = "never"\nstop = "never"\n')

    code, _, _ = scan(log(LOOPING))

    assert code == 0


def test_values_that_nobody_knows_are_counted_on_stderr_once(scan, log):
    _, _, err = scan(log(run_of("r", call(effect="magic"), call(args={}, effect="magic"))))

    assert err == "read as unknown: effect 'magic' (2)\n"


def test_what_nobody_asked_scan_to_read_changes_nothing(scan, log):
    _, plain, _ = scan(log(LOOPING), "--format", "jsonl")
    marked = {**LOOPING, "expect": {"finding": "none"}, "kind": "x", "description": "y", "meta": {"a": 1}}

    _, out, _ = scan(log(marked), "--format", "jsonl")

    assert out == plain


def test_a_run_of_text_that_no_encoding_knows_is_written_all_the_same(scan, log):
    code, out, _ = scan(log('{"id": "\\ud800", "steps": []}'), "--format", "jsonl")

    assert code == 0
    assert objects(out)[0]["id"] == "\ud800"


def test_tools_of_the_record_are_read(scan, log):
    code, _, err = scan(log(run_of("r", call(), tools={"ls": 5})))

    assert code == 2
    assert "tool 'ls'" in err


def test_a_scan_may_compare_questions_by_meaning(scan, log):
    pytest.importorskip("wordllama", reason="pip install 'otel-agentguard[semantic]'")
    questions = [
        "where is the configuration file of the web server",
        "find the location of the server's config",
        "which folder holds web server settings",
        "path to server config files please",
        "web server configuration directory location",
        "locate the server's settings file",
    ]
    steps = [
        call(
            tool="ask", args={"question": question}, result=f"There is no entry that would help any further. ({number})"
        )
        for number, question in enumerate(questions)
    ]

    by_words, _, _ = scan(log(run_of("r", *steps)))
    by_meaning, out, _ = scan(log(run_of("r", *steps)), "--set", "embedder=wordllama")

    assert (by_words, by_meaning) == (0, 1)
    assert "semantic" in out


def test_a_file_without_a_run_is_no_clean_scan(capsys, tmp_path):
    file = tmp_path / "cut_off.jsonl"
    file.write_text("")

    code = main(["scan", str(file)])

    assert code == 2
    assert "cut_off.jsonl: holds no run" in capsys.readouterr().err
