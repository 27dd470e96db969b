"""Every template x pattern x algorithm x number of ranks x number of chunks: no faults, every byte once, its count."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from magus.compiler.collectives import ALGORITHM_BY_NAME
from magus.compiler.ir import (
    EngineChoice,
    EngineKind,
    Fabric,
    IndexRange,
    OpCase,
    OpChoice,
    OpPlan,
    Pattern,
    Region,
    Step,
    TileGroup,
    Transfer,
)
from magus.compiler.ir.topologies.levels import Rails
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.templates import ALL_TEMPLATES, Template
from magus.compiler.templates.collective import collective_in
from magus.compiler.verify.check import check_plan
from tests.helpers.marks import name_of, thinned
from tests.helpers.plans.byte_arrivals import landings
from tests.helpers.plans.closed_forms import transfers_in
from tests.helpers.plans.symbolic_executor import Ranks
from tests.helpers.scenarios.drawn import scenario_of

SWITCH = "gpus {ranks} x H100; fabric switch(nvswitch, link=nvlink)"
RAILS = "gpus {ranks} x H100; fabric rails(nvswitch, link=nvlink, node=2, nic=nvlink)"
ENGINES = (EngineChoice(EngineKind.DMA, 3), EngineChoice(EngineKind.SM, 8))
RANKS = (2, 3, 4, 8)
PIECES = (1, 2, 4)
# Rows of a block, and parts that its columns are cut into: as few as four pieces allow.
ROWS, PARTS, PART = 4, 4, 64
PAIRS = [(template, pattern) for template in ALL_TEMPLATES for pattern in template.patterns]
# Each pair with one or two numbers of ranks; the largest takes longest.
CASES = [
    *thinned(product(PAIRS, RANKS[:-1]), 2),
    *(pytest.param(case, marks=pytest.mark.slow) for case in product(PAIRS, RANKS[-1:])),
]


def scenarios(pattern: Pattern, num_ranks: int) -> list[OpCase]:
    """Behind a switch that copies and sums, and where there can be several, in nodes of two."""
    ranks = 1 if collective_in(pattern) is None else num_ranks
    cols = PARTS * PART * ranks
    systems = (SWITCH, RAILS) if ranks in (4, 8) else (SWITCH,)
    made = [scenario_of(pattern, system, ranks, ROWS * ranks, cols, cols) for system in systems]
    return [replace(one, system=replace(one.system, fabric=able(one))) for one in made]


def able(scenario: OpCase) -> Fabric:
    fabric = scenario.system.fabric
    assert fabric.switch is not None
    return replace(fabric, switch=replace(fabric.switch, multicast=True, reduces=True))


def node_of(scenario: OpCase) -> int:
    layout = scenario.system.fabric.layout
    return layout.node if isinstance(layout, Rails) else 0


def choices(template: Template, scenario: OpCase) -> Iterator[tuple[OpChoice, int]]:
    """Everything that is legal, with its pieces per shard."""
    algorithms = ("", *ALGORITHM_BY_NAME) if template.has("algorithm") else ("",)
    # Checking sums on the way of many ranks in many chunks takes long.
    counts = (1,) if not template.cuts_shards else PIECES[:2] if scenario.num_ranks == max(RANKS) else PIECES
    for pieces, algorithm, engine in product(counts, algorithms, ENGINES):
        count = scenario.num_ranks * pieces
        choice = OpChoice(template.name, count, engine, template.default_streams, algorithm=algorithm)
        if reject_choice(scenario, choice) is None:
            yield choice, pieces


def narrowed(schedule: OpPlan, scenario: OpCase) -> list[list[Step]]:
    """Steps of each rank, columns of the moved tensor in units of the smallest part."""
    moved = scenario.shape.moved
    unit = 1 if moved is None else moved.cols // PARTS

    def region(of: Region) -> Region:
        assert of.cols.start % unit == of.cols.stop % unit == 0
        return replace(of, cols=IndexRange(of.cols.start // unit, of.cols.stop // unit))

    def narrow(step: Step) -> Step:
        if isinstance(step, TileGroup):
            made = scenario.shape.stage(step.kernel).pattern.produces
            return replace(step, regions=tuple(map(region, step.regions))) if made else step
        return replace(step, region=region(step.region))

    return [[narrow(step) for step in schedule.steps_of(rank)] for rank in range(scenario.num_ranks)]


@pytest.mark.quick(32)
@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(name_of, (*case[0], case[1]))))
def test_holds_what_is_said_of_it(case: tuple[tuple[Template, Pattern], int]) -> None:
    (template, pattern), num_ranks = case
    tried = [
        (scenario, choice, pieces)
        for scenario in scenarios(pattern, num_ranks)
        for choice, pieces in choices(template, scenario)
    ]
    for scenario, choice, pieces in tried:
        n, schedule = scenario.num_ranks, build_op_plan(scenario, choice)
        steps = narrowed(schedule, scenario)
        transfers = [step for mine in steps for step in mine if isinstance(step, Transfer)]

        assert check_plan(scenario, schedule) == (), schedule.expression
        expected = transfers_in(template.name, choice.algorithm, pattern, n, pieces, node_of(scenario))
        assert len(transfers) == expected, schedule.expression
        assert {step.region.rows.size * step.region.cols.size for step in transfers} <= {ROWS * PARTS // pieces}
        assert_lands_once(pattern, n, steps)
    assert tried or num_ranks == 3 or template.name in ("hierarchical", "torus_tree")  # no torus here


def assert_lands_once(pattern: Pattern, n: int, steps: list[list[Step]]) -> None:
    """What a rank gets of others, each element from wherever it comes; of sums every part, each once."""
    kind = collective_in(pattern)
    if kind in (Pattern.REDUCE_SCATTER, Pattern.ALL_REDUCE):
        ranks = Ranks(pattern, steps, ROWS, PARTS)
        ranks.run(Random(n))
        return ranks.check()
    arrived = Counter[tuple[int, ...]]()
    for (at, source, block, row, col), times in landings(steps).items():
        if kind is Pattern.ALL_TO_ALL and block != at:  # a block of another rank, which this one passes on
            assert times == 1
            continue
        arrived[at, source if kind is Pattern.ALL_TO_ALL else block, row, col] += times
    others: list[tuple[int, int]] = []
    match kind:
        case Pattern.ALL_GATHER | Pattern.ALL_TO_ALL:
            others = [(at, other) for at, other in product(range(n), repeat=2) if at != other]
        case Pattern.BROADCAST | Pattern.SEND_RECV:
            others = list(product(range(1, n) if kind is Pattern.BROADCAST else (1,), range(n)))
    wanted = {(*pair, row, col) for pair, row, col in product(others, range(ROWS), range(PARTS))}
    assert set(arrived) == wanted and set(arrived.values()) <= {1}
    return None
