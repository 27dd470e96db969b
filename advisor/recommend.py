"""From a scenario to advice: propose, enumerate, rank, simulate the shortlist, search, confirm, explain."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

from ..compiler.codes import Code
from ..compiler.ir import Cancelled, Progress, Rejection, Scenario, ShouldStop
from ..compiler.planning.build import ScheduleError
from .advice_run import AdviceRun
from .answer import Confirmed, Findings, advice_of
from .candidates.advice import Advice
from .candidates.shortlist import answered_by_runs, merged
from .kept_advice import KeptAdvice
from .learned.model_file import load as load_proposals
from .learned.proposal_model import ProposalModel
from .options import AdviceOptions
from .stages import Stages, either, lateness
from .workers import open_workers, suits_threads

DEFAULT = AdviceOptions()


@dataclass(frozen=True, slots=True)
class Advisor:
    """Gives advice with the proposals of a learned model; ``load`` takes the shipped one. Threads may share an advisor.

    Without ``proposals`` nothing is proposed before the space is ranked.
    """

    proposals: ProposalModel | None = None

    @classmethod
    def load(cls, folder: Path | None = None) -> "Advisor":
        """Return an advisor with the shipped model, or with the one in ``folder``.

        Raises
        ------
        ModelError
            If the model's files are damaged, of another version or hold anything but the expected types.
        """
        return cls(load_proposals(folder)[0])

    def recommend(
        self,
        scenario: Scenario,
        options: AdviceOptions = DEFAULT,
        *,
        progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
    ) -> Advice:
        """Return which schedule to use for ``scenario``; while results are kept on disk, return the kept advice.

        A stage or a simulation that fails is left out and named in ``Advice.notes``.

        Parameters
        ----------
        options
            How much to simulate and to search.
        progress
            Called with the stage, how much of it is done and how much there is.
        should_stop
            Called now and then; once it returns true, the advice is the best that was found until then.

        Raises
        ------
        NoFeasibleSchedule
            If the constraints leave nothing, with the constraints that conflict.
        ScheduleError
            If the system replays a profile.
        Cancelled
            If ``should_stop`` returned true before anything was ranked.
        """
        if scenario.system.replay is not None:
            message = f"{scenario.system.name} replays the profile of one schedule, and advice compares several"
            hint = "simulate that schedule, or drop 'replay' from the system"
            raise ScheduleError(Rejection(Code.MGS523, message, hint))
        digest = self.proposals.digest if self.proposals else ""
        kept = KeptAdvice.of(digest, scenario, replace(options, within_s=None))
        advice = kept.recall()
        if advice is None:
            advice = self._computed(scenario, options, progress, should_stop)
            kept.keep(advice)
        return advice

    def _computed(
        self, scenario: Scenario, options: AdviceOptions, progress: Progress | None, should_stop: ShouldStop | None
    ) -> Advice:
        stop, late = should_stop or (lambda: False), lateness(options.within_s)
        run = AdviceRun(scenario, options, stop, Stages(stop), progress or (lambda stage, done, total: None))
        candidates = run.proposed(self.proposals)
        proposed = bool(candidates)
        at_once = proposed and not options.verify
        early = stop if late is None else either(stop, late)
        workers, threads = options.workers if options.verify else 1, suits_threads(scenario)
        with open_workers(workers, early, threads=threads) as pool:
            if proposed and options.verify:
                candidates = run.simulated_first(pool, candidates)
            num_feasible: int | None = None
            if not at_once:
                ranked, num_feasible = run.predicted(late)
                # Proposals that were not simulated would take the place of templates in the shortlist.
                candidates = merged(ranked, answered_by_runs(candidates) or candidates)
            if not candidates or (run.stages.interrupted and not proposed):
                raise Cancelled
            run.stages.should_stop = early
            bound = None if at_once else run.bound()
            candidates, confirmed = (
                run.verified(pool, candidates, bound) if options.verify else (candidates, Confirmed())
            )
            failures = tuple(pool.failures)
            threshold = run.threshold(pool, candidates, confirmed) if options.threshold else None
            sensitivity = run.sensitivity(pool, candidates, confirmed) if options.sensitivity else None
        implementations = run.implementations() if options.verify else None
        notes = run.notes(failures)
        if confirmed.serial is None and all(math.isinf(candidate.best_us) for candidate in candidates):
            raise Cancelled if run.stages.interrupted else RuntimeError("; ".join(notes))
        found = Findings(
            tuple(candidates),
            num_feasible,
            bound,
            confirmed,
            run.stages,
            notes,
            implementations,
            threshold,
            sensitivity,
        )
        return advice_of(scenario, found)
