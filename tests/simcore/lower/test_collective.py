"""A library's collective as a schedule takes its closed form when it is alone, and stands before or after a GEMM."""

from dataclasses import replace
from typing import Any

import pytest

from magus.advisor.measured.tables.samples import collective_on
from magus.compiler import compile_file, compile_text
from magus.compiler.ir import (
    EngineChoice,
    EngineKind,
    HandOff,
    Late,
    OpCase,
    OpChoice,
    OpMode,
    OpPlan,
    Plan,
    Scenario,
    Schedule,
    System,
    Variability,
    WrittenPlan,
)
from magus.compiler.planning.build import ScheduleError, build_op_plan
from magus.compiler.planning.knobs.library import library_rejection, library_scaling, library_serial
from magus.compiler.planning.plan import build_plan
from magus.compiler.request.request import Request
from magus.compiler.request.scenario import scenario_of as scenario_for
from magus.compiler.verify.check import check_plan
from magus.simcore import record_writes, simulate, simulate_op
from magus.simcore.cores.engine import run
from magus.simcore.figures.result import IntervalKind
from magus.simcore.kernels.dispatch import whole_works
from magus.simcore.kernels.nccl import NcclCollective, NcclProtocol
from magus.simcore.lower.collective import library_collective_time
from magus.simcore.lower.plan import lower
from magus.simcore.program.program import OpKind
from tests.helpers.marks import thinned
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.lowering import lower_op
from tests.helpers.oracle.oracle import Oracle
from tests.helpers.paths import ROOT
from tests.helpers.scenarios.compiled import several_in
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs, mi300x

LAYERS = ("llama70b_backward", "llama70b_domino", "llama70b_layer", "llama70b_layer_backward")
GPUS = ("H100", "A100", "B200")
SIZES = (512, 64 << 10, 1 << 20, 8 << 20, 64 << 20)


def library(scenario: OpCase) -> OpPlan:
    return build_op_plan(scenario, library_serial(scenario))


def with_gemm(collective: str, rows: int = 4096) -> OpCase:
    """A GEMM on 8 H100 behind an all_gather, or before a sum."""
    gathers = collective == "all_gather"
    x, w = ("rows", "cols") if gathers else ("cols", "rows")
    steps = "xg = all_gather(x)\n y = gemm(xg, w)" if gathers else f"p = gemm(x, w)\n y = {collective}(p)"
    return (
        compile_text(
            'use "nvidia/h100"\nsystem node { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }\n'
            f"workload w on node {{\n x = tensor bf16[{rows}, 8192] shard {x}\n w = tensor bf16[8192, 8192] shard {w}\n"
            f" {steps}\n}}"
        )
        .scenario()
        .case
    )


@pytest.mark.quick(3)
@pytest.mark.parametrize("gpu", thinned(GPUS, 3))
@pytest.mark.parametrize("operation", NcclCollective)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_alone_it_takes_its_closed_form(gpu: str, operation: NcclCollective, ranks: int) -> None:
    for size in SIZES:
        scenario = collective_on(gpu, ranks, operation, size)
        expected = library_collective_time(scenario)
        unit = 128 if size < 1 << 20 else 1024 if size < 64 << 20 else 8192
        result = simulate_op(scenario, library(scenario), unit_bytes=unit)

        assert result.makespan_ticks == pytest.approx(expected.ticks, rel=0.02), (size, expected)


@pytest.mark.parametrize("operation", NcclCollective)
def test_in_a_full_mesh_it_takes_its_closed_form_over_all_links(operation: NcclCollective) -> None:
    for size, unit in ((64 << 10, 128), (1 << 20, 1024), (64 << 20, 8192)):
        scenario = scenario_for(Request(operation.value, num_bytes=size, gpu="MI300X", ranks=8)).case
        expected = library_collective_time(scenario)
        result = simulate_op(scenario, library(scenario), unit_bytes=unit)

        assert result.makespan_ticks == pytest.approx(expected.ticks, rel=0.02), (size, expected)


