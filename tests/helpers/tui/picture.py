"""Draw ``docs/tui.svg`` from the application itself: ``python -m tests.helpers.tui.picture``, or ``make picture``."""

import asyncio
from pathlib import Path

from magus.examples import path
from magus.tui.app.app import MagusApp
from tests.helpers.paths import ROOT
from tests.helpers.tui.driving import POLL_S, settled

EXAMPLE = "llama70b_tp8_mi300x"
# Columns and rows in which all panes fit.
SIZE = (160, 52)


async def draw(file: Path, target: Path) -> None:
    """Run the application on ``file``, wait for its advice and the simulation of the answer, write the screen."""
    app = MagusApp(file)
    async with app.run_test(size=SIZE) as pilot:
        while app.session.job is None or app.session.job.answer is None:
            await pilot.pause(POLL_S)
        await settled(pilot)
        app.bench.say("", idle=file.name)  # the name alone, not where this checkout lies
        await pilot.pause()
        svg = app.export_screenshot(title=f"magus tui {file.name}")
    target.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(draw(Path(path(EXAMPLE)), ROOT / "docs" / "tui.svg"))
