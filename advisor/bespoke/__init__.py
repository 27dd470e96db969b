"""Bespoke schedules. In: a ``Scenario``. Out: plans with chunks of any size, proposed by a portfolio and simulated."""

from .explain import why_bespoke
from .portfolio import optimize
from .result import Proposer, SearchBudget, SearchOptions, SearchResult, SimulatedPlan
from .uniform import uniform_choices

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
