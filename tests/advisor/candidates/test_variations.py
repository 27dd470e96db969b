"""Which other execution options are tried for the fastest schedules, serial ones too."""

from dataclasses import replace
from math import inf

import pytest

from magus.advisor.candidates.candidate import (
    LEAST_ROWS,
    LEAST_SIDE,
    Candidate,
    ScheduleOrigin,
    forms_of,
    in_other_tiles,
    may_deadlock,
    persistent_forms,
    summed_in_switch,
)
from magus.advisor.candidates.shortlist import NUM_TRIED, variants
from magus.advisor.estimate.makespan import estimate_ticks
from magus.compiler import compile_text
from magus.compiler.ir import (
    CopyProtocol,
    Direction,
    DType,
    EngineChoice,
    EngineKind,
    EngineMode,
    ExecutionOptions,
    Explore,
    Kernels,
    LaunchMode,
    OpCase,
    OpChoice,
    Pattern,
    Wait,
    WaitPer,
)
from magus.compiler.planning.build import build_op_plan, expression_of, reject_choice
from magus.simcore import simulate_op
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of
from tests.helpers.scenarios.scenarios import exploring

SM, DMA = EngineChoice(EngineKind.SM, 16), EngineChoice(EngineKind.DMA, 3)
GEMM = scenario_of(Pattern.AG_GEMM, SYSTEMS[0], 4, 256, 256, 256)
CHOICES = [OpChoice("hetero_fused_1d", 8, SM), OpChoice("shard_p2p", 4, DMA), OpChoice("uniform_fused_1d", 8, SM)]
SERIAL, BY_SM = OpChoice("serial", 4, DMA), OpChoice("serial", 4, SM)
SMALL = scenario_of(Pattern.AG_GEMM, SYSTEMS[0], 4, 16, 4096, 256)
PERSISTENT = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL)

DOWN = """
use "amd/mi300x"
system node { gpus 8 x MI300X; fabric full_mesh(xgmi) }
workload down on node {
  x = tensor bf16[2048, 8192] shard cols
  w = tensor bf16[8192, 8192] shard rows
  y = reduce_scatter(gemm(x, w))
}
"""


def candidates(scenario: OpCase, choices: list[OpChoice]) -> list[Candidate]:
    """Simulated in the order given."""
    built = [(choice, build_op_plan(scenario, choice)) for choice in choices]
    return [
        Candidate(
            schedule.expression,
            choice,
            schedule,
            ScheduleOrigin.SERIAL if choice.template == "serial" else ScheduleOrigin.TEMPLATE,
            float(at),
            at + 1,
            128,
        )
        for at, (choice, schedule) in enumerate(built)
    ]


def ways(explore: Explore) -> list[OpChoice]:
    scenario = exploring(GEMM, explore)
    return variants(scenario, candidates(scenario, [*CHOICES, SERIAL, BY_SM]))


def differs(way: OpChoice, name: str) -> bool:
    return getattr(way.tactics, name) is not getattr(ExecutionOptions(), name)


@pytest.mark.slow
def test_the_fastest_are_varied_and_nothing_is_tried_twice() -> None:
    known = candidates(GEMM, [*CHOICES, SERIAL, BY_SM])
    found = variants(GEMM, known)

    told = set(persistent_forms(GEMM))
    assert 0 < len([way for way in found if not way.tactics.tile]) <= 2 * NUM_TRIED
    assert len([way for way in found if way.tactics.tile]) <= 3 * NUM_TRIED
    varied = {way.template for way in found if way not in told}
    assert varied <= {"hetero_fused_1d", "shard_p2p", "serial"}, "not the third"
    assert not {expression_of(way) for way in found} & {each.expression for each in known}
    assert len(set(found)) == len(found)
    assert all(reject_choice(GEMM, way) is None for way in found)
    again = candidates(GEMM, found)
    assert not set(found) & set(variants(GEMM, [*known, *again]))


