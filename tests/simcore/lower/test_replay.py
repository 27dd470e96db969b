"""Rank 0 with its peers replayed from a profile."""

from dataclasses import replace
from fractions import Fraction

import pytest

from magus.compiler.codes import Code
from magus.compiler.ir import (
    TICKS_PER_US,
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Fabric,
    IndexRange,
    Kernels,
    Late,
    Noc,
    OpCase,
    OpChoice,
    OpPlan,
    Pattern,
    Reach,
    Region,
    Replay,
    Transfer,
    Variability,
    Wait,
    WaitPer,
    Write,
)
from magus.compiler.planning.build import ScheduleError, build_op_plan
from magus.compiler.planning.knobs.engine import tiles_engine
from magus.simcore import Result, RunOutcome, record_writes, simulate_op
from magus.simcore.cores.engine import run
from magus.simcore.lower.plan import lower, plan_of
from magus.simcore.lower.variability import lower_replayed, recorded_writes
from tests.helpers.oracle.agreement import differences
from tests.helpers.oracle.lowering import plan
from tests.helpers.oracle.oracle import Oracle
from tests.helpers.scenarios.fabrics import torus
from tests.helpers.scenarios.scenarios import ag_gemm, full_mesh, gemm_rs, h100, lone_gather, switch
from tests.helpers.work import calls_of
from tests.simcore.lower.test_variability import SKEW, varied

UNIT = 1024
DMA = EngineChoice(EngineKind.DMA, 3)


def replaying(scenario: OpCase, writes: tuple[Write, ...]) -> OpCase:
    return replace(scenario, system=replace(scenario.system, replay=Replay("p.csv", writes)))


def times(result: Result) -> dict[str, tuple[int, int]]:
    """Begin and end of each step of rank 0."""
    return {each.name: (each.start_ticks, each.end_ticks) for each in result.timeline.of_rank(0)}


def built(scenario: OpCase, template: str = "serial", pieces: int = 1, engine: EngineChoice = DMA) -> OpPlan:
    return build_op_plan(scenario, OpChoice(template, scenario.num_ranks * pieces, engine))


@pytest.mark.parametrize("make", [ag_gemm, gemm_rs])
@pytest.mark.parametrize("engine", [DMA, EngineChoice(EngineKind.DMA, 1), EngineChoice(EngineKind.SM, 3)])
def test_a_recorded_profile_gives_rank_0_its_times(make, engine: EngineChoice) -> None:  # type: ignore[no-untyped-def]
    scenario = make(1024, 1024, 1024, ranks=4, fabric=full_mesh())
    schedule = built(scenario, engine=engine)
    full = simulate_op(scenario, schedule, unit_bytes=UNIT)

    writes = record_writes(scenario, schedule, unit_bytes=UNIT)
    replayed = simulate_op(replaying(scenario, writes), schedule, unit_bytes=UNIT)

    if engine.kind is EngineKind.DMA:  # SMs that copy side by side queue for a moment where they read
        assert times(replayed) == times(full)
        assert replayed.makespan_ticks == full.makespan_ticks
    assert replayed.makespan_ticks == pytest.approx(full.makespan_ticks, rel=1e-3)
    assert (replayed.ranks_simulated, replayed.outcome) == (1, RunOutcome.DONE)
    assert sum(write.num_bytes for write in writes) == 3 * scenario.shape.moved.num_bytes // 4


@pytest.mark.parametrize("template", ["uniform_fused_1d", "hetero_fused_1d"])
@pytest.mark.parametrize("engine", [DMA, EngineChoice(EngineKind.SM, 6)])
def test_with_kernels_beside_the_copies_times_differ_by_little(template: str, engine: EngineChoice) -> None:
    scenario = gemm_rs(1024, 1024, 1024, ranks=4)
    schedule = built(scenario, template, 2, engine)
    full = simulate_op(scenario, schedule, unit_bytes=UNIT)

    writes = record_writes(scenario, schedule, unit_bytes=UNIT)
    replayed = simulate_op(replaying(scenario, writes), schedule, unit_bytes=UNIT)

    assert times(replayed).keys() == times(full).keys()
    assert replayed.makespan_ticks == pytest.approx(full.makespan_ticks, rel=0.02)


def fused_gemv(rows: int, ranks: int) -> tuple[OpCase, OpPlan]:
    """A GEMV whose work-groups store at other ranks and set flags there; with its all_reduce one kernel."""
    scenario = gemm_rs(rows, 1, 16384, ranks=ranks)
    scenario = replace(scenario, shape=replace(scenario.shape, pattern=Pattern.GEMM_AR))
    tactics = ExecutionOptions(kernel=Kernels.PERSISTENT, wait=Wait.POLL, per=WaitPer.TILE)
    choice = OpChoice("hetero_unfused_1d", ranks, tiles_engine(scenario.gpu), 1, tactics)
    return scenario, build_op_plan(scenario, choice)


