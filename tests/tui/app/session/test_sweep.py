"""Sweeps: the values that are visited, what the plot says, and a run that is stopped."""

from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from magus.advisor.candidates.advice import Advice
from magus.compiler.ir import Cancelled, Scenario, ShouldStop
from magus.compiler.pipeline import compile_file
from magus.compiler.resolve.expect.expectation import Verdict
from magus.tui.app.app import MagusApp
from magus.tui.app.charts.sweep_plot import SweepPlot
from magus.tui.app.panes import PANES
from magus.tui.app.session.sweep import Point, SweepFigure, SweepPlan, words_of
from magus.tui.app.session.values import ValuesOfFile
from tests.helpers.tui import fakes
from tests.helpers.tui.driving import LARGE, SMALL, press, screen_text, settled, until
from tests.helpers.tui.fakes import BEST, SERIAL, FakeStages
from tests.tui.app.session.test_what_if import FILE

KEY = str([pane.name for pane in PANES].index("sweep") + 1)
OVERLAP, TRY, NO = Verdict.OVERLAP, Verdict.WORTH_TRYING, Verdict.SERIAL


def figure() -> SweepFigure:
    found = SweepFigure("M", (), 4, now=2048.0)
    for x, fused, serial, verdict in (
        (512, 20, 10, NO),
        (1024, 25, 20, NO),
        (2048, 40, 45, TRY),
        (8192, 130, 180, OVERLAP),
    ):
        us = {"fused dma": float(fused), "serial dma": float(serial)}
        winner = min(us, key=lambda kind: us[kind])
        found = found.with_point(Point(float(x), str(x), verdict, winner, us, frozenset({"serial dma"})))
    return found


def rows(tmp_path: Path, text: str = FILE) -> dict[str, object]:
    path = tmp_path / "a.mgs"
    path.write_text(text, encoding="utf-8")
    compiled = compile_file(path)
    values = ValuesOfFile(compiled.params, compiled.numbers)
    return {row.name: row for row in values.rows(compiled.workloads[0].system)}


@pytest.mark.parametrize(
    ("name", "first", "values"),
    [
        ("M", ["1024", "8192", "2048"], ["1024", "2048", "4096", "8192"]),
        ("K", ["256", "65536", "4096"], ["256", "512", "1024", "2048", "4096", "8192", "16384", "32768", "65536"]),
        ("xgmi.latency", ["175 ns", "2.8 us", "700 ns"], None),
    ],
)
def test_the_ends_are_visited_first_then_the_middles(
    tmp_path: Path, name: str, first: list[str], values: list[str] | None
) -> None:
    plan = SweepPlan.of(rows(tmp_path)[name])  # type: ignore[arg-type]
    texts = [text for _, text in plan.values]

    assert texts[:3] == first
    assert len(set(texts)) == len(texts)
    assert values is None or sorted(texts, key=int) == values


def test_a_long_domain_is_thinned_and_keeps_its_ends(tmp_path: Path) -> None:
    text = FILE.replace("M = 2048 in 1024..8192 x2", "M = 2048 in 8..8192 step 8")
    plan = SweepPlan.of(rows(tmp_path, text)["M"])  # type: ignore[arg-type]
    values = sorted(int(text) for _, text in plan.values)

    assert (len(values), values[0], values[-1]) == (17, 8, 8192)


def test_a_better_point_takes_the_place_of_another() -> None:
    better = Point(2048.0, "2048", OVERLAP, "fused dma", {"fused dma": 30.0})

    assert [point.x for point in figure().with_point(better).points] == [512, 1024, 2048, 8192]
    assert better in figure().with_point(better).points


def test_crossovers_and_thresholds() -> None:
    (crossing,) = figure().crossovers

    assert (crossing.low.text, crossing.high.text) == ("1024", "2048")
    assert words_of(figure()) == ["overlap is worth trying from M = 2048 on", "overlap pays from M = 8192 on"]


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ((), "0 of 4 values so far"),
        ((0,), "1 of 4 values so far: serial at M = 512"),
        ((3,), "1 of 4 values so far: overlap pays at M = 8192"),
        ((0, 1), "2 of 4 values so far: serial at each"),
        ((0, 3), "2 of 4 values so far: serial at M = 512, overlap pays at M = 8192"),
    ],
)
def test_a_part_of_the_points_says_nothing_of_all_values(kept: tuple[int, ...], words: str) -> None:
    part = replace(figure(), points=tuple(figure().points[place] for place in kept))

    assert words_of(part) == [words]
    if kept:
        verdicts = next(
            text for line in SweepPlot(part, 78, 20).lines() if "verdict" in (text := "".join(one for one, _ in line))
        )
        assert sum(verdicts.split()[1].count(sign) for sign in "-?+") == len(kept)


