"""How well loops are found: this package and public detectors, over the same labelled runs, by one scorer.

    AGENTGUARD_DATA=DIR python benchmarks/detection.py [--peers FILE] [--write docs/detection.md]

DIR holds `trajectories/dev.jsonl` (real runs, some of them labelled) and `cases/dev.jsonl` (small runs after public
reports). With PEERS_PKGS naming a folder of installed detectors and `DIR/tools/peers_bench.py` in place, those are
replayed too, each in a process of its own.

A labelled run counts as found when the first finding of a loop kind and of severity warn or above stands at or after
the start of the label's range; an earlier one is a false alarm and a miss. Where two readers disagreed, either
answer counts. Sources are split into two halves of about equal size, so that a setting that fits one half by
accident shows in the other.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from otel_agentguard.checks.registry import default_checks, known_checks
from otel_agentguard.config import Settings
from otel_agentguard.embedders import open_embedder
from otel_agentguard.events import Event
from otel_agentguard.findings import Finding, Severity
from otel_agentguard.loading import with_values
from otel_agentguard.protocols import RunInfo
from otel_agentguard.readers.replay import Replay, Replayer
from otel_agentguard.readers.runlog import RecordedRun, read_file

LOOP_KINDS = frozenset({"loop", "cycle", "pingpong", "near", "semantic"})
UNSURE_ROWS = ("near_words", "near_token", "near_entity_error", "near_entity", "same_error", "semantic")
EXACT_KINDS = frozenset({"exact", "cycle", "pingpong"})
MARK = "<!-- figures: benchmarks/detection.py -->"

Report = tuple[int, str] | None
Detect = Callable[[str], Report]


@dataclass
class Score:
    """Counts over labelled runs; `alarmed` and `quiet` are those whose right answer is silence."""

    found: int = 0
    false_alarms: int = 0
    missed: int = 0
    alarmed: int = 0
    quiet: int = 0
    either: int = 0
    delays: list[int] = field(default_factory=list)
    exact: list[int] = field(default_factory=lambda: [0, 0])
    worded: list[int] = field(default_factory=lambda: [0, 0])

    @property
    def precision(self) -> float | None:
        return share(self.found, self.found + self.false_alarms)

    @property
    def recall(self) -> float | None:
        return share(self.found, self.found + self.missed)

    @property
    def f1(self) -> float | None:
        return share(2 * self.found, 2 * self.found + self.false_alarms + self.missed)

    @property
    def delay(self) -> float | None:
        return statistics.median(self.delays) if self.delays else None

    def take(self, run: Mapping[str, Any], first: int | None) -> None:
        """Count a labelled run by the step of its first report."""
        label, second = run["expect"], run.get("expect_alt") or run["expect"]
        starts = [start_of(one) for one in (label, second) if one["loop"]]
        hit = first is not None and bool(starts) and first >= min(starts)
        if label["loop"] != second["loop"]:
            self.either += 1
            return
        if not label["loop"]:
            self.false_alarms += first is not None
            self.alarmed += first is not None
            self.quiet += first is None
            return
        self.found += hit
        self.missed += not hit
        self.false_alarms += first is not None and not hit
        if hit and first is not None:
            self.delays.append(first - min(starts))
        family = self.exact if label["kind"] in EXACT_KINDS else self.worded
        family[0] += hit
        family[1] += 1

    def take_case(self, case: Mapping[str, Any], first: int | None) -> None:
        """Count a small case whose right answer is a loop or nothing."""
        expect = case["expect"]
        if expect["finding"] == "none":
            self.false_alarms += first is not None
            self.alarmed += first is not None
            self.quiet += first is None
            return
        earliest = expect["never_before_step"] or 1
        hit = first is not None and first >= earliest
        self.found += hit
        self.missed += not hit
        self.false_alarms += first is not None and not hit
        if hit and first is not None:
            self.delays.append(first - earliest)


def share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def start_of(label: Mapping[str, Any]) -> int:
    """The first step at which a report of this loop is right."""
    start: int = (label.get("step_range") or [label.get("first_step")])[0]
    return start


def read(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def halves(runs: Sequence[Mapping[str, Any]]) -> tuple[frozenset[str], frozenset[str]]:
    """Sources in two halves with about as many labelled runs; a source is a repository, so nothing leaks."""
    sizes = Counter(source_of(run) for run in runs)
    split: tuple[set[str], set[str]] = (set(), set())
    filled = [0, 0]
    for source, size in sorted(sizes.items(), key=lambda one: (-one[1], one[0])):
        smaller = filled[1] < filled[0]
        split[smaller].add(source)
        filled[smaller] += size
    return frozenset(split[0]), frozenset(split[1])


def source_of(run: Mapping[str, Any]) -> str:
    return str(run.get("source", "")).partition("@")[0]


@dataclass
class Detector:
    """One detector and what it reported."""

    name: str
    version: str
    microseconds: float | None
    runs: Detect
    cases: Detect


class Timed:
    """A check that measures how long another one takes for each event."""

    def __init__(self, inner: Any, spent: list[float]) -> None:
        self._inner = inner
        self._spent = spent
        self.name = inner.name

    def open(self, run: RunInfo) -> TimedRun:
        return TimedRun(self._inner.open(run), self._spent)


class TimedRun:
    def __init__(self, inner: Any, spent: list[float]) -> None:
        self._inner = inner
        self._spent = spent

    def before(self, event: Event) -> Sequence[Finding]:
        began_s = time.perf_counter()
        found: Sequence[Finding] = self._inner.before(event)
        self._spent.append(time.perf_counter() - began_s)
        return found

    def after(self, event: Event) -> Sequence[Finding]:
        began_s = time.perf_counter()
        found: Sequence[Finding] = self._inner.after(event)
        self._spent[-1] += time.perf_counter() - began_s
        return found


@dataclass
class Replayed:
    """This package over the runs and the small cases."""

    detector: Detector
    runs: Mapping[str, Replay]
    cases: Mapping[str, Replay]


def ours(data: Path, label: str, *, sure: bool = False, embedder: str | None = None) -> Replayed:
    """Replay everything; `sure` counts only what is proven by equal results."""
    settings = Settings(checks=tuple(name for name in known_checks() if name not in ("budget", "schema")))
    if sure:
        settings = with_values(settings, {f"loop.{row}.hint": "never" for row in UNSURE_ROWS})
    spent: list[float] = []
    checks = [
        Timed(check, spent) if check.name == "loop" else check
        for check in default_checks(settings, embedder=open_embedder(embedder))
    ]
    replayer = Replayer(checks, settings)
    runs = {one.id: one for one in replays(replayer, settings, data / "trajectories/dev.jsonl")}
    microseconds = statistics.median(spent) * 1e6
    cases = {one.id: one for one in replays(replayer, settings, data / "cases/dev.jsonl")}

    def first(replay: Replay | None) -> Report:
        for finding in replay.findings if replay is not None else ():
            proven = not sure or finding.score >= 1.0
            if finding.severity is not Severity.INFO and finding.kind in LOOP_KINDS and proven:
                return finding.step, finding.kind.value
        return None

    name = f"otel_agentguard, {label}"
    made = Detector(
        name,
        version("otel-agentguard"),
        microseconds,
        lambda run_id: first(runs.get(run_id)),
        lambda run_id: first(cases.get(run_id)),
    )
    return Replayed(made, runs, cases)


def replays(replayer: Replayer, settings: Settings, path: Path) -> Iterator[Replay]:
    for run in read_file(path, settings=settings, unknown=Counter()):
        if isinstance(run, RecordedRun):
            yield replayer.replay(run)


def peers(data: Path, kept: Path | None) -> Iterator[Detector]:
    """The detectors that are installed under PEERS_PKGS, replayed by the script that comes with the data.

    What they reported is read from `kept` where that is there, else written to it.
    """
    script = data / "tools/peers_bench.py"
    files = [data / "trajectories/dev.jsonl", data / "cases/dev.jsonl"]
    if kept is not None and kept.is_file():
        results = json.loads(kept.read_text(encoding="utf-8"))
    elif os.environ.get("PEERS_PKGS") and script.is_file():
        results = replayed_by(script, files, kept)
    else:
        print("PEERS_PKGS is not set: no other detector is measured", file=sys.stderr)
        return
    steps = {run["id"]: places(run["steps"]) for path in files for run in read(path) if run.get("expect")}
    for one in results:
        if "traj" not in one:
            print(f"{one['name']}: {one.get('error')}", file=sys.stderr)
            continue
        first = {run["id"]: steps[run["id"]][run["first"]] for run in one["traj"] if run["first"] is not None}
        detect = lambda run_id, first=first: (first[run_id], "loop") if run_id in first else None  # noqa: E731
        name = f"{one['name']} ({one['kind']})".replace("](", "] (")  # not a link
        yield Detector(name, one["version"], one["us_median"], detect, detect)


def replayed_by(script: Path, files: Sequence[Path], kept: Path | None) -> Any:
    labelled = [labelled_only(path) for path in files]
    try:
        with tempfile.TemporaryDirectory() as folder:
            out = kept or Path(folder, "peers.json")
            subprocess.run([sys.executable, script, *labelled, "--json", out], check=True, stdout=sys.stderr)
            return json.loads(out.read_text(encoding="utf-8"))
    finally:
        for path in labelled:
            path.unlink()


def labelled_only(path: Path) -> Path:
    """A copy without the runs that have no label, which the other detectors need not see."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False, encoding="utf-8") as copy:
        copy.writelines(json.dumps(run) + "\n" for run in read(path) if run.get("expect"))
    return Path(copy.name)


