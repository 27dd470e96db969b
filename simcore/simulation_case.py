"""A plan on a system, with the perturbation of its ranks: lowered and run as often as needed."""

from dataclasses import dataclass, replace

import numpy as np

from ..compiler.codes import Code
from ..compiler.ir import GraphPlan, Rejection, System
from ..compiler.planning.build import ScheduleError
from .fold.run import DEFAULT_OPTIONS, Finished, RunOptions, run_folded
from .lower.budget import check_budget
from .lower.machine import Idealization
from .lower.plan import Lowered, lower, plan_period
from .lower.replay import TARGET, lower_replayed
from .lower.variability import Perturbation, perturbed
from .program.checks import HorizonError
from .program.limits import RunTooLarge

VARIES = "the times of the ranks are drawn at random"
REPLAYED = "rank 0 alone is simulated, what its peers write comes from a profile"


@dataclass(frozen=True, slots=True)
class Case:
    """A run to make; without a ``perturbation`` all ranks have the times of their plan.

    Ranks that do the same may be taken for ``alike``, whoever their peers are: see ``lower``.
    """

    system: System
    plan: GraphPlan
    perturbation: Perturbation | None = None
    alike: bool = False

    @property
    def drawn(self) -> bool:
        """Whether each rank has times of its own."""
        return self.perturbation is not None and self.perturbation.seed is not None

    def lowered(self, unit_bytes: int, *, fold: bool = True, ideal: Idealization = Idealization.NONE) -> Lowered:
        """Lower the case; folded only where ranks cannot differ.

        Raises
        ------
        ValueError
            If ``unit_bytes`` is not a multiple of the GPU's line.
        ScheduleError
            If a profile is to be replayed that does not fit the plan, or by more than one part.
        RunTooLarge
            If the run would take minutes or more memory than is sensible.
        """
        system, plan, replay = self.system, self.plan, self.system.replay
        fold = fold and self.perturbation is None
        try:
            if replay is not None:
                if len(plan.parts) > 1:
                    message = f"{system.name} replays a profile, which is one of a single op"
                    raise ScheduleError(Rejection(Code.MGS523, message))
                check_budget(system, plan, unit_bytes, 1)
                return self.varied(lower_replayed(system, plan, replay, unit_bytes=unit_bytes, ideal=ideal))
            ranks = plan_period(system, plan, alike=self.alike) if fold else system.num_ranks
            check_budget(system, plan, unit_bytes, ranks)
            return self.varied(lower(system, plan, unit_bytes=unit_bytes, fold=fold, alike=self.alike, ideal=ideal))
        except HorizonError as error:
            raise RunTooLarge(f"{plan.expression}: {error}") from error

    def varied(self, lowered: Lowered) -> Lowered:
        """``lowered`` with the times of this case; writes of a profile keep theirs."""
        if self.perturbation is None:
            return lowered
        ranks = range(self.system.num_ranks) if self.system.replay is None else (TARGET,)
        gets = (get for part in lowered.parts for get in part.gets())
        return lowered.with_program(perturbed(lowered.program, self.perturbation, ranks, gets))

    def finished(self, whole: Finished) -> Finished:
        """``whole`` with the reason why all ranks were simulated, or only one."""
        if self.system.replay is not None:
            return replace(whole, ranks_simulated=1, not_alike=REPLAYED)
        return replace(whole, not_alike=VARIES) if self.drawn else whole

    def run(self, lowered: Lowered, options: RunOptions = DEFAULT_OPTIONS) -> Finished:
        """Run the program of ``lowered``, one rank for all that are alike."""
        shifts = options.fold and self._only_shifts(lowered)
        fold = options.fold and not shifts and not self.drawn and self.system.replay is None
        whole = run_folded(lowered.program, replace(options, fold=fold))
        return self.finished(replace(whole, not_alike=_shifts(whole.ranks_simulated)) if shifts else whole)

    def _only_shifts(self, lowered: Lowered) -> bool:
        """Whether to take it that no fewer ranks can stand for all than those of the ``program``.

        Where all ranks have the same plan, with peers counted from the own rank, and use every link, shifts alone map
        it onto itself; and those that map the fabric onto itself are used already. If that misses others, more is
        simulated than need be, with the same times.
        """
        program, ranks = lowered.program, lowered.program.ranks_simulated
        if not 1 < ranks < program.num_ranks:
            return False
        if any(part.schedule.period(program.num_ranks) != 1 for part in self.plan.parts):
            return False
        units = np.bincount(program.hop_server, minlength=program.num_servers)
        return all(units[server * ranks + rank] for server, rank in lowered.parts[0].machine.links)


def _shifts(ranks: int) -> str:
    return f"the fabric repeats every {ranks} ranks"
