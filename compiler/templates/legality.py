"""Why a template cannot schedule a problem that its pattern and its pieces would allow."""

from dataclasses import replace

from ..collectives import ALGORITHM_BY_NAME
from ..scenario import Pattern
from .base import Problem, Template
from .collective import why_no_algorithm


def why_not(template: Template, problem: Problem) -> tuple[str, str] | None:
    """A reason and a hint, None if it can."""
    asked = problem.algorithm
    if asked and not template.has_algorithm:
        return f"{template.name} has its own transfers and takes no algorithm", "serial takes one"
    if asked and asked not in ALGORITHM_BY_NAME:
        return f"there is no algorithm '{asked}'", f"algorithms are {', '.join(ALGORITHM_BY_NAME)}"
    if problem.gets and problem.pattern in (Pattern.GEMM_RS, Pattern.GEMM_AR):
        put = f"partial sums of {problem.pattern.value} are put by the rank that computes them"
        return put, "a get cannot know when they are there; leave transfer=get out"
    if template.default_algorithm:
        reason = why_no_algorithm(problem, template.default_algorithm)
        return None if reason is None else (reason, _hint(problem))
    return None


def _hint(problem: Problem) -> str:
    """Algorithms that would do as they are."""
    fits = [name for name in ALGORITHM_BY_NAME if _does(problem, name)]
    return f"{', '.join(fits)} would do" if fits else "no algorithm does this"


def _does(problem: Problem, name: str) -> bool:
    return why_no_algorithm(replace(problem, algorithm=name)) is None
