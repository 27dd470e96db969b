"""The pane How, driven by keys: the recipe, what is copied, and files that are written."""

import json
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from magus.tui.app.app import MagusApp
from magus.tui.app.panes.how import HowPane
from magus.tui.app.widgets.dialogs import HandoverScreen
from tests.helpers.tui import real
from tests.helpers.tui.driving import LARGE, SMALL, press, screen_text, settled
from tests.helpers.tui.real import PIECES, RealStages

SIZE = (120, 50)


async def to_how(pilot: Pilot[None]) -> MagusApp:
    """Bring the pane to the front."""
    app = pilot.app
    assert isinstance(app, MagusApp)
    await settled(pilot)
    app.bench.show_view(app.bench.view_of(HowPane))
    await settled(pilot)
    return app


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MagusApp:
    monkeypatch.chdir(tmp_path)
    return MagusApp(Path("mlp.mgs"), backend=RealStages(real.gather()).backend())


@pytest.mark.slow
async def test_the_recipe_of_the_picked_schedule_is_reported(app: MagusApp) -> None:
    async with app.run_test(size=SIZE) as pilot:
        await to_how(pilot)
        text = screen_text(app)

        assert "No shipped implementation is known" in text
        assert f"How to carry out {PIECES}:" in text
        assert "put rows 64i:64i+64 of block r to ranks r+1" in text
        assert "In pseudo-code" in text


async def test_what_is_copied_is_said(app: MagusApp) -> None:
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await to_how(pilot)
        await press(pilot, "y")
        assert app.clipboard == PIECES
        assert "Copied the name of the schedule" in screen_text(app)
        await press(pilot, "p")
        assert json.loads(app.clipboard)["expression"] == PIECES
        assert "Copied the plan as JSON, " in screen_text(app)
        await press(pilot, "m")
        assert app.clipboard.startswith(f"# {PIECES}\nschedule plan_1 for up")


async def test_a_file_is_written_and_none_replaced_unasked(app: MagusApp) -> None:
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await to_how(pilot)
        await press(pilot, "o", "down", "down", "enter")
        assert isinstance(app.screen, HandoverScreen)
        assert app.screen.query_one("#file", Input).value == "steps.txt"
        await press(pilot, "enter")
        assert Path("steps.txt").read_text().startswith(f"How to carry out {PIECES}:")
        assert "Wrote steps.txt" in screen_text(app)

        Path("steps.txt").write_text("mine")
        await press(pilot, "o", "down", "down", "enter", "enter")
        assert isinstance(app.screen, HandoverScreen)
        assert "steps.txt exists. Enter once more replaces it." in screen_text(app)
        assert Path("steps.txt").read_text() == "mine"
        await press(pilot, "end", "x", "backspace", "enter")
        assert Path("steps.txt").read_text() == "mine", "another name was typed in between: it asks again"
        await press(pilot, "enter")
        assert Path("steps.txt").read_text() != "mine"


async def test_nothing_is_written_after_escape_or_where_it_cannot_be(app: MagusApp) -> None:
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await to_how(pilot)
        await press(pilot, "o", "enter", "escape")
        assert not isinstance(app.screen, HandoverScreen)
        assert list(Path().iterdir()) == []
        await press(pilot, "o", "enter")
        app.screen.query_one("#file", Input).value = "nowhere/plan.json"
        await press(pilot, "enter")
        assert "nowhere/plan.json: there is no folder" in screen_text(app)


async def test_a_format_that_cannot_say_it_gives_its_reason(app: MagusApp) -> None:
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await to_how(pilot)
        await press(pilot, "o")
        names = [option.id for option in app.screen.query_one(OptionList).options]
        await press(pilot, *("down",) * names.index("mscclpp"), "enter", "enter")

        assert "MGS5" in screen_text(app)
        assert list(Path().iterdir()) == []


@pytest.mark.slow
async def test_options_of_a_runtime_are_requested_for(app: MagusApp) -> None:
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await to_how(pilot)
        await press(pilot, "o")
        names = [option.id for option in app.screen.query_one(OptionList).options]
        await press(pilot, *("down",) * names.index("pgle"))
        options = app.screen.query_one("#options", Input)
        assert options.display
        assert "hlo=" in options.placeholder
        options.value = "nonsense"
        await press(pilot, "enter", "enter")
        assert "Options are written NAME=VALUE" in screen_text(app)
        await press(pilot, "escape")
        await pilot.resize_terminal(*LARGE)
        await settled(pilot)
        assert "Write file" in screen_text(app)
