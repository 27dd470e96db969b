"""Traffic of other programs beside a plan."""

from dataclasses import replace
from fractions import Fraction

import pytest

from magus.compiler.ir import (
    TICKS_PER_US,
    BackgroundTraffic,
    BackgroundWrite,
    Distribution,
    EngineChoice,
    EngineKind,
    Late,
    OpCase,
    OpChoice,
    OpPlan,
    Shape,
    System,
    Variability,
    WriteStream,
)
from magus.compiler.planning.build import build_op_plan
from magus.simcore import Result, simulate_op, simulate_seeds
from magus.simcore.cores.engine import run
from magus.simcore.lower.plan import lower, plan_of
from magus.simcore.lower.variability import MAX_WRITES, writes_until
from magus.simcore.program.limits import RunTooLarge
from magus.simcore.program.program import OpKind
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.oracle import Oracle
from tests.helpers.scenarios.scenarios import ag_gemm, full_mesh, gemm_rs, lone_gather, switch

UNIT = 1024
KIB = 1024
DMA = EngineChoice(EngineKind.DMA, 3)


def every(us: int, shape: Shape = Shape.CONSTANT) -> Distribution:
    return Distribution(shape, (Fraction(us * TICKS_PER_US),))


def stream(
    *ranks: int, target: int = 0, size: int = 16 * KIB, us: int = 4, shape: Shape = Shape.CONSTANT
) -> BackgroundTraffic:
    return BackgroundTraffic((WriteStream(ranks, target, 1, size, every(us, shape)),))


def beside(scenario: OpCase, traffic: BackgroundTraffic | None) -> OpCase:
    return replace(scenario, system=replace(scenario.system, traffic=traffic))


def built(scenario: OpCase, template: str = "serial", engine: EngineChoice = DMA) -> OpPlan:
    pieces = 1 if template == "serial" else 2
    return build_op_plan(scenario, OpChoice(template, scenario.num_ranks * pieces, engine))


def simulated(scenario: OpCase, schedule: OpPlan, seed: int | None = None) -> Result:
    return simulate_op(scenario, schedule, unit_bytes=UNIT, seed=seed)


