"""The tools of the demo: they read, write and run real files in a directory of their own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from otel_agentguard import Effect, tool
from otel_agentguard.demo.agents import Tools

_CHECK_TIMEOUT_S = 20


class Workshop:
    """A directory, and tools on it.

    Args:
        root: The directory; the files that the scenes begin with are put there.

    Attributes:
        runs: How often the body of each tool has run.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs: Counter[str] = Counter()
        for name, content in _FILES.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")

    def tools(self) -> Tools:
        """The tools by name."""
        return {
            "read_file": self.read_file,
            "write_file": self.write_file,
            "run_check": self.run_check,
            "job_status": self.job_status,
            "wait": self.wait,
            "load_config": self.load_config,
        }

    @tool(effect=Effect.READ)
    def read_file(self, path: str) -> str:
        """The content of a file."""
        self.runs["read_file"] += 1
        return (self.root / path).read_text(encoding="utf-8")

    @tool(effect=Effect.READ, touches=lambda path: [path])
    def consult(self, path: str) -> str:
        """The content of a file that may be answered from what is known while it stays as it is."""
        self.runs["consult"] += 1
        return Path(path).read_text(encoding="utf-8")

    @tool(effect=Effect.WRITE)
    def write_file(self, path: str, content: str) -> str:
        """Replace a file."""
        self.runs["write_file"] += 1
        (self.root / path).write_text(content, encoding="utf-8")
        return f"wrote {len(content)} characters to {path}"

    @tool
    def run_check(self, path: str) -> str:
        """Run a Python file, and say how it ended."""
        self.runs["run_check"] += 1
        ended = subprocess.run(  # noqa: S603 - the file is one of ours
            [sys.executable, "-I", "-S", path],
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=_CHECK_TIMEOUT_S,
            check=False,
        )
        said = (ended.stdout + ended.stderr).strip().splitlines()
        return f"exit {ended.returncode}: {said[-1] if said else ''}"

    @tool(effect=Effect.READ)
    def job_status(self, job: str) -> str:
        """How far a job has come."""
        self.runs["job_status"] += 1
        waiting = len(list((self.root / job).glob("todo-*")))
        return "done" if not waiting else f"running, {waiting} parts to do"

    @tool(effect=Effect.WAIT)
    def wait(self, seconds: float) -> str:
        """Wait; meanwhile the queue behind the jobs goes on."""
        self.runs["wait"] += 1
        time.sleep(seconds)
        for part in sorted(self.root.glob("*/todo-*"))[:1]:
            part.rename(part.with_name(part.name.replace("todo", "done")))
        return "waited"

    @tool(effect=Effect.READ)
    def load_config(self, path: str) -> str:
        """The content of a settings file."""
        self.runs["load_config"] += 1
        return (self.root / path).read_text(encoding="utf-8")


_FILES = {
    "auth.py": "import hashlib\n\n\ndef digest(password):\n    return hashlib.md5(password.encode()).hexdigest()\n",
    "price.py": "def total(prices):\n    return sum(prices[1:])\n",
    "check_price.py": (
        "import sys\nsys.path.insert(0, '.')\nfrom price import total\n\n"
        "assert total([]) == 0, 'empty: ' + str(total([]))\n"
        "assert total([2, 3]) == 5, 'two: ' + str(total([2, 3]))\n"
        "assert total([2, None]) == 2, 'gap: ' + str(total([2, None]))\n"
        "print('3 passed')\n"
    ),
    **{f"build/todo-{part}": "" for part in range(4)},
}
