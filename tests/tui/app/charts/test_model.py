"""The timeline as it is moved through: cursor, ranks, chunks, what stands out."""

import pytest

from magus.compiler import compile_text
from magus.compiler.ir import Transfer
from magus.compiler.planning.build import declared
from magus.simcore import run_of, simulate_op
from magus.simcore.figures.result import IntervalKind
from magus.tui.app.charts.model import Chunks, RanksShown, TimelineModel
from magus.tui.app.charts.rows import bars_text
from magus.tui.app.charts.viewport import Emphasis
from tests.helpers.tui import real


@pytest.fixture(scope="module")
def model() -> TimelineModel:
    scenario = real.gather()
    return TimelineModel(run_of(scenario, real.result_of(scenario, real.PIECES)))


@pytest.fixture
def fresh(model: TimelineModel) -> TimelineModel:
    return TimelineModel(model.run)


def to_row(model: TimelineModel, lane: str) -> None:
    model.step_row(-len(model.rows))
    model.step_row(next(idx for idx, row in enumerate(model.rows) if row.lane == lane))


def test_the_cursor_walks_along_a_row_and_between_rows(fresh: TimelineModel) -> None:
    to_row(fresh, "dma 0")
    fresh.step(-100)
    seen = [fresh.interval]
    for _ in range(len(fresh.rows[fresh.cursor.row_idx].intervals) - 1):
        fresh.step(1)
        seen.append(fresh.interval)

    assert tuple(seen) == fresh.rows[fresh.cursor.row_idx].intervals
    at = fresh.cursor_ticks
    fresh.step_row(1)
    assert fresh.rows[fresh.cursor.row_idx].lane == "dma 1"
    assert fresh.interval is not None
    assert abs(fresh.interval.start_ticks - at) < fresh.viewport.total_ticks // 4


def test_the_cursor_stays_in_view_when_zoomed(fresh: TimelineModel) -> None:
    to_row(fresh, "stream 0")
    fresh.step(100)
    fresh.zoom(6)

    assert fresh.interval is not None
    assert fresh.viewport.start_ticks < fresh.interval.end_ticks
    fresh.step(-100)
    assert fresh.viewport.start_ticks <= fresh.interval.start_ticks < fresh.viewport.end_ticks
    fresh.zoom(0)
    assert fresh.viewport.zoom == 1
    fresh.frame()
    assert fresh.viewport.zoom > 1


def test_a_chunk_is_followed_from_its_put_to_the_kernel_that_waits(fresh: TimelineModel) -> None:
    to_row(fresh, "dma 2")
    put = fresh.interval
    assert put is not None
    step = next(each for each in fresh.result.schedule.steps if each.name == put.name)
    assert isinstance(step, Transfer)
    fresh.follow()

    assert [stop.interval.kind for stop in fresh.stops] == [IntervalKind.COMM, IntervalKind.COMPUTE]
    assert [stop.rank for stop in fresh.stops] == [0, step.peer]
    assert [row.lane for row in fresh.rows if row.rank] == ["stream 0"], "where it goes is shown, and nothing else"
    assert fresh.interval == put
    assert f"[{put.name} r0] > r0 > r{step.peer}" in fresh.story()
    fresh.follow()
    assert fresh.interval == fresh.stops[1].interval
    assert fresh.rows[fresh.cursor.row_idx].rank == step.peer
    kernel = fresh.interval
    waiting = next(each for each in fresh.result.schedule.steps if each.name == kernel.name)
    assert step.signal in waiting.after
    fresh.follow()
    assert fresh.interval == put, "behind the last stop it begins again"
    fresh.unfollow()
    assert {row.rank for row in fresh.rows} == {0}


def test_from_a_kernel_the_chunk_that_came_last_is_followed(fresh: TimelineModel) -> None:
    to_row(fresh, "stream 0")
    kernel = fresh.interval
    fresh.follow()

    assert [stop.interval for stop in fresh.stops][1] == kernel
    assert fresh.interval is not None
    assert fresh.interval.kind is IntervalKind.COMM
    assert kernel is not None
    assert fresh.interval.end_ticks <= kernel.start_ticks


