"""Answers to questions of programs: from the memory of this process, the disk, other processes, or a computation."""

import logging
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...compiler.from_model.request import LayerRequest, layer_scenario
from ...compiler.ir import Cancelled, Counted, Progress, Scenario, ShouldStop, never, silent
from ...compiler.request.request import Request
from ...compiler.request.scenario import Stamp, scenario_of, stamp
from ...simcore.lower.budget import check_routes
from ...simcore.lower.variability import check_compared
from ...simcore.memo.memo import current_store
from ..answer.stages import DEFAULT, AdviceOptions, Answered, Watcher, either
from ..bespoke.stage import is_searched
from ..candidates.advice import Advice, AnswerSource
from ..learned.model_file import load as load_proposals
from ..learned.proposal_model import ALONE, Near, ProposalModel
from ..policy.cover import TOLERANCE
from ..work.on_dask import Cluster
from ..work.pools import answer_many, counted, in_thread, in_threads
from ..work.processes import ProcessDied, Processes
from .computing import computed_advice
from .elsewhere import Requested, answer_at_worker, answer_there, digests_here, model_near, reported_by
from .kept import RecentAnswers, place_of

if TYPE_CHECKING:
    from ..policy.table import PolicyTable


SHARED, MIDDLES, SHARE_OF_MIDDLES, NEAREST = 32, 8, 30, 4
"""Requests that share at least; of these so many, or one in thirty, are answered as alone, and some for each other."""

Question = Request | LayerRequest | Scenario
"""A scenario of the compiler, or what makes one: sizes and names, or a layer of a model."""

