"""A plan with a mistake is refused, with the code of the mistake and the name of the step."""

from dataclasses import replace
from typing import Any

import pytest

from magus.compiler import CompileError, compile_file
from magus.compiler.codes import Code
from magus.compiler.ir import (
    Direction,
    EngineChoice,
    EngineKind,
    IndexRange,
    OpCase,
    OpChoice,
    OpPlan,
    Override,
    PlanFault,
    Rect,
    Reduction,
    Region,
    Step,
    TileGroup,
    Transfer,
    arrivals_at,
    uncovered,
)
from magus.compiler.planning.build import build_op_plan
from magus.compiler.verify.check import check_plan
from tests.helpers.paths import ERRORS
from tests.helpers.scenarios.scenarios import ag_gemm, gemm_rs, lone_gather, lone_gemm, lone_scatter

DMA, SM = EngineChoice(EngineKind.DMA, 3), EngineChoice(EngineKind.SM, 8)
AG = ag_gemm(1024, 1024, 512, ranks=4)
RS = gemm_rs(1024, 512, 1024, ranks=4)
GATHER = lone_gather(1024, 512, ranks=4)
SCATTER = lone_scatter(1024, 512, ranks=4)
GEMM = lone_gemm(1024, 512, 256)


def plan(scenario: OpCase, template: str = "hetero_fused_1d", chunks: int = 8) -> OpPlan:
    return build_op_plan(scenario, OpChoice(template, chunks, DMA))


def serial(scenario: OpCase) -> OpPlan:
    return plan(scenario, "serial", 4)


def change(schedule: OpPlan, name: str, **fields: Any) -> OpPlan:
    """The schedule with some fields of one step changed."""
    assert any(step.name == name for step in schedule.steps)
    steps = tuple(replace(step, **fields) if step.name == name else step for step in schedule.steps)
    return replace(schedule, steps=steps)


def without(schedule: OpPlan, name: str) -> OpPlan:
    return replace(schedule, steps=tuple(step for step in schedule.steps if step.name != name))


def plus(schedule: OpPlan, step: Step) -> OpPlan:
    return replace(schedule, steps=(*schedule.steps, step))


def step_of(schedule: OpPlan, name: str) -> Step:
    return next(step for step in schedule.steps if step.name == name)


def transfer_of(schedule: OpPlan, name: str) -> Transfer:
    step = step_of(schedule, name)
    assert isinstance(step, Transfer)
    return step


def found(scenario: OpCase, schedule: OpPlan) -> list[tuple[str, str]]:
    return [(fault.code.name, fault.step) for fault in check_plan(scenario, schedule)]


def only(scenario: OpCase, schedule: OpPlan) -> PlanFault:
    faults = check_plan(scenario, schedule)
    assert len(faults) == 1, faults
    return faults[0]


@pytest.mark.parametrize("scenario", [AG, RS, GATHER, SCATTER], ids=lambda s: s.name)
def test_a_good_plan_has_no_faults(scenario: OpCase) -> None:
    assert check_plan(scenario, serial(scenario)) == ()


# Bytes.


def test_a_dropped_transfer_is_missed_where_it_is_waited_for() -> None:
    fault = only(AG, without(plan(AG), "x1_2"))

    assert (fault.code.name, fault.step) == ("MGS502", "g1") and "s_x1_2" in fault.message


@pytest.mark.parametrize("scenario", [GATHER, AG], ids=["gather", "ag"])
def test_a_dropped_transfer_that_nobody_waits_for_leaves_rows_behind(scenario: OpCase) -> None:
    schedule = without(serial(scenario), "x2")
    if scenario is AG:
        schedule = change(schedule, "g0", after=("s_x1", "s_x3"))

    faults = check_plan(scenario, schedule)

    assert faults[0] == PlanFault(Code.MGS501, "", "rows 0:256, columns 0:512 of x from rank 2 never reach rank 0")