def places(steps: Sequence[Mapping[str, Any]]) -> list[int]:
    """Step numbers of the calls and messages, which are all that the other detectors are shown."""
    return [number for number, step in enumerate(steps, 1) if step["kind"] in ("tool", "message")]


@dataclass
class Figures:
    """The scores of one detector."""

    detector: Detector
    all: Score
    halves: tuple[Score, Score]
    cases: Score


def measure(detector: Detector, runs: Sequence[dict[str, Any]], cases: Sequence[dict[str, Any]]) -> Figures:
    left, _ = halves(runs)
    every, first, second, small = Score(), Score(), Score(), Score()
    for run in runs:
        report = detector.runs(run["id"])
        step = None if report is None else report[0]
        every.take(run, step)
        (first if source_of(run) in left else second).take(run, step)
    for case in cases:
        if case["expect"]["finding"] in LOOP_KINDS | {"none"}:
            report = detector.cases(case["id"])
            small.take_case(case, None if report is None else report[0])
    return Figures(detector, every, (first, second), small)


def met(case: Mapping[str, Any], replay: Replay | None) -> bool:
    """Whether the first finding that counts is of the expected kind and at an acceptable step."""
    expect = case["expect"]
    counting = [one for one in (replay.findings if replay else ()) if one.severity is not Severity.INFO]
    if expect["finding"] == "none":
        return not counting
    if not counting:
        return False
    first = min(counting, key=lambda one: one.step)
    accepted = {expect["finding"], *expect.get("also_ok", ())}
    early = expect["never_before_step"] and first.step < expect["never_before_step"]
    late = expect["by_step"] and first.step > expect["by_step"]
    return first.kind.value in accepted and not early and not late


