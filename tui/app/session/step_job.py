"""One training step on screen: its answer, and the schedule that the panes show. No Textual."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ....compiler.ir.step import StepScenario
from ....compiler.text.diagnostics import Source
from .job import FileJob, Job

if TYPE_CHECKING:
    from ....advisor.steps.answer import StepAdvice


@dataclass(slots=True)
class StepJob(FileJob[StepScenario, "StepAdvice"]):
    """The state of one step; ``source`` is its text with the numbers of devices that were changed on screen.

    ``picked`` names the row of the schedule on screen, None the recommended one.
    """

    source: Source = field(default_factory=lambda: Source("", ""))

    @property
    def name(self) -> str:
        """The name of the step."""
        return self.scenario.name

    def take(self, answer: "StepAdvice") -> None:
        """Take an answer; what the user has picked stays picked."""
        self.answer = answer


AnyJob = Job | StepJob
"""What a file asks."""