def test_fewer_links_of_a_mesh_carry_less() -> None:
    eight, four = (scenario_for(Request("all_gather", num_bytes=1 << 30, gpu="MI300X", ranks=n)).case for n in (8, 4))
    assert library_scaling(eight.system) == "" and library_scaling(four.system) == "from 7 links of a GPU to 3"
    moved = library_collective_time(eight).transfer_ticks, library_collective_time(four).transfer_ticks
    assert moved[1] / moved[0] == pytest.approx(3 / 4 / (7 / 8) * 7 / 3, rel=1e-3)


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "all_reduce"])
def test_with_a_gemm_it_takes_both_times(collective: str) -> None:
    scenario = with_gemm(collective)
    schedule = library(scenario)
    gemm, call = sum(work.alone_ticks for work in whole_works(scenario)), library_collective_time(scenario).ticks
    result = simulate_op(scenario, schedule, unit_bytes=8192)
    intervals = {interval.name: interval.kind for interval in result.timeline.intervals}

    assert check_plan(scenario, schedule) == ()
    assert result.makespan_ticks == pytest.approx(gemm + call, rel=0.01)
    assert intervals == {collective: IntervalKind.COMM, "g0": IntervalKind.COMPUTE}
    assert result.comm_ticks == pytest.approx(call, rel=0.01)
    assert result.overlap_efficiency == pytest.approx(0, abs=0.01)


def test_it_holds_an_sm_for_each_channel_and_puts_its_bytes_on_the_links() -> None:
    size = 64 << 20
    scenario = collective_on("H100", 8, NcclCollective.ALL_GATHER, size)
    schedule = library(scenario)
    program = lower_op(scenario, schedule, unit_bytes=8192).program
    up = program.server_names.index("up")
    passed = int(program.flow_units[program.hop_flow[program.hop_server == up]].sum()) * 8192
    held = (program.op_pool == program.pool_names.index("sms")) & (program.op_kind == OpKind.TRANSFER)

    assert library_collective_time(scenario).protocol is NcclProtocol.SIMPLE
    assert passed == pytest.approx(size * 7 / 8, rel=0.001) and held.sum() == schedule.engine.count == 16


def test_one_rank_stands_for_all() -> None:
    for scenario in (collective_on("H100", 4, NcclCollective.ALL_TO_ALL, 1 << 20), with_gemm("all_reduce", 256)):
        folded, whole = (lower_op(scenario, library(scenario), unit_bytes=16384, fold=fold) for fold in (True, False))

        assert folded.program.ranks_simulated == 1 and whole.program.ranks_simulated == scenario.num_ranks
        assert run(folded.program).makespan_ticks == run(whole.program).makespan_ticks


def test_nothing_is_moved_before_every_rank_has_called() -> None:
    scenario = collective_on("H100", 4, NcclCollective.ALL_GATHER, 1 << 20)
    late = 10**8
    system = replace(scenario.system, variability=Variability(late=(Late(2, late),)))
    held_up = replace(scenario, system=system)

    assert (
        simulate_op(held_up, library(scenario)).makespan_ticks
        == simulate_op(scenario, library(scenario)).makespan_ticks + late
    )


@pytest.mark.parametrize("collective", ["all_gather", "all_reduce"])
def test_it_equals_the_oracle(collective: str) -> None:
    scenario = with_gemm(collective, 256)
    program = lower_op(scenario, library(scenario), unit_bytes=8192).program

    assert differences(program, run(program), Oracle(program).run()) == []


def refused(scenario: OpCase, **changes: Any) -> str:
    with pytest.raises(ScheduleError) as caught:
        build_op_plan(scenario, replace(library_serial(scenario), **changes))
    return caught.value.rejection.message


def test_where_its_time_is_not_known_it_is_refused() -> None:
    known = with_gemm("all_gather", 256)
    system = known.system
    model = system.gpu.collectives
    assert model is not None

    def on(other: System) -> str:
        return refused(replace(known, system=other))

    assert "no collectives" in on(replace(system, gpu=replace(system.gpu, collectives=None)))
    assert "behind a switch" in on(replace(system, fabric=ag_gemm(512, 512, 512).system.fabric))
    amd = scenario_for(Request("all_gather", num_bytes=1 << 20, gpu="MI300X", ranks=8)).case
    fabric = replace(system.fabric, link=amd.system.fabric.link)
    assert "a link for each pair" in refused(replace(amd, system=replace(amd.system, fabric=fabric)))
    assert "no collectives" in refused(gemm_rs(512, 512, 512, gpu=mi300x()))


def test_no_profile_of_writes_is_recorded_of_it() -> None:
    scenario = with_gemm("all_gather", 256)

    with pytest.raises(ScheduleError, match="in one call"):
        record_writes(scenario, library(scenario))


def test_only_serial_has_it_and_it_picks_its_algorithm() -> None:
    scenario = with_gemm("all_gather", 256)

    assert "shard_p2p does not" in refused(scenario, template="shard_p2p")
    assert "picks its algorithm" in refused(scenario, algorithm="ring")


