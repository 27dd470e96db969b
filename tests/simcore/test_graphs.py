"""Plans of several ops in one program: what they are alone, what a barrier makes of them, and exact on every core."""

import random
from dataclasses import replace

import pytest

from magus.compiler.ir import (
    Awaited,
    EngineChoice,
    EngineKind,
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
    Transfer,
    Variability,
    Wait,
    Workload,
)
from magus.compiler.planning.build import build_op_plan
from magus.compiler.planning.plan import build_plan
from magus.runtime.tasks import landing_ranks
from magus.simcore import Result, RunOptions, WhatIf, simulate, simulate_op, simulate_seeds
from magus.simcore.cores.engine import Core, run
from magus.simcore.figures.metrics import intervals_of
from magus.simcore.fold.refine import Classes, detect
from magus.simcore.fold.run import expand, quotient
from magus.simcore.lower.plan import lower
from magus.simcore.lower.state import StepOps
from magus.simcore.lower.steps import LoweredPart
from magus.simcore.program.program import OpKind, RunOutcome
from tests.helpers.marks import thinned
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.drawn_graphs import draw_graph_plan
from tests.helpers.oracle.drawn_programs import draw_choice, draw_plan, draw_scenario
from tests.helpers.oracle.oracle import Oracle
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of
from tests.simcore.lower.test_variability import JITTER, SKEW, varied

DMA = EngineChoice(EngineKind.DMA, 7)
MAX_LINE_HOPS = 12_000
UP, DOWN = Pattern.AG_GEMM, Pattern.GEMM_RS


def scenario(pattern: Pattern, m: int = 1024, n: int = 1024, k: int = 512) -> OpCase:
    return scenario_of(pattern, SYSTEMS[0], 4, m, n, k)


def without_noc(one: OpCase) -> OpCase:
    return replace(one, system=replace(one.system, gpu=replace(one.gpu, noc=None)))


def read(name: str, *, by_rows: bool = False, moves: bool = False, what: Made = Made.OUTPUT) -> Read:
    return Read(f"result of {name}", name, what, by_rows, moves)


def of_ops(*ops: Op) -> Workload:
    return Workload("g", "", ops)


def simulated(graph: Workload, choice: Schedule, system: OpCase) -> Result:
    result = simulate(system.system, build_plan(system.system, graph, choice), name="g")
    assert result.outcome is RunOutcome.DONE
    return result


@pytest.mark.quick(4)
@pytest.mark.parametrize("pattern", Pattern, ids=lambda pattern: pattern.name)
def test_a_graph_of_one_op_is_that_op(pattern: Pattern) -> None:
    """In everything that a result says."""
    for index in range(4):
        one, schedule = draw_plan(random.Random(f"graph of {pattern.name} {index}"), pattern)
        choice = Schedule(schedule.expression, (OpMode("y", _as_drawn(index, pattern)),))
        plan = build_plan(one.system, of_ops(Op("y", one.shape)), choice)
        expected = simulate_op(one, schedule, unit_bytes=4096, options=RunOptions(observe=True))
        result = simulate(one.system, plan, name=one.name, unit_bytes=4096, options=RunOptions(observe=True))

        assert replace(result, ops=()) == replace(expected, ops=())
        assert [op.name for op in result.ops] == ["y"]


def _as_drawn(index: int, pattern: Pattern) -> OpChoice:
    """The choice behind the plan that ``draw_plan`` draws from the same seed."""
    rng = random.Random(f"graph of {pattern.name} {index}")
    return draw_choice(rng, draw_scenario(rng, pattern))


FUSED = OpChoice("hetero_fused_1d", 16, DMA)
SERIAL = OpChoice("serial", 4, DMA)
BARRIERS = [
    (first, second, mode)
    for first in (UP, DOWN, Pattern.GEMM, Pattern.KERNEL)
    for second in (UP, DOWN, Pattern.GEMM, Pattern.REDUCE_SCATTER, Pattern.ALL_TO_ALL)
    for mode in ((SERIAL, FUSED) if first.overlaps and second.overlaps else (SERIAL,))
]


@pytest.mark.parametrize(
    ("first", "second", "mode"), BARRIERS, ids=[f"{one.name} {two.name} {mode.template}" for one, two, mode in BARRIERS]
)
def test_behind_a_barrier_times_add_up(first: Pattern, second: Pattern, mode: OpChoice) -> None:
    """To the tick: behind kernels of the same stream nothing is waited for but their end.

    A network on chip is left out: alone, a collective has no kernel to share it with.
    """
    one, other = without_noc(scenario(first)), without_noc(scenario(second))
    graph = of_ops(
        Op("a", one.shape),
        Op("b", other.shape, (read("a", by_rows=True, moves=other.shape.pattern is not DOWN),)),
    )
    modes = tuple(OpMode(name, mode) for name in "ab")
    alone = [simulate_op(each, build_op_plan(each, mode)).makespan_ticks for each in (one, other)]

    both = simulated(graph, Schedule("p", modes, handoff=HandOff.WHOLE), one)

    assert both.makespan_ticks == sum(alone)