def test_a_transfer_done_twice() -> None:
    again = replace(transfer_of(plan(AG), "x1_2"), name="again", signal="s_again")

    fault = only(AG, plus(plan(AG), again))

    assert (
        fault.code.name == "MGS501"
        and "rows 128:256, columns 0:512 of x from rank 2 reach rank 0 twice" in fault.message
    )


def test_a_signal_set_twice() -> None:
    again = replace(transfer_of(plan(AG), "x1_2"), name="again")

    assert found(AG, plus(plan(AG), again))[0] == ("MGS502", "again")


def test_a_part_of_a_transfer_is_missing() -> None:
    region = transfer_of(plan(AG), "x1_2").region

    codes = found(AG, change(plan(AG), "x1_2", region=replace(region, rows=IndexRange(128, 192))))

    assert codes == [("MGS501", ""), ("MGS508", "g1")]


# Waits.


def test_a_dropped_wait() -> None:
    fault = only(AG, change(plan(AG), "g1", after=("s_x1_1", "s_x1_3")))

    assert (fault.code.name, fault.step) == ("MGS508", "g1") and "rank 2's shard without waiting" in fault.message


def test_a_wait_of_an_earlier_kernel_of_the_stream_counts() -> None:
    schedule = plan(AG)
    everything = (*step_of(schedule, "g0").after, *step_of(schedule, "g1").after)

    assert check_plan(AG, change(change(schedule, "g0", after=everything), "g1", after=())) == ()
    assert found(AG, change(change(schedule, "g0", after=everything), "g1", after=(), stream=1)) != []


def test_a_wait_for_an_unknown_signal() -> None:
    assert found(AG, change(plan(AG), "g1", after=("s_x9",))) == [("MGS502", "g1")]


def test_a_cycle() -> None:
    fault = only(AG, change(plan(AG), "x0_1", after=("g1",)))

    assert fault.code.name == "MGS503" and "x0_1" in fault.message and "g1" in fault.message


def test_a_cycle_over_two_ranks() -> None:
    """Each rank sends only when the transfer of the other has arrived."""
    assert found(AG, change(plan(AG), "x0_1", after=("s_x0_1",)))[0][0] == "MGS503"


def test_a_cycle_through_the_order_of_a_lane() -> None:
    schedule = change(change(plan(AG), "x0_1", lane=0, after=("x0_2",)), "x0_2", lane=0)

    assert found(AG, schedule)[0][0] == "MGS503"


def test_a_partial_sum_that_leaves_too_early() -> None:
    assert found(RS, change(plan(RS), "x1_2", after=("g0",))) == [("MGS508", "x1_2")]


def test_a_reduction_that_does_not_wait_for_a_part() -> None:
    reduction = step_of(plan(RS), "r1")
    waits = tuple(name for name in reduction.after if name != "s_x1_3")
    # The rank that sends to +3 receives from -3.
    fault = only(RS, change(plan(RS), "r1", after=waits))

    assert (fault.code.name, fault.step) == ("MGS508", "r1") and "part of rank 1" in fault.message


def test_a_reduction_before_the_own_part_is_computed() -> None:
    waits = tuple(name for name in step_of(plan(RS), "r0").after if name != "own")

    assert found(RS, change(plan(RS), "r0", after=waits))[0] == ("MGS508", "r0")


# Regions, peers and engines.


@pytest.mark.parametrize("rows", [IndexRange(0, 257), IndexRange(-1, 128), IndexRange(64, 64)], ids=str)
def test_rows_outside_the_shard(rows: IndexRange) -> None:
    region = transfer_of(plan(AG), "x0_1").region

    fault = only(AG, change(plan(AG), "x0_1", region=replace(region, rows=rows)))

    assert (fault.code.name, fault.step) == ("MGS509", "x0_1") and "outside a shard of 256 x 512" in fault.message


