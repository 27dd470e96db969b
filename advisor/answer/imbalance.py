"""What rows that are not even cost in the kernels of experts, and what other places or copies of these would buy."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from ...compiler.ir import TICKS_PER_US, GroupedGemmShape, Scenario
from ...compiler.ir.operations.base import Routing
from ...compiler.ir.operations.routing_laws import EVEN_LAWS, UNIFORM, placed
from ...compiler.text.units import ticks_text
from ...simcore.kernels.dispatch import work_of

NOTABLE = 1.02
"""More rows of the hottest rank than this times the mean are told."""


@dataclass(frozen=True, slots=True)
class Imbalance:
    """The hottest rank has ``hot`` times the mean rows; the products of its experts take ``ticks``, ``even`` if routed
    uniformly, ``greedy`` if experts lie by their rows, and so on with numbers of ``replicas``.
    """

    hot: float
    ticks: int
    even: int
    greedy: int
    replicas: tuple[tuple[int, int], ...]

    def gain(self, ticks: int) -> float:
        """How much less time products take if they take ``ticks``, as a speedup."""
        return self.ticks / ticks

    @property
    def document(self) -> dict[str, object]:
        """The part of an answer in JSON, times in us."""
        return {
            "hottest_over_mean": self.hot,
            "products_us": self.ticks / TICKS_PER_US,
            "uniform_us": self.even / TICKS_PER_US,
            "placed_greedy_us": self.greedy / TICKS_PER_US,
            "replicas": [
                {"replicas": count, "products_us": ticks / TICKS_PER_US, "speedup": self.gain(ticks)}
                for count, ticks in self.replicas
            ],
        }


@lru_cache(maxsize=16)
def imbalance_of(scenario: Scenario) -> Imbalance | None:
    """Return what uneven routing costs in the products of experts, each simulated alone; None where rows are even.

    Rows with replicas and other places are those that the law gives there. Weights of replicas must fit into memory,
    which is not checked here.
    """
    routing = next((case.shape.routing for case in scenario.moving if case.shape.routing is not None), None)
    if routing is None or routing.law.name in EVEN_LAWS:
        return None
    kernels = (case.shape.kernel for case in scenario.cases)
    products = [each for each in kernels if isinstance(each, GroupedGemmShape) and each.rows == routing.dealt]
    hot = sum(routing.dealt) * scenario.num_ranks / (routing.tokens * routing.top)
    if hot <= NOTABLE or not products:
        return None

    def ticks(rows: tuple[int, ...]) -> int:
        gpu = scenario.gpu
        return sum(work_of(gpu, replace(each, rows=rows), gpu.sms).alone_ticks for each in products)

    copies = {count: ticks(_rows(routing, count)) for count in _replicas(routing)}
    even = placed(UNIFORM, routing.ranks, routing.experts, routing.top, routing.tokens).rows
    return Imbalance(hot, ticks(routing.dealt), ticks(even), ticks(_rows(routing)), tuple(copies.items()))


def _rows(routing: Routing, replicas: int = 0) -> tuple[int, ...]:
    """The rows of experts of the hottest rank, if they lie by their rows."""
    return placed(routing.law, routing.ranks, routing.experts, routing.top, routing.tokens, replicas, True).rows


def _replicas(routing: Routing) -> Iterator[int]:
    """More replicas than there are, with which copies still divide among ranks: one more for each rank, and four."""
    ranks, experts = routing.ranks, routing.experts
    first = routing.replicas + (-(experts + routing.replicas) % ranks or ranks)
    for count in (first, first + 3 * ranks):
        if count <= experts * (ranks - 1):
            yield count


def imbalance_lines(scenario: Scenario) -> Iterator[str]:
    """Yield the same as a sentence."""
    found = imbalance_of(scenario)
    if found is None:
        return
    bought = [f"{count} replicas {found.gain(ticks):.2f}x" for count, ticks in found.replicas]
    yield (
        f"The hottest rank has {found.hot:.2f} times the mean rows of experts, and the others wait for it. Its "
        f"products take {ticks_text(found.ticks)}; if routing were uniform, {ticks_text(found.even)}. With "
        f"placed=greedy they are {', with '.join([f'{found.gain(found.greedy):.2f}x as fast', *bought])}, "
        "which are placed so too."
    )
