"""Advice. In: a ``Scenario``. Out: an ``Advice``, the schedule to use with its reasons and its proof."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bounds.lower_bound import lower_bound
    from .candidates.advice import Advice
    from .learned.boosted_trees import ModelError
    from .options import AdviceOptions
    from .recommend import Advisor
    from .solver import NoFeasibleSchedule, enumerate_space

__all__ = ["Advice", "AdviceOptions", "Advisor", "ModelError", "NoFeasibleSchedule", "enumerate_space", "lower_bound"]

_HOMES = {
    "Advice": "candidates.advice",
    "AdviceOptions": "options",
    "Advisor": "recommend",
    "ModelError": "learned.boosted_trees",
    "NoFeasibleSchedule": "solver",
    "enumerate_space": "solver",
    "lower_bound": "bounds.lower_bound",
}


def __getattr__(name: str) -> Any:
    """Import on first use: the solver and the learner take longer to load than most commands to run."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