def test_there_are_twenty_barriers() -> None:
    assert len(BARRIERS) >= 20


@pytest.mark.parametrize("pattern", [UP, DOWN, Pattern.GEMM_AR, Pattern.A2A_GEMM], ids=lambda pattern: pattern.name)
def test_a_pair_that_is_apart_takes_as_long_as_serial(pattern: Pattern) -> None:
    one = scenario(pattern)
    graph = of_ops(Op("y", one.shape))

    result = simulated(graph, Schedule("p", (OpMode("y", separate=SERIAL),)), one)
    serial = simulate_op(one, build_op_plan(one, SERIAL))

    assert result.makespan_ticks == serial.makespan_ticks
    assert len(result.ops) == 1
    assert result.op("y").comm_ticks == serial.comm_ticks


@pytest.mark.parametrize(("engines", "own"), [(1, True), (2, False)])
def test_copies_by_fewer_engines_are_as_slow_beside_others(engines: int, own: bool) -> None:
    """One engine for one collective and seven for another are all that the GPU has; nine are not."""
    gather = scenario(Pattern.ALL_GATHER)
    few = OpChoice("direct", 32, EngineChoice(EngineKind.DMA, engines))
    graph = of_ops(Op("a", gather.shape), Op("b", gather.shape, (read("a"),)))
    modes = (OpMode("a", few), OpMode("b", SERIAL))

    alone = simulate_op(gather, build_op_plan(gather, few)).makespan_ticks
    times = simulated(graph, Schedule("p", modes), gather).op("a")

    assert (times.end_ticks - times.begin_ticks == alone) is own


def test_rows_are_waited_for_one_by_one() -> None:
    """A reduce_scatter and the all_gather of its result overlap; each copy begins when its rows are summed."""
    down, up = scenario(DOWN, 4096, 2048, 4096), scenario(UP, 4096, 2048, 2048)
    graph = of_ops(Op("a", down.shape), Op("b", up.shape, (read("a", by_rows=True, moves=True),)))
    modes = tuple(OpMode(name, FUSED) for name in "ab")
    times = {seams: simulated(graph, Schedule("p", modes, handoff=seams), down).makespan_ticks for seams in HandOff}
    plan = build_plan(down.system, graph, Schedule("p", modes))

    assert times[HandOff.CHUNKS] < times[HandOff.WHOLE]
    assert plan.part("b").waits == ()
    assert {wait.of for wait in plan.part("b").step_waits} == {"r0", "r1", "r2", "r3"}


def test_what_is_gathered_is_there_before_the_kernel_ends() -> None:
    up, grad = scenario(UP), scenario(Pattern.GEMM)
    ops = Op("a", up.shape), Op("b", grad.shape, (read("a", what=Made.MOVED),))
    beside = Schedule("p", (OpMode("a", SERIAL),), streams=(("b", 1),))

    result = simulated(of_ops(*ops), beside, up)

    assert result.op("b").begin_ticks < result.op("a").end_ticks


def test_sums_that_go_first_do_not_wait_for_queued_tiles() -> None:
    down, filler = scenario(DOWN, 2048, 2048, 2048), scenario(Pattern.GEMM, 4096, 4096, 4096)
    graph = of_ops(Op("a", down.shape), Op("b", filler.shape))
    ends = {}
    for first in (False, True):
        choice = Schedule("p", (OpMode("a", FUSED),), sums_first=first)
        ends[first] = simulated(graph, choice, down).op("a").end_ticks

    assert ends[True] < ends[False]


def test_collectives_follow_each_other() -> None:
    gather = scenario(Pattern.ALL_GATHER)
    graph = of_ops(Op("a", gather.shape), Op("b", gather.shape))

    result = simulated(graph, Schedule("p", (OpMode("a", SERIAL), OpMode("b", SERIAL))), gather)

    assert result.op("a").end_ticks <= result.op("b").begin_ticks
    assert result.makespan_ticks == 2 * result.op("a").end_ticks


