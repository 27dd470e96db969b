"""Lowering: what a plan becomes, alone and on every rank."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from magus.compiler.ir import (
    Direction,
    EngineChoice,
    EngineKind,
    Fabric,
    IndexRange,
    OpCase,
    OpChoice,
    OpPlan,
    Override,
    Region,
    TileGroup,
    Transfer,
    WrittenPlan,
)
from magus.compiler.planning.build import build_op_plan, reject_choice
from magus.compiler.templates import TEMPLATES
from magus.simcore import RunOptions, RunTooLarge, affordable_unit, simulate_op
from magus.simcore.cores.engine import run
from magus.simcore.figures.load_buckets import traffic_of, union_ticks
from magus.simcore.figures.result import IntervalKind
from magus.simcore.kernels.gemm import gemm_work
from magus.simcore.lower.machine import Idealization
from magus.simcore.program.program import OpKind, RunOutcome, TrafficClass
from tests.helpers.marks import thinned
from tests.helpers.oracle.lowering import lower_op
from tests.helpers.scenarios.scenarios import (
    ag_gemm,
    full_mesh,
    gemm_rs,
    lone_gather,
    lone_gemm,
    lone_scatter,
    ring,
    switch,
)
from tests.helpers.some import some

UNIT = 8192


def choices(scenario: OpCase) -> list[OpChoice]:
    n = scenario.num_ranks
    engines = (
        EngineChoice(EngineKind.DMA, max(1, n - 1)),
        EngineChoice(EngineKind.DMA, 1),
        EngineChoice(EngineKind.SM, 8),
    )
    found = [
        OpChoice(template.name, n * pieces, engine, template.default_streams)
        for template in TEMPLATES
        for pieces in (1, 2, 4)
        for engine in engines
    ]
    return [choice for choice in found if reject_choice(scenario, choice) is None]


# Each fifth has every number of ranks, every fabric and both patterns.
SYSTEMS = thinned(product((2, 4, 8), (full_mesh(), ring(), switch()), (ag_gemm, gemm_rs)), 10)


@pytest.mark.quick(1)
@pytest.mark.parametrize("system", SYSTEMS)
def test_one_rank_gives_the_times_of_all(system: tuple[int, Fabric, Callable[..., OpCase]]) -> None:
    ranks, fabric, make = system
    scenario = make(256, 512, 512, ranks=ranks, fabric=fabric)
    for choice in some(choices(scenario)):
        schedule = build_op_plan(scenario, choice)
        folded = lower_op(scenario, schedule, unit_bytes=UNIT)
        every = lower_op(scenario, schedule, unit_bytes=UNIT, fold=False)

        one, all_ranks = run(folded.program), run(every.program)

        assert one.outcome is all_ranks.outcome is RunOutcome.DONE
        for rank in range(ranks):
            mine = every.program.op_rank == rank
            ordered = np.argsort(every.program.op_local_id[mine], kind="stable")
            local = np.argsort(folded.program.op_local_id, kind="stable")
            keep = folded.program.op_local_id[local] >= 0
            kept = every.program.op_local_id[mine][ordered] >= 0
            assert (all_ranks.op_done[mine][ordered][kept] == one.op_done[local][keep]).all()
            assert (all_ranks.op_start[mine][ordered][kept] == one.op_start[local][keep]).all()
        assert all_ranks.makespan_ticks == one.makespan_ticks


@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (512, 8192, 1024), (128, 256, 16384), (8192, 3584, 8192)])
def test_a_gemm_alone_takes_its_closed_form(shape: tuple[int, int, int]) -> None:
    scenario = lone_gemm(*shape)
    work = gemm_work(scenario.gpu, scenario.shape.gemm, scenario.gpu.sms)
    schedule = build_op_plan(scenario, OpChoice("serial", scenario.num_ranks, EngineChoice(EngineKind.DMA, 1)))

    found = run(lower_op(scenario, schedule, unit_bytes=1024).program).makespan_ticks

    assert found == pytest.approx(work.alone_ticks, rel=0.02)


def test_a_plan_moves_the_bytes_it_says() -> None:
    scenario = ag_gemm(512, 1024, 1024, ranks=4)
    for choice in some(choices(scenario)):
        lowered = lower_op(scenario, build_op_plan(scenario, choice), unit_bytes=128)
        program = lowered.program
        links = [i for i in range(program.num_servers) if program.server_name(i).startswith("link")]
        through = np.isin(program.hop_server, links)
        moved = int(program.flow_units[program.hop_flow[through]].sum()) * program.unit_bytes

        assert moved == traffic_of([lowered], run(program)).link_bytes


def test_copies_by_sms_leave_fewer_to_kernels_and_dma_leaves_all() -> None:
    scenario = ag_gemm(2048, 4096, 4096)
    by_dma = build_op_plan(scenario, OpChoice("uniform_fused_1d", 32, EngineChoice(EngineKind.DMA, 7)))
    by_sms = build_op_plan(scenario, OpChoice("uniform_fused_1d", 32, EngineChoice(EngineKind.SM, 16)))
    serial = build_op_plan(scenario, OpChoice("serial", 8, EngineChoice(EngineKind.SM, 16)))

    assert by_dma.compute_sms == serial.compute_sms == scenario.gpu.sms
    assert by_sms.compute_sms == scenario.gpu.sms - 16


def test_never_more_transfers_at_once_than_engines() -> None:
    scenario = ag_gemm(2048, 4096, 4096)
    schedule = build_op_plan(scenario, OpChoice("uniform_fused_1d", 64, EngineChoice(EngineKind.DMA, 3)))
    lowered = lower_op(scenario, schedule, unit_bytes=UNIT)
    done = run(lowered.program)
    copies = lowered.program.op_kind == OpKind.TRANSFER
    events = sorted([(t, 1) for t in done.op_start[copies]] + [(t, -1) for t in done.op_done[copies]])

    assert max(np.cumsum([change for _, change in events])) == 3


def test_ideal_runs_are_never_slower() -> None:
    scenario = gemm_rs(2048, 4096, 2048)
    schedule = build_op_plan(scenario, OpChoice("hetero_fused_1d", 16, EngineChoice(EngineKind.DMA, 7)))
    ideals = [
        Idealization.NONE,
        Idealization.FREE_LAUNCH,
        Idealization.FREE_LAUNCH | Idealization.PRIVATE_SERVERS,
    ]

    times = [run(lower_op(scenario, schedule, unit_bytes=UNIT, ideal=ideal).program).makespan_ticks for ideal in ideals]

    assert times == sorted(times, reverse=True)


def test_lone_collectives_run_and_move_every_shard() -> None:
    for scenario in (lone_gather(1024, 1024), lone_scatter(1024, 1024)):
        schedule = build_op_plan(scenario, OpChoice("serial", 8, EngineChoice(EngineKind.DMA, 7)))
        copies = [step for step in schedule.steps if isinstance(step, Transfer)]

        assert len(copies) == 7
        assert run(lower_op(scenario, schedule, unit_bytes=128).program).outcome is RunOutcome.DONE


def test_a_granularity_that_is_no_multiple_of_a_line_is_refused() -> None:
    scenario = ag_gemm(512, 1024, 1024)
    schedule = build_op_plan(scenario, OpChoice("serial", 8, EngineChoice(EngineKind.DMA, 7)))

    with pytest.raises(ValueError, match="multiple of 128 B"):
        lower_op(scenario, schedule, unit_bytes=100)


def test_a_plan_with_an_override_is_folded_as_far_as_its_ranks_are_alike() -> None:
    scenario = ag_gemm(512, 1024, 1024, ranks=4)
    schedule = build_op_plan(scenario, OpChoice("hetero_fused_1d", 8, EngineChoice(EngineKind.DMA, 3)))
    put = next(step for step in schedule.steps if isinstance(step, Transfer) and step.name == "x1_1")
    late = replace(put, after=("x0_1",))
    uneven = replace(schedule, overrides=tuple(Override(rank, late) for rank in (0, 2)))

    folded = simulate_op(scenario, uneven, unit_bytes=UNIT)
    every = simulate_op(scenario, uneven, unit_bytes=UNIT, options=RunOptions(fold=False))

    assert folded.makespan_ticks == every.makespan_ticks
    assert folded.timeline == every.timeline
    assert (folded.ranks_simulated, every.ranks_simulated) == (2, 4)


def test_figures_of_an_uneven_plan_come_from_one_rank() -> None:
    scenario = ag_gemm(512, 1024, 1024, ranks=2)
    schedule = build_op_plan(scenario, OpChoice("hetero_fused_1d", 4, EngineChoice(EngineKind.DMA, 1)))
    put = next(step for step in schedule.steps if isinstance(step, Transfer) and step.name == "x0_1")
    uneven = replace(schedule, overrides=(Override(1, replace(put, after=("own",))),))

    result = simulate_op(scenario, uneven, unit_bytes=UNIT, options=RunOptions(fold=False))

    efficiencies = []
    for rank in range(2):
        kernels = [i for i in result.timeline.of_rank(rank) if i.kind is not IntervalKind.COMM]
        copies = [i for i in result.timeline.of_rank(rank) if i.kind is IntervalKind.COMM]
        compute, comm = union_ticks(kernels), union_ticks(copies)
        efficiencies.append((compute + comm - union_ticks([*kernels, *copies])) / comm)
    assert result.overlap_efficiency in efficiencies


def test_a_kernel_costs_the_same_wherever_its_plan_names_it() -> None:
    scenario = lone_gemm(512, 512, 512)
    first, last = Region(0, IndexRange(0, 256), IndexRange(0, 512)), Region(0, IndexRange(256, 512), IndexRange(0, 512))
    a = TileGroup("a", (first,), IndexRange(0, 512))
    b = TileGroup("b", (last,), IndexRange(0, 512), after=("a",), stream=1)
    times = {
        simulate_op(
            scenario, build_op_plan(scenario, WrittenPlan(EngineChoice(EngineKind.DMA, 1), steps), "p")
        ).makespan_ticks
        for steps in ((a, b), (b, a))
    }

    assert len(times) == 1


def test_the_request_of_a_get_travels_as_far_as_its_data() -> None:
    scenario = ag_gemm(512, 256, 512, ranks=8, fabric=ring())
    gaps = []
    for peer in (1, 4):
        region = Region(0, IndexRange(0, 64), IndexRange(0, 512))
        put = Transfer("x", Direction.PUT, region, peer, "s")
        get = Transfer("x", Direction.GET, replace(region, owner=peer), peer, "s")
        times = [
            run(lower_op(scenario, schedule_of(step), unit_bytes=UNIT).program).makespan_ticks for step in (put, get)
        ]
        gaps.append(times[1] - times[0])

    assert gaps == [scenario.system.fabric.link.latency_ticks, 4 * scenario.system.fabric.link.latency_ticks]


def schedule_of(step: Transfer) -> OpPlan:
    return OpPlan("p", (step,), EngineChoice(EngineKind.DMA, 1), 304, 0)


def test_a_run_that_would_take_minutes_is_refused() -> None:
    scenario = ag_gemm(1 << 23, 8192, 28672)
    schedule = build_op_plan(scenario, OpChoice("serial", 8, EngineChoice(EngineKind.DMA, 7)))

    with pytest.raises(RunTooLarge, match="packets"):
        simulate_op(scenario, schedule, unit_bytes=128)

    unit = affordable_unit(scenario, schedule, 1024, 60_000_000)
    assert unit > 1024 and unit % 1024 == 0


def test_a_copy_engine_has_no_more_under_way_than_the_gpu_says() -> None:
    scenario = ag_gemm(512, 1024, 1024, ranks=4)
    engine = EngineChoice(EngineKind.DMA, 3)
    windows = []
    for outstanding in (None, 4096, 1 << 30):
        gpu = replace(scenario.gpu, dma=replace(scenario.gpu.dma, outstanding_bytes=outstanding))
        limited = replace(scenario, system=replace(scenario.system, gpu=gpu))
        program = lower_op(limited, build_op_plan(limited, OpChoice("serial", 4, engine)), unit_bytes=128).program
        comm = program.flow_traffic == TrafficClass.COMM
        windows.append(set(program.flow_window_units[comm].tolist()))
        assert not program.flow_window_units[~comm].any()

    assert windows == [{0}, {32}, {0}]
