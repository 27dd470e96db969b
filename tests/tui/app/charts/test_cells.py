"""Rows as arrays, and rows as cells."""

from hypothesis import given
from hypothesis import strategies as st

from magus.simcore.figures.result import Interval, IntervalKind, Timeline
from magus.tui.app.charts.rows import CellSpan, halves_of, name_in
from magus.tui.app.charts.rows import cells_of as spans_of
from magus.tui.app.charts.viewport import NONE, TimelineRow, Viewport, lanes_of


def row(*spans: tuple[int, int]) -> TimelineRow:
    found = [Interval(0, "dma 0", f"x{i}", IntervalKind.COMM, start, end) for i, (start, end) in enumerate(spans)]
    return TimelineRow(0, "dma 0", tuple(found))


def apart(gaps: list[tuple[int, int]]) -> TimelineRow:
    """Intervals one after the other, from (pause before, length) of each."""
    at, spans = 0, []
    for pause, size in gaps:
        spans.append((at + pause, at + pause + size))
        at += pause + size
    return row(*spans)


def test_lanes_are_in_natural_order_streams_first() -> None:
    names = ("dma 10", "dma 2", "stream 1", "stream 0")
    timeline = Timeline(2, 1, tuple(Interval(0, name, "x", IntervalKind.COMM, 0, 1) for name in names), 1)
    lanes = lanes_of(timeline)

    assert [one.lane for one in lanes.of_rank(0)] == ["stream 0", "stream 1", "dma 2", "dma 10"]
    assert [one.rank for one in lanes.of_ranks(range(2))] == [0] * 4 + [1] * 4
    assert lanes.of_rank(1)[0].starts is lanes.of_rank(0)[0].starts, "arrays are not made again for each rank"


def test_cells_show_halves_names_and_however_short_intervals() -> None:
    shown = row((0, 50), (50, 100), (150, 151))
    spans = list(spans_of(halves_of(shown, Viewport.whole(200), 20), (2,)))

    assert [(span.interval_idx, span.start, span.stop) for span in spans] == [(0, 0, 10), (1, 10, 20), (2, 30, 31)]
    assert [(name_in(shown.intervals[span.interval_idx], span), span.text_at) for span in spans] == [
        ("x0", 1),
        ("x1", 6),
        ("", 16),
    ]


def test_wide_letters_are_left_out_as_they_would_break_the_columns() -> None:
    wide = Interval(0, "dma 0", "漢字", IntervalKind.COMM, 0, 100)

    assert name_in(wide, CellSpan(0, 0, 80)) == ""


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 300)), max_size=12), st.integers(1, 60), st.data())
def test_cells_are_those_of_painting_one_interval_after_the_other(
    gaps: list[tuple[int, int]], width: int, data: st.DataObject
) -> None:
    shown = apart(gaps)
    total = max([1000, *(each.end_ticks for each in shown.intervals)])
    span = data.draw(st.integers(4 * width, max(4 * width, total)))
    viewport = Viewport(data.draw(st.integers(0, total)), span, total + span)
    painted = [NONE] * (2 * width)
    for number, each in enumerate(shown.intervals):
        first, stop = ((at - viewport.start_ticks) * 2 * width / span for at in (each.start_ticks, each.end_ticks))
        for half in range(2 * width):
            if first < half + 0.4 and stop > half + 0.6:
                painted[half] = number
    found = halves_of(shown, viewport, width).tolist()

    assert len(found) == 2 * width
    assert all(wanted in (NONE, number) for wanted, number in zip(painted, found, strict=True))


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=12), st.integers(-50, 4000))
def test_the_nearest_interval_is_nearest(gaps: list[tuple[int, int]], ticks: int) -> None:
    shown = apart(gaps)

    def far(each: Interval) -> int:
        return max(0, each.start_ticks - ticks, ticks - each.end_ticks)

    assert far(shown.intervals[shown.at(ticks)]) == min(map(far, shown.intervals))
    assert [shown.number_of(each) for each in shown.intervals] == list(range(len(shown.intervals)))