def test_streams_write_at_each_interval_and_files_when_they_say() -> None:
    once = BackgroundWrite(5 * TICKS_PER_US, 3, 1, 7)
    traffic = BackgroundTraffic((WriteStream((1, 2), 0, 2, 64, every(4)),), (once,))

    found = writes_until(traffic, 9 * TICKS_PER_US, seed=0)

    assert [(write.ticks // TICKS_PER_US, write.rank) for write in found] == [
        *((4, 1), (4, 1), (4, 2), (4, 2), (5, 3)),
        *((8, 1), (8, 1), (8, 2), (8, 2)),
    ]
    assert once in found


@pytest.mark.parametrize("shape", [Shape.EXPONENTIAL, Shape.UNIFORM])
def test_drawn_intervals_have_their_mean_and_are_those_of_the_seed(shape: Shape) -> None:
    ends = (Fraction(0), Fraction(8 * TICKS_PER_US)) if shape is Shape.UNIFORM else (Fraction(4 * TICKS_PER_US),)
    traffic = BackgroundTraffic((WriteStream((1, 2), 0, 1, 64, Distribution(shape, ends)),))

    one, same, other = (writes_until(traffic, 4000 * TICKS_PER_US, seed) for seed in (3, 3, 4))

    assert one == same != other
    assert len(one) == pytest.approx(2000, rel=0.08)
    assert [w.ticks for w in one if w.rank == 1] != [w.ticks for w in one if w.rank == 2]


def test_an_end_that_is_later_changes_no_write_before() -> None:
    traffic = stream(1, 2, shape=Shape.EXPONENTIAL)

    short, long = (writes_until(traffic, us * TICKS_PER_US, 0) for us in (100, 500))

    assert short and long[: len(short)] == short


@pytest.mark.parametrize("make", [ag_gemm, gemm_rs])
@pytest.mark.parametrize("fabric", [full_mesh(), switch()])
@pytest.mark.parametrize("engine", [DMA, EngineChoice(EngineKind.SM, 3)])
def test_a_run_with_traffic_is_that_of_the_oracle(make, fabric, engine: EngineChoice) -> None:  # type: ignore[no-untyped-def]
    scenario = make(512, 512, 512, ranks=4, fabric=fabric)
    schedule = built(scenario, engine=engine)
    writes = writes_until(stream(1, 2, 3, us=2, shape=Shape.EXPONENTIAL), 30 * TICKS_PER_US, 0)
    lowered = lower(scenario.system, plan_of(scenario, schedule), unit_bytes=UNIT, fold=False, background=writes)

    program = lowered.program

    assert int((program.op_kind == OpKind.TRAFFIC).sum()) == len(writes) > 10
    assert differences(program, run(program), Oracle(program).run()) == []


def test_traffic_takes_its_share_of_a_link() -> None:
    scenario = lone_gather(4096, 4096, ranks=4, fabric=full_mesh())
    link, engine = scenario.network.route(1, 0)[0].bytes_per_s, scenario.gpu.dma.bytes_per_s
    alone = simulated(scenario, built(scenario))
    rate = link * 3 / 4

    shared = simulated(beside(scenario, stream(1, size=round(rate * 4 / 1_000_000))), built(scenario))

    # The link serves in the order of arrival: the copy ends when all is served that came while the engine sent it.
    expected = (engine + rate) / max(engine, link)
    assert shared.makespan_ticks / alone.makespan_ticks == pytest.approx(expected, rel=0.02)


def test_what_meets_no_traffic_takes_as_long_as_without() -> None:
    scenario = lone_gather(1024, 1024, ranks=4, fabric=full_mesh())
    ends = {each.name: each.end_ticks for each in simulated(scenario, built(scenario)).timeline.of_rank(0)}

    shared = simulated(beside(scenario, stream(2, target=3, us=50)), built(scenario))

    assert {each.name: each.end_ticks for each in shared.timeline.of_rank(0)} == ends and ends


def test_a_plan_does_not_wait_for_traffic_and_all_ranks_are_simulated() -> None:
    scenario = lone_gather(1024, 1024, ranks=4, fabric=full_mesh())
    small, late = BackgroundWrite(0, 2, 3, 128), BackgroundWrite(100_000 * TICKS_PER_US, 1, 0, 1 << 30)

    found = simulated(beside(scenario, BackgroundTraffic((), (small, late))), built(scenario))

    assert found.makespan_ticks == simulated(scenario, built(scenario)).makespan_ticks
    assert found.ranks_simulated == 4 and "traffic" in (found.not_alike or "")


def test_more_traffic_takes_more_of_the_links_and_longer() -> None:
    scenario = ag_gemm(2048, 2048, 2048, ranks=4, fabric=full_mesh())
    found = [simulated(beside(scenario, stream(1, 2, 3, us=us)), built(scenario)) for us in (40, 4, 1)]

    times, busy = [each.makespan_ticks for each in found], [each.utilization.links for each in found]

    assert times == sorted(set(times)) and busy == sorted(set(busy)) and busy[-1] <= 1


def test_under_seeds_times_differ_by_the_traffic_alone() -> None:
    scenario = beside(ag_gemm(1024, 1024, 1024, ranks=4), stream(1, 2, 3, us=2, shape=Shape.EXPONENTIAL))
    schedule = built(scenario)

    found = simulate_seeds(scenario.system, plan_of(scenario, schedule), range(4), unit_bytes=UNIT)

    assert len({each.makespan_ticks for each in found}) > 1
    assert [each.makespan_ticks for each in found] == [
        simulated(scenario, schedule, seed).makespan_ticks for seed in range(4)
    ]
    assert found[0].makespan_ticks == simulated(scenario, schedule).makespan_ticks  # without a seed it is seed 0


def test_constant_intervals_are_alike_under_all_seeds() -> None:
    scenario = beside(ag_gemm(1024, 1024, 1024, ranks=4), stream(1, us=2))

    found = simulate_seeds(scenario.system, plan_of(scenario, built(scenario)), range(3), unit_bytes=UNIT)

    assert len({each.makespan_ticks for each in found}) == 1


def test_traffic_of_a_late_rank_is_not_late() -> None:
    scenario = lone_gather(1024, 1024, ranks=4, fabric=full_mesh())
    system: System = replace(scenario.system, variability=Variability(late=(Late(1, 50 * TICKS_PER_US),)))
    late = replace(scenario, system=replace(system, traffic=stream(1, us=2, size=32 * KIB)))

    # Its own copies begin after 50 us: until then the link is left to the traffic.
    assert (
        simulated(late, built(scenario)).makespan_ticks
        < 2 * simulated(replace(late, system=replace(late.system, traffic=None)), built(scenario)).makespan_ticks
    )


def test_the_bound_holds_and_losses_count_traffic_as_contention() -> None:
    from magus.simcore.simulate import WhatIf

    scenario = ag_gemm(2048, 2048, 2048, ranks=4, fabric=full_mesh())
    alone, shared = (
        simulate_op(each, built(scenario), unit_bytes=UNIT, what_if=WhatIf(UNIT)).waterfall
        for each in (scenario, beside(scenario, stream(1, 2, 3, us=1)))
    )

    assert alone is not None and shared is not None
    assert shared.contention_ticks > alone.contention_ticks
    assert shared.decomposition_ticks == alone.decomposition_ticks


def test_more_writes_than_can_be_simulated_are_refused() -> None:
    with pytest.raises(RunTooLarge, match="writes"):
        writes_until(stream(1, us=1), (MAX_WRITES + 2) * TICKS_PER_US, 0)
