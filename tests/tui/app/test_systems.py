"""The workloads of a file side by side in the pane Compare: waiting, answered, stopped; and how their bars are."""

from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from magus.compiler.ir import Scenario
from magus.tui.app.app import MagusApp
from magus.tui.app.charts.sweep_plot import ANSWER, BASELINE, BOUND, LOOKING, WAITING, systems_lines
from magus.tui.app.panes import PANES
from magus.tui.app.session.job import CANCELLED, Job
from tests.helpers.tui import fakes
from tests.helpers.tui.driving import LARGE, SMALL, press, screen_text, settled, until
from tests.helpers.tui.fakes import FakeStages

COMPARE = next(str(place) for place, pane in enumerate(PANES, 1) if pane.name == "compare")


def app_of(stages: FakeStages) -> MagusApp:
    return MagusApp(Path("mlp.mgs"), backend=stages.backend())


def bars_in(text: str) -> list[str]:
    return [line for line in text.splitlines() if f"{BOUND}{ANSWER}" in line]


@pytest.mark.quick(1)
@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_workloads_that_have_no_answer_are_answered_by_a_key(size: tuple[int, int]) -> None:
    app = app_of(FakeStages(fakes.two_workloads()))
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        await press(pilot, COMPARE)
        assert len(bars_in(screen_text(app))) == 1 and WAITING in screen_text(app)
        await press(pilot, "a")

        text = screen_text(app)
        assert WAITING not in text and len(bars_in(text)) == 2
        assert all(f"{ANSWER} 100.0 us, 1.17x" in bar for bar in bars_in(text))
        assert all(job.found is not None and job.name in text for job in app.session.jobs)
        assert "Nothing is marked yet" in text
        await press(pilot, "1", "space", "j", "space", COMPARE, "a")
        assert "no schedule can be faster" not in screen_text(app), "marked schedules take the place"


async def test_escape_stops_the_answers_of_others_and_keeps_what_was_found() -> None:
    stages = FakeStages(fakes.two_workloads())
    app = app_of(stages)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        stages.advice_gate = Event()
        await pilot.press(COMPARE, "a")
        await until(pilot, lambda: LOOKING in screen_text(app))
        await press(pilot, "escape")

        assert stages.stopped.wait(5)
        await until(pilot, lambda: WAITING in screen_text(app))
        assert [job.found is None for job in app.session.jobs] == [False, True]


def test_bars_have_one_scale_and_the_bound_stands_in_that_of_the_answer() -> None:
    first, second = (Scenario.of_one(case) for case in fakes.two_workloads())
    quick = fakes.advice(first.only_case) if first.only_case else None
    assert quick is not None
    slow = replace(quick, serial=replace(quick.serial, simulated_ticks=fakes.ticks(234.0)))
    jobs = [Job(first, answer=slow), Job(second, answer=quick), Job(second, answer=CANCELLED)]
    lines = ["".join(text for text, _ in line) for line in systems_lines(jobs, 80)]

    assert max(map(len, lines)) <= 80
    bars = [line.count(BASELINE) for line in lines[1:] if BASELINE in line]
    assert bars[0] == pytest.approx(2 * bars[1], abs=1)
    answer = lines[3].strip()
    assert answer.index(BOUND) + 1 == pytest.approx(0.8 * (answer.count(ANSWER) + 1), abs=1)
    assert lines[-1].strip().startswith("Stopped: ")