def test_no_plan_is_written_out_for_it() -> None:
    scenario = with_gemm("all_gather", 256)
    written = library(scenario)

    with pytest.raises(ScheduleError, match="a plan says what is moved when"):
        build_op_plan(scenario, WrittenPlan(written.engine, written.steps))


def plan_of(layer: Scenario, **by_copies: OpChoice) -> Plan:
    """One layer, each collective by the library but for those of ``by_copies``, nothing handed over in rows."""
    graph = replace(layer.workload, repeat=None)
    modes = tuple(
        OpMode(op.name, by_copies.get(op.name, library_serial(OpCase(op.name, layer.system, op.shape))))
        for op in graph.ops
        if op.shape.moved is not None
    )
    return build_plan(layer.system, graph, Schedule("library", modes, handoff=HandOff.WHOLE))


@pytest.mark.quick(1)
@pytest.mark.parametrize("file", thinned(LAYERS, 3))
def test_a_layer_by_the_library_takes_the_times_of_its_ops_alone(file: str) -> None:
    """A call takes SMs from no kernel that it does not meet."""
    layers = several_in(compile_file(ROOT / "examples" / "layers" / f"{file}.mgs"))
    assert layers
    for layer in layers:
        cases = (OpCase(op.name, layer.system, op.shape) for op in layer.workload.ops)
        assert all(case.shape.moved is None or library_rejection(case) is None for case in cases)
        plan = plan_of(layer)
        alone = (Plan(part.name, (replace(part, stream=0, waits=(), step_waits=()),)) for part in plan.parts)
        ticks = [simulate(layer.system, one, unit_bytes=65536).makespan_ticks for one in alone]

        whole = simulate(layer.system, plan, unit_bytes=65536).makespan_ticks
        assert whole == pytest.approx(sum(ticks), rel=0.002)


def test_a_call_takes_sms_from_the_kernel_that_it_meets_while_it_runs() -> None:
    (layer,) = compile_text(
        'use "nvidia/h100"\nsystem node { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }\n'
        "workload w on node {\n x = tensor bf16[4096, 8192]\n w = tensor bf16[8192, 8192]\n"
        " g = tensor bf16[4096, 8192] shard rows\n y = gemm(x, w)\n z = gemm(y, w)\n xg = all_gather(g)\n}"
    ).workloads
    plan = plan_of(layer)
    by_name = {part.name: part for part in plan.parts}
    together = replace(plan, parts=(replace(by_name["xg"], behind_kernels=False), by_name["y"], by_name["z"]))
    behind = simulate(layer.system, plan, unit_bytes=65536)
    beside = simulate(layer.system, together, unit_bytes=65536)
    ticks, slower = ({op.name: op.compute_ticks for op in result.ops} for result in (behind, beside))

    assert slower["y"] > 1.03 * ticks["y"] and slower["z"] == pytest.approx(ticks["z"], rel=0.01)
    assert beside.makespan_ticks < behind.makespan_ticks


def test_links_stay_those_of_copies_where_a_library_sends_faster() -> None:
    """B200: 726 GB/s over a link by copies, 808 by the library."""
    (layer,) = compile_text(
        'use "nvidia/b200"\nsystem node { gpus 8 x B200; fabric switch(nvswitch, link=nvlink) }\n'
        "workload w on node {\n x = tensor bf16[16384, 8192] shard rows\n v = tensor bf16[8192, 8192] shard cols\n"
        " w = tensor bf16[8192, 8192] shard rows\n y = gemm(all_gather(x), v)\n z = reduce_scatter(gemm(y, w))\n}"
    ).workloads
    copies = OpChoice("serial", 8, EngineChoice(EngineKind.DMA, 7))
    mixed, copied = plan_of(layer, y=copies), plan_of(layer, y=copies, z=copies)
    one, other = (lower(layer.system, plan, unit_bytes=65536).program for plan in (mixed, copied))
    ops, others = (
        {op.name: op.comm_ticks for op in simulate(layer.system, plan, unit_bytes=65536).ops}
        for plan in (mixed, copied)
    )
    called = library_collective_time(OpCase("z", layer.system, layer.workload.ops[1].shape))

    up = [program.service_ticks[program.server_names.index("up")] for program in (one, other)]
    assert up[0] == up[1] and ops["y"] == others["y"]
    assert called.moved_bytes / (called.transfer_ticks / 1e14) > 1.1 * layer.system.fabric.link.achieved_bytes_per_s
    assert ops["z"] == pytest.approx(called.ticks, rel=0.02)
