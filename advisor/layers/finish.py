"""The end of a search: what may be the answer is simulated in fine units, with all layers."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ...compiler.ir import Cancelled, Counted, Op, OpCase, OpChoice, OpMode, Progress, Scenario, Schedule, ShouldStop
from ...compiler.planning.build import ScheduleError, build_op_plan
from ...compiler.planning.plan import in_layer
from ...compiler.resolve.schedules.from_text import SERIAL
from ...simcore import Result, RunTooLarge
from ...simcore.simulate_layers import SHOWN_LAYER
from ..bespoke.stage import bespoke_candidates, budget_of, is_searched
from ..candidates.candidate import Candidate, ScheduleOrigin, by_time
from ..learned.proposal_model import ProposalModel, proposed_candidates
from ..work.workers import Workers
from .joint import COARSE_BYTES, JointRuns, LayerSpace, Start, affordable_packet, simulated
from .op_runs import OpRuns, of_one_op
from .options import OpOption
from .orders import EACH_ITS_BEST, free_names
from .placement import with_option
from .search import JOINT, JointSearch

# What a model proposes for ops that overlap in themselves, and a bespoke schedule of the one exposed longest.

SHARE = 2
"""By which evaluations are divided: what a model proposes for all ops leaves little to find for one of them."""


@dataclass(frozen=True, slots=True)
class BespokeOps:
    """Tries what ``proposals`` proposes, then searches for so many ``evaluations`` in all, in ``pool``."""

    search: JointSearch
    evaluations: int
    pool: Workers
    reported: Counted
    proposals: ProposalModel | None = None

    def run(self) -> None:
        """Find what may be faster than the best so far, and take it into the search.

        Raises
        ------
        Cancelled
            If the caller is asked to stop; what was found is there.
        """
        found = [choice for choice in self.search.found if not choice.side_by_side]
        best = min(found, key=self.search.found.__getitem__, default=None)
        space = None if best is None else self.search.space_of(best)
        if best is None or space is None:
            return
        overlapping = list(self._exposed(space, best))
        for done, op in enumerate(overlapping):
            self.reported(done, len(overlapping))
            space, best = self._tried(space, best, op, self._proposed(space, op))
        for op in overlapping[:1]:
            self._tried(space, best, op, self._op_options(space, op, self.evaluations // SHARE))

    def _tried(
        self, space: LayerSpace, best: Schedule, op: Op, options: Iterable[OpOption]
    ) -> tuple[LayerSpace, Schedule]:
        """The space with ``options`` of an op, and the best schedule with one of them or without."""
        for option in options:
            space = replace(space, op_options={**space.op_options, op.name: (*space.op_options[op.name], option)})
            changed = with_option(best, op, option)
            if self.search.try_searched(changed, space) < self.search.found[best]:
                best = changed
        return space, best

    def _proposed(self, space: LayerSpace, op: Op) -> Iterator[OpOption]:
        """What the model proposes for an op by itself, the fastest by its estimate."""
        if self.proposals is None:
            return
        found = proposed_candidates(self._case(space, op), self.proposals)
        fitting = (one.choice for one in found if one.choice is not None and not one.is_serial)
        choice = next((each for each in fitting if space.copier.takes(each.engine)), None)
        if choice is not None:
            mode, runs = OpMode(op.name, choice), self.search.runs
            with suppress(ScheduleError, RunTooLarge):
                times = OpRuns(runs.system, space.copier, runs.unit_bytes).times(op, mode)
                yield OpOption(mode, times.total, times.kernel, times.copies, times.staging_bytes)

    def _exposed(self, space: LayerSpace, choice: Schedule) -> Iterator[Op]:
        """The ops that overlap in themselves and may be bespoke, by how long their copies run beside no kernel."""
        result = self.search.runs.few(choice)
        if result is None:
            return
        layer, modes = min(SHOWN_LAYER, result.num_simulated), {mode.op: mode for mode in choice.modes}
        exposed = {op.name: op.exposed_ticks for op in result.ops}
        for op in sorted(space.workload.ops, key=lambda each: -exposed.get(in_layer(each.name, layer), 0)):
            mode = modes.get(op.name)
            if mode is not None and mode.body is not None and op.is_pair and is_searched(self._case(space, op)):
                yield op

    def _case(self, space: LayerSpace, op: Op) -> OpCase:
        scenario = self.search.scenario
        return OpCase(op.name, scenario.system, op.shape, explore=of_one_op(scenario.explore, space.copier))

    def _op_options(self, space: LayerSpace, op: Op, evaluations: int) -> Iterator[OpOption]:
        """Bespoke options of an op that are faster alone than all that are known of it."""
        case = self._case(space, op)
        known = [_candidate(case, option, self.search.runs.unit_bytes) for option in space.op_options[op.name]]
        budget = budget_of(max(1, evaluations), case.num_ranks)
        found, _ = bespoke_candidates(
            case, [each for each in known if each is not None], budget, 1, pool=self.pool, progress=lambda *_: None
        )
        for each in found:
            ticks = each.ticks
            if each.choice is not None and space.copier.takes(each.choice.engine):
                yield OpOption(OpMode(op.name, each.choice), ticks, ticks, (0, ticks), each.schedule.staging_bytes)


def _candidate(case: OpCase, option: OpOption, unit_bytes: int) -> Candidate | None:
    """A option of a pair that overlaps in itself, as a candidate of the pair alone."""
    choice = option.mode.body
    if not isinstance(choice, OpChoice):
        return None
    schedule = build_op_plan(case, choice)
    template = ScheduleOrigin.TEMPLATE
    return Candidate(
        schedule.expression, choice, schedule, template, simulated_ticks=option.total, unit_bytes=unit_bytes
    )


NEAR = 1.03
"""Candidates that are slower than the fastest by more than this, in coarse packets, are not simulated further."""

FINE_LINE_HOPS = 120_000_000
"""Most line-hops of a run that confirms, about a second on one core."""


@dataclass(slots=True)
class Finish:
    """Simulates all layers of the candidates that may be the answer, in units as fine as time allows.

    A ``quick`` one simulates the baselines and the fastest alone, as coarse as the search did.
    """

    scenario: Scenario
    runs: JointRuns
    serial: Start
    should_stop: ShouldStop
    report: Progress
    quick: bool = False
    stopped: bool = False

    def candidates(self, found: Sequence[Candidate], best_alone: OpChoice | None = None) -> list[Candidate]:
        """Return all, those that may be the answer with results.

        ``best_alone`` is the answer to the op that alone has a choice: it may be so here, however far behind it is in
        coarse packets, and because it is simpler than what is faster.
        """
        best = min(one.ticks for one in found)
        most = best if self.quick else best * NEAR
        shown = () if self.quick else (EACH_ITS_BEST,)
        wanted = None if self.quick else best_alone
        near = [
            one for one in found if one.ticks <= most or one.is_serial or one.what in shown or _carries_out(one, wanted)
        ]
        near.sort(key=lambda one: (one.joint != SERIAL, one.side_by_side, one.ticks))
        unit, results = self._unit(), dict[str, Result]()
        for done, one in enumerate(near):
            self.report("layers", done, len(near))
            try:
                result = self._result(one, unit)
            except Cancelled:
                self.stopped = True
                break
            if result is not None:
                results[one.expression] = result
        if len(results) < min(2, len(near)):  # not even no overlap and the fastest: estimates compare better
            results.clear()
        finished = [one.with_result(results[one.expression]) if one.expression in results else one for one in found]
        return _renamed(by_time(finished), self.scenario.schedules)

    def whole(self, one: Candidate) -> Candidate:
        """Return a candidate whose layers show no period with all of them simulated, if that can be; as it was else."""
        try:
            result = self._result(one, one.unit_bytes or self._unit(), whole=True)
        except Cancelled:
            self.stopped = True
            return one
        return one if result is None or result.is_estimate else one.with_result(result)

    def _result(self, one: Candidate, unit: int, *, whole: bool = False) -> Result | None:
        """Of all layers, which may stage more than a few do; None if it is too much.

        No overlap, of which the length of a run is known, is not simulated again where that takes too long.
        """
        if one.joint == SERIAL and self.serial.is_long and unit == self.serial.result.unit_bytes and not whole:
            return self.serial.result
        system, workload = self.scenario.system, self.scenario.workload
        alike = self.quick and self.runs.ranks.under(replace(workload, repeat=None), one.joint)
        result = simulated(system, workload, one.joint, unit, self.should_stop, fine=True, alike=alike, whole=whole)
        may_not_be = result is not None and one.joint != SERIAL and self.runs.stages_too_much(result)
        return None if may_not_be else result

    def _unit(self) -> int:
        """The finest unit in which a run has no more line-hops than are affordable: lines, or packets."""
        if self.quick:
            return self.runs.exact_bytes
        line, unit = self.scenario.system.gpu.line_bytes, affordable_packet(self.serial.line_hops, FINE_LINE_HOPS)
        line_hops = self.serial.line_hops * COARSE_BYTES // unit
        while unit // 2 >= line and line_hops * 2 <= FINE_LINE_HOPS:
            unit, line_hops = unit // 2, line_hops * 2
        return unit


def _carries_out(candidate: Candidate, choice: OpChoice | None) -> bool:
    """Whether a candidate carries an op out as ``choice`` says."""
    return choice is not None and any(mode.body == choice for mode in candidate.joint.modes)


def _renamed(candidates: Sequence[Candidate], declared: Sequence[Schedule]) -> list[Candidate]:
    """The searched schedules with names in the order of their times."""
    names = free_names(JOINT, declared)
    return [_named(one, next(names)) if one.is_searched else one for one in candidates]


def _named(candidate: Candidate, name: str) -> Candidate:
    return replace(candidate, expression=name, several=replace(candidate.joint, name=name))
