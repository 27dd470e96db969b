"""Run a program, folded as far as its ranks are alike, and report how far that was."""

from contextlib import suppress
from dataclasses import dataclass

from ...compiler.ir import ShouldStop, StepsDone
from ..cores.engine import run
from ..program.outcome import Run
from ..program.program import Program
from .asymmetry import asymmetry
from .quotient import Folded, FoldError, expand, quotient
from .refine import Refusal, by_local_id, detect


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


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run is carried out; nothing here changes a time.

    ``fold``: simulate one rank for all that are alike. ``observe``: record where units queued, for ``servers`` and
    ``critical_path``, which takes some more time. ``should_stop`` is called at least once a second. ``progress`` is
    called now and then with the line-hops simulated, those of what-if runs left out. ``loads``: tell those of links and
    memories over time.
    """

    fold: bool = True
    observe: bool = False
    should_stop: ShouldStop | None = None
    progress: StepsDone | None = None
    loads: bool = True


DEFAULT_OPTIONS = RunOptions()


def run_folded(program: Program, options: RunOptions = DEFAULT_OPTIONS) -> Finished:
    """Run ``program``, one rank for all that are alike unless ``options`` say otherwise.

    A program that describes one rank for all is run as it is, one that describes a few is folded further if it can be.

    Raises
    ------
    RunTooLarge
        If the run would take too much time or memory.
    """

    def finish(part: Program) -> Run:
        return run(part, observe=options.observe, should_stop=options.should_stop, progress=options.progress)

    ranks, represented = program.ranks_simulated, program.num_ranks // program.ranks_simulated
    if not options.fold or ranks == 1:
        whole = finish(program)
        reason = "asked not to fold" if ranks == program.num_ranks > 1 else None
        return Finished(whole, ranks, whole.line_hops, whole.line_hops * represented, reason)
    folded = _folded(program)
    if isinstance(folded, Refusal):
        whole = finish(program)
        reason = folded.difference if program.folded else folded.reason
        return Finished(whole, ranks, whole.line_hops, whole.line_hops * represented, reason)
    small = finish(folded.program)
    whole = expand(folded, small)
    not_alike = asymmetry(program) if folded.num_rank_classes > 1 else None
    return Finished(whole, folded.num_rank_classes, small.line_hops, whole.line_hops * represented, not_alike)


def _folded(program: Program) -> Folded | Refusal:
    """Return ``program`` with one rank if all do the same, else with one part of each class that is found."""
    guess = by_local_id(program)
    if guess is not None:
        with suppress(FoldError):
            return quotient(program, guess)
    classes = detect(program)
    return classes if isinstance(classes, Refusal) else quotient(program, classes)
