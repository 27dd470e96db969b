"""SMs in a fixed order: groups whose data is late hold them, as in the simulator."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.advisor.estimate.makespan import estimate_ticks
from magus.advisor.estimate.step_costs import StaticOrder
from magus.compiler.ir import CopyProtocol, Direction, EngineChoice, EngineKind, OpChoice, Pattern
from magus.compiler.planning.build import build_op_plan
from magus.simcore import simulate_op
from magus.simcore.kernels.work import KernelWork
from tests.advisor.estimate.test_persistent import PERSISTENT
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of

WORK = KernelWork(1, 10, 0, 1, 0, 0, 0, "one unit")
DMA3, SM32 = EngineChoice(EngineKind.DMA, 3), EngineChoice(EngineKind.SM, 32)


def order_of(slots: int, *units: int) -> StaticOrder:
    return StaticOrder(slots, [replace(WORK, num_units=count) for count in units])


def ends_by_units(slots: int, units: list[int], ready: list[int]) -> list[int]:
    """Each unit by itself: it begins when its SM has done the unit before and its data is there."""
    free, ends, unit = [0] * slots, [0] * len(units), 0
    for group, count in enumerate(units):
        for _ in range(count):
            free[unit % slots] = max(free[unit % slots], ready[group]) + WORK.unit_ticks
            ends[group] = max(ends[group], free[unit % slots])
            unit += 1
    return ends


def test_a_late_group_holds_its_sms() -> None:
    order = order_of(4, 4, 2)

    assert list(order.begin(1, 5)) == [], "its SMs wait for the first group"
    assert [(group, [(each.begin, each.end, each.units) for each in spans]) for group, spans in order.begin(0, 7)] == [
        (0, [(7, 17, 4)]),
        (1, [(17, 27, 2)]),
    ]


def test_other_sms_go_on() -> None:
    order = order_of(4, 2, 2, 1)

    assert [group for group, _ in order.begin(1, 5)] == [1]
    assert [group for group, _ in order.begin(2, 6)] == [], "SM 0 waits for the first group"
    assert [(group, spans[0].end) for group, spans in order.begin(0, 30)] == [(0, 40), (2, 50)]


def test_units_that_fill_some_sms_twice() -> None:
    ((_, spans),) = order_of(4, 6).begin(0, 0)

    assert sorted((each.end, each.units) for each in spans) == [(10, 2), (20, 4)]


@given(
    st.integers(1, 7),
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 60)), min_size=1, max_size=6),
)
def test_ends_are_those_of_single_units(slots: int, groups: list[tuple[int, int]]) -> None:
    units, ready = [count for count, _ in groups], [ticks for _, ticks in groups]
    order, ends = order_of(slots, *units), [0.0] * len(groups)
    for group in sorted(range(len(groups)), key=lambda each: ready[each]):
        for each, spans in order.begin(group, ready[group]):
            ends[each] = max(span.end for span in spans)
            assert sum(span.units for span in spans) == units[each]

    assert ends == ends_by_units(slots, units, ready)


@pytest.mark.parametrize("system", [0, 1])
@pytest.mark.parametrize("rows", [64, 2048])
@pytest.mark.parametrize(
    "choice",
    [
        OpChoice("hetero_unfused_1d", 16, DMA3, 4, tactics=PERSISTENT),
        OpChoice("hetero_fused_1d", 8, SM32, tactics=PERSISTENT),
        OpChoice("uniform_fused_2d", 8, SM32, tactics=PERSISTENT),
        OpChoice("serial", 4, SM32, tactics=replace(PERSISTENT, protocol=CopyProtocol.LL, direction=Direction.GET)),
    ],
    ids=["streams", "flags", "slices", "get"],
)
def test_the_estimate_is_near_the_simulation(choice: OpChoice, rows: int, system: int) -> None:
    one = scenario_of(Pattern.AG_GEMM, SYSTEMS[system], 4, rows, 2048, 2048)
    schedule = build_op_plan(one, choice)

    simulated = simulate_op(one, schedule, unit_bytes=4096).makespan_ticks

    assert estimate_ticks(one, schedule) == pytest.approx(simulated, rel=0.08)