def test_values_without_an_answer_are_not_waited_for() -> None:
    alike = replace(figure(), points=figure().points[:2])

    assert words_of(replace(alike, unanswered=2)) == ["serial at every value that has an answer"]
    assert words_of(replace(alike, planned=2)) == ["serial at every value"]


def test_times_in_percent_of_the_serial_one() -> None:
    assert [point.us["fused dma"] for point in figure().relative().points] == pytest.approx(
        [200, 125, 88.889, 72.222], 1e-4
    )


@pytest.mark.parametrize(("width", "height"), [(80, 14), (118, 30), (40, 10), (20, 5), (1, 1)])
def test_a_plot_fits_its_place(width: int, height: int) -> None:
    lines = SweepPlot(figure(), width, height).lines()
    texts = ["".join(text for text, _ in line) for line in lines]

    assert len(texts) <= height
    assert width < 40 or max(map(len, texts)) <= width


def test_letters_say_which_curve_and_whether_it_was_simulated() -> None:
    texts = ["".join(text for text, _ in line) for line in SweepPlot(figure(), 78, 20).lines()]
    plot = "\n".join(texts)
    winner = next(text for text in texts if "winner" in text)
    verdict = next(text for text in texts if "verdict" in text)

    assert "A fused dma" in plot and "B serial dma" in plot
    assert "a" in texts[0] + texts[1] + texts[2] and "B" in plot
    assert winner.split()[1].strip("B").strip("A") == "" and winner.split()[1][0] == "B"
    assert set(verdict.split()[1]) == {"-", "?", "+"}
    assert "512" in plot and "8192" in plot


def test_one_point_is_a_plot() -> None:
    one = replace(figure(), points=figure().points[:1])

    assert any("A" in text or "a" in text for line in SweepPlot(one, 60, 20).lines() for text, _ in line)


# On screen.


def swept(scenario: Scenario, simulated: bool, should_stop: ShouldStop) -> Advice:
    """Overlap pays from 2048 rows on."""
    gemm = scenario.case.shape.gemm
    rows = gemm.m if gemm is not None else 0
    pays = rows >= 2048
    times = {BEST: rows / 16 + (0 if pays else 100), SERIAL: rows / 14}
    made = [fakes.candidate(name, us, us if simulated else None, 1024) for name, us in times.items()]
    made.sort(key=lambda each: each.best_us)
    advice = fakes.advice(scenario.case, OVERLAP if pays else NO)
    return replace(advice, candidates=tuple(made), recommended=made[0], interrupted=should_stop())


def app_of(path: Path, sweep: object = swept) -> MagusApp:
    backend = FakeStages(fakes.two_workloads()).backend()
    return MagusApp(path, backend=replace(backend, compile=compile_file, sweep=sweep))  # type: ignore[arg-type]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.mgs").write_text(FILE, encoding="utf-8")
    return Path("small.mgs")


async def test_enter_simulates_the_points(file: Path) -> None:
    app = app_of(file)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, KEY, "enter")

        assert "overlap pays from M = 2048 on" in screen_text(app)
        assert "A" in screen_text(app)


async def test_another_axis_and_times_in_percent(file: Path) -> None:
    app = app_of(file)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, KEY, "right")
        assert "        K " in screen_text(app)
        await press(pilot, "p")
        assert " %│" in screen_text(app)


async def test_a_number_of_the_hardware_goes_on_the_axis(file: Path) -> None:
    app = app_of(file)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, str(int(KEY) - 1), "down", "down", "down", "g")

        assert "xgmi.ac" in screen_text(app)
        assert "4 without an answer, such as" in screen_text(app)
        await pilot.resize_terminal(*LARGE)
        await settled(pilot)
        assert "achieved is more than bandwidth" in screen_text(app)


async def test_a_sweep_that_is_stopped_keeps_what_was_found(file: Path) -> None:
    gate = Event()

    def slow(scenario: Scenario, simulated: bool, should_stop: ShouldStop) -> Advice:
        gemm = scenario.case.shape.gemm
        if gemm is not None and gemm.m == 2048:
            while not gate.wait(0.01):
                if should_stop():
                    raise Cancelled
        return swept(scenario, simulated, should_stop)

    app = app_of(file, slow)
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        await pilot.press(KEY)
        await until(pilot, lambda: "predicting, 2 of 4" in screen_text(app))
        await press(pilot, "escape")

        assert "2 of 4 values so far: serial at M = 1024, overlap pays at M = 8192" in screen_text(app)
        assert "Enter goes on" in screen_text(app) and "at every value" not in screen_text(app)
        assert "8192" in screen_text(app)
        gate.set()
        await press(pilot, "enter")
        assert "Enter goes on" not in screen_text(app)
