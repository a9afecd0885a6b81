"""Which commands and statements only read, and which surely write, by their form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_agentguard.events import Form
from otel_agentguard.reading import form_of

READS = [
    "ls -la src",
    "cat a.txt | grep -n main | head -3",
    "cd src && ls",
    "LANG=C sort names.txt | uniq -c",
    "find . -name '*.py' -type f",
    "find . -name '*.py' -exec grep -l main {} +",
    "grep -rn 'a > b' src",
    "awk '{print $1}' data.csv",
    "sed -n '10,20p' a.py",
    "git log --oneline -5",
    "git -C /srv/app status --short",
    "git diff HEAD~1 -- a.py",
    "cat a.txt 2>/dev/null",
    "ls 2>&1 | wc -l",
    "head -c 16 a.bin | xxd",
    "echo hello",
    "run[ls -l docs]",
    "execute[grep -c '[0-9]' a.txt]",
    "wc -l < a.txt",
    "which python || type python",
    "ps aux | grep nginx",
    "tail -n 5 app.log",
    "xargs -n1 basename",
    "SELECT * FROM trees",
    "select name, height from trees where id = 3;",
    "SELECT count(*) FROM trees WHERE note = 'please delete me'",
    "WITH tall AS (SELECT * FROM trees) SELECT * FROM tall",
    "SHOW TABLES",
    "show create table trees",
    "DESCRIBE trees",
    "desc trees;",
    "EXPLAIN SELECT * FROM trees",
]
WRITES = [
    "echo hello > a.txt",
    "echo hello >> notes/a.txt",
    "cat <<'EOF' > a.py\nprint(1)\nEOF",
    "rm -rf build",
    "mkdir -p out && ls",
    "cp a b",
    "mv a b; ls",
    "touch done",
    "run[rm -rf build]",
    "sudo chmod +x run.sh",
    "sed -i 's/a/b/' a.py",
    "find . -name '*.pyc' -exec rm {} +",
    "find . -delete",
    "git commit -am 'step'",
    "git checkout -b topic",
    "git push",
    "pip install requests",
    "npm install",
    "python gen.py > out.csv",
    "tar xf a.tar | tee log",
    "INSERT INTO trees VALUES (1, 'oak')",
    "insert or replace into trees values (1)",
    "UPDATE trees SET name = 'oak' WHERE id = 1",
    "delete from trees where id = 1",
    "CREATE TABLE trees (id int)",
    "create or replace view tall as select * from trees",
    "DROP INDEX trees_by_name",
    "TRUNCATE TABLE trees",
]
UNSURE = [
    "python main.py",
    "pytest -q",
    "rows[3]",
    "delete[cat]",
    "buy[cat a.txt]",
    "Save[git log]",
    "run[python main.py]",
    "curl https://example.org",
    "docker run -it image",
    "./run.sh",
    "sort -o a.txt a.txt | cat",
    "cat $(which python)",
    "cat `which python`",
    "echo start & sleep 5",
    "env python main.py",
    "find . -name a -exec python {} +",
    "awk 'BEGIN { system(\"rm a\") }'",
    "git stash list | xargs git show",
    "select pg_sleep(10) into outfile '/x' from trees",
    "WITH gone AS (DELETE FROM trees RETURNING *) SELECT * FROM gone",
    "if len(rows) > 3:\n    print(rows)",
    "def f(x):\n    return x > y.limit",
    "for row in rows: total += row > limit.max",
    "const tall = trees.filter(t => t.height > limit.max)",
    "Create a summary of the report and update the table of contents",
    "Update the customer about the delay",
    "Delete nothing, but tell me what could go",
    "Show me the way to the station",
    "Describe the picture in three sentences",
    "Explain why the sky is blue",
    "select the best hotel from the list",
    "The weather in Ulm",
    "",
    "   ",
    '{"query": "x > y"}',
]


@pytest.mark.parametrize("command", READS)
def test_commands_and_statements_that_only_read_are_known(command: str) -> None:
    assert form_of({"command": command}) is Form.READS


@pytest.mark.parametrize("command", WRITES)
def test_commands_and_statements_that_surely_write_are_known(command: str) -> None:
    assert form_of({"command": command}) is Form.WRITES


@pytest.mark.parametrize("command", UNSURE)
def test_of_everything_else_nothing_is_claimed(command: str) -> None:
    assert form_of({"command": command}) is Form.UNSURE


@pytest.mark.parametrize("name", ["command", "cmd", "query", "code", "anything"])
def test_the_name_of_the_argument_does_not_matter(name: str) -> None:
    assert form_of({name: "ls -la"}) is Form.READS


def test_numbers_and_switches_beside_the_command_do_not_matter() -> None:
    assert form_of({"command": "ls -la", "timeout": 30, "background": False, "cwd": None}) is Form.READS
    assert form_of({"command": "rm a", "timeout": 30}) is Form.WRITES


def test_a_second_text_makes_it_unsure() -> None:
    assert form_of({"command": "ls", "path": "/srv"}) is Form.UNSURE


@pytest.mark.parametrize("arguments", [None, {}, {"n": 3}, {"items": ["ls"]}, {"command": {"a": 1}}])
def test_arguments_without_a_text_are_unsure(arguments: dict[str, object] | None) -> None:
    assert form_of(arguments) is Form.UNSURE


def test_a_very_long_command_is_never_said_to_only_read() -> None:
    assert form_of({"command": "cat " + "a.txt " * 2000}) is not Form.READS


@given(st.text(max_size=300))
def test_any_text_has_a_form(text: str) -> None:
    assert form_of({"command": text}) in Form


@given(st.sampled_from(READS[:21]), st.sampled_from(WRITES))
def test_a_reading_command_before_a_writing_one_is_not_only_reading(reads: str, writes: str) -> None:
    assert form_of({"command": f"{reads} && {writes}"}) is not Form.READS


@pytest.mark.parametrize(
    "piece", ["'", '"', "a ", "ls | ", "&& ", ">", "> ", "<", "$(", "\\", "\n", "if a > b: ", "a=b "]
)
@pytest.mark.timeout(60)
def test_a_long_text_made_to_hurt_is_read_to_its_end(piece: str) -> None:
    assert form_of({"command": "ls " + piece * (100_000 // len(piece))}) in Form
    assert form_of({"command": piece * (3900 // len(piece))}) in Form
