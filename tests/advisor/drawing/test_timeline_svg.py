"""The timeline as an SVG: XML without foreign elements, every step in it, bounded however long the plan."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from magus.compiler.ir import TICKS_PER_US, Pattern
from magus.simcore import run_of
from magus.simcore.figures.load_buckets import exposed_spans
from magus.simcore.figures.result import Interval, IntervalKind
from magus.tui.drawing.svg import TimeScale
from magus.tui.drawing.timeline_svg import timeline_svg
from tests.helpers.hostile_text import HTML
from tests.helpers.scenarios.simulated import persistent_run, runs
from tests.helpers.some import some

SVG = "{http://www.w3.org/2000/svg}"


def bars(text: str, kind: str = "bar") -> list[ElementTree.Element]:
    return [each for each in ElementTree.fromstring(text).iter(f"{SVG}rect") if kind in each.get("class", "").split()]


@pytest.mark.parametrize("pattern", [Pattern.AG_GEMM, Pattern.GEMM_RS, Pattern.ALL_REDUCE, Pattern.ALL_TO_ALL])
def test_every_step_is_drawn_where_it_ran(pattern: Pattern) -> None:
    for scenario, result in some([*runs(pattern, 4), persistent_run()]):
        text = timeline_svg(run_of(scenario, result))

        tags = {each.tag.removeprefix(SVG) for each in ElementTree.fromstring(text).iter()}
        assert tags <= {"svg", "rect", "text", "title", "path"}
        drawn = [each for each in bars(text) if "steps," not in "".join(each.itertext())]
        widest = max(result.timeline.of_rank(0), key=lambda interval: interval.ticks)
        share = max(float(each.get("width", 0)) for each in drawn) / TimeScale(1, 120, 1064).width
        shares = [interval.ticks / result.makespan_ticks for interval in result.timeline.intervals]
        assert share >= widest.ticks / result.makespan_ticks - 1e-3
        assert min(abs(share - each) for each in shares) < 1e-3
        assert bool(bars(text, "critical"))


def test_what_is_exposed_is_marked() -> None:
    scenario, result = persistent_run()

    marked = bars(timeline_svg(run_of(scenario, result)), "exposed")

    assert 1 < len(marked) <= len(exposed_spans(result.timeline, 0)) + 1  # and the legend's


def test_the_legend_lists_what_is_drawn() -> None:
    scenario, result = persistent_run()
    text = timeline_svg(run_of(scenario, result))
    words = [each.text for each in ElementTree.fromstring(text).iter(f"{SVG}text")]
    there = {each.kind for each in result.timeline.intervals}
    assert IntervalKind.REDUCE not in there and "sum" not in words
    assert {"kernel", "transfer", "communication that no kernel hides"} <= set(words)


def test_no_line_crosses_the_name_of_a_rank() -> None:
    scenario, result = persistent_run()
    body = list(ElementTree.fromstring(timeline_svg(run_of(scenario, result))))
    place = next(at for at, each in enumerate(body) if (each.text or "").startswith("rank 0"))
    lines = [at for at, each in enumerate(body) if each.tag == f"{SVG}path" and each.get("class") == "grid"]
    behind, said = body[place - 1], body[place].text or ""
    assert lines and max(lines) < place - 1 and behind.get("class") == "paper"
    assert float(behind.get("width", 0)) > 6.4 * len(said)


def test_a_hundred_thousand_intervals_are_drawn_in_bounded_size() -> None:
    scenario, result = persistent_run()
    lanes = [f"dma {number}" for number in range(8)]
    many = tuple(
        Interval(0, lanes[place % 8], f"x{place}", IntervalKind.COMM, place * 10**4, place * 10**4 + 7 * 10**4)
        for place in range(100_000)
    )
    timeline = replace(result.timeline, intervals=many, makespan_ticks=many[-1].end_ticks, period=1)
    result = replace(result, timeline=timeline, makespan_ticks=many[-1].end_ticks)

    text = timeline_svg(run_of(scenario, result))

    assert len(text) < 4_000_000
    assert sum(_steps(each) for each in bars(text)) == 100_000


def _steps(bar: ElementTree.Element) -> int:
    about = "".join(bar.itertext())
    return int(about.split()[0]) if " steps," in about else 1


@pytest.mark.parametrize("text", HTML)
def test_names_of_others_are_shown_as_text(text: str) -> None:
    scenario, result = persistent_run()
    intervals = tuple(replace(each, name=text) for each in result.timeline.intervals)
    result = replace(result, timeline=replace(result.timeline, intervals=intervals))

    drawing = timeline_svg(run_of(replace(scenario, shape=replace(scenario.shape, name=text)), result))

    tags = {each.tag.removeprefix(SVG) for each in ElementTree.fromstring(drawing).iter()}
    assert tags <= {"svg", "rect", "text", "title", "path"}


def test_marks_of_the_axis_are_round_and_apart() -> None:
    marks = list(TimeScale(1154 * TICKS_PER_US, 120, 1064).marks())

    assert [label for _, label in marks] == [str(100 * place) for place in range(12)]
    assert marks[0][0] == 120 and marks[1][0] - marks[0][0] >= 90