def test_a_collective_beside_a_kernel_begins_with_it() -> None:
    gather, kernel = scenario(Pattern.ALL_GATHER), scenario(Pattern.GEMM)
    graph = of_ops(
        Op("k", kernel.shape),
        Op("l", kernel.shape),
        Op("x", gather.shape),
        Op("z", gather.shape),
    )
    modes = (OpMode("x", SERIAL), OpMode("z", SERIAL))

    result = simulated(graph, Schedule("p", modes, starts_with=(("x", "l"),)), kernel)

    assert result.op("k").end_ticks <= result.op("x").begin_ticks < result.op("l").end_ticks


@pytest.mark.parametrize(("beside", "taken"), [((), 0), ((("x", "k"),), 16)])
def test_copies_by_sms_take_them_from_kernels_beside_them(beside: tuple[tuple[str, str], ...], taken: int) -> None:
    gather, kernel = scenario(Pattern.ALL_GATHER), scenario(Pattern.GEMM)
    graph = of_ops(Op("k", kernel.shape), Op("x", gather.shape))
    choice = Schedule("p", (OpMode("x", OpChoice("serial", 4, EngineChoice(EngineKind.SM, 16))),), starts_with=beside)
    program = lower(kernel.system, build_plan(kernel.system, graph, choice), unit_bytes=1024).program

    pools = sorted(zip(program.pool_names, program.pool_slots.tolist(), strict=True))
    assert pools == [("copy_sms", 16), ("sms", kernel.gpu.sms - taken)]


def test_labels_tell_ops_apart_and_priorities_are_theirs() -> None:
    down = scenario(DOWN)
    graph = of_ops(Op("a", down.shape), Op("b", down.shape))
    choice = Schedule("p", (OpMode("a", FUSED), OpMode("b", FUSED)), low=("b",), sums_first=True)
    program = lower(down.system, build_plan(down.system, graph, choice), unit_bytes=4096).program

    found = {
        (program.labels[label][0], OpKind(kind), priority)
        for label, kind, priority in zip(
            program.op_label_idx.tolist(), program.op_kind.tolist(), program.op_priority.tolist(), strict=True
        )
        if kind in (OpKind.TILE, OpKind.REDUCE)
    }
    assert found == {
        ("a", OpKind.TILE, 0),
        ("b", OpKind.TILE, 1),
        ("a", OpKind.REDUCE, -1),
        ("b", OpKind.REDUCE, -1),
    }


def agree(seed: int) -> bool:
    """Whether a drawn graph was small enough to be compared; that it is exact is asserted."""
    rng = random.Random(f"graph {seed}")
    system, _, plan = draw_graph_plan(rng)
    unit = rng.choice((4096, 8192))
    whole = lower(system, plan, unit_bytes=unit, fold=False).program
    if whole.num_line_hops > MAX_LINE_HOPS:
        return False
    folded = lower(system, plan, unit_bytes=unit).program
    expected = Oracle(whole).run()
    for core in Core:
        assert differences(whole, run(whole, core=core), expected) == [], (seed, core)
    classes = detect(whole)
    if isinstance(classes, Classes):
        small = quotient(whole, classes)
        assert differences(whole, expand(small, run(small.program)), expected) == [], seed
    if folded.folded:
        assert run(folded).makespan_ticks == expected.makespan, seed
    return True


def _makers(part: LoweredPart, name: str, rank: int) -> list[StepOps]:
    """The step of that name at a rank, or the copies whose signal it is there."""
    n = part.scenario.num_ranks
    return [
        ops
        for ops in part.steps
        if (ops.rank, ops.step.name) == (rank, name)
        or (isinstance(ops.step, Transfer) and ops.step.signal == name and rank in landing_ranks(ops.step, ops.rank, n))
    ]


def too_early(seed: int) -> tuple[int, list[str]]:
    """Number of waits of a drawn graph, and the steps that begin before what they wait for."""
    system, _, plan = draw_graph_plan(random.Random(f"waits {seed}"))
    lowered = lower(system, plan, unit_bytes=8192, fold=False)
    result = run(lowered.program)
    if result.outcome is not RunOutcome.DONE:
        return 0, []
    parts = dict(zip((part.name for part in plan.parts), lowered.parts, strict=True))
    found, waits = [], 0
    for part in plan.parts:
        # A kernel that looks for a flag begins to do so before it is set.
        looks = part.schedule.tactics.wait is not Wait.EVENT
        begins = {
            (one.rank, one.name): one.end_ticks if looks else one.start_ticks
            for one in intervals_of(parts[part.name], result)
        }
        for ops in parts[part.name].steps:
            if (ops.rank, ops.step.name) not in begins:  # a call of the library carries out several
                continue
            begin = begins[ops.rank, ops.step.name]
            kernel = not isinstance(ops.step, Transfer)
            local = {step.name for step in part.schedule.steps_of(ops.rank)}
            signals = [name for name in ops.step.after if not name.startswith("@") and name not in local]
            for wait in part.waits:
                # What came from others is passed on, or summed, whatever has been made here.
                if wait.what is not Awaited.END or not (kernel or not signals) or (wait.kernels_only and not kernel):
                    continue
                waits += 1
                makers = [other for other in parts[wait.on].steps if other.rank == ops.rank]
                end = max((int(result.op_done[other.done]) for other in makers), default=0)
                found += [f"{part.name}.{ops.step.name} of {wait.on}"] if begin < end else []
            for step in part.step_waits:
                if step.step == ops.step.name:
                    waits += 1
                    makers = _makers(parts[step.on], step.of, ops.rank)
                    assert makers, step
                    end = max(int(result.op_done[maker.done]) for maker in makers)
                    found += [f"{step}"] if begin < end else []
    return waits, found