TABLES = AdviceOptions(bespoke=0)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Advisor:
    """Gives advice. ``Advisor.load()`` returns one with the shipped model of proposals.

    Threads may share an advisor, and so may processes that are forked while none of its methods runs. The last answers
    to requests stay in memory. ``proposals`` is the model that proposes schedules before the space is ranked; None for
    no proposals.

    After ``in_processes`` other processes compute the answers that are not known, the same as in this process, while
    the calling threads wait. ``close``, or leaving a ``with`` block, ends them.
    """

    proposals: ProposalModel | None = None
    _processes: Processes[Requested, Advice] | Cluster[Requested, Advice] | None = field(
        default=None, compare=False, repr=False
    )
    _recent: RecentAnswers[Advice] = field(default_factory=RecentAnswers, compare=False, repr=False)

    @classmethod
    def load(cls, folder: Path | None = None, *, processes: int = 0) -> "Advisor":
        """Return an advisor with the shipped model, or with the one in ``folder``.

        It computes answers in as many ``processes`` (see ``in_processes``), or in this one for 0.

        Raises
        ------
        ModelError
            If the model's files are damaged, of another version or hold anything but the expected types.
        """
        return cls(load_proposals(folder)[0]).in_processes(processes)

    def in_processes(self, count: int) -> "Advisor":
        """Return an advisor that knows the same answers and computes others in ``count`` processes, 0 for none.

        Processes begin at the first questions. They pay for programs that ask several at once: planning is Python, in
        which threads take turns. Each needs about two seconds to begin, the memory of an advisor, and a ``__main__``
        that may be imported again.
        """
        processes = Processes(count, partial(answer_there, self.proposals)) if count > 0 else None
        return replace(self, _processes=processes)

    def on_cluster(self, address: str) -> "Advisor":
        """Return an advisor that knows the same answers, and lets the workers of a dask scheduler compute others.

        ``address`` is that of the scheduler, ``tcp://host:8786``. Workers must have the same version of Magus, and use
        the shipped model of proposals. While results are kept on disk, they are kept both here and at the workers.
        Questions raise ``BackendError`` if dask is not installed, or if the scheduler does not answer, or no longer.
        """
        there = partial(answer_at_worker, digests_here(), current_store() is not None)
        return replace(self, _processes=Cluster(address, there))

    def close(self) -> None:
        """End the processes; a later question begins them again."""
        if self._processes is not None:
            self._processes.close()

    def __enter__(self) -> "Advisor":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def at_once(self) -> int:
        """How many questions are computed at the same time, each in a process."""
        return 1 if self._processes is None else self._processes.count

    def recommend(
        self,
        question: Question,
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
            A ``Request`` of sizes and names, a ``LayerRequest`` for a layer of a model, or a ``Scenario``.
        options
            How much to simulate and to search.
        progress
            Called with the name of the stage, how much of it is done, and how much there is in all.
        should_stop
            Called often; once it returns true, the advice is the best that was found until then.
        answered
            Called with the answer so far, an ``interrupted`` Advice, whenever candidates were ranked or simulated. Its
            ``source`` says whether it comes from the model.

        Raises
        ------
        RequestError
            If the request does not fit together, or names what does not exist.
        NoFeasibleSchedule
            If the constraints leave nothing, with the constraints that conflict.
        ScheduleError
            If the system replays a profile.
        RunTooLarge
            If the routes of the fabric are too many.
        Cancelled
            If ``should_stop`` returned true before anything was ranked.
        """
        watcher = Watcher(progress or silent, should_stop or never, answered)
        if isinstance(question, Scenario):
            return self._advice(question, options, watcher)
        if not isinstance(question, Request | LayerRequest):
            name = type(question).__name__
            raise TypeError(f"a question is a Request, a LayerRequest or a scenario, not {name}")
        read_at = _read_at(question)  # before the file is read: what changes meanwhile is asked for anew
        requested = _requested(question, options, read_at)
        advice = self._recent.recall(requested)
        if advice is None:
            advice = self._advice(_scenario(question, read_at), options, watcher)
            if not advice.interrupted and not advice.notes:  # another run would give it too
                self._recent.keep(requested, replace(advice, source=AnswerSource.CACHE))
        return advice

    def recall(self, request: Request | LayerRequest, options: AdviceOptions = DEFAULT) -> Advice | None:
        """Return the answer to ``request`` if this advisor gave it lately, in microseconds; else None."""
        return self._recent.recall(_requested(request, options, _read_at(request)))

    def num_unknown(self, scenarios: Iterable[Scenario], options: AdviceOptions = DEFAULT) -> int:
        """Return of how many scenarios the advice is not kept on disk, as far as that is known without computing."""
        return sum(
            each.only_case is None or not place_of(self.proposals, each, options).is_filled for each in scenarios
        )

    def recommend_many(
        self,
        questions: Sequence[Question],
        options: AdviceOptions = DEFAULT,
        *,
        threads: int = 1,
        share: bool = False,
        should_stop: ShouldStop | None = None,
    ) -> list[Advice]:
        """Return the advice for each question, in order; ``recommend`` says what may be raised, and what not.

        A question that is asked twice is answered once, in ``threads`` or as many as there are processes. All requests
        are checked before anything is simulated.

        Parameters
        ----------
        share
            Whether requests for a GEMM and its collective that differ in m, n and k alone share what is proposed: one
            in thirty is answered as alone, the others get what is best for the nearest of these, fitted to their sizes.
            Without simulations (``verify=False``), of ``SHARED`` requests or more; such answers are not kept.
        """
        scenarios = {each: _scenario(each, _read_at(each)) for each in questions if isinstance(each, Request)}
        for layer in (each for each in questions if isinstance(each, LayerRequest)):
            _scenario(layer, None)
        also, near = should_stop or never, dict[Question, Near]()

        def answer(each: Question, stop: ShouldStop) -> Advice:
            stops = either(stop, also)
            if isinstance(each, Request) and each in near and self.recall(each, options) is None:
                return self._advice(scenarios[each], options, Watcher(should_stop=stops), near[each])
            return self.recommend(each, options, should_stop=stops)

        at_once = max(threads, self.at_once)
        if share and self.proposals is not None and options.bespoke > 0 and not options.verify:
            nearest = _nearest(each for each, scenario in scenarios.items() if is_searched(scenario.case))
            middles = tuple({each: None for others in nearest.values() for each in others})
            answers = zip(middles, answer_many(answer, middles, at_once), strict=True)
            said = {each: Near.of(advice.case, advice.candidates) for each, advice in answers}
            near |= {each: Near.joined([said[one] for one in others]) for each, others in nearest.items()}
        return answer_many(answer, questions, at_once)

    async def recommend_async(
        self, question: Question, options: AdviceOptions = DEFAULT, *, should_stop: ShouldStop | None = None
    ) -> Advice:
        """``recommend`` in a thread; when the task is cancelled, the thread stops at its next step."""
        also = should_stop or never
        return await in_thread(lambda stop: self.recommend(question, options, should_stop=either(stop, also)))

    async def recommend_many_async(
        self, questions: Sequence[Question], options: AdviceOptions = DEFAULT, *, threads: int = 1
    ) -> list[Advice]:
        """``recommend_many`` in threads; when the task is cancelled, they stop at their next step."""
        return await in_thread(lambda stop: self.recommend_many(questions, options, threads=threads, should_stop=stop))

    def policy_table(
        self,
        question: Request | Scenario | LayerRequest,
        sizes: Sequence[int],
        options: AdviceOptions = TABLES,
        *,
        tolerance: float = TOLERANCE,
        progress: Counted | None = None,
        should_stop: ShouldStop | None = None,
    ) -> "PolicyTable":
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
            from ..policy.layer_rules import layer_table

            advise_layer = partial(self.recommend, options=replace(options, within_s=None), should_stop=should_stop)
            stop = should_stop or never
            return layer_table(question, sizes, advise_layer, stop, tolerance=tolerance, progress=progress)
        from ..policy.build import policy_table
        from ..policy.cover import axis_of, check_sizes

        axis, also = axis_of(question), should_stop or never
        check_sizes(axis, sizes)

        def advise(scenario: Scenario, stop: ShouldStop) -> Advice:
            plain = replace(options, bespoke=0, within_s=None)
            advice = self.recommend(scenario, plain, should_stop=either(stop, also))
            if advice.interrupted:
                raise Cancelled
            return advice

        with in_threads(advise, self.at_once) as ask:
            counting = ask if progress is None else counted(ask, progress, len(set(sizes)))
            return policy_table(axis, sizes, counting, simulated=options.verify, tolerance=tolerance)

    def _advice(self, scenario: Scenario, options: AdviceOptions, watcher: Watcher, near: Near = ALONE) -> Advice:
        check_compared(scenario.system)
        check_routes(scenario.system)
        place = None if scenario.only_case is None else place_of(self.proposals, scenario, options)
        kept = None if place is None else place.recall()
        if kept is not None:
            return kept
        there = self._there(Requested(scenario, options, watcher.answered is not None, near), watcher)
        if there is not None:
            if place is not None and near == ALONE and isinstance(self._processes, Cluster):
                place = replace(place, scenario=there.scenario)  # parts are told by identity
                if not place.is_filled:  # a worker that shares the folder has kept it before
                    place.keep(there)
            return there
        return computed_advice(model_near(self.proposals, near), scenario, options, watcher)

    def _there(self, requested: Requested, watcher: Watcher) -> Advice | None:
        """Return the answer of one of the processes; None if there are none, or if the one that was asked died."""
        if self._processes is None:
            return None
        try:
            return self._processes.ask(requested, watcher.should_stop, reported_by(watcher))
        except ProcessDied:
            log.warning("a process ended before it answered, perhaps for want of memory: the answer is computed here")
            return None


def _read_at(request: Request | LayerRequest) -> Stamp | None:
    return stamp(request) if isinstance(request, Request) else None


def _scenario(request: Request | LayerRequest, read_at: Stamp | None) -> Scenario:
    return layer_scenario(request) if isinstance(request, LayerRequest) else scenario_of(request, read_at)


def _requested(request: Request | LayerRequest, options: AdviceOptions, read_at: Stamp | None) -> Hashable:
    """What decides the answer: not the time for it, but the state of the system file."""
    return request, read_at, replace(options, within_s=None)


def _nearest(requests: Iterable[Request]) -> Mapping[Request, tuple[Request, ...]]:
    """Return for requests those nearest to them, of the few that are answered as alone, where enough are alike."""
    groups: dict[Request, list[Request]] = {}
    for each in requests:
        groups.setdefault(replace(each, m=1, n=1, k=1), []).append(each)
    found = dict[Request, tuple[Request, ...]]()
    for group in (each for each in groups.values() if len(each) >= SHARED):
        middles = _middles(group, max(MIDDLES, len(group) // SHARE_OF_MIDDLES))
        for each in group:
            if each not in middles:
                found[each] = tuple(sorted(middles, key=lambda middle: _apart(each, middle))[:NEAREST])
    return found


def _middles(group: Sequence[Request], count: int) -> tuple[Request, ...]:
    """Return ``count`` of a group, each as far as can be from those before it."""
    middles = [group[0]]
    apart = [_apart(group[0], each) for each in group]
    while len(middles) < count:
        middles.append(group[max(range(len(group)), key=apart.__getitem__)])
        apart = [min(known, _apart(middles[-1], each)) for known, each in zip(apart, group, strict=True)]
    return tuple(middles)


def _apart(one: Request, other: Request) -> float:
    """How far two GEMMs are apart, by the ratios of their sizes."""
    return sum(math.log2(getattr(one, size) / getattr(other, size)) ** 2 for size in ("m", "n", "k"))