@pytest.mark.quick(2)
@pytest.mark.parametrize("unit", [128, 1024])
@pytest.mark.parametrize(("rows", "ranks"), [(2048, 4), (8192, 4), (4096, 8)])
def test_flags_of_tiles_are_flags_in_the_profile(rows: int, ranks: int, unit: int) -> None:
    scenario, schedule = fused_gemv(rows, ranks)
    full = simulate_op(scenario, schedule, unit_bytes=unit)

    writes = record_writes(scenario, schedule, unit_bytes=unit)
    replayed = simulate_op(replaying(scenario, writes), schedule, unit_bytes=unit)

    moved = scenario.shape.moved
    assert moved is not None
    assert sum(write.num_bytes for write in writes) == 2 * (ranks - 1) * moved.num_bytes // ranks
    assert replayed.makespan_ticks == pytest.approx(full.makespan_ticks, rel=0.01)
    assert sum(not write.num_bytes for write in writes) > len(writes) // 2
    crossed = simulate_op(replaying(scenario, writes), schedule, unit_bytes=1024 + 128 - unit)
    assert crossed.makespan_ticks == pytest.approx(full.makespan_ticks, rel=0.08)


@pytest.mark.parametrize("unit", [128, 1024])
@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize("make", [gemm_rs, ag_gemm])
@pytest.mark.parametrize("protocol", CopyProtocol)
def test_flags_of_protocols_are_replayed_as_they_were(make, protocol: CopyProtocol, ranks: int, unit: int) -> None:  # type: ignore[no-untyped-def]
    scenario = make(128 * ranks, 512, 512, ranks=ranks, gpu=replace(h100(), noc=Noc(Fraction(9, 10), 4 * 10**12)))
    tactics = ExecutionOptions(protocol=protocol, kernel=Kernels.PERSISTENT, wait=Wait.POLL)
    link = replace(scenario.system.fabric.link, protocols=tuple(CopyProtocol))
    fabric = replace(scenario.system.fabric, link=link)
    scenario = replace(scenario, system=replace(scenario.system, fabric=fabric))
    schedule = build_op_plan(scenario, OpChoice("serial", ranks, EngineChoice(EngineKind.SM, 64), tactics=tactics))
    full = simulate_op(scenario, schedule, unit_bytes=unit)

    writes = record_writes(scenario, schedule, unit_bytes=unit)
    replayed = simulate_op(replaying(scenario, writes), schedule, unit_bytes=unit)

    assert replayed.makespan_ticks == pytest.approx(full.makespan_ticks, rel=0.002)


def test_recorded_writes_of_a_seed_are_those_of_that_seed() -> None:
    scenario = varied(ag_gemm(512, 1024, 1024, ranks=4), Variability(SKEW))
    schedule = built(scenario)
    full = simulate_op(scenario, schedule, unit_bytes=UNIT, seed=3)

    writes = record_writes(scenario, schedule, unit_bytes=UNIT, seed=3)
    replayed = simulate_op(replaying(scenario, writes), schedule, unit_bytes=UNIT, seed=3)

    assert replayed.makespan_ticks == pytest.approx(full.makespan_ticks, rel=1e-4)
    assert min(times(replayed).values()) == min(times(full).values())
    assert writes != record_writes(scenario, schedule, unit_bytes=UNIT)


@pytest.mark.parametrize("fabric", [full_mesh(), switch(), torus(2, 2)], ids=["mesh", "switch", "torus"])
def test_one_rank_that_stands_for_all_writes_what_each_writes(fabric: Fabric) -> None:
    scenario = ag_gemm(512, 1024, 1024, ranks=4, fabric=fabric)
    schedule = built(scenario, "uniform_fused_1d", 2)

    lowered = lower(scenario.system, plan_of(scenario, schedule), unit_bytes=UNIT, fold=False)
    writes = recorded_writes(lowered.parts[0], run(lowered.program))

    assert lowered.program.num_ranks == 4 and {write.rank for write in writes} == {1, 2, 3}
    assert record_writes(scenario, schedule, unit_bytes=UNIT) == writes


def test_a_late_write_delays_what_waits_for_it() -> None:
    scenario = ag_gemm(512, 1024, 1024, ranks=4)
    schedule = built(scenario)
    writes = record_writes(scenario, schedule, unit_bytes=UNIT)
    last = replace(writes[-1], ticks=writes[-1].ticks + 50 * TICKS_PER_US)

    before = simulate_op(replaying(scenario, writes), schedule, unit_bytes=UNIT)
    after = simulate_op(replaying(scenario, (*writes[:-1], last)), schedule, unit_bytes=UNIT)

    assert after.makespan_ticks == pytest.approx(before.makespan_ticks + 50 * TICKS_PER_US, rel=1e-4)


