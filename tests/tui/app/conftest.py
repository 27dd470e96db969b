"""Screens in tests wait for what happens, not for time to pass."""

from collections.abc import Iterator
from typing import Any

import pytest
import textual.app
import textual.pilot
from textual.css.stylesheet import Stylesheet
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


@pytest.fixture(scope="session", autouse=True)
def parsed_once() -> Iterator[None]:
    """A style sheet is parsed once in a process for each theme, not by each app and for each change of its theme."""
    parse: Any = Stylesheet._parse_rules
    known: dict[object, Any] = {}

    def parsed(sheet: Stylesheet, css: str, *args: object, **options: object) -> Any:
        key = css, args, *options.items(), *sheet._variables.items()
        return known[key] if key in known else known.setdefault(key, parse(sheet, css, *args, **options))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", parsed)
        yield
