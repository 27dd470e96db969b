"""Reads of what peers have written: which hit, how much, through what, and what that leaves to memory."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest

from magus.compiler.ir import (
    Cache,
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    ExecutionOptions,
    Gpu,
    IndexRange,
    OpCase,
    OpChoice,
    OpPlan,
    Pattern,
    Reduction,
    Region,
    Transfer,
)
from magus.compiler.planning.build import build_op_plan
from magus.simcore import simulate_op
from magus.simcore.kernels.dispatch import reduce_work
from magus.simcore.lower.cache_hits import NONE, Hits
from magus.simcore.program.program import TrafficClass
from tests.helpers.oracle.lowering import UNIT, differs_from_oracle, done_at, lower_op, lowered_run, plan
from tests.helpers.scenarios.scenarios import MIB, TICKS_PER_NS, T, h100, lone_gather, lone_scatter, mi300x
from tests.helpers.some import some

SM, DMA = EngineChoice(EngineKind.SM, 16), EngineChoice(EngineKind.DMA, 7)
SHARD = 64 * 1024 * 2
"""Bytes of the row block of a rank in the scenarios below."""


def with_mall(gpu: Gpu, size_bytes: int = 256 * MIB) -> Gpu:
    """The GPU with a cache in front of memory."""
    return replace(gpu, mall=Cache(size_bytes, 1, 6 * T, 150 * TICKS_PER_NS))


def with_l2(gpu: Gpu, size_bytes: int, instances: int = 1) -> Gpu:
    """The GPU with another L2."""
    return replace(gpu, l2=replace(gpu.l2, size_bytes=size_bytes, instances=instances))


def gather(gpu: Gpu) -> OpCase:
    """An all_gather of 8 x 128 KiB."""
    return lone_gather(8 * 64, 1024, gpu=gpu)


def scatter(gpu: Gpu) -> OpCase:
    """A reduce_scatter of 8 x 128 KiB."""
    return lone_scatter(8 * 64, 1024, gpu=gpu)


def built(scenario: OpCase, algorithm: str, engine: EngineChoice = SM) -> OpPlan:
    """The lone collective by one algorithm, a chunk to a rank."""
    return build_op_plan(scenario, OpChoice(algorithm, 8, engine))


def added(num_parts: int) -> OpPlan:
    """Copies that all add to the own block of rank 0's neighbours: a sum by SMs, without a kernel."""
    part = IndexRange(0, 64), IndexRange(0, 1024)
    puts = [
        Transfer(f"x{peer}", Direction.PUT, Region(peer, *part), peer, f"s{peer}", reduce=True)
        for peer in range(1, num_parts + 1)
    ]
    return plan(*puts, sms=16)


