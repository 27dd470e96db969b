"""Draw the pictures of docs/tui.md from the application itself: ``python -m tests.helpers.tui.picture``."""

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path

from textual.pilot import Pilot

from magus.examples import path
from magus.tui.app.app import MagusApp
from tests.helpers.paths import DOCS
from tests.helpers.tui.driving import POLL_S, settled

EXAMPLE = "llama70b_tp8_mi300x"
PRESENTED = ("fill", "font-family", "font-size", "font-weight")
"""What the style of a picture says that may be said by attributes."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A file in ``docs``, the keys that lead to it one by one, the size of the screen, and the example."""

    name: str
    keys: tuple[str, ...]
    size: tuple[int, int]
    example: str = EXAMPLE


PICTURES = (
    Picture("tui.svg", (), (160, 52)),
    Picture("tui_compare.svg", ("space", "j", "j", "space", "5"), (120, 40)),
    Picture("tui_fabric.svg", ("6",), (120, 40)),
    Picture("tui_sweep.svg", ("8",), (120, 40)),
    Picture("synthesis.svg", ("6",), (120, 40), "templates/networks"),
    Picture("tui_layer.svg", (), (160, 52), "layers/llama70b_backward"),
)


def painted(svg: str) -> str:
    """Return a picture of a screen whose style is attributes, which every viewer knows, with no font from elsewhere."""
    head, style, rest = re.split(r"</?style>", svg, maxsplit=2)
    attributes = {}
    for name, rules in re.findall(r"\.(terminal-[\w-]+) \{(.*?)\}", style, re.DOTALL):
        said = re.findall(r"([\w-]+):\s*([^;]+?)\s*(?:;|$)", rules.replace("Fira Code, ", ""))
        attributes[name] = " ".join(f'{key}="{value}"' for key, value in said if key in PRESENTED)
    return head + re.sub(r'class="(terminal-[\w-]+)"', lambda found: attributes[found[1]], rest)


async def draw(file: Path, picture: Picture) -> None:
    """Run the application on ``file``, wait for its advice, press the keys, write the screen."""
    app = MagusApp(file)
    async with app.run_test(size=picture.size) as pilot:
        while app.session.job is None or not app.session.job.is_answered:
            await pilot.pause(POLL_S)
        await settled(pilot)
        for key in picture.keys:
            await pilot.press(key)
            await settled(pilot)
        await _say_name(app, pilot, file.name)
        svg = app.export_screenshot(title=f"magus tui {file.name}")
    text = "\n".join(line.rstrip() for line in painted(svg).splitlines()) + "\n"
    (DOCS / picture.name).write_text(text, encoding="utf-8")


async def _say_name(app: MagusApp, pilot: Pilot[None], name: str) -> None:
    """Show the name of the file alone, not where this checkout lies."""
    app.bench.say("", idle=name)
    await pilot.pause()


if __name__ == "__main__":
    for each in PICTURES:
        asyncio.run(draw(Path(path(each.example)), each))
