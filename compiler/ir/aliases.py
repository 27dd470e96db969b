"""Types that functions of several layers share: callbacks, settings of a file's parameters, JSON."""

from collections.abc import Callable, Sequence
from typing import Any

Progress = Callable[[str, int, int], None]
"""Told the stage, how much of it is done, and how much there is."""

Counted = Callable[[int, int], None]
"""The same within one stage: told how much is done, and how much there is."""

Settings = Sequence[tuple[str, str]]
"""Names of parameters and the text of their values, as ``--set`` gives them."""

JsonObject = dict[str, Any]
"""An object of a JSON document."""
