"""The app driven by keys, on answers made by hand."""

import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from magus.advisor.solver import NoFeasibleSchedule
from magus.compiler.resolve.expect.expectation import Verdict
from magus.simcore.program.program import RunOutcome
from magus.tui.app.app import MagusApp
from magus.tui.app.panes import PANES
from magus.tui.app.panes.candidates import CandidatesPane
from magus.tui.app.session.job import GIVEN_UP
from magus.tui.app.session.session import Session
from magus.tui.app.widgets.start import HelpScreen
from tests.helpers.marks import first
from tests.helpers.paths import ROOT
from tests.helpers.tui import fakes
from tests.helpers.tui.driving import LARGE, SMALL, press, screen_text, settled, until
from tests.helpers.tui.fakes import BEST, LONG, SERIAL, TIE, UNSEEN, FakeStages

FILE = Path("mlp.mgs")
TO_UNSEEN = ("j",) * 4


stages = partial(FakeStages, fakes.two_workloads())


def app_of(stages: FakeStages, workload: str | None = None) -> MagusApp:
    return MagusApp(FILE, (("M", "2048"),), workload, backend=stages.backend())


async def test_answer_is_said_plainly() -> None:
    app = app_of(stages())
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        text = screen_text(app)

        assert f"OVERLAP pays: 1.17x over serial with {BEST}" in text
        assert "Confidence high" in text
        assert "! assumed, not measured" in text
        assert "AG+GEMM · 8 x MI300X · full_mesh(xgmi)" in text
        assert "mlp.mgs with M = 2048" in text


async def test_serial_is_an_answer() -> None:
    app = app_of(stages(verdict=Verdict.SERIAL))
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)

        assert "SERIAL: overlap does not pay here" in screen_text(app)


@pytest.mark.slow
async def test_the_picked_candidate_is_simulated_once_and_shown() -> None:
    fake = stages()
    app = app_of(fake)
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        await press(pilot, *TO_UNSEEN)
        text = screen_text(app)
        await press(pilot, "k", "j")

        assert f"Timeline: {UNSEEN}" in text
        assert f"{UNSEEN}  105.0 us packet 1.11x" in text
        assert fake.simulated.count(UNSEEN) == 2, "the timeline, then the waterfall, then never again"
        assert app.session.job is not None
        assert app.session.job.runs[UNSEEN].result.waterfall is not None


@pytest.mark.slow
async def test_a_long_schedule_is_readable_on_a_small_screen() -> None:
    app = app_of(stages())
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, "j", "j")

        assert LONG in screen_text(app)


async def test_sorting_keeps_the_picked_candidate() -> None:
    app = app_of(stages())
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, "s")
        lines = screen_text(app).splitlines()

        assert "▾schedule" in screen_text(app)
        picked = app.bench.view_of(CandidatesPane).target.picked
        assert picked is not None
        assert picked.expression == BEST
        first = next(index for index, line in enumerate(lines) if "▾schedule" in line) + 1
        assert "hetero" in lines[first]


async def test_panes_zoom_and_ranks_on_a_small_screen() -> None:
    app = app_of(stages())
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, "2", "plus", "l")

        assert "zoom 1.6x" in screen_text(app)
        await press(pilot, "0", "r")
        assert "zoom" not in screen_text(app).splitlines()[7]
        assert "r0 stream 0" in screen_text(app)
        await press(pilot, "tab")
        assert "Loss waterfall" in screen_text(app)
        await press(pilot, "1")
        assert "predicted simulated" in screen_text(app)


async def test_a_click_on_a_key_presses_it() -> None:
    app = app_of(stages())
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        keys = screen_text(app).splitlines()[-1]
        assert "1-9 Pane" in keys and "Stop" not in keys, "what has no effect now is not offered"
        await pilot.click("#keys", offset=(keys.index("Help"), 0))
        await settled(pilot)

        assert isinstance(app.screen, HelpScreen)


@pytest.mark.slow
async def test_workloads_take_turns_and_keep_their_answers() -> None:
    app = app_of(stages())
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        first = app.session.job
        await press(pilot, "w")

        assert "down (2 of 2) · GEMM+RS" in screen_text(app)
        await press(pilot, "w")
        assert app.session.job is first


async def test_a_workload_left_while_it_is_worked_on_starts_again() -> None:
    fake = stages(advice_gate=Event())
    app = app_of(fake)
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, lambda: "3/10" in screen_text(app))
        await pilot.press("w")
        await until(pilot, fake.stopped.is_set)
        assert fake.advice_gate is not None
        fake.advice_gate.set()
        await settled(pilot)
        await press(pilot, "w")

        assert "up (1 of 2)" in screen_text(app)
        assert "OVERLAP pays" in screen_text(app)


