"""Types that functions of several layers share: callbacks, settings of a file's parameters, JSON."""

from collections.abc import Callable, Sequence
from typing import Any

Progress = Callable[[str, int, int], None]
"""Called with the stage, the steps done, and the number of steps."""

Counted = Callable[[int, int], None]
"""Progress within one stage: called with the steps done and their number."""

StepsDone = Callable[[int], None]
"""Called with the steps done, where their number is not known."""

Settings = Sequence[tuple[str, str]]
"""Names of parameters and the text of their values, as ``--set`` gives them."""

JsonObject = dict[str, Any]
"""An object of a JSON document."""
