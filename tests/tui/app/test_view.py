"""Texts, bars and the geometry of the timeline, without a screen."""

import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.compiler.ir import Scenario
from magus.compiler.resolve.expect.expectation import Verdict
from magus.simcore.figures.result import Interval, IntervalKind, Timeline, Waterfall
from magus.tui.app.timeline_rows import TimelineRow, Viewport, axis_lines, axis_of, cells_of, timeline_rows
from magus.tui.app.view import SortKey, fitted_code, rows_of, selected_text, shortened, verdict_of
from magus.tui.app.waterfall import bars_of, drawn_bars
from magus.tui.text.render import verdict_sentence
from tests.helpers.scenarios import scenarios
from tests.helpers.some import some
from tests.helpers.tui import fakes

US = fakes.ticks(1)


def row(*spans: tuple[int, int]) -> TimelineRow:
    found = [Interval(0, "dma 0", f"x{i}", IntervalKind.COMM, start, end) for i, (start, end) in enumerate(spans)]
    return TimelineRow(0, "dma 0", tuple(found))


@pytest.mark.parametrize("module", ["app.session", "app.background", "app.view", "app.waterfall", "app.timeline_rows"])
def test_logic_needs_no_textual(module: str) -> None:
    heavy = ("textual", "ortools", "sklearn", "typer")
    code = f"import sys, magus.tui.{module}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_lanes_are_in_natural_order_streams_first() -> None:
    names = ("dma 10", "dma 2", "stream 1", "stream 0")
    timeline = Timeline(2, 1, tuple(Interval(0, name, "x", IntervalKind.COMM, 0, 1) for name in names), 1)

    assert [one.name for one in timeline_rows(timeline, all_ranks=False)] == ["stream 0", "stream 1", "dma 2", "dma 10"]
    assert [one.rank for one in timeline_rows(timeline, all_ranks=True)] == [0] * 4 + [1] * 4


def test_cells_show_halves_names_and_however_short_intervals() -> None:
    cells = cells_of(row((0, 50), (50, 100), (150, 151)), Viewport.whole(200), 20)

    assert [cell.letter for cell in cells[:10]] == ["", "x", "0", "", "", "", "x", "1", "", ""]
    assert cells[4].left != cells[5].left, "neighbours differ in shade"
    assert cells[15].left is not None
    assert cells[15].right is None
    assert all(cell.left is None for cell in cells[10:15])


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 200))), st.integers(1, 60), st.data())
def test_cells_fill_any_window(spans: list[tuple[int, int]], width: int, data: st.DataObject) -> None:
    total = 1000
    span = data.draw(st.integers(1, total))
    viewport = Viewport(data.draw(st.integers(0, total - span)), span, total)

    assert len(cells_of(row(*((start, start + size) for start, size in spans)), viewport, width)) == width


@given(st.integers(1, 10**12), st.lists(st.sampled_from([1.6, 1 / 1.6, 100.0]), min_size=1), st.floats(-3, 3))
def test_windows_stay_inside(total: int, zooms: list[float], move: float) -> None:
    viewport = Viewport.whole(total)
    for factor in some(zooms):
        viewport = viewport.zoomed(factor).moved(move)

        assert 0 <= viewport.start_ticks <= viewport.start_ticks + viewport.span_ticks <= total
        assert viewport.span_ticks > 0


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


def test_bars_lead_from_bound_to_makespan() -> None:
    bars = bars_of(Waterfall(128, 100, 2, -1, 5, 14, 80))

    assert [(bar.start_ticks, bar.ticks) for bar in bars] == [(0, 80), (80, 14), (94, 5), (99, -1), (98, 2), (0, 100)]
    drawn = drawn_bars(bars, 50)
    assert {len(line) for line in drawn} == {50}
    assert drawn[0] == "█" * 40 + " " * 10
    assert drawn[-1] == "█" * 50


def test_a_shortened_schedule_keeps_its_parameters() -> None:
    short = shortened(fakes.LONG, 44)

    assert len(short) == 44
    assert short.startswith("hetero_un…")
    assert short.endswith("128, engine=sm(32), streams=4)")
    assert shortened(fakes.BEST, 80) == fakes.BEST
    assert [len(shortened(fakes.BEST, width)) for width in (5, 10, 11)] == [5, 10, 11]


def test_rows_sort_by_any_key_with_the_unknown_last() -> None:
    advice = fakes.advice(scenarios.ag_gemm(2048, 3584, 4096))
    order = {key: [row.rank for row in rows_of(advice, {}, key)] for key in SortKey}

    assert order[SortKey.RANK] == [1, 2, 3, 4, 5]
    assert order[SortKey.SCHEDULE] == [3, 4, 2, 5, 1]
    assert order[SortKey.PREDICTED] == [1, 2, 4, 5, 3]
    assert order[SortKey.SIMULATED] == [1, 2, 3, 4, 5]
    assert order[SortKey.SPEEDUP] == [1, 2, 3, 4, 5]


def test_a_result_on_demand_fills_the_gap_of_the_advice() -> None:
    scenario = scenarios.ag_gemm(2048, 3584, 4096)
    advice = fakes.advice(scenario)
    on_demand = fakes.result(scenario, fakes.UNSEEN, 105.0, line=False)
    before = rows_of(advice, {}, SortKey.RANK)[-1]
    after = rows_of(advice, {fakes.UNSEEN: on_demand}, SortKey.RANK)[-1]

    assert selected_text(before) == f"{fakes.UNSEEN}  120.0 us predicted ~0.97x"
    assert selected_text(after) == f"{fakes.UNSEEN}  105.0 us packet 1.11x"


def test_code_is_cut_around_its_carets() -> None:
    code, carets = fitted_code("a" * 100 + "WRONG" + "b" * 100, " " * 100 + "^^^^^", 40)

    assert len(code) == 40
    assert code[carets.index("^") :].startswith("WRONG")
    assert fitted_code("short", " ^", 40) == ("short", " ^")


@pytest.mark.parametrize(
    ("scenario", "verdict", "sentence", "headline"),
    [
        (
            scenarios.lone_gather(512, 512),
            Verdict.OVERLAP,
            f"Use {fakes.BEST}: 100.0 us, 1.17x faster than the direct exchange, 117.0 us.",
            f"1.17x faster than the direct exchange: {fakes.BEST}",
        ),
        (
            scenarios.lone_gather(512, 512),
            Verdict.SERIAL,
            f"Use {fakes.SERIAL}: 117.0 us; no other schedule is clearly faster.",
            f"No other schedule is clearly faster: {fakes.SERIAL}",
        ),
        (
            scenarios.lone_gemm(512, 512, 512),
            Verdict.SERIAL,
            f"SERIAL: there is one kernel and nothing to move. Use {fakes.SERIAL}, 117.0 us.",
            f"SERIAL: there is one kernel and nothing to move; use {fakes.SERIAL}",
        ),
    ],
    ids=["algorithm", "direct", "kernel"],
)
def test_the_headline_fits_what_was_asked(scenario: Scenario, verdict: Verdict, sentence: str, headline: str) -> None:
    # The stand-in for advice on a lone collective recommends what is not serial where the verdict would be overlap.
    advice = replace(fakes.advice(scenario, verdict), verdict=Verdict.SERIAL)

    assert verdict_sentence(advice) == sentence
    assert verdict_of(advice, 160) == headline
