"""CP-SAT in the portfolio: the costs of a scenario as the solver's model, and its solutions as parts."""

from collections.abc import Callable
from itertools import pairwise

from ...compiler.ir import Choice, EngineKind, Scenario, ShouldStop, inner_size
from ...compiler.templates.bespoke import Part, Parts, spelled
from ..estimate.fluid import FluidFabric
from .costs import GRAIN, costs_of, kernel_ticks, whole_rows

# Most grains of rows: the time of a kernel is a table over its number of grains.
MAX_GRAINS = 96
# Most batches: the model has a copy for each batch and peer, and with more than some forty copies the solver finds
# nothing in a few seconds.
MAX_BATCHES = 6


def solved_parts(
    scenario: Scenario,
    start: Choice,
    bound_ticks: int,
    seed: int,
    limit: float,
    should_stop: ShouldStop,
    meanwhile: Callable[[ShouldStop], None] | None = None,
) -> tuple[Parts, ...]:
    """Return the parts that the solver finds from ``start``, a bespoke choice, the best in its model first.

    While it searches ``meanwhile`` is called, and told when it is done.
    """
    from ..solver.batch_model import TICKS, BatchProblem, Grains, solve_batches

    whole, engine = whole_rows(scenario), start.engine
    grain = GRAIN * -(-sum(whole) // (GRAIN * MAX_GRAINS))
    blocks = tuple(-(-rows // grain) for rows in whole)
    direction = -1 if scenario.workload.pattern.produces else 1
    batches = spelled(start.parts, scenario.num_ranks)[::direction]
    begin: Grains = tuple(_in_grains(batches, whole, grain))
    if len(begin) > MAX_BATCHES or not inner_size(scenario.workload):
        return ()
    costs = costs_of(scenario, engine)
    fabric = FluidFabric(scenario, by_sm=engine.kind is EngineKind.SM)
    paths = [fabric.queue_to(peer) for peer in range(1, scenario.num_ranks)]
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
    solutions = solve_batches(problem, seed=seed, limit=limit, should_stop=should_stop, meanwhile=meanwhile)
    return tuple(_in_rows(grains, whole, grain)[::direction] for grains in solutions)


def _in_grains(batches: Parts, whole: Part, grain: int) -> Parts:
    """Convert batches of rows to grains; the last batch of each block has the remainder."""
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
    """Convert batches of grains to rows."""
    columns = []
    for block, rows in enumerate(whole):
        edges = [0]
        for batch in batches:
            edges.append(min(rows, edges[-1] + batch[block] * grain))
        columns.append([high - low for low, high in pairwise(edges)])
    return tuple(part for part in zip(*columns, strict=True) if any(part))
