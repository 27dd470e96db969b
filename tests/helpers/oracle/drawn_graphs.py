"""Small graphs of ops of every pattern, drawn at random, with a schedule of each."""

import random
from dataclasses import replace

from magus.compiler.ir import (
    HandOff,
    Made,
    Op,
    OpCase,
    OpChoice,
    OpMode,
    Pattern,
    Plan,
    Read,
    Schedule,
    System,
    Workload,
)
from magus.compiler.planning.handoff import following
from magus.compiler.planning.parts import PlanError, collective_alone
from magus.compiler.planning.plan import build_plan
from tests.helpers.oracle.drawn_programs import ONE_RANK, draw_choice, draw_scenario
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of

PAIRS = tuple(pattern for pattern in Pattern if pattern not in ONE_RANK)


def draw_graph_plan(rng: random.Random, most_ops: int = 6) -> tuple[System, Workload, Plan]:
    """A graph of 2 to ``most_ops`` ops, and a plan that is drawn again until it can be kept."""
    first = draw_scenario(rng, Pattern.GEMM_A2A if rng.random() < 0.2 else rng.choice(PAIRS))
    scenarios = [first, *(_another(rng, first) for _ in range(rng.randint(1, most_ops - 1)))]
    while True:
        graph, of_ops = _followed(rng, _draw_graph(rng, scenarios), scenarios)
        choice = _draw_choice(rng, graph, of_ops)
        try:
            return first.system, graph, build_plan(first.system, graph, choice)
        except PlanError:
            continue


def _followed(rng: random.Random, graph: Workload, scenarios: list[OpCase]) -> tuple[Workload, list[OpCase]]:
    """Maybe with a GEMM behind one of the pairs that exchange rows, which may be cut along it."""
    exchanging = [op for op in graph.ops if op.shape.pattern is Pattern.GEMM_A2A and not op.shape.uneven]
    if not exchanging or rng.random() < 0.3:
        return graph, scenarios
    pair = rng.choice(exchanging)
    moved = pair.shape.moved
    assert moved is not None
    behind = scenario_of(Pattern.GEMM, SYSTEMS[0], scenarios[0].num_ranks, moved.rows, 64, moved.cols)
    op = Op(f"op{len(graph.ops)}", behind.shape, (Read(f"t_{pair.name}", pair.name, by_rows=True),))
    return replace(graph, ops=(*graph.ops, op)), [*scenarios, replace(behind, system=scenarios[0].system)]


def _another(rng: random.Random, first: OpCase) -> OpCase:
    """An op of any pattern on the system of ``first``."""
    ranks = first.num_ranks
    m, n, k = (ranks * rng.choice((16, 32)) for _ in range(3))
    scenario = scenario_of(rng.choice(list(Pattern)), SYSTEMS[0], ranks, m, n, k)
    return replace(scenario, system=first.system)


def _draw_graph(rng: random.Random, scenarios: list[OpCase]) -> Workload:
    ops: list[Op] = []
    for number, scenario in enumerate(scenarios):
        reads = tuple(_read(rng, op, scenario) for op in ops if rng.random() < 0.4)
        ops.append(Op(f"op{number}", scenario.shape, reads))
    return Workload("drawn", "", tuple(ops))


def _read(rng: random.Random, op: Op, reader: OpCase) -> Read:
    gathers = op.shape.pattern in (Pattern.AG_GEMM, Pattern.A2A_GEMM)
    what = Made.MOVED if gathers and rng.random() < 0.3 else Made.OUTPUT
    moves = reader.shape.is_collective or (reader.shape.pattern.consumes and rng.random() < 0.6)
    return Read(f"t_{op.name}", op.name, what, by_rows=rng.random() < 0.7, moves=moves)


def _draw_choice(rng: random.Random, graph: Workload, scenarios: list[OpCase]) -> Schedule:
    ranks = scenarios[0].num_ranks
    along = [op.name for ops in following(graph, ranks).values() for op in ops if rng.random() < 0.8]
    drawn = (_mode(rng, op, scenario) for op, scenario in zip(graph.ops, scenarios, strict=True))
    modes = tuple(mode for mode in drawn if mode.op not in along)
    names = [op.name for op in graph.ops]
    alone = [op.name for op in graph.ops if op.shape.is_collective]
    beside = ((rng.choice(alone), rng.choice(names)),) if alone and rng.random() < 0.3 else ()
    return Schedule(
        "drawn",
        modes,
        order=tuple(rng.sample(names, len(names))) if rng.random() < 0.3 else (),
        streams=tuple((name, rng.choice((1, 2))) for name in names if rng.random() < 0.2),
        starts_with=tuple(pair for pair in beside if pair[0] != pair[1]),
        low=tuple(name for name in names if rng.random() < 0.2),
        sums_first=rng.random() < 0.5,
        handoff=rng.choice(list(HandOff)),
        chained=tuple(along),
    )


def _mode(rng: random.Random, op: Op, scenario: OpCase) -> OpMode:
    if op.is_pair and op.shape.then is None and not op.shape.loads and rng.random() < 0.3:
        return OpMode(op.name, separate=draw_whole(rng, scenario))
    return OpMode(op.name, draw_choice(rng, scenario))


def draw_whole(rng: random.Random, scenario: OpCase) -> OpChoice:
    """How the collective of a pair is carried out when it is apart."""
    alone = collective_alone(scenario.shape)
    return draw_choice(rng, replace(scenario, shape=alone))
