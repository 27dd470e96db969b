"""Schedules of their own for one scenario: chunks of any size, found by a portfolio and decided by simulation."""

from .explain import why_bespoke
from .outcome import Budget, Found, Outcome, Stage
from .portfolio import optimize
from .uniform import uniform_choices

__all__ = ["Budget", "Found", "Outcome", "Stage", "optimize", "uniform_choices", "why_bespoke"]
