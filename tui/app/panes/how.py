"""The pane How: how to carry the picked schedule out, and what to take away for that."""

from collections.abc import Iterator
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.content import Content

from ....advisor.candidates.advice import Advice
from ....advisor.candidates.candidate import Candidate
from ....advisor.how.how import How, how_of
from ....advisor.targets import Refused
from ....compiler.ir import Rejection
from ....compiler.planning.build import ScheduleError
from ....compiler.text.diagnostics import CompileError, printable
from ....compiler.text.writing import write_whole
from ...text.door import bullet
from ...text.handover import PLAN_JSON, PLAN_MGS, Handover, how_lines, picked_lines
from ...text.next_steps import shipped_lines
from ...text.ops import scenario_words, schedule_text
from ..background import in_thread
from ..session.job import Job
from ..widgets.dialogs import HandoverScreen, HandoverWanted
from . import HOW
from .candidates import WordsPane

TITLE = HOW.title
NO_JSON = "The plan of several ops is long: magus plan --format json writes it. m copies the block of the schedule"
NO_FILES = "Runtimes take plans of pairs; the commands in this pane write the trace, the drawing and the report"
WORKING = "putting the plan into words ..."
KEYS = "y copies the expression, p the plan as JSON, m as .mgs; o writes a file, for a runtime too."


class HowPane(WordsPane[Job]):
    """The recipe in words, the nearest shipped implementation, and keys that copy or write the plan."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "copy_expression", "Copy name"),
        Binding("p", "copy_json", "Copy JSON"),
        Binding("m", "copy_mgs", "Copy .mgs"),
        Binding("o", "write", "Write file"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._advice: Advice | None = None
        self._candidate: Candidate | None = None
        self._how: How | Rejection | None = None
        self._graph: Candidate | None = None

    def title(self, job: Job) -> Content:
        """The picked candidate."""
        return Content(f"{TITLE}: {printable(job.picked or '')}")  # no markup

    def show(self, job: Job) -> None:
        """Tell how the picked candidate is carried out; that takes a moment where the plan is large."""
        candidate = job.candidate(job.picked or "")
        self._graph = candidate if job.has_several_ops else None
        if candidate is None or job.advice is None:
            self._candidate = self._advice = self._how = None
            super().show(job)
        elif candidate is not self._candidate or job.advice is not self._advice:
            self._candidate, self._advice, self._how = candidate, job.advice, None
            super().show(job)
            self._view.scroll_home(animate=False)
            self._tell(job.advice, candidate)

    @work(exclusive=True, group="how")
    async def _tell(self, advice: Advice, candidate: Candidate) -> None:
        how = await in_thread(lambda _: _reported(advice, candidate))
        if candidate is self._candidate:
            self._how = how
            self.draw()

    def lines(self, job: Job, width: int) -> Iterator[str]:
        """What is known of the schedule, and its steps."""
        if self._graph is not None and job.found is not None:
            words = scenario_words(job.path, job.what_if.changes.params, job.name)
            yield from picked_lines(job.found.scenario, self._graph, job.runs.get(self._graph.expression), words)
        elif self._advice is not None and self._candidate is not None:
            yield from (KEYS, "")
            for sentence in shipped_lines(self._advice, self._candidate):
                yield from bullet("-", sentence)
            yield ""
            if self._how is None:
                yield WORKING
            elif isinstance(self._how, Rejection):
                yield f"{self._how.code.name}: {self._how.message}. {self._how.hint}".strip()
            else:
                yield from how_lines(self._how, self._candidate.expression)

    # Keys.

    def action_copy_expression(self) -> None:
        """Copy the expression of the schedule."""
        named = self._candidate or self._graph
        if named is not None:
            self._copy(named.expression, "the name of the schedule")

    def action_copy_json(self) -> None:
        """Copy the plan as JSON."""
        if self._graph is not None:
            self.notify(NO_JSON, severity="warning", markup=False)
            return
        self._copy_plan(PLAN_JSON)

    def action_copy_mgs(self) -> None:
        """Copy the plan in the language; of several ops the block that declares the schedule."""
        if self._graph is not None and self._job is not None and self._job.found is not None:
            self._copy(schedule_text(self._job.found.scenario, self._graph), "the block of the schedule")
            return
        self._copy_plan(PLAN_MGS)

    def action_write(self) -> None:
        """Ask what to write and where to, and write it."""
        if self._graph is not None:
            self.notify(NO_FILES, severity="warning", markup=False)
        elif self._candidate is not None:
            self.app.push_screen(HandoverScreen(), self._wanted)

    def _wanted(self, wanted: HandoverWanted | None) -> None:
        if wanted is not None:
            self._write(wanted)

    @work(exclusive=True, group="how-copy")
    async def _copy_plan(self, handover: Handover) -> None:
        advice, candidate = self._advice, self._candidate
        if advice is not None and candidate is not None:
            text = await in_thread(lambda _: _made(handover, advice, candidate, {}))
            if isinstance(text, Rejection):
                self._refuse(text)
            else:
                self._copy(text, handover.about)

    @work(group="how-write")
    async def _write(self, wanted: HandoverWanted) -> None:
        advice, candidate = self._advice, self._candidate
        if advice is None or candidate is None:
            return
        text = await in_thread(lambda _: _made(wanted.handover, advice, candidate, wanted.options))
        if isinstance(text, Rejection):
            self._refuse(text)
            return
        try:
            await in_thread(lambda _: write_whole(wanted.path, text))
        except OSError as error:
            self.notify(
                printable(f"{error.filename or wanted.path}: {error.strerror or error}"), severity="error", markup=False
            )
        else:
            self.notify(printable(f"Wrote {wanted.path}: {wanted.handover.about}"), markup=False)

    def _copy(self, text: str, what: str) -> None:
        self.app.copy_to_clipboard(text)
        lines = text.count("\n")
        size = f", {lines} lines" if lines > 1 else ""
        self.notify(f"Copied {what}{size}", markup=False)

    def _refuse(self, rejection: Rejection) -> None:
        text = f"{rejection.code.name}: {rejection.message}. {rejection.hint}".strip()
        self.notify(printable(text, block=True), severity="error", markup=False)


def _reported(advice: Advice, candidate: Candidate) -> How | Rejection:
    try:
        return how_of(advice.case, candidate.schedule)
    except ScheduleError as error:
        return error.rejection


def _made(handover: Handover, advice: Advice, candidate: Candidate, options: dict[str, str]) -> str | Rejection:
    """The text of a file, or why there is none."""
    try:
        return handover.text(advice, candidate.schedule, options)
    except (ScheduleError, Refused) as error:
        return error.rejection
    except CompileError as error:
        first = error.first
        return Rejection(first.code, first.message, first.hint)