def test_serial_and_overlapping_schedules_have_the_same_options() -> None:
    def options(base: OpChoice) -> set[ExecutionOptions]:
        return {form.tactics for form in forms_of(GEMM, base)}

    overlapping = OpChoice("hetero_fused_1d", 4, SM)
    assert options(overlapping) == options(BY_SM)
    assert len(options(BY_SM)) > len(options(SERIAL)) > 0, "protocols are those of copies by SMs"
    assert ExecutionOptions(Direction.PUT, CopyProtocol.LL, Kernels.PERSISTENT, Wait.POLL) in options(BY_SM)


@pytest.mark.slow
def test_a_faster_baseline_is_tried_where_its_estimate_promises_it() -> None:
    quick = candidates(SMALL, [OpChoice("hetero_fused_1d", 4, SM), BY_SM])
    found = variants(SMALL, quick)
    tried = [way for way in found if way.template == "serial"]

    assert tried and all(way.engine == SM for way in tried)
    estimates = [estimate_ticks(SMALL, build_op_plan(SMALL, way)) for way in (*tried, BY_SM)]
    assert estimates == sorted(estimates), "the most promising first, all faster than the usual one"


def test_what_may_never_finish_is_not_tried() -> None:
    shared = OpChoice("hetero_fused_1d", 8, EngineChoice(EngineKind.SM, 16, EngineMode.SHARED))

    assert may_deadlock(replace(shared, tactics=PERSISTENT))
    forms = list(forms_of(GEMM, shared))
    assert forms and all(form.tactics.kernel is Kernels.LAUNCHED for form in forms)


def test_get_by_a_copy_engine_is_left_to_a_rule_of_dominance() -> None:
    def gets(scenario: OpCase) -> bool:
        return any(form.tactics.direction is Direction.GET for form in forms_of(scenario, CHOICES[1]))

    assert not gets(GEMM)
    assert gets(exploring(GEMM, replace(Explore(), dominance=False)))


def test_only_what_the_file_leaves_to_be_tried() -> None:
    nothing = Explore.of(kernel=(Kernels.LAUNCHED,), transfer=(Direction.PUT,), protocol=(CopyProtocol.SIMPLE,))

    assert ways(nothing) == []
    assert all(differs(way, "kernel") for way in ways(nothing.asking("kernel", tuple(Kernels))))
    assert not any(differs(way, "kernel") for way in ways(Explore.of(wait=(Wait.EVENT,))))


@pytest.mark.parametrize("protocol", [CopyProtocol.LL, CopyProtocol.LL128])
def test_what_the_file_names_is_tried_of_both_kinds(protocol: CopyProtocol) -> None:
    found = ways(Explore.of(protocol=(CopyProtocol.SIMPLE, protocol)))

    assert {way.template for way in found if way.tactics.protocol is protocol} >= {"hetero_fused_1d", "serial"}


def test_graphs_are_tried_where_they_are_requested_for_and_then_of_the_baseline_too() -> None:
    sync = replace(GEMM.gpu.sync, graph_launch_ticks=50_000_000)
    system = replace(GEMM.system, gpu=replace(GEMM.gpu, sync=sync))
    explore = Explore.of(launch=tuple(LaunchMode), kernel=(Kernels.LAUNCHED,))
    scenario = replace(GEMM, system=system, explore=explore)

    found = variants(scenario, candidates(scenario, [*CHOICES, SERIAL]))

    graphs = {way.template for way in found if differs(way, "launch")}
    assert "serial" in graphs and graphs & {"hetero_fused_1d", "shard_p2p"}
    unasked = replace(scenario, explore=Explore())
    assert not any(differs(way, "launch") for way in variants(unasked, candidates(unasked, [*CHOICES, SERIAL])))


def test_without_simulations_there_is_nothing_to_vary() -> None:
    predicted = [replace(each, simulated_ticks=None) for each in candidates(GEMM, CHOICES)]

    assert variants(GEMM, predicted) == []


SUMS = """
use "nvidia/{gpu}"
system s {{ gpus 4 x {GPU}; fabric switch(nvswitch, link=nvlink) }}
workload w on s {{
  x = tensor bf16[{m}, 4096] shard cols
  w = tensor bf16[4096, 4096] shard rows
  y = {collective}(gemm(x, w))
}}
"""


