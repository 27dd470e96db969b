"""The colours of the screen: what is drawn stands out from its background in every theme."""

import re

import pytest
from textual.color import Color
from textual.theme import Theme

from magus.tui.app.charts.sweep_plot import MAX_CURVES
from magus.tui.app.lifecycle import COLOUR_BLIND, DARK, LIGHT, THEMES
from tests.helpers.paths import ROOT


def contrast(one: str, other: str) -> float:
    """The ratio of contrast of two colours, as WCAG 2.2 defines it."""

    def luminance(colour: str) -> float:
        parts = (value / 255 for value in Color.parse(colour).rgb)
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05

    low, high = sorted((luminance(one), luminance(other)))
    return high / low


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_colours_stand_out_from_the_background(theme: Theme) -> None:
    """WCAG asks for 4.5 for text, and for 3 for what is drawn."""
    ratio = {
        name: contrast(theme.background or "", getattr(theme, name))
        for name in ("foreground", "primary", "secondary", "warning", "error", "success", "accent")
    }

    assert ratio.pop("foreground") > 7
    assert {name: round(value, 1) for name, value in ratio.items() if value < 3} == {}


def test_colours_of_curves_stand_out_too() -> None:
    css = (ROOT / "tui" / "app" / "magus.tcss").read_text(encoding="utf-8")
    for kind, theme in (("SweepView:light", LIGHT), ("SweepView", DARK), ("SweepView", COLOUR_BLIND)):
        colours = re.findall(rf"^{kind} > \.sweep--curve-\d {{ color: (#\w+); }}", css, re.MULTILINE)

        assert len(set(colours)) == MAX_CURVES
        assert min(contrast(theme.background or "", colour) for colour in colours) > 3
