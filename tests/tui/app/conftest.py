"""Screens in tests wait for what happens, not for time to pass."""

from collections.abc import Iterator

import pytest
import textual.app
import textual.pilot
from textual.pilot import Pilot

from tests.helpers.tui.driving import idle


@pytest.fixture(scope="session", autouse=True)
def no_sleeping() -> Iterator[None]:
    """Textual waits for the loop to be idle, not until some time has passed without work."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(textual.app, "wait_for_idle", idle)
        patch.setattr(textual.pilot, "wait_for_idle", idle)
        patch.setattr(Pilot, "_wait_for_screen", lambda pilot: idle())
        yield