@pytest.mark.parametrize("engine", [DMA, EngineChoice(EngineKind.SM, 8)], ids=str)
def test_rows_are_waited_for_by_every_kind_of_copy(engine: EngineChoice) -> None:
    """Also by a collective that is one kernel, whose copies all begin with its launch."""
    down, gather = scenario(DOWN, 4096, 2048, 4096), scenario(Pattern.ALL_GATHER, 4096, 512, 2048)
    graph = of_ops(Op("a", down.shape), Op("b", gather.shape, (read("a", by_rows=True, moves=True),)))
    modes = OpMode("a", FUSED), OpMode("b", OpChoice("serial", 4, engine))
    result = simulated(graph, Schedule("p", modes), down)

    sums = [one.end_ticks for one in result.timeline.of_rank(0) if one.name.startswith("a.r")]
    assert len(sums) == 4
    assert result.op("b").begin_ticks >= min(sums)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", thinned([range(first, first + 15) for first in range(0, 150, 15)], 10), ids=str)
def test_nothing_begins_before_what_it_waits_for(seeds: range) -> None:
    waits = 0
    for seed in seeds:
        count, early = too_early(seed)
        waits += count
        assert early == [], seed
    assert waits > 50


@pytest.mark.quick(1)
@pytest.mark.parametrize("seeds", [(*range(1, 7), 13), (0, *range(7, 13))], ids=str)
def test_random_graphs_equal_the_oracle(seeds: tuple[int, ...]) -> None:
    assert sum(map(agree, seeds)) >= 3


@pytest.mark.slow
def test_many_random_graphs_equal_the_oracle() -> None:
    compared = 0
    for seed in range(14, 3000):
        compared += agree(seed)
        if compared == 300:
            break
    assert compared == 300


def test_a_collective_that_reads_nothing_does_not_run_ahead() -> None:
    gather, kernel = scenario(Pattern.ALL_GATHER), scenario(Pattern.GEMM)
    ops = (Op("k", kernel.shape), Op("x", gather.shape), Op("l", kernel.shape))
    result = simulated(of_ops(*ops), Schedule("p", (OpMode("x", SERIAL),)), kernel)

    assert result.op("k").end_ticks <= result.op("x").begin_ticks < result.op("l").end_ticks


def _of_two(system: OpCase) -> Plan:
    """Two pairs side by side, cut in pieces."""
    graph = of_ops(Op("a", system.shape), Op("b", system.shape))
    return build_plan(system.system, graph, Schedule("p", tuple(OpMode(name, FUSED) for name in "ab")))


def test_what_is_lost_in_a_plan_of_several_parts_adds_up_to_its_time() -> None:
    one = scenario(UP)
    plan = _of_two(one)
    plain = simulate(one.system, plan, unit_bytes=4096)
    result = simulate(one.system, plan, unit_bytes=4096, what_if=WhatIf(4096, bound_ticks=1))

    assert replace(result, waterfall=None, cil=None) == plain
    assert result.waterfall is not None and result.waterfall.makespan_ticks == result.makespan_ticks
    losses = dict(result.waterfall.rows)
    assert sum(losses.values()) == 2 * losses["makespan"]
    assert losses["contention"] > 0 and losses["launch and synchronization"] > 0
    assert result.cil is not None and result.cil >= 1


def test_seeds_of_a_plan_of_several_parts_together_and_alone() -> None:
    one = varied(scenario(UP), Variability(SKEW, JITTER))
    plan = _of_two(one)
    together = simulate_seeds(one.system, plan, range(3), unit_bytes=4096)
    alone = [simulate(one.system, plan, unit_bytes=4096, seed=seed) for seed in range(3)]

    assert len({result.makespan_ticks for result in alone}) == 3
    assert [replace(result, core="") for result in together] == [replace(result, core="") for result in alone]