def test_columns_inner_dimension_and_peers_outside() -> None:
    region = transfer_of(plan(AG), "x0_1").region

    assert found(AG, change(plan(AG), "x0_1", region=replace(region, cols=IndexRange(0, 513)))) == [("MGS509", "x0_1")]
    assert found(AG, change(plan(AG), "g0", k=IndexRange(0, 513))) == [("MGS509", "g0")]
    assert found(AG, change(plan(AG), "x0_1", peer=4)) == [("MGS509", "x0_1")]
    assert found(AG, change(plan(AG), "x0_1", peer=0)) == [("MGS509", "x0_1")]
    assert found(GATHER, plus(serial(GATHER), step_of(plan(AG), "own"))) == [("MGS509", "own")]


def test_engines_that_do_not_exist_or_cannot() -> None:
    assert found(AG, change(plan(AG), "x0_1", lane=3)) == [("MGS401", "x0_1")]
    assert found(RS, change(plan(RS), "x0_1", reduce=True)) == [("MGS403", "x0_1")]


def test_sums_where_there_is_nothing_to_sum() -> None:
    by_sm = replace(plan(AG), engine=SM)
    reduction = Reduction("r", Region(0, IndexRange(0, 256), IndexRange(0, 512)), 4)

    assert found(AG, change(by_sm, "x0_1", reduce=True)) == [("MGS509", "x0_1")]
    assert found(AG, plus(plan(AG), reduction)) == [("MGS509", "r")]


def test_a_reduction_of_another_block_or_of_too_few_parts() -> None:
    region = Region(1, IndexRange(0, 256), IndexRange(0, 512))

    assert ("MGS509", "r0") in found(SCATTER, change(serial(SCATTER), "r0", region=region))
    assert found(SCATTER, change(serial(SCATTER), "r0", num_parts=3)) == [("MGS509", "r0")]


# What is computed.


def test_tiles_never_computed_or_twice() -> None:
    schedule = plan(AG)
    group = step_of(schedule, "g1")
    assert isinstance(group, TileGroup)

    missing = only(AG, change(schedule, "g1", regions=group.regions[1:]))
    twice = only(AG, plus(schedule, replace(group, name="again", regions=group.regions[:1])))

    assert missing.code.name == "MGS507" and "rows 128:256" in missing.message and "never computed" in missing.message
    assert twice.code.name == "MGS507" and "computed twice" in twice.message


def test_owners_count_around_the_ring() -> None:
    schedule = serial(AG)
    group = step_of(schedule, "g0")
    assert isinstance(group, TileGroup)

    negative = tuple(replace(region, owner=region.owner - 4) for region in group.regions)

    assert check_plan(AG, change(schedule, "g0", regions=negative)) == ()


def test_slices_of_k_are_added_in_order() -> None:
    schedule = plan(AG, "uniform_fused_2d", 16)

    assert check_plan(AG, schedule) == ()
    assert found(AG, change(schedule, "g1", accumulate=False)) == [("MGS507", "g1")]
    assert found(AG, change(schedule, "g0", accumulate=True)) == [("MGS507", "g0")]
    assert ("MGS508", "g2") in found(AG, change(schedule, "g2", stream=1))


def test_sums_are_done_once() -> None:
    twice = replace(step_of(plan(RS), "r1"), name="again")

    assert found(RS, without(plan(RS), "r1")) == [("MGS507", "")]
    assert found(RS, plus(plan(RS), twice)) == [("MGS507", "")]


# Puts and gets.


def getting(schedule: OpPlan) -> OpPlan:
    """Every put of the own shard as a get of the peer's."""
    steps = [
        replace(step, direction=Direction.GET, region=replace(step.region, owner=step.peer))
        if isinstance(step, Transfer)
        else step
        for step in schedule.steps
    ]
    return replace(schedule, steps=tuple(steps))


def test_gets_do_what_puts_do() -> None:
    assert check_plan(GATHER, getting(serial(GATHER))) == ()
    assert check_plan(AG, getting(serial(AG))) == ()
    sources = {arrival.source: arrival.issuer for arrival in arrivals_at(AG, getting(serial(AG)), 1)}
    assert sources == {1: 1, 2: 1, 3: 1}


