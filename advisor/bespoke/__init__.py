"""Bespoke schedules. In: an ``OpCase``. Out: plans with chunks of any size, proposed by a portfolio and simulated."""

from .cp_sat import uniform_choices
from .result import Proposer, SearchBudget, SearchOptions, SearchResult, SimulatedPlan
from .stage import optimize, why_bespoke

__all__ = [
    "Proposer",
    "SearchBudget",
    "SearchOptions",
    "SearchResult",
    "SimulatedPlan",
    "optimize",
    "uniform_choices",
    "why_bespoke",
]
