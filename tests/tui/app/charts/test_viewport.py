"""The part of time in view, and its axis."""

from hypothesis import given
from hypothesis import strategies as st

from magus.tui.app.charts.viewport import Viewport, axis_lines, axis_of
from tests.helpers.some import some
from tests.helpers.tui import fakes

US = fakes.ticks(1)


@given(
    st.integers(1, 10**12), st.lists(st.sampled_from([1.6, 1 / 1.6, 100.0]), min_size=1), st.floats(-3, 3), st.data()
)
def test_the_time_in_view_stays_inside(total: int, zooms: list[float], move: float, data: st.DataObject) -> None:
    viewport = Viewport.whole(total)
    for factor in some(zooms):
        viewport = viewport.zoomed(factor, data.draw(st.integers(0, total))).moved(move)

        assert 0 <= viewport.start_ticks <= viewport.end_ticks <= total
        assert viewport.span_ticks > 0


def test_zooming_leaves_a_time_where_it_is() -> None:
    viewport = Viewport.whole(1000 * US).zoomed(4, 250 * US)

    assert viewport.column_of(250 * US, 100) == Viewport.whole(1000 * US).column_of(250 * US, 100) == 25


@given(st.integers(0, 900), st.integers(1, 400), st.integers(0, 900))
def test_what_is_to_be_shown_is_in_view(start: int, size: int, at: int) -> None:
    viewport = Viewport(at * US, 100 * US, 1300 * US).showing(start * US, (start + size) * US)

    assert viewport.start_ticks <= start * US < viewport.end_ticks
    assert size > 80 or (start + size) * US <= viewport.end_ticks
    assert viewport.showing(start * US, (start + min(size, 80)) * US) == viewport, "nothing moves twice"


@given(st.integers(1, 10**13), st.integers(0, 200))
def test_axis_has_few_round_times(total: int, width: int) -> None:
    ticks = axis_of(Viewport.whole(total), width)
    labels, ruler = axis_lines(ticks, width)

    assert len(labels) == len(ruler) == width
    assert len({tick.label for tick in ticks}) == len(ticks)
    assert len(ticks) <= width // 10 + 1


def test_axis_counts_in_steps_of_one_two_or_five() -> None:
    assert [tick.label for tick in axis_of(Viewport.whole(100 * US), 60)] == ["0", "20", "40", "60", "80"]
    assert [tick.label for tick in axis_of(Viewport(10 * US, US, 100 * US), 30)] == ["10.0", "10.5"]