def test_a_get_of_what_the_peer_does_not_own() -> None:
    schedule = getting(serial(GATHER))
    region = transfer_of(schedule, "x1").region

    assert ("MGS508", "x1") in found(GATHER, change(schedule, "x1", region=replace(region, owner=2)))


def test_a_put_of_what_is_not_here() -> None:
    region = transfer_of(serial(GATHER), "x1").region

    assert ("MGS508", "x1") in found(GATHER, change(serial(GATHER), "x1", region=replace(region, owner=2)))


def test_forwarding_waits_for_the_arrival() -> None:
    whole = (IndexRange(0, 256), IndexRange(0, 512))
    steps = [Transfer("x1", Direction.PUT, Region(0, *whole), 1, "s1")]
    steps += [Transfer(f"x{i}", Direction.PUT, Region(1 - i, *whole), 1, f"s{i}", (f"s{i - 1}",)) for i in (2, 3)]
    ring = replace(serial(GATHER), steps=tuple(steps))

    assert check_plan(GATHER, ring) == ()
    assert found(GATHER, change(ring, "x3", after=())) == [("MGS508", "x3")]


def test_partial_sums_go_straight_to_their_owner() -> None:
    for scenario in (RS, SCATTER):
        region = transfer_of(serial(scenario), "x1").region
        assert ("MGS508", "x1") in found(scenario, change(serial(scenario), "x1", region=replace(region, owner=2)))
    assert ("MGS508", "x1") in found(RS, change(serial(RS), "x1", direction=Direction.GET))


def test_gets_of_partial_sums_that_are_there_from_the_start() -> None:
    schedule = serial(SCATTER)
    for name in ("x1", "x2", "x3"):
        region = replace(transfer_of(schedule, name).region, owner=0)
        schedule = change(schedule, name, direction=Direction.GET, region=region)

    assert check_plan(SCATTER, schedule) == ()


def test_adding_as_it_lands_is_for_all_or_for_none() -> None:
    schedule = without(replace(serial(SCATTER), engine=SM), "r0")
    for name in ("x1", "x2", "x3"):
        schedule = change(schedule, name, reduce=True)

    assert check_plan(SCATTER, schedule) == ()
    assert ("MGS507", "x2") in found(SCATTER, change(schedule, "x1", reduce=False))
    assert ("MGS507", "x1") in found(SCATTER, plus(schedule, step_of(serial(SCATTER), "r0")))


def test_adding_into_a_block_that_a_kernel_still_writes_is_refused() -> None:
    schedule = change(replace(serial(RS), engine=SM), "x1", reduce=True)

    assert ("MGS509", "x1") in found(RS, schedule)


def test_the_regions_of_a_kernel_have_the_same_columns() -> None:
    group = step_of(serial(RS), "g0")
    assert isinstance(group, TileGroup)
    sliver = Region(0, IndexRange(0, 1), IndexRange(0, 1))

    assert ("MGS509", "g0") in found(RS, change(serial(RS), "g0", regions=(sliver, *group.regions)))


def test_a_lone_gemm_computes_nothing_of_other_ranks() -> None:
    group = step_of(serial(GEMM), "g0")
    assert isinstance(group, TileGroup)
    stranger = replace(group.regions[0], owner=1)

    assert found(GEMM, change(serial(GEMM), "g0", regions=(*group.regions, stranger))) == [("MGS509", "g0")]


def test_slices_of_one_kernel_lie_apart_and_are_of_a_lone_gemm() -> None:
    first, last = IndexRange(0, 64), IndexRange(192, 256)
    ends = change(serial(GEMM), "g0", k=first, more_k=(last,))
    whole = step_of(serial(GEMM), "g0")
    assert isinstance(whole, TileGroup)
    middle = replace(whole, name="g1", k=IndexRange(64, 192), after=("g0",), accumulate=True)

    assert found(GEMM, plus(ends, middle)) == []
    assert found(GEMM, ends) == [("MGS507", "")], "what lies between is left out"
    assert ("MGS507", "") in found(GEMM, plus(change(ends, "g0", more_k=(last, first)), middle)), "one is there twice"
    assert ("MGS509", "g0") in found(GEMM, change(ends, "g0", more_k=(IndexRange(192, 257),)))
    assert ("MGS509", "g0") in found(AG, change(serial(AG), "g0", k=first, more_k=(IndexRange(64, 512),)))


