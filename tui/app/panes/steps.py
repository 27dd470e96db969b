"""What the panes show of a training step: its layouts, the stages of the one that is picked, why and how."""

from collections.abc import Iterator
from typing import cast

from rich.text import Text
from textual.content import Content

from ....advisor.steps.plans import flags_of
from ....compiler.text.diagnostics import printable
from ...text.door import bullet, hanging, wrapped
from ...text.ops import scenario_words
from ...text.step import counted_text, figures_of, nothing_lines
from ..charts.rows import StagesModel
from ..session.job import StepJob
from ..session.step_view import LayoutRow, StepSort, memory_lines, picked_row, rows_of
from ..widgets.rows_view import RowsView
from . import CANDIDATES, HOW, TIMELINE, WHY
from .candidates import PickTable, RankedPane, ViewPane, WordsPane


class LayoutTable(PickTable[LayoutRow]):
    """Layouts and schedules with time, tokens, memory and what is lost."""

    KEYS = StepSort
    LEAST = 16

    def cells(self, row: LayoutRow, width: int) -> Iterator[Text]:
        """The mark, then a cell for each figure."""
        for key in StepSort:
            room = (key.value.width or width) - (key is not StepSort.RANK)
            yield self.cell(row, key, self.style_of(row.mark), room)


class LayoutsPane(RankedPane[StepJob, LayoutTable]):
    """The table of layouts."""

    def __init__(self, *, id: str) -> None:
        super().__init__(LayoutTable(id="layouts"), id=id)

    def show(self, job: StepJob) -> None:
        """Fill the table with what is simulated so far, unless it holds that already."""
        self._job = job
        rows = () if job.found is None else rows_of(job.found, cast("StepSort", self._sort_key))
        row = _picked(job)
        picked = None if row is None else row.expression
        if not self._view.shows(rows, self._sort_key, picked):
            self._view.show(rows, self._sort_key, picked)
        rough = any(row.is_estimate for row in rows)
        note = "; ~ without traffic beside layers" if rough else ""
        self.border_title = f"Layouts: {len(rows)}{note}" if rows else CANDIDATES.title


def _picked(job: StepJob) -> LayoutRow | None:
    return None if job.found is None else picked_row(job.found, job.picked)


def _title(title: str, job: StepJob) -> Content:
    row = _picked(job)
    return Content(title if row is None else f"{title}: {row.outcome.layout}, {printable(row.full_name)}")  # no markup


class StagesView(RowsView[StagesModel]):
    """Stages over time."""

    def show(self, row: LayoutRow) -> None:
        """Show a schedule; the same again keeps its zoom."""
        if self.model is None or self.model.outcome is not row.outcome:
            self.model, self._message = StagesModel(row.outcome), ""
            self._lay_out()


class StagesPane(ViewPane[StepJob, StagesView]):
    """The stages of the picked layout."""

    def __init__(self, *, id: str) -> None:
        super().__init__(StagesView(id="stages"), id=id)

    def show(self, job: StepJob) -> None:
        """Show the picked layout, or that there is none."""
        row = _picked(job)
        self.border_title = _title(TIMELINE.title, job)
        if row is None:
            self._view.say("" if job.found is None else "No layout is simulated.")
        else:
            self._view.show(row)


class _StepWords(WordsPane[StepJob]):
    """Lines about the picked layout."""

    def title(self, job: StepJob) -> Content:
        """What the lines are about, and the layout."""
        return _title(self.TITLE, job)


class StepWhyPane(_StepWords):
    """Where the time of the picked layout goes, the memory of its stages, and what to know."""

    TITLE = WHY.title

    def lines(self, job: StepJob, width: int) -> Iterator[str]:
        """Figures, memory, what became of the other layouts, marks."""
        row = _picked(job)
        if job.found is None:
            return
        if row is not None:
            yield "Where the time goes"
            for name, time, note in figures_of(row.outcome):
                yield f"  {name:<10}{time:>9}  {note}"[:width]
            yield ""
            yield "Memory of a GPU, in GiB, with 8 % and 3 GiB beside"
            yield from (f"  {line}" for line in memory_lines(row.outcome, width - 2))
            yield ""
        if job.found.recommended is None:
            yield from nothing_lines(job.found.searched)
        yield from wrapped(f"{counted_text(job.found.searched)}.")
        for mark in job.found.marks:
            yield from bullet("!", mark)
        for found in job.warnings:
            yield from bullet("!", f"{found.message}. {found.hint}".strip())


class StepHowPane(_StepWords):
    """How frameworks switch the picked layout on."""

    TITLE = HOW.title

    def lines(self, job: StepJob, width: int) -> Iterator[str]:
        """The flags of each framework that has it, and commands."""
        row = _picked(job)
        if row is None:
            return
        flags = flags_of(row.outcome)
        for framework, text in flags:
            yield from hanging(text, 4, f"{framework}: ")
            yield ""
        if not flags:
            yield from wrapped("No framework that is known has this schedule.")
            yield ""
        settings = dict((*job.what_if.changes.params, *row.outcome.settings))
        words = " ".join(scenario_words(job.path, tuple(settings.items()), job.name))
        declared = [each.name for each in job.scenario.schedules if each.name == row.outcome.schedule.name]
        how = "".join(f" --schedule {name}" for name in declared)
        yield f"magus simulate {words}{how}" if declared else f"magus advise {words}"


class LayersPane(_StepWords):
    """Says that a pane is about the layers of a step."""

    def lines(self, job: StepJob, width: int) -> Iterator[str]:
        """Where to go."""
        yield from wrapped("This pane is about the layers of the step, which are workloads of their own: press w.")


STEP_VIEWS = (LayoutsPane, StagesPane, StepWhyPane, StepHowPane, LayersPane, LayersPane, None, LayersPane, None)
"""What the panes are for a step, in the order of ``PANES``; None where they are as for any workload."""
