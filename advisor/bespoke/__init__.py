"""Schedules of their own for one scenario: chunks of any size, found by a portfolio and decided by simulation."""

from .explain import why_bespoke
from .portfolio import optimize
from .result import Proposer, SearchBudget, SearchResult, SimulatedPlan
from .uniform import uniform_choices

__all__ = ["SearchBudget", "SimulatedPlan", "SearchResult", "Proposer", "optimize", "uniform_choices", "why_bespoke"]
