"""The best tables of the implementations that are known for a graph, simulated as other schedules of it are."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....compiler.ir import TICKS_PER_US, GraphChoice, GraphScenario, Implementation, Pattern
from ....compiler.resolve.schedules.explore import BATCHES
from ....compiler.resolve.schedules.implementation import shipped_implementations
from ...answer.above_bound import BoundCheck
from ...candidates.candidate import Candidate, ScheduleOrigin, joint_candidate
from ...implementations.layer_offer import LayerOffer, LayerTable
from ..baselines import BY_BLOCKS, OP_BY_OP, free_names
from ..joint import JointRuns
from . import async_tp
from .transformer_engine import NAME as TE
from .transformer_engine import TeSearch, taken_ticks

DOMINO, TWO_BATCHES = "domino", "two_batch_overlap"
"""Orders of whole layers, which are no implementations of pairs."""

EXCHANGES = (Pattern.ALL_TO_ALL, Pattern.A2A_GEMM, Pattern.GEMM_A2A)


@dataclass(slots=True)
class OfferSearch:
    """Finds the best table of each implementation; ``found`` has those so far, also when it is stopped.

    ``known`` are the schedules that people have, with what they are, and ``times`` their ticks of all layers.
    """

    scenario: GraphScenario
    runs: JointRuns
    known: Mapping[GraphChoice, str]
    times: Mapping[GraphChoice, int]
    found: dict[str, LayerOffer] = field(default_factory=dict)

    def run(self) -> None:
        """Find all.

        Raises
        ------
        Cancelled
            If the caller is asked to stop; what was found is there.
        """
        for search in (self._transformer_engine, self._async_tp, self._in_batches):
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

    def above(self, limit: BoundCheck) -> tuple[list[LayerOffer], tuple[str, ...]]:
        """Return the implementations whose times reach the bound, and a note on each of the others."""
        us = {each.schedule: each.all_ticks / TICKS_PER_US for each in self.found.values()}
        below = {name: limit.sentence(name, time) for name, time in us.items() if limit.is_below(time)}
        return [each for each in self.found.values() if each.schedule not in below], tuple(below.values())

    def _shipped(self, name: str) -> Implementation | None:
        """An implementation for this system and that the file asks about, if it asks; None without."""
        system = self.scenario.system
        asked = [each.name for each in self.scenario.explore.implementations]
        one_node = system.fabric.node_size in (None, 0, system.num_ranks)
        if (asked and name not in asked) or not one_node:
            return None
        shipped = (each for each in shipped_implementations(system) if each.name == name)
        return next((each for each in shipped if system.gpu.name in each.gpus), None)

    def _name(self, name: str) -> str:
        """A name that no schedule of the file has."""
        return next(free_names(name, self.scenario.schedules))

    def _transformer_engine(self) -> Iterator[LayerOffer]:
        search = TeSearch(self.scenario.system, self.scenario.graph, self._name(TE))
        if not search.layers or self._shipped(TE) is None:
            return
        layers = self.scenario.graph.num_layers
        for table, ticks in search.found(self.runs.ticks):
            extra = taken_ticks(self.scenario.system, self.scenario.graph, table.settings) * layers
            what = "the best table of Transformer Engine"
            yield LayerOffer(TE, what, table, ticks, extra, "the costs of its calls")

    def _async_tp(self) -> Iterator[LayerOffer]:
        implementation, graph = self._shipped(async_tp.NAME), self.scenario.graph
        table = None if implementation is None else async_tp.async_tp_table(graph, implementation)
        ticks = None if table is None else self.runs.ticks(table.choice)
        if implementation is not None and table is not None and ticks is not None:
            table = replace(table, choice=replace(table.choice, name=self._name(async_tp.NAME)))
            cost, unknown = async_tp.call_ticks(self.scenario.system, graph, table, implementation)
            layers = graph.num_layers
            what = "async-TP of PyTorch: all pairs fused"
            yield LayerOffer(async_tp.NAME, what, table, ticks, cost * layers, unknown)

    def _in_batches(self) -> Iterator[LayerOffer]:
        """What the search has compared already: batches op by op where ranks exchange, else block by block."""
        exchanges = any(op.workload.pattern in EXCHANGES for op in self.scenario.graph.ops)
        name, usual = (TWO_BATCHES, OP_BY_OP) if exchanges else (DOMINO, BY_BLOCKS)
        what = "two-batch overlap of SGLang and vLLM" if exchanges else "Domino of DeepSpeed: two half batches"
        asked = self.scenario.explore.implementations
        mine = [one for one in self.known if one.name.startswith(usual) and one.batches > 1] if not asked else []
        if mine:
            best = min(mine, key=self.times.__getitem__)
            yield LayerOffer(name, what, LayerTable(best), self.times[best], unknown="the costs of its calls")
