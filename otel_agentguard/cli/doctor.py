"""`otel-agentguard doctor`: what is installed, what would be instrumented, and what blinds the guard."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata

import click

from otel_agentguard.adapters.attaching import PartState, adapters, off_by
from otel_agentguard.checks.registry import known_checks
from otel_agentguard.cli import PROGRAM
from otel_agentguard.cli.instrumentors import Instrumentor, distribution_of, find_instrumentors
from otel_agentguard.config import Mode, Settings
from otel_agentguard.loading import load

_HEALTHY, _BLIND = 0, 1
_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_LENGTH_LIMITS = ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT")
_DROPPING_SAMPLERS = frozenset({"always_off", "parentbased_always_off"})
_RATIO_SAMPLERS = frozenset({"traceidratio", "parentbased_traceidratio"})
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")
_PASSWORD = re.compile(r"(?<=//)[^/]*@")
_FOR_DEVELOPERS = frozenset({"test", "check"})
_ON_SPANS = frozenset({"true", "span_only", "span_and_event"})


@click.command("doctor", short_help="Say what is installed, and what blinds the guard.")
def command() -> int:
    """Say what is installed, what would be instrumented, and what blinds the guard.

    Exit code: 0 when nothing blinds it, 1 when something does.
    """
    settings = load()
    instrumentors = find_instrumentors(os.environ)
    _section("Installed", _installed())
    _section("Settings", _settings(settings))
    _section("Would be guarded", guarded(os.environ, settings))
    _section("Would be instrumented", (f"{one.name}: {one.state}" for one in instrumentors))
    blinding = list(blinds(os.environ, settings, instrumentors))
    _section("Blinds the guard", blinding)
    return _BLIND if blinding else _HEALTHY


def guarded(environ: Mapping[str, str], settings: Settings) -> Iterator[str]:
    """What of each framework would get seams, with the version that is installed.

    Args:
        environ: The environment that the application would get.
        settings: The settings that it would get.
    """
    absent = []
    for name, adapter in adapters().items():
        states = {state.part.distribution: state for state in adapter.state() if state.version is not None}
        off = off_by(adapter, left_out=settings.adapters_off, environ=environ)
        if not states:
            absent.append(name)
        elif off is not None:
            yield f"{name}: off by {off}"
        else:
            known = (f"{one.part.distribution} {one.version}" for one in states.values() if one.problem is None)
            yield "; ".join((f"{name}: {', '.join(known) or 'nothing'}", *_left_alone(states.values())))
    if absent:
        yield f"not installed: {', '.join(absent)}"


def blinds(environ: Mapping[str, str], settings: Settings, instrumentors: list[Instrumentor]) -> Iterator[str]:
    """What keeps the guard from seeing, one sentence each, with the way out.

    Args:
        environ: The environment that the application would get.
        settings: The settings that it would get.
        instrumentors: What would be instrumented.
    """
    if settings.mode is Mode.OFF:
        source = "AGENTGUARD_MODE" if settings.mode_forced is Mode.OFF else "the setting 'mode'"
        yield f"{source} is off: nothing is checked. Set it to observe or enforce."
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        yield "OTEL_SDK_DISABLED is true: there are no spans, so only tools with @tool are seen. Unset it."
    yield from _unknown_versions(environ, settings)
    yield from _sampling(environ)
    yield from _truncation(environ)
    yield from _content(environ, instrumentors)


def _unknown_versions(environ: Mapping[str, str], settings: Settings) -> Iterator[str]:
    for name, adapter in adapters().items():
        if off_by(adapter, left_out=settings.adapters_off, environ=environ) is None:
            for problem in _left_alone(adapter.state()):
                yield f"{name}: {problem}, so that part gets no seams. Install one of those, or upgrade {PROGRAM}."


def _left_alone(states: Iterable[PartState]) -> list[str]:
    """Why parts are left alone although their distribution is installed, each reason once."""
    return list(dict.fromkeys(one.problem for one in states if one.version is not None and one.problem is not None))


def _sampling(environ: Mapping[str, str]) -> Iterator[str]:
    sampler = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    share = environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip() or "1.0"
    if sampler in _DROPPING_SAMPLERS or (sampler in _RATIO_SAMPLERS and _below_one(share)):
        yield (
            f"OTEL_TRACES_SAMPLER={sampler} drops spans before the guard sees them. Set OTEL_TRACES_SAMPLER=agentguard "
            f"and OTEL_TRACES_SAMPLER_ARG={sampler} as the sampler within."
        )


def _truncation(environ: Mapping[str, str]) -> Iterator[str]:
    for name in _LENGTH_LIMITS:
        if limit := environ.get(name, "").strip():
            yield (
                f"{name}={limit} cuts arguments and results on spans of others; what is as long as that is unknown "
                "and never a repeat. Unset it, or raise it above your longest argument."
            )
            return


def _content(environ: Mapping[str, str], instrumentors: list[Instrumentor]) -> Iterator[str]:
    active = [one for one in instrumentors if one.active]
    genai = ", ".join(one.name for one in active if one.requires("opentelemetry-util-genai"))
    if genai and environ.get(_CAPTURE, "").strip().lower() not in _ON_SPANS:
        yield f"{genai}: spans carry no arguments and no results. Set {_CAPTURE}=span_only (older releases: true)."
    openinference = ", ".join(one.name for one in active if one.requires("openinference-instrumentation"))
    hidden = [name for name in ("OPENINFERENCE_HIDE_INPUTS", "OPENINFERENCE_HIDE_OUTPUTS") if _is_true(environ, name)]
    if openinference and hidden:
        yield f"{openinference}: {' and '.join(hidden)} withhold arguments and results. Unset them."
    traceloop = ", ".join(one.name for one in active if one.requires("opentelemetry-semantic-conventions-ai"))
    if traceloop and environ.get("TRACELOOP_TRACE_CONTENT", "true").strip().lower() == "false":
        yield f"{traceloop}: TRACELOOP_TRACE_CONTENT=false withholds arguments and results. Unset it."


def _installed() -> Iterator[str]:
    yield f"Python {platform.python_version()}"
    yield f"{PROGRAM} {metadata.version(PROGRAM)}"
    extras: dict[str, list[str]] = {}
    for text in metadata.requires(PROGRAM) or []:
        name = distribution_of(text)
        extra = _EXTRA.search(text)
        if extra is None:
            yield f"{name} {_version(name) or 'missing'}"
        elif extra[1] not in _FOR_DEVELOPERS:
            extras.setdefault(extra[1], []).append(name)
    for extra_name, names in extras.items():
        found = [f"{name} {version}" for name in names if (version := _version(name))]
        missing = f"not installed (pip install '{PROGRAM}[{extra_name}]')"
        yield f"extra {extra_name}: {', '.join(found) or missing}"


def _settings(settings: Settings) -> Iterator[str]:
    forced = " (AGENTGUARD_MODE)" if settings.mode_forced is not None else ""
    yield f"mode {settings.mode}{forced}"
    yield f"store {_PASSWORD.sub('***@', settings.store)}"
    yield f"checks {', '.join(settings.checks)}; known: {', '.join(known_checks())}"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _is_true(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").strip().lower() == "true"


def _below_one(share: str) -> bool:
    try:
        return float(share) < 1.0
    except ValueError:
        return False


def _section(title: str, lines: Iterator[str] | list[str]) -> None:
    click.echo(title)
    shown = list(lines) or ["nothing"]
    for line in shown:
        click.echo(f"  {line}")
