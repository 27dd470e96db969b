"""CP-SAT's part of the portfolio: from the costs of a scenario to the model of the solver, and back to parts."""

from collections.abc import Callable
from itertools import pairwise

from ...compiler.ir import Choice, EngineKind, Scenario, inner_size
from ...compiler.templates.bespoke import Part, Parts, spelled
from ..estimate.fluid import FluidFabric
from .costs import GRAIN, costs_of, kernel_ticks, whole_rows

# A kernel's time is a table over the grains of it.
MOST_GRAINS = 96
# The model has a copy for each batch and peer; beyond some forty of them it finds nothing in a few seconds.
MOST_BATCHES = 6


def solved_parts(
    scenario: Scenario, start: Choice, bound_ticks: int, seed: int, limit: float, should_stop: Callable[[], bool]
) -> tuple[Parts, ...]:
    """Parts that the solver finds from ``start``, a bespoke choice, the best of its model first."""
    from ..solver.batch_model import TICKS, BatchProblem, Grains, solve_batches

    whole, engine = whole_rows(scenario), start.engine
    grain = GRAIN * -(-sum(whole) // (GRAIN * MOST_GRAINS))
    blocks = tuple(-(-rows // grain) for rows in whole)
    backwards = -1 if scenario.workload.pattern.produces else 1
    batches = spelled(start.parts, scenario.num_ranks)[::backwards]
    begin: Grains = tuple(_in_grains(batches, whole, grain))
    if len(begin) > MOST_BATCHES or not inner_size(scenario.workload):
        return ()
    costs = costs_of(scenario, engine)
    fabric = FluidFabric(scenario, by_sm=engine.kind is EngineKind.SM)
    paths = [fabric.path_to(peer) for peer in range(1, scenario.num_ranks)]
    links = {id(link): index for index, (link, _, _) in enumerate(paths)}
    moved = scenario.workload.moved
    assert moved is not None, "batches move something"
    num_bytes, num_rows = grain * moved.cols * moved.dtype.num_bytes, sum(whole)
    sizes = (min(num_rows, grains * grain) for grains in range(sum(blocks) + 1))
    problem = BatchProblem(
        blocks=blocks,
        kernel=tuple(kernel_ticks(scenario, engine, rows) // TICKS for rows in sizes),
        link=tuple(links[id(link)] for link, _, _ in paths),
        copy=tuple(round(num_bytes * ticks_per_byte) // TICKS for _, ticks_per_byte, _ in paths),
        setup=costs.setup // TICKS,
        latency=(costs.lead - costs.setup) // TICKS,
        event=costs.event // TICKS,
        engines=engine.count if engine.kind is EngineKind.DMA else len(paths),
        start=begin,
        bound=bound_ticks // TICKS,
    )
    found = solve_batches(problem, seed=seed, limit=limit, should_stop=should_stop)
    return tuple(_in_rows(grains, whole, grain)[::backwards] for grains in found)


def _in_grains(batches: Parts, whole: Part, grain: int) -> Parts:
    """Batches of rows in grains, the last of each block with what is left over."""
    columns = []
    for block, rows in enumerate(whole):
        size, passed, before, column = -(-rows // grain), 0, 0, []
        for batch in batches:
            passed += batch[block]
            edge = size if passed == rows else min(size, round(passed / grain))
            column.append(edge - before)
            before = edge
        columns.append(column)
    return tuple(zip(*columns, strict=True))


def _in_rows(batches: Parts, whole: Part, grain: int) -> Parts:
    """Batches of grains in rows."""
    columns = []
    for block, rows in enumerate(whole):
        edges = [0]
        for batch in batches:
            edges.append(min(rows, edges[-1] + batch[block] * grain))
        columns.append([high - low for low, high in pairwise(edges)])
    return tuple(part for part in zip(*columns, strict=True) if any(part))
