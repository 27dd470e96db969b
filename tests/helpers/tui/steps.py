"""A small training step on screen: really searched, once for each text and change that tests of a process ask about."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import sleep

from magus.advisor.answer.stages import Watcher
from magus.advisor.candidates.advice import Advice
from magus.advisor.layers.declared import simulated_schedules
from magus.advisor.steps.answer import StepAdvice
from magus.compiler.changed import Changes
from magus.compiler.ir import Progress, Scenario, ShouldStop
from magus.compiler.text.diagnostics import Source
from magus.tui.app.session.backend import AdviseStep, Backend, default_backend, step_stage
from tests.helpers.steps import TEXT

MORE = """
schedule turns for train { pipeline one_f_one_b; zero 1; overlap gradients, weights }
explore train { TP 1, 2; PP 1, 2; pipeline one_f_one_b, zero_bubble }
"""
FILE = TEXT.format(more=MORE).replace("ROWS = 2048", "ROWS = 1024")

_search = step_stage()
_known: dict[tuple[str, Changes, str], StepAdvice] = {}
POLL_S = 0.01


@dataclass
class StepStages:
    """Stages of a file with a step; with ``stops`` the search goes on until it is stopped, after what it has found."""

    stops: bool = False

    def backend(self) -> Backend:
        """The stages as the session takes them."""
        search: AdviseStep = self.search
        return replace(default_backend(1), advise_step=search, recommend=_declared)

    def search(
        self,
        source: Source,
        changes: Changes,
        name: str,
        progress: Progress,
        should_stop: ShouldStop,
        answered: Callable[[StepAdvice], None],
    ) -> StepAdvice:
        """The answer, really."""
        question = source.text, changes, name
        found = _known.get(question) or _search(source, changes, name, progress, should_stop, answered)
        if not found.interrupted:
            _known[question] = found
        if self.stops:
            found = replace(found, searched=replace(found.searched, outcomes=found.searched.outcomes[:2], contended=1))
            found = replace(found, searched=replace(found.searched, interrupted=True))
            answered(found)
        while self.stops and not should_stop():
            sleep(POLL_S)
        return found


def _declared(
    scenario: Scenario, progress: Progress, should_stop: ShouldStop, answered: Callable[[Advice], None]
) -> Advice:
    """The layer under its declared schedules."""
    return simulated_schedules(scenario, watcher=Watcher(should_stop=should_stop))


def written(folder: Path) -> Path:
    """The file, in a folder."""
    path = folder / "step.mgs"
    path.write_text(FILE, encoding="utf-8")
    return path