def test_what_is_late_is_rank_0_alone() -> None:
    scenario = ag_gemm(512, 1024, 1024, ranks=4)
    schedule = built(scenario)
    writes = record_writes(scenario, schedule, unit_bytes=UNIT)
    replayed = replaying(scenario, writes)
    plain = simulate_op(replayed, schedule, unit_bytes=UNIT)

    of_a_peer = simulate_op(varied(replayed, Variability(late=(Late(2, TICKS_PER_US),))), schedule, unit_bytes=UNIT)
    of_rank_0 = simulate_op(
        varied(replayed, Variability(late=(Late(0, 90 * TICKS_PER_US),))), schedule, unit_bytes=UNIT
    )

    assert times(of_a_peer) == times(plain)
    assert min(begin for begin, _ in times(of_rank_0).values()) >= 90 * TICKS_PER_US


def test_writes_of_a_signal_land_one_by_one_and_it_is_set_by_the_last() -> None:
    scenario = lone_gather(4096, 1024, ranks=2, fabric=full_mesh())
    schedule = built(scenario, engine=EngineChoice(EngineKind.DMA, 1))
    (whole,) = record_writes(scenario, schedule, unit_bytes=UNIT)
    half = replace(whole, num_bytes=whole.num_bytes // 2)
    later = replace(half, ticks=whole.ticks + 500 * TICKS_PER_US)

    once = simulate_op(replaying(scenario, (whole,)), schedule, unit_bytes=UNIT)
    twice = simulate_op(replaying(scenario, (half, later)), schedule, unit_bytes=UNIT)

    assert twice.makespan_ticks > whole.ticks + 500 * TICKS_PER_US > once.makespan_ticks


def test_writes_travel_over_the_links_of_any_fabric() -> None:
    scenario = ag_gemm(512, 1024, 1024, ranks=4, fabric=torus(2, 2))
    schedule = built(scenario)
    writes = record_writes(scenario, schedule, unit_bytes=UNIT)
    replayed = simulate_op(replaying(scenario, writes), schedule, unit_bytes=UNIT)

    assert {load.name for load in replayed.servers if load.name.startswith("link")} == {
        "link torus0+ 0",
        "link torus1+ 0",
    }


@pytest.mark.parametrize(
    ("change", "code", "named"),
    [
        (lambda writes: writes[1:], Code.MGS521, "s_x"),
        (lambda writes: (*writes, Write(10**10, 1, "nobody", 8)), Code.MGS522, "nobody"),
    ],
)
def test_a_profile_that_does_not_fit_the_plan_is_refused(change, code: Code, named: str) -> None:  # type: ignore[no-untyped-def]
    scenario = ag_gemm(512, 1024, 1024, ranks=4)
    schedule = built(scenario)
    writes = change(record_writes(scenario, schedule, unit_bytes=UNIT))

    with pytest.raises(ScheduleError, match=named) as caught:
        simulate_op(replaying(scenario, writes), schedule, unit_bytes=UNIT)
    assert caught.value.rejection.code is code


def test_a_replay_records_nothing() -> None:
    scenario = ag_gemm(512, 1024, 1024, ranks=4)
    writes = record_writes(scenario, built(scenario), unit_bytes=UNIT)
    with pytest.raises(ScheduleError, match="replays a profile"):
        record_writes(replaying(scenario, writes), built(scenario), unit_bytes=UNIT)


def test_what_a_switch_copies_has_no_profile() -> None:
    scenario = ag_gemm(256, 256, 256, ranks=2, gpu=h100(), fabric=switch())
    block = Region(0, IndexRange(0, 128), IndexRange(0, 256))
    multicast = Transfer("x", Direction.PUT, block, 0, "s", reach=Reach.ALL)

    with pytest.raises(ScheduleError, match="x is copied by the switch") as caught:
        record_writes(scenario, plan(multicast, compute_sms=132), unit_bytes=UNIT)
    assert caught.value.rejection.code is Code.MGS523


@pytest.mark.quick(1)
@pytest.mark.parametrize("peers", [3, 15, 255])
def test_many_peers_are_replayed(peers: int) -> None:
    scenario = lone_gather((peers + 1) * 16, 256, ranks=peers + 1, fabric=full_mesh())
    schedule = built(scenario)
    signals = [step.signal for step in schedule.steps if hasattr(step, "signal")]
    writes = tuple(Write(peer * TICKS_PER_US, peer, signals[-peer], 8192) for peer in range(1, peers + 1))
    found = simulate_op(replaying(scenario, writes), schedule, unit_bytes=UNIT)

    assert found.outcome is RunOutcome.DONE
    assert found.makespan_ticks >= peers * TICKS_PER_US
    assert calls_of(lambda: simulate_op(replaying(scenario, writes), schedule, unit_bytes=UNIT)) < 2000 * (peers + 1)


@pytest.mark.parametrize("engine", [DMA, EngineChoice(EngineKind.SM, 6)])
def test_replayed_programs_agree_with_the_oracle(engine: EngineChoice) -> None:
    scenario = ag_gemm(256, 256, 256, ranks=4)
    schedule = built(scenario, "uniform_fused_1d", 2, engine)
    replay = Replay("p.csv", record_writes(scenario, schedule, unit_bytes=4096))
    program = lower_replayed(scenario.system, plan_of(scenario, schedule), replay, unit_bytes=4096).program

    assert differences(program, run(program), Oracle(program).run()) == []
