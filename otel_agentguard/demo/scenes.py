"""What the demo shows: scenes in which agents repeat themselves, some rightly.

A scene is a short function and what is expected of the guard. Add one to `SCENES` and it is played,
judged and shown.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from otel_agentguard import CallBlocked, message, run
from otel_agentguard.demo.agents import Script, Use, work
from otel_agentguard.demo.mailer import OUTBOX
from otel_agentguard.demo.workshop import Workshop
from otel_agentguard.findings import Kind
from otel_agentguard.words import SIGNATURE


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One thing to show.

    Attributes:
        name: Its name, unique.
        agents: Who acts.
        does: What they do, for people.
        play: Plays it in a workshop that nobody has used.
        kind: What is to be found; None where the guard is to leave them alone.
        stops: Whether the guard is to end the run.
        most_runs: Tools, and how often their bodies may run at most.
        told: What the guard did, where its findings do not tell that alone.
    """

    name: str
    agents: str
    does: str
    play: Callable[[Workshop], None]
    kind: Kind | None = None
    stops: bool = False
    most_runs: tuple[tuple[str, int], ...] = ()
    told: str = ""


class NotShown(Exception):
    """A scene did not come out as it should."""


def _review(workshop: Workshop) -> None:
    claim = {"task": "hash of auth.py", "line": 5, "state": "fixed"}
    answer = {"line": 5, "state": "still md5", "task": "hash of auth.py"}
    with run(agent="coder"):
        for _ in range(20):
            for agent, said in (("coder", claim), ("reviewer", answer)):
                # Neither of them listens when a message is refused.
                with suppress(CallBlocked):
                    message(said, agent=agent)
            claim, answer = _turned(claim), _turned(answer)


def _turned(text: dict[str, object]) -> dict[str, object]:
    """The same with its keys in another order, as a model would write it."""
    first, *others = text.items()
    return dict([*others, first])


def _reread(workshop: Workshop) -> None:
    def script() -> Script:
        for _ in range(5):
            yield Use("read_file", {"path": "auth.py"})
        return "it uses md5"

    with run(agent="reader"):
        work("Say which hash auth.py uses.", script(), workshop.tools())


def _fix(workshop: Workshop) -> None:
    versions = (
        "def total(prices):\n    return sum(prices[0:1])\n",
        "def total(prices):\n    return sum(prices)\n",
        "def total(prices):\n    return sum(price or 0 for price in prices)\n",
    )

    def script() -> Script:
        heard = yield Use("run_check", {"path": "check_price.py"})
        for content in versions:
            yield Use("write_file", {"path": "price.py", "content": content})
            heard = yield Use("run_check", {"path": "check_price.py"})
        return str(heard)

    with run(agent="fixer"):
        work("Make check_price.py pass.", script(), workshop.tools())


def _poll(workshop: Workshop) -> None:
    def script() -> Script:
        while (yield Use("job_status", {"job": "build"})) != "done":
            yield Use("wait", {"seconds": 0.01})
        return "the build is done"

    with run(agent="operator"):
        work("Tell when the build is done.", script(), workshop.tools())


def _retry(workshop: Workshop) -> None:
    def script() -> Script:
        for _ in range(5):
            heard = yield Use("load_config", {"path": "deploy.toml"})
            if heard is not None and SIGNATURE in heard:
                return "there is no deploy.toml; I need one to go on"
        return "it failed"

    with run(agent="deployer"):
        work("Deploy what deploy.toml says.", script(), workshop.tools())


def _insist(workshop: Workshop) -> None:
    def script() -> Script:
        for _ in range(30):
            yield Use("read_file", {"path": "auth.py"})
        return "it uses md5"

    with run(agent="stubborn"):
        work("Say which hash auth.py uses.", script(), workshop.tools())


