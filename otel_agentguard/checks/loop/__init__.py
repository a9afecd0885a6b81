"""The loop check; its parts share the marks of a run and nothing else."""

from otel_agentguard.checks.loop.check import LoopCheck

__all__ = ["LoopCheck"]
