"""What the loop check costs a step: `engine.before` and `engine.after` of one tool call.

Run with `python benchmarks/loop.py [STEPS]`. Times are CPU time of the thread, so that other load on the machine
does not count; digests are made beforehand, as a seam makes them anyway. Microseconds, a timer call taken off.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator

from xxhash import xxh3_128_digest

from otel_agentguard.checks.loop import LoopCheck
from otel_agentguard.config import LoopSettings, Settings
from otel_agentguard.engine import Engine
from otel_agentguard.events import Effect, Outcome, ToolCall
from otel_agentguard.findings import Limits
from otel_agentguard.fingerprint import call_digest, result_digest

NEVER = Limits()
HASH_LAYER = Settings(
    loop=LoopSettings(
        near_words=NEVER, near_token=NEVER, near_entity_error=NEVER, near_entity=NEVER, same_error=NEVER, semantic=NEVER
    )
)
ALL_LAYERS = Settings()

Calls = Iterator[ToolCall]


class Words:
    """Text as it reads in logs and pages: common words often, rare ones seldom, a number now and then."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        letters = "etaoinshrdlucmfwypvbgkjqxz"
        pick = self._random.choices
        weights = range(len(letters), 0, -1)
        self._words = ["".join(pick(letters, weights, k=self._random.randint(2, 9))) for _ in range(5000)]
        self._weights = [1 / (rank + 3) for rank in range(5000)]

    def text(self, chars: int) -> str:
        """About so many characters, in lines."""
        found = self._random.choices(self._words, self._weights, k=chars // 5)
        lines = [" ".join(found[start : start + 12]) for start in range(0, len(found), 12)]
        numbered = [f"{line} {self._random.randint(0, 9999)}" if n % 3 == 0 else line for n, line in enumerate(lines)]
        return "\n".join(numbered)[:chars]


def call(number: int, arguments: dict[str, object], result: object, *, ok: bool = True, tool: str = "") -> ToolCall:
    """A call that is over."""
    name = tool or f"tool_{number % 7}"
    return ToolCall(
        tool=name,
        fingerprint=call_digest(name, arguments),
        arguments=arguments,
        effect=Effect.READ if number % 2 else Effect.UNKNOWN,
        outcome=Outcome.OK if ok else Outcome.FAILED,
        result=result,
        result_digest=result_digest(not ok, result),
        at_s=float(number),
        ended_s=float(number),
    )


def new_calls(steps: int, chars: int, *, seed: int = 1) -> Calls:
    """Arguments of 200 bytes, every call and result new."""
    words = Words(seed)
    for number in range(steps):
        arguments = {"path": f"src/package/module_{number}.py", "pattern": words.text(150), "limit": 20}
        yield call(number, arguments, words.text(chars))


def questions(steps: int, chars: int) -> Calls:
    """A researcher: questions on one subject, every answer new."""
    words = Words(2)
    for number in range(steps):
        query = f"what is known about the rivers of northern Europe, {words.text(40)}"
        yield call(number, {"query": query}, words.text(chars), tool="search")


def same_answers(steps: int, chars: int) -> Calls:
    """Questions on one subject that all get one of four answers."""
    words = Words(3)
    answers = [words.text(chars) for _ in range(4)]
    for number in range(steps):
        query = f"what is known about the rivers of northern Europe, {words.text(40)}"
        yield call(number, {"query": query}, answers[number % 4] + f"\n{number}", tool="search")


def mixed(steps: int, chars: int) -> Calls:
    """One call in five was made before; half of those come to something else."""
    words = Words(4)
    pick = random.Random(4)
    known: list[ToolCall] = []
    for number in range(steps):
        if known and pick.random() < 0.2:
            earlier = known[pick.randrange(len(known))]
            result = earlier.result if pick.random() < 0.5 else words.text(chars)
            yield call(number, dict(earlier.arguments or {}), result, tool=earlier.tool)
            continue
        made = call(number, {"command": f"show {words.text(60)}", "path": f"docs/{number}.md"}, words.text(chars))
        known.append(made)
        yield made


def one_call(steps: int, chars: int) -> Calls:
    """One call, again and again."""
    result = Words(5).text(chars)
    for number in range(steps):
        yield call(number, {"path": "src/auth.py", "purpose": "find the hash of a password"}, result, tool="read")


def one_poll(steps: int, chars: int) -> Calls:
    """One call whose answer changes in numbers."""
    content = Words(6).text(chars)
    for number in range(steps):
        yield call(number, {"job": "build"}, f"progress {number}\n{content}", tool="status")


def failures(steps: int, chars: int) -> Calls:
    """New calls of which every third fails, most with the same error."""
    words = Words(7)
    trace = words.text(chars)
    for number in range(steps):
        failed = number % 3 == 0
        result = f"Error in line {number}:\n{trace}" if failed else words.text(chars)
        yield call(number, {"code": f"value_{number} = load('{words.text(20)}')"}, result, ok=not failed, tool="python")


def writes(steps: int, chars: int) -> Calls:
    """Records that are written one after the other; every answer is the same."""
    words = Words(8)
    for number in range(steps):
        arguments = {"path": f"records/{number}.json", "content": words.text(chars)}
        yield call(number, arguments, "ok", tool="write_file")


def tables(steps: int, chars: int) -> Calls:
    """Results that are data, not text."""
    words = Words(9)
    for number in range(steps):
        rows = [{"id": number * 100 + row, "title": words.text(60), "ok": True} for row in range(chars // 100)]
        yield call(number, {"table": "customers", "offset": number * 10}, {"rows": rows}, tool="query")


def measure(name: str, calls: Calls, settings: Settings) -> None:
    """Print how long a step takes."""
    engine = Engine(checks=[LoopCheck()], settings=settings)
    run = engine.open()
    clock = time.thread_time_ns
    timer_ns = min(-(clock() - clock()) for _ in range(1000))
    took_ns = []
    for event in list(calls):
        began = clock()
        engine.before(run, event)
        engine.after(run, event)
        took_ns.append(clock() - began - timer_ns)
    took_ns.sort()
    share = [took_ns[min(len(took_ns) - 1, int(len(took_ns) * part))] / 1000 for part in (0.5, 0.9, 0.99)]
    mean = sum(took_ns) / len(took_ns) / 1000
    print(f"{name:44} p50 {share[0]:7.1f}   p90 {share[1]:7.1f}   p99 {share[2]:7.1f}   mean {mean:7.1f}")


def flat(steps: int) -> None:
    """Print the median of the hash layer around several points of a long run."""
    engine = Engine(checks=[LoopCheck()], settings=HASH_LAYER)
    run = engine.open()
    result = Words(10).text(1000)
    points = [point for point in (10, 1000, 10_000, 100_000, 1_000_000) if point <= steps]
    window: list[int] = []
    for number in range(1, steps + 1):
        event = ToolCall(
            tool="read",
            fingerprint=xxh3_128_digest(b"%d" % number),
            arguments={"path": f"src/module_{number}.py"},
            effect=Effect.READ,
            outcome=Outcome.OK,
            result=result,
            result_digest=xxh3_128_digest(b"r%d" % number),
        )
        began = time.thread_time_ns()
        engine.before(run, event)
        engine.after(run, event)
        if number > points[0] - 500:
            window.append(time.thread_time_ns() - began)
        if number == points[0]:
            print(f"hash layer around step {number:>9,}             p50 {statistics.median(window) / 1000:7.1f}")
            window = []
            points = points[1:]


def huge() -> None:
    """Print what results of 1 MB cost beyond their hashing."""
    words = Words(11)
    shapes: dict[str, Callable[[int], object]] = {
        "text": lambda n: f"{n}\n" + content,
        "data": lambda n: {"rows": [{"id": n, "text": line} for line in content.split("\n")]},
        "a list": lambda n: [f"{n} {line}" for line in content.split("\n")],
        "bytes": lambda n: f"{n}\n{content}".encode(),
    }
    content = words.text(1_000_000)
    for name, make in shapes.items():
        made = [call(n // 2, {"path": f"file_{n // 2}"}, make(n)) for n in range(20)]
        measure(f"results of 1 MB, {name}", iter(made), ALL_LAYERS)


def main() -> None:
    """Print all figures."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    measure("hash layer, all new, 1 KB", new_calls(steps, 1000), HASH_LAYER)
    for make in (new_calls, questions, same_answers, mixed, one_call, one_poll, failures, writes, tables):
        for chars in (1000, 4000):
            measure(f"all layers, {make.__name__}, {chars // 1000} KB", make(steps, chars), ALL_LAYERS)
    huge()
    flat(1_000_000)


if __name__ == "__main__":
    main()