@pytest.mark.slow
async def test_reading_again_starts_anew_and_keeps_the_workload() -> None:
    fake = stages()
    app = app_of(fake, workload="down")
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        before = app.session.job
        await press(pilot, "e")

        assert "down (2 of 2)" in screen_text(app)
        assert app.session.job is not before
        assert fake.compiled == [(("M", "2048"),)] * 2


@pytest.mark.slow
async def test_screen_stays_alive_while_a_candidate_is_simulated() -> None:
    fake = stages(simulation_gate=Event())
    app = app_of(fake)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await pilot.press(*TO_UNSEEN)
        await until(pilot, lambda: UNSEEN in fake.simulated)
        assert f"simulating {UNSEEN}" in screen_text(app)
        await pilot.press("s", "3", "question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await pilot.press("escape", "1", "k")
        await until(pilot, fake.stopped.is_set)

        assert UNSEEN not in (app.session.job.runs if app.session.job is not None else ())


@pytest.mark.quick(1)
@pytest.mark.parametrize("gate", ["advice", "simulation"])
async def test_quitting_stops_what_runs(gate: str) -> None:
    fake = stages(advice_gate=Event()) if gate == "advice" else stages(simulation_gate=Event())
    app = app_of(fake)
    async with app.run_test(size=SMALL) as pilot:
        if gate == "simulation":
            await settled(pilot)
            await pilot.press(*TO_UNSEEN)
            await until(pilot, lambda: bool(fake.simulated))
        else:
            await until(pilot, lambda: "3/10" in screen_text(app))
        await pilot.press("q")

    assert app.return_code == 0
    assert fake.stopped.wait(5)


@pytest.mark.slow
def test_quitting_does_not_wait_for_a_run_that_hears_nothing() -> None:
    script = f"""
import sys, time
sys.path.append({str(ROOT)!r})
from tests.helpers.tui import fakes
from dataclasses import replace
from dataclasses import replace
from functools import partial
from pathlib import Path
from magus.tui.app.app import MagusApp
deaf = replace(fakes.FakeStages(fakes.two_workloads()).backend(), recommend=lambda *_: time.sleep(60))
async def leave(pilot):
    await pilot.pause()
    await pilot.press("q")
MagusApp(Path("mlp.mgs"), backend=deaf).run(headless=True, auto_pilot=leave)
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=30, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


async def test_a_run_can_be_stopped_and_started_again() -> None:
    fake = stages(advice_gate=Event())
    app = app_of(fake)
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, lambda: "simulating the shortlist 3/10" in screen_text(app))
        await press(pilot, "x")

        assert "Stopped" in screen_text(app)
        assert fake.stopped.is_set()
        assert fake.advice_gate is not None
        fake.advice_gate.set()
        await press(pilot, "e")
        assert "OVERLAP pays" in screen_text(app)


async def test_the_simulation_of_a_candidate_can_be_stopped_and_started_again() -> None:
    fake = stages(simulation_gate=Event())
    app = app_of(fake)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await pilot.press(*TO_UNSEEN)
        await until(pilot, lambda: bool(fake.simulated))
        job = app.session.job
        assert job is not None and job.simulating
        await press(pilot, "escape")

        assert fake.stopped.wait(5) and not job.simulating and job.run is None
        assert job.problem is GIVEN_UP and job.is_answered
        assert fake.simulation_gate is not None
        fake.simulation_gate.set()
        await press(pilot, "up", "down")
        await settled(pilot)
        assert job.run is not None and job.problem is None


async def test_constraints_that_leave_nothing_are_named() -> None:
    reasons = ("staging <= 1 KiB is too little", "chunks 3 divide nothing")
    app = app_of(stages(failure=lambda: NoFeasibleSchedule(reasons)))
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        text = screen_text(app)

        assert "No schedule is feasible" in text
        assert all(reason in text for reason in reasons)


async def test_a_fault_is_shown_not_raised() -> None:
    app = app_of(stages(failure=lambda: RuntimeError("out of luck")))
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)

        assert "RuntimeError: out of luck" in screen_text(app)


async def test_a_simulation_that_does_not_finish_says_why() -> None:
    app = app_of(stages(outcome=RunOutcome.DEADLOCK))
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, *TO_UNSEEN, "2")
        text = screen_text(app)

        assert "The simulation did not finish" in text
        assert "some ops can never finish" in text


@pytest.mark.slow
async def test_a_waterfall_that_cannot_be_had_is_not_requested_for_forever() -> None:
    fake = stages(explains=False)
    app = app_of(fake)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        await press(pilot, *TO_UNSEEN, "s", "3")

        assert fake.simulated.count(UNSEEN) == 2
        assert "no waterfall" in screen_text(app)


async def test_an_unknown_workload_is_named_with_those_there_are() -> None:
    app = app_of(stages(), workload="sideways")
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        text = screen_text(app)

        assert "'sideways'" in text
        assert "up, down" in text


@pytest.mark.parametrize(
    "text", first(["system node { gpus 8 x MI30X; fabric full_mesh(xgmi) }\n", None, "workload {"], 1)
)
async def test_a_file_that_cannot_be_used_shows_its_diagnostics(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "broken.mgs"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    app = MagusApp(path)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        shown = screen_text(app)

        assert "The file cannot be used" in shown
        assert "error: " in shown
        assert text is None or "^" in shown
        await press(pilot, "s", "plus", "tab", "j", "w", "x", "e", "question_mark", "escape")
        assert "The file cannot be used" in screen_text(app), "no key breaks it"


@pytest.mark.slow
@pytest.mark.parametrize("keys", first([("7", "2"), ("9", "escape", "2"), ("tab",)], 1))
async def test_panes_change_while_there_is_no_answer_yet(keys: tuple[str, ...]) -> None:
    gate = Event()
    app = app_of(stages(advice_gate=gate))
    async with app.run_test(size=SMALL) as pilot:
        await until(pilot, lambda: app.session.job is not None)
        await pilot.press(*keys)
        await pilot.pause()

        assert PANES[app.bench.pane_idx].name == "timeline"
        gate.set()
        await settled(pilot)
        assert "stream 0" in screen_text(app)


async def test_a_file_that_is_mended_is_used() -> None:
    fake = stages()
    fake.scenarios = ()
    app = app_of(fake)
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        assert "declares no workload" in screen_text(app)
        fake.scenarios = fakes.two_workloads()
        await press(pilot, "e")

        assert "OVERLAP pays" in screen_text(app)


@pytest.mark.slow
async def test_resizing_rearranges_the_panes() -> None:
    app = app_of(stages())
    async with app.run_test(size=SMALL) as pilot:
        await settled(pilot)
        assert "Loss waterfall" not in screen_text(app)
        await pilot.resize_terminal(*LARGE)
        await settled(pilot)

        assert "Loss waterfall" in screen_text(app)
        assert f"Timeline: {BEST}" in screen_text(app)


async def test_a_pane_has_a_large_screen_for_itself() -> None:
    app = app_of(stages())
    async with app.run_test(size=LARGE) as pilot:
        await settled(pilot)
        await press(pilot, "M")
        assert BEST in screen_text(app) and "Loss waterfall" not in screen_text(app)
        await press(pilot, "3")
        assert "Loss waterfall" in screen_text(app) and f"Timeline: {BEST}" not in screen_text(app)
        await press(pilot, "M")
        assert "Loss waterfall" in screen_text(app) and f"Timeline: {BEST}" in screen_text(app)


def test_the_session_keeps_both_results_of_the_advice() -> None:
    session = Session(FILE, (), None, stages().backend())
    session.show(session.read())
    assert session.job is not None
    session.advise(session.job, lambda *_: None, lambda: False, lambda _: None)

    assert set(session.job.runs) == {BEST, SERIAL}


@pytest.mark.parametrize(("keys", "moved"), [pytest.param((), False, marks=pytest.mark.slow), (("j",), True)])
async def test_the_cursor_follows_the_answer_until_it_is_moved(keys: tuple[str, ...], moved: bool) -> None:
    whole = fakes.advice(fakes.two_workloads()[0])
    early = replace(whole, recommended=whole.candidates[1], interrupted=True)
    fake = stages(partial=(early,), advice_gate=Event())
    app = app_of(fake)
    async with app.run_test(size=LARGE) as pilot:
        await until(pilot, lambda: "not final, OVERLAP" in screen_text(app))
        job = app.session.job
        assert job is not None and job.picked == TIE
        await pilot.press(*keys)
        await pilot.pause()
        assert (job.picked != TIE) is moved
        wanted = job.picked if moved else BEST
        assert fake.advice_gate is not None
        fake.advice_gate.set()
        await settled(pilot)

        assert job.picked == wanted
        assert job.is_answered and "not final" not in screen_text(app)
