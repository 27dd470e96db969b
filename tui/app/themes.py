"""The colours of the screen: dark, light, and one whose colours differ for colour-blind eyes too.

What tells things apart always has a letter or a shape beside its colour.
"""

from textual.theme import Theme

DARK = Theme(
    name="magus-dark",
    primary="#4aa3ff",
    secondary="#9d6bc4",
    accent="#ffb454",
    warning="#ffb454",
    error="#ff6b6b",
    success="#5fd38d",
    foreground="#e0e0e0",
    background="#121212",
    surface="#1e1e1e",
    panel="#2a2a2a",
)
LIGHT = Theme(
    name="magus-light",
    primary="#0057b8",
    secondary="#7a3fa0",
    accent="#9a5b00",
    warning="#9a5b00",
    error="#b3261e",
    success="#0f7a3d",
    foreground="#1b1b1b",
    background="#fbfbfb",
    surface="#efefef",
    panel="#e2e2e2",
    dark=False,
)
COLOUR_BLIND = Theme(
    name="magus-colour-blind",
    # The palette of Okabe and Ito, "Color Universal Design", 2008.
    primary="#56b4e9",
    secondary="#cc79a7",
    accent="#f0e442",
    warning="#e69f00",
    error="#d55e00",
    success="#009e73",
    foreground="#f0f0f0",
    background="#101010",
    surface="#1c1c1c",
    panel="#282828",
)
THEMES = (DARK, LIGHT, COLOUR_BLIND)