def case_lines(cases: Sequence[dict[str, Any]], by_id: Mapping[str, Replay]) -> list[str]:
    counted: dict[str, list[int]] = {}
    for case in cases:
        numbers = counted.setdefault(case["expect"]["finding"], [0, 0])
        numbers[0] += met(case, by_id.get(case["id"]))
        numbers[1] += 1
    rows = [f"| {kind} | {good} of {all_} |" for kind, (good, all_) in sorted(counted.items())]
    return ["| right answer | met |", "|---|---|", *rows]


def step_lines(runs: Sequence[dict[str, Any]], replayed: Mapping[str, Replay]) -> list[str]:
    """How well single steps are named, as sets over all labelled runs."""
    rows = ["| steps | precision | recall |", "|---|---|---|"]
    for name in ("redundant_steps", "duplicate_effect_steps"):
        both = got = wanted = 0
        for run in runs:
            label = set(run["expect"].get(name) or ())
            told = set(getattr(replayed[run["id"]], name)) if run["id"] in replayed else set()
            both, got, wanted = both + len(label & told), got + len(told), wanted + len(label)
        rows.append(f"| `{name}` | {shown(share(both, got))} | {shown(share(both, wanted))} |")
    return rows


def table(figures: Sequence[Figures]) -> list[str]:
    rows = [
        "| detector | version | precision | recall | F1 | delay | F1 half A | F1 half B | exact, cycle, ping-pong "
        "| near, semantic | good runs alarmed | small cases: F1 | traps alarmed | us a step |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in figures:
        score, small = one.all, one.cases
        cells = (
            one.detector.name,
            one.detector.version,
            shown(score.precision),
            shown(score.recall),
            shown(score.f1),
            "-" if score.delay is None else f"{score.delay:g}",
            shown(one.halves[0].f1),
            shown(one.halves[1].f1),
            f"{score.exact[0]} of {score.exact[1]}",
            f"{score.worded[0]} of {score.worded[1]}",
            f"{score.alarmed} of {score.alarmed + score.quiet}",
            shown(small.f1),
            f"{small.alarmed} of {small.alarmed + small.quiet}",
            "-" if one.detector.microseconds is None else f"{one.detector.microseconds:.0f}",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}".lstrip("0") if value < 1 else "1.0"


def page(figures: Sequence[Figures], runs: Sequence[Any], cases: Sequence[Any], full: Replayed) -> str:
    loops = sum(bool(run["expect"]["loop"]) for run in runs)
    judged = sum(case["expect"]["finding"] in LOOP_KINDS | {"none"} for case in cases)
    return "\n".join(
        (
            f"{MARK}",
            f"Measured on {datetime.now(UTC):%Y-%m-%d} with Python {platform.python_version()} on {len(runs)} labelled "
            f"real runs ({loops} with a loop) and {judged} small cases whose right answer is a loop or nothing.",
            "",
            *table(figures),
            "",
            f"All {len(cases)} small cases, by what the first finding has to be and at which step:",
            "",
            *case_lines(cases, full.cases),
            "",
            "Single steps of the labelled runs that are named as wasted or as done twice:",
            "",
            *step_lines(runs, full.runs),
            MARK,
        )
    )


def write(path: Path, text: str) -> None:
    """Put the figures between the two marks of a page."""
    head, _, rest = path.read_text(encoding="utf-8").partition(MARK)
    path.write_text(head + text + rest.rpartition(MARK)[2], encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", metavar="PAGE", type=Path, help="put the figures into this page")
    parser.add_argument("--peers", metavar="FILE", type=Path, help="where reports of the other detectors are kept")
    arguments = parser.parse_args()
    if not os.environ.get("AGENTGUARD_DATA"):
        parser.error("AGENTGUARD_DATA names no folder with trajectories/dev.jsonl and cases/dev.jsonl")
    data = Path(os.environ["AGENTGUARD_DATA"])
    runs = [run for run in read(data / "trajectories/dev.jsonl") if run.get("expect")]
    cases = [case for case in read(data / "cases/dev.jsonl") if case.get("expect")]
    full = ours(data, "all layers")
    mine = [ours(data, "hash layer alone", sure=True).detector, full.detector]
    try:
        mine.append(ours(data, "all layers and wordllama", embedder="wordllama").detector)
    except ImportError:
        print("wordllama is not installed: the layer of meaning is not measured", file=sys.stderr)
    figures = [measure(one, runs, cases) for one in mine]
    others = [measure(one, runs, cases) for one in peers(data, arguments.peers)]
    figures += sorted(others, key=lambda one: -(one.all.f1 or 0.0))
    text = page(figures, runs, cases, full)
    print(text)
    if arguments.write is not None:
        write(arguments.write, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