def _consult(workshop: Workshop) -> None:
    path = workshop.root / "auth.py"
    with run(agent="librarian") as r:
        before = [workshop.consult(str(path)) for _ in range(2)]
        path.write_text(before[0].replace("md5", "sha256"), encoding="utf-8")
        after = [workshop.consult(str(path)) for _ in range(2)]
        hints = r.hints()
    if workshop.runs["consult"] != 2 or after != [path.read_text(encoding="utf-8")] * 2:
        raise NotShown(f"the file was read {workshop.runs['consult']} times: {after}")
    if "auth.py" not in hints:
        raise NotShown(f"the hints for the next turn do not name the file: {hints}")


def _plan(workshop: Workshop) -> None:
    tools = workshop.tools()
    plan = [{"tool": "load_file", "args": {"path": "auth.py"}}, {"tool": "run_check", "args": {}}]
    with run(agent="planner", tools=list(tools.values())) as r:
        report = r.check_plan(plan)
        for error, step in zip(report.errors, plan, strict=False):
            step["tool"] = (*error.did_you_mean, step["tool"])[0]
        plan[1]["args"] = {"path": "check_price.py"}
        if report.ok or not r.check_plan(plan).ok:
            raise NotShown(r.check_plan(plan).feedback())


def _remember(workshop: Workshop) -> None:
    with run(agent="clerk") as r:
        r.turn("user", text="My van is called Mildred and it is in the garage.")
        guess = r.remember("The user wants to sell the van.", source="user")
        fact = r.remember("The van is called Mildred.", source="user")
    if (guess.verdict, fact.verdict) != ("unsupported", "verified"):
        raise NotShown(f"the guess was {guess.verdict}, the fact {fact.verdict}")


def _mail(workshop: Workshop) -> None:
    mailer = [sys.executable, "-m", "otel_agentguard.demo.mailer", str(workshop.root)]
    killed = subprocess.run([*mailer, "--die"], capture_output=True, check=False)  # noqa: S603 - a module of ours
    resumed = subprocess.run(mailer, capture_output=True, text=True, check=False)  # noqa: S603
    letters = (workshop.root / OUTBOX).read_text(encoding="utf-8").splitlines()
    if killed.returncode == 0 or resumed.returncode != 0 or len(letters) != 1:
        raise NotShown(f"{len(letters)} letters went out; the resumed run said {resumed.stdout}{resumed.stderr}")


SCENES = (
    Scene(
        name="review",
        agents="coder, reviewer",
        does="send each other the same two messages, keys in another order each time",
        play=_review,
        kind=Kind.PINGPONG,
        stops=True,
    ),
    Scene(
        name="reread",
        agents="reader",
        does="reads auth.py five times",
        play=_reread,
        kind=Kind.LOOP,
        most_runs=(("read_file", 4),),
    ),
    Scene(
        name="retry",
        agents="deployer",
        does="loads a settings file that is not there, until the guard's words reach it",
        play=_retry,
        kind=Kind.LOOP,
        most_runs=(("load_config", 3),),
    ),
    Scene(
        name="insist",
        agents="stubborn",
        does="reads on whatever it is told, in a loop that catches every Exception",
        play=_insist,
        kind=Kind.LOOP,
        stops=True,
        most_runs=(("read_file", 4),),
    ),
    Scene(name="fix", agents="fixer", does="edits price.py and runs its check, three times over", play=_fix),
    Scene(name="poll", agents="operator", does="asks for the state of a build until it is done", play=_poll),
    Scene(
        name="consult",
        agents="librarian",
        does="reads auth.py twice, somebody changes it, and reads it twice again",
        play=_consult,
        told="two of four reads were answered from cache, none of them stale",
    ),
    Scene(
        name="plan",
        agents="planner",
        does="plans with a tool that does not exist and without an argument, then mends the plan",
        play=_plan,
        kind=Kind.PLAN,
    ),
    Scene(
        name="remember",
        agents="clerk",
        does="stores what the user said, and what the user never said",
        play=_remember,
        kind=Kind.MEMORY,
        told="the first is kept as a fact, the second as a guess",
    ),
    Scene(
        name="mail",
        agents="mailer",
        does="mails a customer, is killed before that is on record, and is resumed",
        play=_mail,
        told="asked whether the mail was out, and sent no second one",
    ),
)
