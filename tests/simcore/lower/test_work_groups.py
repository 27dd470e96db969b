"""Copies by work-groups: requests, turns and signals, found by hand; all cores agree with the oracle."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from magus.compiler.ir import (
    Arbitration,
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Fabric,
    GroupEngine,
    GroupKernel,
    IndexRange,
    OpCase,
    OpChoice,
    OpPlan,
    Region,
    Transfer,
    WaveLoop,
    WithLoaded,
)
from magus.compiler.planning.build import build_op_plan
from magus.runtime import carry_out
from magus.runtime.run import job_of_op
from magus.simcore.cores.engine import run
from magus.simcore.program.program import OpKind, TrafficClass
from tests.helpers.oracle.lowering import differs_from_oracle, lower_op, makespan, starts_of
from tests.helpers.scenarios.programs import BODIES, drawn_program
from tests.helpers.scenarios.scenarios import (
    ag_gemm,
    full_mesh,
    h100,
    lone_gather,
    lone_scatter,
    nvlink,
    ring,
    switch,
)
from tests.helpers.some import some

LINE = 128
COPY = WaveLoop(4)
SUM = WaveLoop(4, then=WithLoaded.REDUCE)


def kernel(
    groups: int = 1,
    waves: int = 1,
    loop: WaveLoop = COPY,
    request: int = 16,
    arbitration: Arbitration = Arbitration.FIFO,
) -> GroupKernel:
    return GroupKernel("k", groups, WaveLoop(loop.load), loop, waves, request, arbitration)


def pair() -> OpCase:
    return lone_gather(64, 64, ranks=2, gpu=h100(), fabric=full_mesh(nvlink()))


def moved(direction: Direction, lines: int, by: GroupKernel) -> OpPlan:
    """One copy of so many lines of 64 columns."""
    owner = 1 if direction is Direction.GET else 0
    step = Transfer("x", direction, Region(owner, IndexRange(0, lines), IndexRange(0, 64)), 1, "s")
    return OpPlan("p", (step,), GroupEngine(EngineKind.SM, by.groups, program=by), 100, 0)


def template(
    make: Callable[..., OpCase], direction: Direction, by: GroupKernel, fabric: Fabric | None = None
) -> tuple[OpCase, OpPlan]:
    """A small collective of four ranks by the template ``direct``, by work-groups."""
    scenario = make(64, 128, ranks=4, gpu=h100(), fabric=fabric or switch())
    engine = GroupEngine(EngineKind.SM, by.groups, program=by)
    return scenario, build_op_plan(
        scenario, OpChoice("direct", 4, engine, tactics=ExecutionOptions(direction=direction))
    )


def get_ticks(lines: int, by: GroupKernel) -> int:
    return makespan(pair(), moved(Direction.GET, lines, by), LINE)


def test_a_request_passes_the_link_before_the_data() -> None:
    program = lower_op(pair(), moved(Direction.GET, 1, kernel()), unit_bytes=LINE).program
    link = int(program.service_ticks[program.server_instance(program.server_names.index("link+1"), 0)])

    # Without bytes a request takes the latency of the link; with some of them it also has to be sent, as a line.
    assert get_ticks(1, kernel()) - get_ticks(1, kernel(request=0)) == link


def test_each_turn_of_a_wavefront_waits_for_the_one_before() -> None:
    one_by_one = kernel(loop=WaveLoop(1))
    trip = get_ticks(2, one_by_one) - get_ticks(1, one_by_one)

    assert get_ticks(8, one_by_one) == get_ticks(1, one_by_one) + 7 * trip
    # Eight at once make one trip, behind each other.
    assert get_ticks(8, kernel(loop=WaveLoop(8))) < get_ticks(1, one_by_one) + trip


def test_wavefronts_hide_what_one_of_them_waits_for() -> None:
    alone, four = get_ticks(32, kernel(loop=WaveLoop(1))), get_ticks(32, kernel(waves=4, loop=WaveLoop(1)))
    trip = get_ticks(2, kernel(loop=WaveLoop(1))) - get_ticks(1, kernel(loop=WaveLoop(1)))

    assert alone - four == pytest.approx(24 * trip, rel=0.02), "8 trips of each in place of 32 of one"


def test_waitcnt_leaves_requests_under_way() -> None:
    """Turns of two lines, two of them under way: as fast as two wavefronts with turns of two."""
    assert get_ticks(32, kernel(loop=WaveLoop(4, 2))) == get_ticks(32, kernel(waves=2, loop=WaveLoop(2)))
    assert get_ticks(32, kernel(loop=WaveLoop(4, 2))) < get_ticks(32, kernel(loop=WaveLoop(2)))


def test_requests_take_their_bytes_of_the_link_in_any_arbitration() -> None:
    for arbitration in Arbitration:
        program = lower_op(
            pair(), moved(Direction.GET, 32, kernel(loop=WaveLoop(8), arbitration=arbitration)), unit_bytes=LINE
        ).program
        flags = program.flow_traffic == TrafficClass.FLAGS
        link = program.server_names.index("link+1") * program.ranks_simulated
        on_link = (program.hop_server >= link) & (program.hop_server < link + program.ranks_simulated)
        asked = on_link & flags[program.hop_flow]

        assert int(program.flow_units[program.hop_flow[asked]].sum()) == 4 + 1, "four turns of a line, and `ready`"


def test_requests_that_queue_behind_data_are_what_a_get_loses() -> None:
    """Where all get from all, a link carries the data that others ask for, and own requests behind it."""
    loop = WaveLoop(16)
    times = {}
    for name, request, arbitration in (
        ("behind data", 16, Arbitration.FIFO),
        ("in turns", 16, Arbitration.FAIR),
        ("free", 0, Arbitration.FIFO),
    ):
        by = kernel(groups=6, waves=4, loop=loop, request=request, arbitration=arbitration)
        scenario = lone_gather(4096, 512, ranks=4, gpu=h100(), fabric=switch())
        engine = GroupEngine(EngineKind.SM, 6, program=by)
        choice = OpChoice("direct", 4, engine, tactics=ExecutionOptions(direction=Direction.GET))
        times[name] = makespan(scenario, build_op_plan(scenario, choice), LINE)

    assert times["free"] < times["in turns"] < times["behind data"]


def test_a_put_signals_once_for_each_group_when_all_of_its_wavefronts_are_done() -> None:
    by = kernel(groups=2, waves=3)
    lowered = lower_op(pair(), moved(Direction.PUT, 24, by), unit_bytes=LINE)
    finished = run(lowered.program)
    begun = starts_of(lowered, finished, "x", OpKind.TRANSFER)

    assert len(begun) == 2 * (3 + 1), "wavefronts, and a signal of each group"
    first = list(lowered.steps[0].work)
    signals = (first[3], first[7])
    for signal, waves in zip(signals, (first[:3], first[4:7]), strict=True):
        assert finished.op_start[signal] == max(int(finished.op_done[op]) for op in waves)


def test_a_sum_in_registers_reads_no_parts_again() -> None:
    bytes_read = {}
    for name, loop in (("registers", SUM), ("memory", COPY)):
        scenario, schedule = template(lone_scatter, Direction.GET, kernel(3, 2, loop))
        program = lower_op(scenario, schedule, unit_bytes=LINE).program
        memory = program.server_names.index("hbm")
        at = program.hop_server // program.ranks_simulated == memory
        bytes_read[name] = int(program.flow_units[program.hop_flow[at]].sum())

    # Three parts are added one by one in memory, which is read and written each time; in registers that is once.
    part = 64 // 4 * 128 * 2 // LINE
    assert bytes_read["memory"] - bytes_read["registers"] == 2 * 2 * part


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("arbitration", Arbitration)
def test_every_core_gets_what_the_oracle_gets(arbitration: Arbitration, fold: bool) -> None:
    made = product(
        ((lone_gather, WaveLoop(4, 2)), (lone_scatter, SUM)), Direction, (full_mesh(nvlink()), switch(), ring())
    )
    for (make, loop), direction, fabric in some(made):
        by = kernel(groups=4, waves=2, loop=loop, arbitration=arbitration)
        scenario, schedule = template(make, direction, by, fabric=fabric)

        assert not differs_from_oracle(scenario, schedule, LINE, fold=fold)


def test_work_groups_copy_beside_a_gemm() -> None:
    scenario = ag_gemm(128, 256, 256, ranks=4, fabric=switch())
    engine = GroupEngine(EngineKind.SM, 8, program=kernel(groups=8, waves=2))
    choice = OpChoice("hetero_fused_1d", 8, engine, tactics=ExecutionOptions(direction=Direction.GET))

    assert not differs_from_oracle(scenario, build_op_plan(scenario, choice), LINE, fold=True)


def test_units_are_lines_whatever_is_asked_for() -> None:
    schedule = moved(Direction.GET, 32, kernel())

    assert lower_op(pair(), schedule, unit_bytes=1024).program.unit_bytes == LINE
    other = replace(schedule, engine=EngineChoice(EngineKind.SM, 1))
    assert lower_op(pair(), other, unit_bytes=1024).program.unit_bytes == 1024


def in_lanes(*lanes: int) -> OpPlan:
    """Puts of 64 lines by the work-groups of so many lanes."""
    by = kernel(groups=4, waves=2, loop=WaveLoop(16))
    steps = tuple(
        Transfer(f"x{at}", Direction.PUT, Region(0, IndexRange(0, 64), IndexRange(0, 64)), 1, f"s{at}", lane=lane)
        for at, lane in enumerate(lanes)
    )
    return OpPlan("p", steps, GroupEngine(EngineKind.SM, by.groups, program=by), 100, 0)


def test_a_lane_is_a_work_group_with_an_sm_of_its_own() -> None:
    alone, behind, beside = (makespan(pair(), in_lanes(*lanes), LINE) for lanes in ((0,), (0, 0), (0, 1)))
    by_all = makespan(pair(), moved(Direction.PUT, 64, kernel(groups=4, waves=2, loop=WaveLoop(16))), LINE)

    assert by_all < alone, "without a lane all four share a copy"
    assert alone < beside < behind
    # A work-group goes on when it has issued a copy: it does not wait for the flag of the one before.
    assert behind < 2 * alone - 0.5 * (alone - by_all)


def test_a_work_group_issues_its_copies_in_order() -> None:
    lowered = lower_op(pair(), in_lanes(1, 1, 1), unit_bytes=LINE)
    finished = run(lowered.program)
    begun = [starts_of(lowered, finished, f"x{at}", OpKind.TRANSFER)[:2] for at in range(3)]

    assert begun[0] < begun[1] < begun[2]


def test_a_sum_of_a_work_group_is_made_by_one_sm() -> None:
    """Two groups that sum a half each, against all four that sum the whole."""
    sums = {}
    for name, lane in (("all", None), ("two", 0)):
        scenario, schedule = template(lone_scatter, Direction.PUT, kernel(4, 2, WaveLoop(64)))
        steps = tuple(replace(step, lane=lane) if isinstance(step, Transfer) else step for step in schedule.steps_of(0))
        lowered = lower_op(scenario, replace(schedule, steps=steps), unit_bytes=LINE)
        kinds = lowered.program.op_kind == OpKind.REDUCE
        sums[name] = int(kinds.sum())

    assert sums["all"] == 4 * sums["two"]


@pytest.mark.parametrize("name", BODIES)
def test_drawn_programs_are_exact_and_every_core_gets_what_the_oracle_gets(name: str) -> None:
    for seed in range(3):
        case = drawn_program(random.Random(seed), name)
        plan = build_op_plan(case, case.schedules[0].body)

        assert carry_out(*job_of_op(case, plan)).exact, f"seed {seed}"
        for fold in (True, False):
            assert not differs_from_oracle(case, plan, LINE, fold=fold), f"seed {seed}"
