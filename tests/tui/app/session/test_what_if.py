"""Values changed on screen: steps, typed values, errors in place, resets, and the file that says the same."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from textual.widgets import Input

from magus.advisor.candidates.advice import Advice, AnswerSource
from magus.advisor.solver import NoFeasibleSchedule
from magus.compiler.changed import Changes, changed_file, compile_changed_file
from magus.compiler.ir import Progress, Scenario, ShouldStop
from magus.compiler.pipeline import compile_file
from magus.examples import path
from magus.tui.app.app import MagusApp
from magus.tui.app.panes import PANES
from magus.tui.app.panes.what_if import CHANGED
from magus.tui.app.session.values import ValueRow, ValuesOfFile, changed_words, with_value
from tests.helpers.marks import first
from tests.helpers.tui import fakes, graphs
from tests.helpers.tui.driving import LARGE, SMALL, press, screen_text, settled, until
from tests.helpers.tui.fakes import FakeStages
from tests.helpers.tui.steps import FILE as STEP

FILE = """\
mgs 1
use "amd/mi300x"
param M = 2048 in 1024..8192 x2
param K = 4096
system node { gpus 8 x MI300X; fabric full_mesh(xgmi) }
workload up on node {
  x = tensor bf16[M, K] shard rows
  w = tensor bf16[K, 3584] shard cols
  y = gemm(all_gather(x), w)
}
"""
KEY = str([pane.name for pane in PANES].index("what_if") + 1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.mgs"
    path.write_text(FILE, encoding="utf-8")
    return path


def app_of(file: Path, stages: FakeStages | None = None) -> MagusApp:
    fake = stages or FakeStages(fakes.two_workloads())
    return MagusApp(file, backend=replace(fake.backend(), compile=compile_file))


def rows(file: Path, changes: Changes | None = None) -> dict[str, ValueRow]:
    before = compile_file(file)
    now = compile_changed_file(file, changes or Changes())
    what_if = ValuesOfFile(now.params, now.numbers, before.numbers, changes or Changes())
    return {row.name: row for row in what_if.rows(now.workloads[0].system)}


def test_params_come_first_and_then_the_numbers_of_links_and_of_the_gpu(file: Path) -> None:
    names = list(rows(file))

    assert names[:3] == ["M", "K", "xgmi.bandwidth"]
    assert "MI300X.hbm.achieved" in names


@pytest.mark.parametrize(
    ("name", "steps", "doubling", "text"),
    [
        ("M", 1, False, "4096"),
        ("M", -5, False, "1024"),
        ("K", 1, False, "8192"),
        ("xgmi.latency", 1, False, "735 ns"),
        ("xgmi.latency", -2, False, "630 ns"),
        ("xgmi.latency", 1, True, "1.4 us"),
        ("MI300X.dma.engines", -1, False, "13"),
        ("MI300X.dma.engines", 1, True, "28"),
        ("MI300X.gemm.mma", 1, False, "0.5355"),
    ],
)
def test_steps(file: Path, name: str, steps: int, doubling: bool, text: str) -> None:
    assert rows(file)[name].stepped(steps, doubling=doubling) == text


def test_a_step_there_and_back_is_no_change(file: Path) -> None:
    row = rows(file)["xgmi.latency"]
    there = with_value(Changes(), row, row.stepped(1))
    back = rows(file, there)["xgmi.latency"]

    assert changed_words(there) == "xgmi.latency = 735 ns"
    assert back.changed
    assert with_value(there, back, back.stepped(-1)) == Changes()


async def test_a_step_asks_the_question_with_the_other_value(file: Path) -> None:
    app = app_of(file)
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        await press(pilot, KEY, "right", "right")
        text = screen_text(app)

        assert app.session.job is not None
        gemm = app.session.job.scenario.case.shape.gemm
        assert gemm is not None and gemm.m == 8192
        assert "● M" in text and "8192" in text
        assert "small.mgs with M = 8192" in text
        await press(pilot, "r")
        assert app.session.changes == Changes()
        assert "●" not in screen_text(app)


async def test_a_number_of_the_hardware_is_typed(file: Path) -> None:
    app = app_of(file)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, KEY, *("down",) * 3, "enter", "ctrl+u")
        await pilot.press(*"30 GB/s")
        await press(pilot, "enter")

        assert app.session.job is not None
        assert app.session.job.scenario.system.fabric.link.achieved_bytes_per_s == 30_000_000_000
        assert "1 changed ●" in screen_text(app)
        assert "● xgmi.achieved" in screen_text(app)
        await press(pilot, "R")
        assert app.session.changes == Changes()


@pytest.mark.slow
async def test_a_value_that_cannot_be_is_said_in_place_and_changes_nothing(file: Path) -> None:
    app = app_of(file)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        before = app.session.job
        await press(pilot, KEY, "enter", "ctrl+u")
        await pilot.press(*"1000")
        await press(pilot, "enter")

        assert "MGS311: M is set to 1000, its domain is 1024..8192 x2" in screen_text(app)
        assert app.session.job is before
        await press(pilot, "enter", "escape", "right")
        assert app.session.changes == Changes((("M", "4096"),))


@pytest.mark.slow
async def test_it_is_saved_as_a_file_that_says_the_same(file: Path) -> None:
    app, target = app_of(file), file.with_name("small_what_if.mgs")
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        await press(pilot, KEY, "right", *("down",) * 3, "left", "S", "enter")

        assert f"written: {target}" in screen_text(app)
        assert app.session.job is not None
        assert compile_file(target).workloads == (app.session.job.scenario,)
        await press(pilot, "S", "enter")
        assert "exists. Enter overwrites it" in screen_text(app)
        target.write_text("mine", encoding="utf-8")
        await press(pilot, "escape")
        assert target.read_text(encoding="utf-8") == "mine"
        await press(pilot, "S", "enter", "enter")
        assert compile_file(target).workloads == (app.session.job.scenario,)


async def test_what_is_saved_over_the_file_differs_from_it_no_more(file: Path) -> None:
    app = app_of(file)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, KEY, "right", "S")
        app.query_one("#what-if-input", Input).value = str(file)
        await press(pilot, "enter", "enter")

        assert "param M = 4096" in file.read_text(encoding="utf-8")
        assert app.session.changes == Changes()
        assert CHANGED not in screen_text(app)


@pytest.mark.parametrize(
    "name", first(["~nobody_of_this_name/none.mgs", "/proc/none.mgs", "n" * 300, "/dev/null/none.mgs"], 1)
)
async def test_a_file_that_cannot_be_written_is_said(file: Path, name: str) -> None:
    app = app_of(file)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, KEY, "S")
        app.query_one("#what-if-input", Input).value = name
        await press(pilot, "enter")

        assert app.query_one("#what-if-line").has_class("error")
        assert f"{name[:80]}" in screen_text(app)


async def test_an_answer_that_is_not_confirmed_says_so(file: Path) -> None:
    scenario = compile_file(file).workloads[0].case
    whole = fakes.advice(scenario)
    first = replace(
        whole,
        recommended=replace(whole.recommended, simulated_ticks=None),
        candidates=(replace(whole.recommended, simulated_ticks=None), *whole.candidates[1:]),
        interrupted=True,
        source=AnswerSource.MODEL,
    )
    fake = FakeStages((scenario,), partial=(first,), advice_gate=Event())
    app = app_of(file, fake)
    async with app.run_test(size=LARGE) as pilot:
        await until(pilot, lambda: "3/10" in screen_text(app))
        assert "predicted, OVERLAP pays" in screen_text(app)
        assert "Not confirmed: predicted, being simulated." in screen_text(app)
        assert fake.advice_gate is not None
        await press(pilot, "escape")
        assert "stopped, OVERLAP pays" in screen_text(app), "what was found is kept"
        fake.advice_gate.set()
        await press(pilot, "e")
        assert "stopped" not in screen_text(app) and "predicted, " not in screen_text(app)


class Picky(FakeStages):
    """Stages that find nothing feasible at 4096 rows."""

    def recommend(
        self, scenario: Scenario, progress: Progress, should_stop: ShouldStop, answered: Callable[[Advice], None]
    ) -> Advice:
        """The advice made by hand, or none."""
        gemm = scenario.case.shape.gemm
        if gemm is not None and gemm.m == 4096:
            raise NoFeasibleSchedule(("staging <= 1 KiB is too little",))
        return super().recommend(scenario, progress, should_stop, answered)


@pytest.mark.slow
async def test_a_value_with_which_nothing_is_feasible_is_changed_again(file: Path) -> None:
    app = app_of(file, Picky(fakes.two_workloads()))
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, KEY, "right")
        assert "4096" in screen_text(app) and "● M" in screen_text(app), "the pane stays"
        await press(pilot, "1")
        assert "staging <= 1 KiB is too little" in screen_text(app), "other panes say why they have nothing to show"
        await press(pilot, KEY)
        assert "● M" in screen_text(app)
        await press(pilot, "r")
        assert "OVERLAP pays" in screen_text(app)


@pytest.mark.slow
async def test_a_param_of_an_included_file_is_changed_and_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.mgs").write_text("param M = 2048 in 1024..8192 x2\n", encoding="utf-8")
    text = FILE.replace("param M = 2048 in 1024..8192 x2", 'include "rows.mgs"')
    Path("main.mgs").write_text(text, encoding="utf-8")
    backend = replace(FakeStages(fakes.two_workloads()).backend(), compile=compile_file)
    app = MagusApp(Path("main.mgs"), backend=backend)
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        await press(pilot, KEY, "right")
        assert "bf16 4096x448" in screen_text(app)
        await press(pilot, "S", "enter")

        said = (
            "not saved: MGS203: the file itself has no parameter 'M'; what an included file declares is changed there"
        )
        assert said in screen_text(app)
        assert not Path("main_what_if.mgs").exists()


@pytest.mark.slow
async def test_values_of_a_graph_are_changed_and_saved_with_its_schedules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("layer.mgs").write_text(path("layers/llama70b_layer").read_text(encoding="utf-8"), encoding="utf-8")
    backend = replace(graphs.GraphStages().backend(), compile=compile_file)
    app = MagusApp(Path("layer.mgs"), workload="layer", backend=backend)
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        await press(pilot, KEY, "left", "down", "right", "S", "enter")
        assert "written: layer_what_if.mgs" in screen_text(app)
        assert app.session.job is not None

        saved = compile_file("layer_what_if.mgs")
        assert saved.workloads == (app.session.job.scenario,)
        assert len(saved.workloads[0].schedules) == 2 and saved.params[0].value == "4096"


def test_a_saved_file_keeps_the_schedules_of_its_step(tmp_path: Path) -> None:
    file = tmp_path / "step.mgs"
    file.write_text(STEP, encoding="utf-8")
    text = changed_file(file, Changes((("TP", "4"),)), file)

    assert "param TP = 4 in 1, 2, 4" in text and "\nschedule turns for train {" in text
