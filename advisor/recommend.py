"""From a scenario to advice: propose, enumerate, rank, simulate the shortlist, search, confirm, explain."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, overload

from ..compiler.codes import Code
from ..compiler.from_model.request import LayerRequest
from ..compiler.ir import Cancelled, Counted, GraphScenario, Progress, Rejection, Scenario, ShouldStop, never
from ..compiler.planning.build import ScheduleError
from ..compiler.request.request import Request
from ..compiler.request.scenario import Stamp, scenario_of, stamp
from .advice_run import AdviceRun
from .answer.answer import Confirmed, Findings, advice_of
from .answer.partial import Answered, PartialAnswers
from .candidates.advice import Advice, Source
from .candidates.shortlist import answered_by_runs, merged
from .kept_advice import KeptAdvice
from .learned.model_file import load as load_proposals
from .learned.proposal_model import ProposalModel
from .many import answer_many, in_thread
from .options import AdviceOptions
from .policy.axis import axis_of, check_sizes
from .policy.build import policy_table
from .policy.cover import TOLERANCE
from .policy.table import PolicyTable
from .recent import RecentAnswers
from .stages import Stages, either, lateness
from .workers import open_workers, suits_threads

if TYPE_CHECKING:
    from .layers.advice import GraphAdvice
    from .policy.layer_table import LayerPolicy

DEFAULT = AdviceOptions()
TABLES = AdviceOptions(bespoke=0)
PATIENCE_S = 1.0
"""Seconds beyond the time limit that proposals may take."""


@dataclass(frozen=True, slots=True)
class Advisor:
    """Gives advice with the proposals of a learned model; ``load`` takes the shipped one.

    Threads may share an advisor, and so may processes that are forked while none of its methods runs. Without
    ``proposals`` nothing is proposed before the space is ranked. Answers to requests stay in memory.
    """

    proposals: ProposalModel | None = None
    _recent: RecentAnswers[Advice] = field(default_factory=RecentAnswers, compare=False, repr=False)
    _layers: "RecentAnswers[GraphAdvice]" = field(default_factory=RecentAnswers, compare=False, repr=False)

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
        question: Request | Scenario,
        options: AdviceOptions = DEFAULT,
        *,
        progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
        answered: Answered | None = None,
    ) -> Advice:
        """Return which schedule to use; while results are kept on disk, return the kept advice.

        A stage or a simulation that fails is left out and named in ``Advice.notes``.

        Parameters
        ----------
        question
            Sizes and names, or a scenario of the compiler.
        options
            How much to simulate and to search.
        progress
            Called with the stage, how much of it is done and how much there is.
        should_stop
            Called now and then; once it returns true, the advice is the best that was found until then.
        answered
            Called with what would be answered now, as candidates are ranked and simulated: an ``interrupted`` Advice,
            from the model as long as its ``source`` says so.

        Raises
        ------
        RequestError
            If the request does not fit together, or names what does not exist.
        NoFeasibleSchedule
            If the constraints leave nothing, with the constraints that conflict.
        ScheduleError
            If the system replays a profile.
        Cancelled
            If ``should_stop`` returned true before anything was ranked.
        """
        if isinstance(question, Scenario):
            return self._advice(question, options, progress, should_stop, answered)
        if not isinstance(question, Request):
            raise TypeError(f"a question is a Request or a Scenario, not {type(question).__name__}")
        read_at = stamp(question)  # before the file is read: what changes meanwhile is asked for anew
        asked = _asked(question, options, read_at)
        advice = self._recent.recall(asked)
        if advice is None:
            advice = self._advice(scenario_of(question, read_at), options, progress, should_stop, answered)
            if not advice.interrupted and not advice.notes:  # another run would give it too
                self._recent.keep(asked, replace(advice, source=Source.CACHE))
        return advice

    def recall(self, request: Request, options: AdviceOptions = DEFAULT) -> Advice | None:
        """Return the answer to ``request`` if this advisor gave it lately, in microseconds; else None."""
        return self._recent.recall(_asked(request, options, stamp(request)))

    def recommend_many(
        self,
        questions: Sequence[Request | Scenario],
        options: AdviceOptions = DEFAULT,
        *,
        threads: int = 1,
        should_stop: ShouldStop | None = None,
    ) -> list[Advice]:
        """Return the advice for each question, in order; ``recommend`` says what may be raised, and what not.

        A question that is asked twice is answered once. All requests are checked before anything is simulated.
        """
        for each in questions:
            if isinstance(each, Request):
                scenario_of(each)
        return answer_many(lambda each: self.recommend(each, options, should_stop=should_stop), questions, threads)

    async def recommend_async(
        self, question: Request | Scenario, options: AdviceOptions = DEFAULT, *, should_stop: ShouldStop | None = None
    ) -> Advice:
        """``recommend`` in a thread; when the task is cancelled, the thread stops at its next step."""
        also = should_stop or never
        return await in_thread(lambda stop: self.recommend(question, options, should_stop=either(stop, also)))

    async def recommend_many_async(
        self, questions: Sequence[Request | Scenario], options: AdviceOptions = DEFAULT, *, threads: int = 1
    ) -> list[Advice]:
        """``recommend_many`` in threads; when the task is cancelled, they stop at their next step."""
        return await in_thread(lambda stop: self.recommend_many(questions, options, threads=threads, should_stop=stop))

    def recommend_layer(
        self,
        question: LayerRequest | GraphScenario,
        options: AdviceOptions = DEFAULT,
        *,
        progress: Progress | None = None,
        should_stop: ShouldStop | None = None,
    ) -> "GraphAdvice":
        """Return which schedule to use for all ops of a layer together; parameters are those of ``recommend``.

        Raises
        ------
        RequestError
            If the request does not fit together, or names what does not exist.
        ScheduleError, RunTooLarge
            If the layer does not fit into memory, or cannot be simulated.
        Cancelled
            If ``should_stop`` returned true before anything was simulated.
        """
        asked = question, replace(options, within_s=None)
        known = self._layers.recall(asked) if isinstance(question, LayerRequest) else None
        if known is not None:
            return known
        from .layers.question import graph_of  # those who ask about pairs do not wait for it
        from .layers.recommend import recommend_graph

        advice = recommend_graph(graph_of(question), options, progress=progress, should_stop=should_stop)
        if isinstance(question, LayerRequest) and not advice.interrupted:
            self._layers.keep(asked, advice)
        return advice

    def recall_layer(self, request: LayerRequest, options: AdviceOptions = DEFAULT) -> "GraphAdvice | None":
        """Return the answer to ``request`` if this advisor gave it lately; else None."""
        return self._layers.recall((request, replace(options, within_s=None)))

    async def recommend_layer_async(
        self,
        question: LayerRequest | GraphScenario,
        options: AdviceOptions = DEFAULT,
        *,
        should_stop: ShouldStop | None = None,
    ) -> "GraphAdvice":
        """``recommend_layer`` in a thread; when the task is cancelled, the thread stops at its next step."""
        also = should_stop or never
        return await in_thread(lambda stop: self.recommend_layer(question, options, should_stop=either(stop, also)))

    @overload
    def policy_table(
        self,
        question: LayerRequest,
        sizes: Sequence[int],
        options: AdviceOptions = ...,
        *,
        tolerance: float = ...,
        progress: Counted | None = ...,
        should_stop: ShouldStop | None = ...,
    ) -> "LayerPolicy": ...

    @overload
    def policy_table(
        self,
        question: Request | Scenario,
        sizes: Sequence[int],
        options: AdviceOptions = ...,
        *,
        tolerance: float = ...,
        progress: Counted | None = ...,
        should_stop: ShouldStop | None = ...,
    ) -> PolicyTable: ...

    def policy_table(
        self,
        question: Request | Scenario | LayerRequest,
        sizes: Sequence[int],
        options: AdviceOptions = TABLES,
        *,
        tolerance: float = TOLERANCE,
        progress: Counted | None = None,
        should_stop: ShouldStop | None = None,
    ) -> "PolicyTable | LayerPolicy":
        """Return which schedule to use from which size to which, the question being about one of them.

        Of a layer the size is ``tokens``, and a rule says what each op does. A table of pairs names templates: the
        chunks of a bespoke schedule fit one size. Sizes between those given belong to the nearer of two rules, by
        simulations of both.

        Parameters
        ----------
        sizes
            Rows of the GEMM (``m``), or bytes of a collective alone (``num_bytes``): multiples of the ranks.
        tolerance
            The relative loss at one of ``sizes`` that is accepted for fewer rules.
        progress
            Called with the sizes done and their number, which grows where sizes beside flips are added.

        Raises
        ------
        RequestError
            If a size does not fit, or the workload has no such size.
        Cancelled
            If ``should_stop`` returned true: a table with gaps is none.
        """
        if isinstance(question, LayerRequest):
            from .policy.layer_sizes import layer_table

            told, stop = progress or (lambda done, total: None), should_stop or never
            advise_layer = partial(self.recommend_layer, should_stop=should_stop)
            return layer_table(question, sizes, options, advise_layer, tolerance=tolerance, told=told, should_stop=stop)
        axis = axis_of(question)
        check_sizes(axis, sizes)
        done = 0

        def advise(scenario: Scenario) -> Advice:
            nonlocal done
            advice = self.recommend(scenario, replace(options, bespoke=0, within_s=None), should_stop=should_stop)
            if advice.interrupted:
                raise Cancelled
            done += 1
            if progress is not None:
                progress(done, max(done, len(set(sizes))))
            return advice

        return policy_table(axis, sizes, advise, simulated=options.verify, tolerance=tolerance)

    def _advice(
        self,
        scenario: Scenario,
        options: AdviceOptions,
        progress: Progress | None,
        should_stop: ShouldStop | None,
        answered: Answered | None,
    ) -> Advice:
        if scenario.system.replay is not None:
            message = f"{scenario.system.name} replays the profile of one schedule, and advice compares several"
            hint = "simulate that schedule, or drop 'replay' from the system"
            raise ScheduleError(Rejection(Code.MGS523, message, hint))
        digest = self.proposals.digest if self.proposals else ""
        kept = KeptAdvice.of(digest, scenario, replace(options, within_s=None))
        advice = kept.recall()
        if advice is None:
            advice = self._computed(scenario, options, progress, should_stop, PartialAnswers(scenario, answered))
            kept.keep(advice)
        return advice

    def _computed(
        self,
        scenario: Scenario,
        options: AdviceOptions,
        progress: Progress | None,
        should_stop: ShouldStop | None,
        answers: PartialAnswers,
    ) -> Advice:
        stop, late = should_stop or never, lateness(options.within_s)
        run = AdviceRun(scenario, options, stop, Stages(stop), progress or (lambda stage, done, total: None), answers)
        early = stop if late is None else either(stop, late)
        # Proposals take tenths of a second, and are an answer: only where they take much longer does time count.
        patience = lateness(None if options.within_s is None else options.within_s + PATIENCE_S)
        candidates = run.proposed(self.proposals, stop if patience is None else either(stop, patience))
        proposed = bool(candidates)
        at_once = proposed and not options.verify
        workers, threads = options.workers if options.verify else 1, suits_threads(scenario)
        with open_workers(workers, early, threads=threads) as pool:
            pool.on_result = answers.simulated
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
            if options.threshold or options.sensitivity:
                answers.confirmed(candidates, bound, confirmed)
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


def _asked(request: Request, options: AdviceOptions, read_at: Stamp) -> Hashable:
    """What decides the answer: not the time for it, but the state of the system file."""
    return request, read_at, replace(options, within_s=None)
