"""Orders that implementations have for whole layers, the best of each, simulated as other schedules are."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...compiler.ir import Pattern, Scenario, Schedule
from ...compiler.resolve.schedules.explore import BATCHES
from ...compiler.resolve.schedules.implementation import shipped_implementations
from ..candidates.candidate import Candidate, ScheduleOrigin, joint_candidate
from ..implementations.offers import LayerTable, Order
from .baselines import BY_BLOCKS, OP_BY_OP, free_names
from .joint import JointRuns
from .transformer_engine import NAME as TE
from .transformer_engine import TeSearch, taken_ticks

DOMINO, TWO_BATCHES = "domino", "two_batch_overlap"
"""Orders that are no implementations of pairs."""

TE_ORDER = "te_table"
"""The schedule of the table of Transformer Engine, without what it leaves out."""

EXCHANGES = (Pattern.ALL_TO_ALL, Pattern.A2A_GEMM, Pattern.GEMM_A2A)


@dataclass(slots=True)
class OfferSearch:
    """Finds the best order of each implementation; ``found`` has those so far, also when it is stopped.

    ``known`` are the schedules that people have, with what they are, and ``times`` their ticks of all layers.
    """

    scenario: Scenario
    runs: JointRuns
    known: Mapping[Schedule, str]
    times: Mapping[Schedule, int]
    found: dict[str, Order] = field(default_factory=dict)

    def run(self) -> None:
        """Find all.

        Raises
        ------
        Cancelled
            If the caller is asked to stop; what was found is there.
        """
        for search in (self._transformer_engine, self._in_batches):
            for offer in search():
                self.found[offer.implementation] = offer

    def candidates(self, known: Sequence[Candidate]) -> Iterator[Candidate]:
        """The schedules of implementations that are not among the ``known``; what a file explores limits none."""
        limited = any(word != BATCHES for word, _ in self.scenario.explore.asked)
        for offer in self.found.values():
            if all(one.expression != offer.schedule for one in known):
                what = offer.about + (", which is not explored" if limited else "")
                offered = joint_candidate(offer.table.choice, ScheduleOrigin.KNOWN, what, offer.ticks)
                yield replace(offered, is_outside=limited)

    def timed(self, candidates: Sequence[Candidate]) -> tuple[Order, ...]:
        """Return the orders with the times of their schedules among ``candidates``, as exact as what is compared."""
        ticks = {one.expression: one.ticks for one in candidates}
        return tuple(replace(each, ticks=ticks.get(each.schedule, each.ticks)) for each in self.found.values())

    def _has_te(self) -> bool:
        """Whether Transformer Engine is known for this system, and the file asks about it, if it asks."""
        system = self.scenario.system
        asked = [each.name for each in self.scenario.explore.implementations]
        one_node = system.fabric.node_size in (None, 0, system.num_ranks)
        known = (each for each in shipped_implementations(system) if each.name == TE)
        return one_node and (not asked or TE in asked) and any(system.gpu.name in each.gpus for each in known)

    def _name(self, name: str) -> str:
        """A name that no schedule of the file has."""
        return next(free_names(name, self.scenario.schedules))

    def _transformer_engine(self) -> Iterator[Order]:
        search = TeSearch(self.scenario.system, self.scenario.workload, self._name(TE_ORDER))
        if not search.layers or not self._has_te():
            return
        layers = self.scenario.workload.num_layers
        for table, ticks in search.found(self.runs.ticks):
            extra = taken_ticks(self.scenario.system, self.scenario.workload, table.settings) * layers
            what = "the best table of Transformer Engine"
            yield Order(TE, what, table, ticks, extra, "the costs of its calls")

    def _in_batches(self) -> Iterator[Order]:
        """What the search has compared already: batches op by op where ranks exchange, else block by block."""
        exchanges = any(op.shape.pattern in EXCHANGES for op in self.scenario.workload.ops)
        name, usual = (TWO_BATCHES, OP_BY_OP) if exchanges else (DOMINO, BY_BLOCKS)
        what = "two-batch overlap of SGLang and vLLM" if exchanges else "Domino of DeepSpeed: two half batches"
        asked = self.scenario.explore.implementations
        mine = [one for one in self.known if one.name.startswith(usual) and one.batches > 1] if not asked else []
        if mine:
            best = min(mine, key=self.times.__getitem__)
            yield Order(name, what, LayerTable(best), self.times[best], unknown="the costs of its calls")