def sums(m: int = 2048, gpu: str = "h100", collective: str = "all_reduce", explore: str = "") -> OpCase:
    text = SUMS.format(m=m, gpu=gpu, GPU=gpu.upper(), collective=collective)
    return compile_text(text + explore).scenario("w").case


def test_the_switch_is_asked_to_sum_what_tiles_computed_in_pieces_that_are_not_tiny() -> None:
    found, small = (list(summed_in_switch(sums(m))) for m in (4096, 256))

    assert [each.chunks for each in found] == [4 * pieces for pieces in (1, 8, 16, 32)]
    assert [each.chunks for each in small] == [4] and 8 * LEAST_ROWS > 256 // 4
    assert {(each.template, each.algorithm, each.engine.mode) for each in found} == {
        ("pipelined", "nvls", EngineMode.TILES)
    }


def test_no_switch_that_sums_and_nothing_that_the_file_settles_is_tried() -> None:
    assert not list(summed_in_switch(sums(gpu="a100")))
    assert not list(summed_in_switch(sums(collective="reduce_scatter")))
    assert not list(summed_in_switch(sums(explore="explore w { engine dma(3) }")))
    assert not list(summed_in_switch(GEMM))
    assert list(summed_in_switch(sums(explore="explore w { order rotated }")))


def test_sums_in_the_switch_are_among_the_variants() -> None:
    scenario = sums()
    usual = candidates(scenario, [OpChoice("hetero_fused_1d", 8, SM), SERIAL])

    assert set(summed_in_switch(scenario)) <= set(variants(scenario, usual))


def test_other_tiles_are_those_of_the_profile_or_of_the_file() -> None:
    known = {block for block, _ in GEMM.gpu.tiles_of(DType.BF16)}
    launched, persistent = CHOICES[0], replace(CHOICES[0], tactics=PERSISTENT)

    forms = list(in_other_tiles(GEMM, launched))
    assert {form.tactics.tile for form in forms} == known
    assert all(form.tactics == replace(PERSISTENT, tile=form.tactics.tile) for form in forms)
    assert list(in_other_tiles(GEMM, persistent)) == forms
    one = exploring(GEMM, Explore.of(tile=((64, 64),)))
    assert [form.tactics.tile for form in in_other_tiles(one, launched)] == [(64, 64)]
    split = [form.tactics for form in in_other_tiles(exploring(GEMM, Explore.of(split_k=(1, 2))), launched)]
    assert {each.split_k for each in split} == {1, 2} and {each.tile for each in split if each.split_k == 2} > known
    assert not list(in_other_tiles(exploring(GEMM, Explore.of(kernel=(Kernels.LAUNCHED,))), launched))
    assert not list(in_other_tiles(exploring(GEMM, Explore.of(wait=(Wait.EVENT,))), launched))


def test_kernels_are_told_their_tile_where_the_file_leaves_all_open() -> None:
    told = list(persistent_forms(GEMM))

    assert told and all(form.tactics.tile and min(form.tactics.tile) >= LEAST_SIDE for form in told)
    assert all(reject_choice(GEMM, form) is None for form in told)
    assert not list(persistent_forms(exploring(GEMM, Explore.of(engine=(DMA,)))))


@pytest.mark.slow
def test_half_a_tile_sends_sooner_and_is_the_answer() -> None:
    """Sums of 2048 x 8192 behind a short inner dimension: tiles of 256 x 256 all end at once."""
    scenario = compile_text(DOWN).scenario().case
    dma = EngineChoice(EngineKind.DMA, 7)
    usual = OpChoice("hetero_fused_1d", 16, dma, tactics=replace(PERSISTENT, per=WaitPer.TILE))
    ticks = {
        form.tactics.tile: simulate_op(scenario, build_op_plan(scenario, form), unit_bytes=8192).makespan_ticks
        for form in (usual, *in_other_tiles(scenario, usual))
    }

    best = min(ticks, key=lambda tile: ticks[tile])
    assert best == (128, 256) and ticks[best] < 0.85 * ticks[()]
    tried = [form for form in variants(scenario, candidates(scenario, [usual])) if form.tactics.tile]
    assert min(ticks.get(form.tactics.tile, inf) for form in tried) < 0.85 * ticks[()]
