"""Plans: what tools there are, and whether a plan can be executed with them."""

from otel_agentguard.plans.registry import ToolRegistry
from otel_agentguard.plans.report import ErrorCode, PlanError, PlanReport, feedback
from otel_agentguard.plans.shapes import parse_plan
from otel_agentguard.plans.validate import check_call, check_plan

__all__ = [
    "ErrorCode",
    "PlanError",
    "PlanReport",
    "ToolRegistry",
    "check_call",
    "check_plan",
    "feedback",
    "parse_plan",
]