# Names and overrides.


def test_names_stand_for_one_thing() -> None:
    group = step_of(serial(AG), "g0")

    assert found(AG, plus(serial(AG), group)) == [("MGS206", "g0")]
    assert found(AG, change(serial(AG), "x1", signal="g0"))[0] == ("MGS211", "x1")


def test_an_override_changes_one_rank() -> None:
    schedule = serial(AG)
    slow = replace(transfer_of(schedule, "x1"), after=("x2",))
    lost = replace(transfer_of(schedule, "x1"), region=Region(0, IndexRange(0, 128), IndexRange(0, 512)))

    assert check_plan(AG, replace(schedule, overrides=(Override(2, slow),))) == ()
    faults = check_plan(AG, replace(schedule, overrides=(Override(2, lost),)))
    assert [fault.message for fault in faults] == [
        "rows 128:256, columns 0:512 of x from rank 2 never reach rank 3",
        "g0 uses rows 128:256, columns 0:512 of rank 2's shard without waiting for them",
    ]


def test_a_cycle_made_by_overrides() -> None:
    """Ranks 0 and 1 each wait for a transfer of the other; the other ranks do not."""
    schedule = serial(AG)
    first = replace(transfer_of(schedule, "x1"), after=("s_x3",))
    second = replace(transfer_of(schedule, "x3"), after=("s_x1",))

    assert check_plan(AG, replace(schedule, overrides=(Override(0, first),))) == ()
    both = replace(schedule, overrides=(Override(0, first), Override(1, second)))
    assert found(AG, both)[0][0] == "MGS503"


def test_overrides_of_what_is_not_there() -> None:
    schedule = serial(AG)
    stranger, known = replace(transfer_of(schedule, "x1"), name="y1"), transfer_of(schedule, "x1")

    assert found(AG, replace(schedule, overrides=(Override(0, stranger),))) == [("MGS506", "y1")]
    assert found(AG, replace(schedule, overrides=(Override(4, known),))) == [("MGS506", "x1")]


# Cover.


def test_cover_finds_gaps_and_overlaps() -> None:
    whole = Rect(0, 4, 0, 4)

    assert uncovered(whole, [Rect(0, 4, 0, 2), Rect(0, 4, 2, 4)]) == (None, None)
    assert uncovered(whole, []) == (whole, None)
    assert uncovered(whole, [Rect(0, 4, 0, 2), Rect(0, 2, 2, 4)]) == (Rect(2, 4, 2, 4), None)
    assert uncovered(whole, [whole, Rect(1, 2, 3, 4)]) == (None, Rect(1, 2, 3, 4))
    assert uncovered(whole, [Rect(0, 4, 0, 3), Rect(3, 4, 1, 4)]) == (Rect(0, 3, 3, 4), Rect(3, 4, 1, 3))


# What helps.


def test_the_hint_names_the_signal_that_brings_what_is_missing() -> None:
    fault = only(AG, change(plan(AG), "g1", after=("s_x1_1", "s_x1_3")))

    assert fault.hint == "add: after s_x1_2, which brings rows 128:256, columns 0:512 of rank 2"


def test_the_hint_names_the_kernel_that_computes_what_leaves() -> None:
    faults = check_plan(RS, change(plan(RS), "x1_2", after=("g0",)))

    assert [fault.hint for fault in faults] == ["add: after g1, which computes rows 128:256, columns 0:512 of block +2"]


def test_the_hint_names_the_last_of_those_that_write() -> None:
    with pytest.raises(CompileError) as caught:
        compile_file(ERRORS / "ring_without_a_wait.mgs")

    assert [found.hint for found in caught.value.diagnostics] == ["add: after sb1, which brings them"]