@pytest.mark.parametrize(
    ("gpu", "share"),
    [
        (h100(), 1),
        (with_l2(h100(), 7 * SHARD), 1),
        (with_l2(h100(), 4 * SHARD), Fraction(1, 4)),
        (with_l2(h100(), 7 * SHARD // 2), 0),
        (with_l2(h100(), 50 * MIB, instances=2), 0),  # an L2 in slices does not see what peers write
        (mi300x(), 0),
        (with_mall(mi300x()), 1),
        (with_mall(h100(), 4 * SHARD), Fraction(1, 4)),  # not the L2, which is nearer, but what is behind it
    ],
)
def test_the_last_cache_holds_what_lands_as_far_as_all_of_it_fits(gpu: Gpu, share: Fraction | int) -> None:
    scenario = gather(gpu)

    assert Hits(scenario, built(scenario, "direct")).share(0) == share


def test_flags_between_the_data_take_room_too() -> None:
    scenario = gather(with_l2(h100(), 7 * SHARD))
    twice = replace(built(scenario, "direct"), tactics=ExecutionOptions(protocol=CopyProtocol.LL))

    assert Hits(scenario, twice).share(0) == 0


def test_who_receives_nothing_hits_nothing() -> None:
    scenario = gather(h100())

    assert Hits(scenario, plan(sms=1)).share(0) == 0


def test_around_a_ring_all_but_the_own_block_hits() -> None:
    scenario = gather(h100())
    direct, around = built(scenario, "direct"), built(scenario, "ring")

    def shares(schedule: OpPlan) -> list[int]:
        hits = Hits(scenario, schedule)
        copies = [step for step in schedule.steps if isinstance(step, Transfer)]
        return sorted(int(hits.of_copy(0, step)[0]) for step in copies)

    assert shares(direct) == [0] * 7
    assert shares(around) == [0] + [1] * 6
    assert simulate_op(scenario, direct).traffic.hbm_read_bytes == 7 * SHARD
    assert simulate_op(scenario, around).traffic.hbm_read_bytes == SHARD


def test_a_get_hits_what_its_peer_has_been_sent() -> None:
    scenario = gather(h100())
    whole = IndexRange(0, 64), IndexRange(0, 1024)
    own = Transfer("own", Direction.GET, Region(1, *whole), 1, "s_own")
    other = Transfer("other", Direction.GET, Region(2, *whole), 1, "s_other", ("s_own",))
    hits = Hits(scenario, plan(own, other, sms=16))

    assert hits.of_copy(0, own) == (NONE, NONE)
    assert hits.of_copy(0, other) == (Fraction(1), NONE)


def test_where_blocks_are_summed_only_what_is_waited_for_was_sent_here() -> None:
    scenario = replace(scatter(h100()), shape=replace(scatter(h100()).shape, pattern=Pattern.ALL_REDUCE))
    half, rest, whole = (Region(1, IndexRange(*rows), IndexRange(0, 1024)) for rows in ((0, 16), (16, 64), (0, 64)))
    arrives = Transfer("arrives", Direction.PUT, replace(half, owner=2), 1, "arrived")
    on, twice, ahead = (
        Transfer(name, Direction.PUT, region, 1, f"s_{name}", after)
        for name, region, after in (("on", whole, ("arrived",)), ("twice", half, ("arrived",)), ("ahead", rest, ()))
    )
    hits = Hits(scenario, plan(arrives, on, twice, ahead, sms=16))

    assert [hits.at_source(0, step) for step in (arrives, on, twice, ahead)] == [0, Fraction(1, 4), 1, 0]


@pytest.mark.parametrize(("num_parts", "share"), [(1, NONE), (2, Fraction(1, 2)), (7, Fraction(6, 7))])
def test_of_copies_that_add_the_first_finds_what_is_the_ranks_own(num_parts: int, share: Fraction) -> None:
    scenario, schedule = scatter(h100()), added(num_parts)
    hits = Hits(scenario, schedule)

    for step in schedule.steps:
        assert isinstance(step, Transfer)
        assert hits.of_copy(0, step) == (NONE, share)
    traffic = simulate_op(scenario, schedule).traffic
    read = num_parts * SHARD + num_parts * (SHARD - int(SHARD * share))
    assert (traffic.hbm_read_bytes, traffic.hbm_write_bytes) == (read, num_parts * SHARD)


@pytest.mark.parametrize("gpu", [h100(), with_mall(mi300x())], ids=["l2", "mall"])
@pytest.mark.parametrize("engine", [SM, DMA], ids=str)
def test_a_sum_reads_its_own_part_from_memory_and_the_others_from_the_cache(gpu: Gpu, engine: EngineChoice) -> None:
    scenario = scatter(gpu)
    lowered = lower_op(scenario, built(scenario, "direct", engine), unit_bytes=UNIT)
    (work,) = (ops.kernel for ops in lowered.steps if isinstance(ops.step, Reduction) and ops.kernel is not None)

    assert (work.hbm_read_bytes, work.hbm_write_bytes) == (SHARD, SHARD)
    assert (work.l2_hit_bytes, work.mall_read_bytes) == ((0, 7 * SHARD) if gpu.mall else (7 * SHARD, 0))
    assert simulate_op(scenario, lowered.schedule).traffic.hbm_read_bytes == 8 * SHARD  # 7 sent, and the own part


def test_a_sum_alone_takes_as_long_as_the_slower_of_memory_and_cache() -> None:
    gpu, slow = h100(), replace(h100(), mall=Cache(256 * MIB, 1, T, 0))
    size = 16 * MIB

    assert reduce_work(gpu, size, 8, 132).body_ticks == reduce_work(slow, size, 8, 132).body_ticks
    assert reduce_work(gpu, size, 8, 132, 7 * size).body_ticks == reduce_work(gpu, size, 1, 132).body_ticks
    assert reduce_work(slow, size, 8, 132, 7 * size).body_ticks == pytest.approx(7 * size / T * 1e14, abs=1)


def served_bytes(scenario: OpCase, schedule: OpPlan) -> dict[str, int]:
    """What each server passed, flags left out."""
    lowered, finished = lowered_run(scenario, schedule)
    busy = finished.server_busy_ticks[:, : TrafficClass.FLAGS].sum(axis=1)
    units = busy // lowered.program.service_ticks
    return {name: count * UNIT for name, count in zip(lowered.program.server_names, units.tolist(), strict=True)}


@pytest.mark.parametrize("algorithm", ["direct", "ring"])
@pytest.mark.parametrize("make", [gather, scatter])
@pytest.mark.parametrize("mall", [False, True])
def test_what_hits_does_not_pass_memory(algorithm: str, make: Callable[[Gpu], OpCase], mall: bool) -> None:
    gpu = with_mall(h100()) if mall else h100()
    scenario, without = make(gpu), make(with_l2(h100(), 50 * MIB, instances=2))
    schedule = built(scenario, algorithm)
    now, then = served_bytes(scenario, schedule), served_bytes(without, schedule)
    traffic = simulate_op(scenario, schedule).traffic

    assert now["hbm"] == traffic.hbm_read_bytes + traffic.hbm_write_bytes
    if mall:
        assert now["mall"] == then["hbm"] - now["hbm"]
    forwards_or_sums = algorithm == "ring" or make is scatter
    assert (now["hbm"] < then["hbm"]) == forwards_or_sums


@pytest.mark.quick(1)
@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("share", [2, 5])
def test_flows_that_hit_in_part_are_exact(fold: bool, share: int) -> None:
    gpu = with_l2(h100(), 7 * SHARD * share // 8 + 1)
    for scenario in (gather(gpu), scatter(gpu)):
        assert differs_from_oracle(scenario, built(scenario, "ring"), 4096, fold=fold) == []
    assert differs_from_oracle(scatter(gpu), added(3), 4096, fold=fold) == []


@pytest.mark.parametrize("outstanding", [None, 4096])
def test_parts_of_a_copy_keep_its_pace_and_its_window(outstanding: int | None) -> None:
    """Half of the reads hit, over a link that is faster than the SMs: the copy ends no later than one that misses."""
    gpu = replace(h100(), sm_copy=replace(h100().sm_copy, outstanding_bytes=outstanding))
    times = []
    for capacity in (7 * SHARD // 2, 14 * SHARD // 3, 7 * SHARD):
        scenario = gather(with_l2(gpu, capacity))
        lowered, finished = lowered_run(scenario, built(scenario, "ring"))
        times.append(done_at(lowered, finished, lowered.steps[-1].step.name))

    assert times[2] < times[1] <= times[0]
    assert outstanding or times[1] >= times[0] * 0.999  # its last bytes come from memory
    assert times[0] - times[2] < 7 * 2 * gpu.hbm.latency_ticks + times[0] // 20


@pytest.mark.quick(1)
@pytest.mark.parametrize("pieces", [1, 2, 4])
def test_a_larger_cache_makes_no_ring_slower(pieces: int) -> None:
    """Copies that hit in part keep the pace of those that miss: SMs that copy stay out of step with each other."""
    scenario = lone_gather(32 * MIB // 2048, 1024, gpu=h100())
    scenario = replace(scenario, shape=replace(scenario.shape, pattern=Pattern.ALL_REDUCE))
    schedule = build_op_plan(scenario, OpChoice("ring", 8 * pieces, EngineChoice(EngineKind.SM, 32)))
    times = [
        simulate_op(replace(scenario, system=replace(scenario.system, gpu=with_l2(h100(), size * MIB))), schedule)
        for size in (24, 28, 32, 40, 50, 56, 64)
    ]

    found = [result.makespan_ticks for result in times]
    assert all(after <= before * 1.002 for before, after in pairwise(found))
    assert found[-1] < found[0]


def test_what_is_sent_to_all_peers_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a direct all_reduce by get what came of 7 peers goes back to them: the same rows, which wait for the same."""
    calls = list[Region]()

    def common(region: Region, others: list[Region]) -> int:
        calls.append(region)
        return 0

    monkeypatch.setattr("magus.simcore.lower.cache_hits._common", common)
    scenario = scatter(with_mall(mi300x()))
    scenario = replace(scenario, shape=replace(scenario.shape, pattern=Pattern.ALL_REDUCE))
    by_get = ExecutionOptions(direction=Direction.GET)
    schedule = build_op_plan(scenario, OpChoice("serial", 8, SM, tactics=by_get))
    hits = Hits(scenario, schedule)
    sums = [step for step in schedule.steps_of(0) if isinstance(step, Transfer) and len(step.after) > 1]
    assert len({hits.at_source(0, step) for step in some(sums)}) == 1 and len(calls) == 1 < len(sums)
