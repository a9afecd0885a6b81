import os
import socket
import subprocess
import sys
import textwrap

import pytest

from otel_agentguard.cli import main

COMMAND = [sys.executable, "-c", "import sys; from otel_agentguard.cli import main; sys.exit(main())", "run"]

LOOPING = """
    from otel_agentguard import run, tool

    @tool
    def read(path):
        print("read", path)
        return "text"

    with run("r", agent="a"):
        for _ in range(20):
            try:
                read("a")
            except Exception:
                pass
"""


@pytest.fixture
def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def write(tmp_path):
    def write(text, name="app.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return write


@pytest.fixture
def start(tmp_path):
    def start(*argv, **environ):
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTGUARD_", "OTEL_"))}
        return subprocess.run(
            [*COMMAND, *map(str, argv)],
            cwd=tmp_path,
            env={**clean, "AGENTGUARD_METRICS_PORT": "none", **environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return start


def test_a_script_finds_itself_as_under_python(start, write, tmp_path):
    write("name = 'beside'", "deep/beside.py")
    script = write(
        """
        import sys
        from beside import name

        print(__name__, sys.argv, sys.path[0], sys.modules["__main__"].__file__, name)
        """,
        "deep/app.py",
    )

    ended = start(script, "--port", "5", "-m", "x")

    assert ended.returncode == 0, ended.stderr
    argv = [str(script), "--port", "5", "-m", "x"]
    assert ended.stdout == f"__main__ {argv} {script.parent} {script} beside\n"


def test_a_module_finds_itself_as_under_python(start, write, tmp_path):
    write("", "pack/__init__.py")
    write("import sys; print(__name__, sys.argv[1:], sys.path[0])", "pack/__main__.py")

    ended = start("-m", "pack", "--mode", "observe", "x")

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == f"__main__ ['--mode', 'observe', 'x'] {tmp_path}\n"


@pytest.mark.parametrize(
    ("code", "exit_code", "err"),
    [
        ("pass", 0, ""),
        ("raise SystemExit", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit('no luck')", 1, "no luck\n"),
    ],
)
def test_the_exit_code_is_that_of_the_script(start, write, code, exit_code, err):
    ended = start(write(code))

    assert (ended.returncode, ended.stderr) == (exit_code, err)


def test_a_failure_of_the_script_is_shown_as_its_own(start, write):
    script = write("def fail():\n    raise KeyError('nobody')\n\nfail()\n")

    ended = start(script)

    assert ended.returncode == 1
    assert ended.stderr.startswith(f'Traceback (most recent call last):\n  File "{script}", line 4, in <module>\n')
    assert ended.stderr.endswith("KeyError: 'nobody'\n")


def test_a_run_that_the_guard_stops_ends_in_exit_code_three(start, write):
    ended = start(write(LOOPING))

    assert ended.returncode == 3, ended.stderr
    assert ended.stdout == "read a\n" * 4
    assert "run 'r' stopped" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_stop_that_came_out_in_a_group_of_exceptions_is_a_stop(start, write):
    ended = start(write("from otel_agentguard import RunAborted\nraise ExceptionGroup('tasks', [RunAborted()])"))

    assert ended.returncode == 3


def test_a_stop_that_the_application_handles_is_its_own_affair(start, write):
    script = write(LOOPING + "\n    print('never')\n").read_text().replace("print('never')", "")
    handled = "from otel_agentguard import RunAborted\ntry:\n" + textwrap.indent(script, "    ")

    ended = start(write(handled + "\nexcept RunAborted:\n    print('handled')\n"))

    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "handled")


def test_observing_lets_every_call_through(start, write):
    ended = start("--mode", "observe", write(LOOPING))

    assert (ended.returncode, ended.stdout) == (0, "read a\n" * 20)


def test_the_environment_turns_the_guard_off_whatever_the_command_line_says(start, write):
    ended = start("--mode", "enforce", write(LOOPING), AGENTGUARD_MODE="off")

    assert (ended.returncode, ended.stdout) == (0, "read a\n" * 20)


def test_metrics_are_served_while_the_application_runs(start, write, free_port):
    script = write(
        f"""
        import urllib.request

        page = urllib.request.urlopen("http://127.0.0.1:{free_port}/metrics").read().decode()
        print("agentguard_active_runs" in page)
        """
    )

    ended = start(script, AGENTGUARD_METRICS_PORT=str(free_port))

    assert (ended.returncode, ended.stdout) == (0, "True\n"), ended.stderr


def test_a_taken_port_is_one_warning_and_the_application_runs(start, write):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        ended = start(write("print('ran')"), AGENTGUARD_METRICS_PORT=str(port))

    assert (ended.returncode, ended.stdout) == (0, "ran\n")
    assert ended.stderr.count("\n") == 1
    assert str(port) in ended.stderr


def test_spans_have_a_provider_where_the_application_sets_none(start, write):
    ended = start(
        write(
            """
            from opentelemetry import trace

            with trace.get_tracer("app").start_as_current_span("work") as span:
                print(span.is_recording())
            """
        )
    )

    assert (ended.returncode, ended.stdout) == (0, "True\n"), ended.stderr


def test_the_environment_says_where_spans_go(start, write):
    ended = start(
        write("from opentelemetry import trace\ntrace.get_tracer('app').start_span('work').end()"),
        OTEL_TRACES_EXPORTER="console",
    )

    assert ended.returncode == 0, ended.stderr
    assert '"name": "work"' in ended.stdout


def test_the_provider_of_the_application_stays_its_own(start, write):
    ended = start(
        write(
            """
            from opentelemetry import trace
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import SimpleSpanProcessor
            from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
            from otel_agentguard import tool

            early = trace.get_tracer("early")
            kept = InMemorySpanExporter()
            provider = TracerProvider()
            provider.add_span_processor(SimpleSpanProcessor(kept))
            trace.set_tracer_provider(provider)

            @tool
            def look():
                return "x"

            with early.start_as_current_span("work"):
                look()
            print(trace.get_tracer_provider() is provider, sorted(span.name for span in kept.get_finished_spans()))
            """
        )
    )

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "True ['execute_tool look', 'work']\n"
    assert "Overriding" not in ended.stderr


def test_threads_of_the_application_end_under_guard(start, write):
    ended = start(
        write(
            """
            import threading
            from otel_agentguard.guard import installed

            def later():
                threading.main_thread().join(0.2)
                print(installed.guard is not None)

            threading.Thread(target=later).start()
            """
        )
    )

    assert ended.stdout == "True\n"


def test_a_script_that_is_not_there_is_misuse(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    code = main(["run", "nowhere.py"])

    assert code == 2
    assert "nowhere.py" in capsys.readouterr().err


def test_a_module_named_as_a_script_is_told_of_dash_m(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    main(["run", "json"])

    assert "-m" in capsys.readouterr().err
