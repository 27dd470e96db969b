"""CP-SAT in the portfolio: the costs of a scenario as the solver's model, and its solutions as parts."""

from collections.abc import Callable, Iterator
from itertools import pairwise

from ...compiler.ir import EngineChoice, EngineKind, OpCase, OpChoice, ShouldStop, inner_size
from ...compiler.planning.build import reject_choice
from ...compiler.planning.knobs.engine import ENGINE
from ...compiler.templates import BY_NAME, TEMPLATES, Template
from ...compiler.templates.bespoke import MAX_PARTS, Part, Parts, spelled
from ..estimate.fluid import FluidFabric
from ..solver.domains import domains_of, streams_of
from .batches import (
    GRAIN,
    Batches,
    batches_of,
    costs_of,
    kernel_ticks,
    lengths_of,
    only_own,
    shares,
    whole_batches,
    whole_rows,
)

# Most grains of rows: the time of a kernel is a table over its number of grains.
MAX_GRAINS = 96
# Most batches: the model has a copy for each batch and peer, and with more than some forty copies the solver finds
# nothing in a few seconds.
MAX_BATCHES = 6


def solved_parts(
    scenario: OpCase,
    start: OpChoice,
    bound_ticks: int,
    seed: int,
    limit: float,
    should_stop: ShouldStop,
    meanwhile: Callable[[ShouldStop], None] | None = None,
) -> tuple[Parts, ...]:
    """Return the parts that the solver finds from ``start``, a bespoke choice, the best in its model first.

    While it searches ``meanwhile`` is called, and told when it is done.
    """
    from ..solver.model import TICKS, BatchProblem, Grains, solve_batches

    whole, engine = whole_rows(scenario), start.engine
    grain = GRAIN * -(-sum(whole) // (GRAIN * MAX_GRAINS))
    blocks = tuple(-(-rows // grain) for rows in whole)
    direction = -1 if scenario.shape.pattern.produces else 1
    batches = spelled(start.parts, scenario.num_ranks)[::direction]
    begin: Grains = tuple(_in_grains(batches, whole, grain))
    if len(begin) > MAX_BATCHES or not inner_size(scenario.shape):
        return ()
    costs = costs_of(scenario, engine)
    fabric = FluidFabric(scenario, by_sm=engine.kind is EngineKind.SM)
    paths = [fabric.queue_to(peer) for peer in range(1, scenario.num_ranks)]
    links = {id(link): index for index, (link, _, _) in enumerate(paths)}
    moved = scenario.shape.moved
    assert moved is not None, "batches move something"
    num_bytes, num_rows = grain * moved.dtype.bytes_of(moved.cols), sum(whole)
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


# Most pieces of a shard; with more, setups of copies and starts of kernels dominate.
MAX_PIECES = 64


def uniform_choices(scenario: OpCase, max_pieces: int = MAX_PIECES) -> tuple[OpChoice, ...]:
    """Return every legal choice of the explored templates and engines, with up to ``max_pieces`` chunks a rank.

    On a ring ``pipelined`` is included: its algorithms forward blocks instead of sending each over several links.
    """
    engines = domains_of(scenario)[ENGINE]
    return tuple(choice for engine in engines for choice in _with_engine(scenario, engine, max_pieces))


def _with_engine(scenario: OpCase, engine: EngineChoice, max_pieces: int) -> Iterator[OpChoice]:
    n, explored = scenario.num_ranks, scenario.explore.values("schedules")
    for template, algorithm in _templates_with_algorithms(scenario):
        if explored and template.name not in explored:
            continue
        for pieces in range(1, max_pieces + 1) if template.cuts_shards else (1,):
            for streams in streams_of(template):
                choice = OpChoice(template.name, n * pieces, engine, streams, algorithm=algorithm)
                if reject_choice(scenario, choice) is None:
                    yield choice


def _templates_with_algorithms(scenario: OpCase) -> Iterator[tuple[Template, str]]:
    """Yield (template, algorithm); the algorithm is empty for the usual one."""
    yield from ((template, "") for template in TEMPLATES)
    algorithms = scenario.system.fabric.topology.algorithms
    if algorithms:
        yield from ((BY_NAME["pipelined"], algorithm) for algorithm in ("", *algorithms))


def as_batches(scenario: OpCase, choice: OpChoice) -> Batches | None:
    """Return the batches of a plan, None if ``bespoke`` cannot express those of its template."""
    if choice.parts:
        return batches_of(choice)
    whole, lengths = whole_rows(scenario), lengths_of(scenario)
    n, pieces = len(whole), choice.chunks // len(whole)
    remote = list(zip(*(shares(rows, [1] * pieces) for rows in whole[1:]), strict=True))
    own = only_own(whole[0], n)
    match choice.template:
        case "uniform_fused_1d":
            parts = tuple(zip(shares(whole[0], [1] * pieces), *zip(*remote, strict=True), strict=True))
        case "uniform_fused_2d":
            return (lengths.batch(whole, tuple(shares(lengths.cut, [1] * pieces, lengths.step))),)
        case "hetero_fused_1d":
            parts = (own, *((0, *rows) for rows in remote))
        case "hetero_unfused_1d" | "shard_p2p":
            by_peer = [tuple(r * (k == peer) for k, r in enumerate(rows)) for rows in remote for peer in range(n - 1)]
            parts = (own, *((0, *rows) for rows in by_peer))
        case _:
            return None
    batches = whole_batches(parts)
    if len(batches) > MAX_PARTS:
        return None
    return (*batches[1:], batches[0]) if lengths.produces and batches[0].rows == own else batches
