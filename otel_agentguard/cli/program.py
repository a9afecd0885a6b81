"""Runs a Python program in this process as `python` itself would, and says how it ended."""

from __future__ import annotations

import os
import runpy
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

import click

from otel_agentguard.errors import RunAborted, RunStopped

STOPPED = 3

_FAILED = 1
_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Program:
    """What to run.

    Attributes:
        target: Path of a script, or name of a module.
        is_module: Whether it is a module, as after `python -m`.
        arguments: What the program finds in `sys.argv[1:]`.
    """

    target: str
    is_module: bool
    arguments: Sequence[str]


def execute(program: Program) -> int:
    """Run a program to its end, that of its threads included.

    Returns:
        Its own exit code; 3 when it ended in an uncaught `RunAborted` or `RunStopped`.
    """
    with _as_the_main_program(program):
        code = _exit_code(program)
        return max(code, _INTERRUPTED) if _threads_interrupted() else code


@contextmanager
def _as_the_main_program(program: Program) -> Iterator[None]:
    argv, path = sys.argv, list(sys.path)
    sys.argv = [program.target, *program.arguments]
    if not sys.flags.safe_path:
        # python itself puts there the folder of the script, links followed, or the working directory.
        sys.path[0] = os.getcwd() if program.is_module else os.path.dirname(os.path.realpath(program.target))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path


def _exit_code(program: Program) -> int:
    try:
        if program.is_module:
            runpy.run_module(program.target, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program.target, run_name="__main__")
    except SystemExit as exc:
        return _code_of(exc)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BaseException as exc:
        if (stop := _stop_within(exc)) is not None:
            click.echo(f"otel-agentguard: {stop}", err=True)
            return STOPPED
        trace = _of_the_program(exc.__traceback__)
        sys.excepthook(type(exc), exc.with_traceback(trace), trace)
        return _FAILED
    return 0


def _code_of(exc: SystemExit) -> int:
    if exc.code is None:
        return 0
    if isinstance(exc.code, int):
        return exc.code & 0xFF
    click.echo(exc.code, err=True)
    return _FAILED


def _stop_within(exc: BaseException) -> BaseException | None:
    """The stop that an exception is, or that a group of them holds."""
    if isinstance(exc, RunAborted | RunStopped):
        return exc
    if isinstance(exc, BaseExceptionGroup):
        return next((stop for one in exc.exceptions if (stop := _stop_within(one)) is not None), None)
    return None


def _of_the_program(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that is about the program: without our frames and those of runpy."""
    rest = trace
    while rest is not None and rest.tb_frame.f_globals.get("__name__") in (__name__, "runpy"):
        rest = rest.tb_next
    return rest or trace


def _threads_interrupted() -> bool:
    """Wait for the program's threads, as `python` does at its end; whether the user had enough of that."""
    try:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
    except KeyboardInterrupt:
        return True
    return False
