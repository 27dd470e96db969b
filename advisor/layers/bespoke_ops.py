"""What a model proposes for ops that overlap in themselves, and a bespoke schedule of the one exposed longest."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from ...compiler.ir import (
    Counted,
    Op,
    OpCase,
    OpChoice,
    OpMode,
    Schedule,
)
from ...compiler.planning.build import ScheduleError, build_op_plan
from ...compiler.planning.plan import in_layer
from ...simcore import RunTooLarge
from ...simcore.simulate_layers import SHOWN_LAYER
from ..bespoke.stage import bespoke_candidates, budget_of, is_searched
from ..candidates.candidate import Candidate, ScheduleOrigin
from ..learned.proposal_model import ProposalModel, proposed_candidates
from ..work.workers import Workers
from .joint import LayerSpace
from .op_runs import OpRuns, of_one_op
from .options import OpOption
from .placement import with_option
from .search import JointSearch

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