def test_ranks_are_shown_one_by_one_or_all(fresh: TimelineModel) -> None:
    lanes = len(fresh.rows)
    fresh.other_rank(-1)

    assert {row.rank for row in fresh.rows} == {7}
    assert "rank 7, one stands for all 8" in fresh.headline()
    fresh.next_ranks()
    assert fresh.ranks_shown is RanksShown.ALL
    assert len(fresh.rows) == 8 * lanes
    assert fresh.shows_many_ranks
    fresh.next_ranks()
    assert len(fresh.rows) == lanes


def test_the_critical_path_and_exposed_communication_stand_out(fresh: TimelineModel) -> None:
    critical = {op.label for op in fresh.result.critical_path}
    fresh.emphasise(Emphasis.CRITICAL)

    assert fresh.standout.names == {(0, label) for label in critical}
    assert "only critical path" in fresh.headline()
    fresh.emphasise(Emphasis.EXPOSED)
    exposed = sum(end - start for start, end in fresh.standout.spans[0])
    assert exposed == fresh.result.union_ticks - fresh.result.compute_ticks
    fresh.emphasise(Emphasis.EXPOSED)
    assert fresh.emphasis is Emphasis.NONE


def test_strips_average_to_the_use_of_the_run(model: TimelineModel) -> None:
    strips = {strip.label: strip for strip in model.strips}
    whole = strips["HBM"].in_columns(model.viewport, 40)

    assert set(strips) == {"links", "HBM"}
    assert whole.min() >= 0
    assert whole.mean() == pytest.approx(model.result.utilization.hbm, rel=0.02)
    assert bars_text(whole[:0]) == ""
    assert len(bars_text(whole)) == 40


def test_a_row_is_reported_with_its_step(fresh: TimelineModel) -> None:
    to_row(fresh, "dma 0")

    assert "put of " in fresh.story()
    to_row(fresh, "stream 0")
    assert "kernel " in fresh.story()
    assert "after s_" in fresh.story()


def test_a_chunk_is_followed_to_the_rank_that_gets_it_from_the_one_that_got_it() -> None:
    text = """use "nvidia/h100"
system quad { gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }
workload w on quad { x = tensor bf16[64, 256] shard rows; y = all_gather(x) }
schedule s for w { plan by dma(3); a = get y.shard(1) from 1 signal sa
  b = get y.shard(2) from 1 signal sb peer_after sa; c = get y.shard(3) from 1 signal sc peer_after sb }"""
    case = compile_text(text).scenario().case
    run = run_of(case, simulate_op(case, declared(case, case.schedules[0]), unit_bytes=128))
    (first,) = (each for each in run.result.timeline.intervals if each.rank == 0 and each.name == "a")

    stops = Chunks(run).chain_from(2, first)
    assert [(stop.rank, stop.interval.name, stop.path) for stop in stops] == [
        (2, "a", ()),
        (1, "b", (2, 4, 1)),
        (0, "c", (1, 4, 0)),
    ]


def test_a_get_is_reported_with_what_its_peer_waits_for() -> None:
    text = """use "nvidia/h100"
system pair { gpus 2 x H100; fabric switch(nvswitch, link=nvlink) }
workload w on pair { x = tensor bf16[64, 256]; y = all_reduce(x) }
schedule s for w { plan by sm(4); t = get x.shard(0) from 1 signal st; r = reduce x.shard(0) parts 2 after st
  g = get x.shard(1) from 1 signal sg peer_after r }"""
    case = compile_text(text).scenario().case
    summed = TimelineModel(run_of(case, simulate_op(case, declared(case, case.schedules[0]), unit_bytes=128)))
    lane, place = next(
        (row.lane, place) for row in summed.rows for place, interval in enumerate(row.intervals) if interval.name == "g"
    )
    to_row(summed, lane)
    summed.step(-100)
    summed.step(place)

    assert "after r of its peer" in summed.story()


def test_the_same_schedule_again_keeps_what_is_shown(fresh: TimelineModel) -> None:
    fresh.emphasise(Emphasis.CRITICAL)
    fresh.zoom(3)
    fresh.step_row(2)
    again = TimelineModel(fresh.run).taking_over(fresh)

    assert (again.viewport, again.cursor, again.emphasis) == (fresh.viewport, fresh.cursor, Emphasis.CRITICAL)
