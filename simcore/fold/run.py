"""Runs a whole program, folded as far as its ranks are alike, and says how far that was."""

from collections.abc import Callable
from dataclasses import dataclass

from ..cores.engine import run
from ..program.outcome import Run
from ..program.program import Program
from .asymmetry import asymmetry
from .quotient import expand, quotient
from .refine import Refusal, detect


@dataclass(frozen=True, slots=True)
class Finished:
    """The run of a program with what it took.

    ``not_alike`` says why more than one rank was simulated, None if one was enough.
    """

    run: Run  # of the program as it was given
    ranks_simulated: int
    line_hops: int  # simulated
    line_hops_represented: int
    not_alike: str | None


def run_folded(
    program: Program,
    *,
    fold: bool = True,
    observe: bool = False,
    should_stop: Callable[[], bool] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Finished:
    """Run ``program``, one rank for all that are alike unless ``fold`` is False.

    A program that describes one rank for all is run as it is.

    Raises
    ------
    RunTooLarge
        If the run would take too much time or memory.
    """
    if fold and not program.folded and program.num_ranks > 1:
        classes = detect(program)
        if not isinstance(classes, Refusal):
            folded = quotient(program, classes)
            small = run(folded.program, observe=observe, should_stop=should_stop, progress=progress)
            whole = expand(folded, small)
            not_alike = asymmetry(program) if folded.num_rank_classes > 1 else None
            return Finished(whole, folded.num_rank_classes, small.line_hops, whole.line_hops, not_alike)
        reason: str | None = classes.reason
    else:
        reason = "asked not to fold" if program.ranks_simulated > 1 else None
    found = run(program, observe=observe, should_stop=should_stop, progress=progress)
    represented = found.line_hops * (program.num_ranks // program.ranks_simulated)
    return Finished(found, program.ranks_simulated, found.line_hops, represented, reason)
