"""Everything between the title and the keys: headline, panes, problems, and two status lines."""

from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from ....compiler.text.printable import printable
from ..session import SessionProblem, WorkloadSession
from ..view import SortKey, rows_of, selected_text, title_of
from .candidates import CandidateTable
from .headline import Headline
from .problems import ProblemPane
from .reasons import ReasonsPane
from .timeline import TimelineView

PANES = ("candidates", "timeline", "reasons")
TITLES = ("Candidates", "Timeline", "Why")
WAITING = "Does overlap pay? Schedules are being enumerated, ranked and simulated."
RUNNING = "being simulated ..."
NO_WATERFALL = "no waterfall: its what-if runs did not finish"
TIMELINE_IDX = PANES.index("timeline")


class Workbench(Container):
    """Show one job. Small screens show one pane at a time, large ones all of them."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._sort_key = SortKey.RANK
        self._pane_idx = 0
        self._idle = ""

    def compose(self) -> ComposeResult:
        """Lay out the panes, side by side or behind each other, see ``magus.tcss``."""
        yield Headline(id="headline")
        yield Static(id="tabs")
        with Container(id="panes"):
            yield CandidateTable(id="candidates")
            yield ReasonsPane(id="reasons")
            yield TimelineView(id="timeline")
        yield ProblemPane(id="problem")
        yield Static(id="selected", markup=False)
        yield Static(id="activity", markup=False)

    def on_mount(self) -> None:
        """Set the titles that do not change."""
        for name, title in zip(PANES, TITLES, strict=True):
            self.query_one(f"#{name}").border_title = title

    @property
    def table(self) -> CandidateTable:
        """The candidates."""
        return self.query_one(CandidateTable)

    @property
    def timeline(self) -> TimelineView:
        """The timeline of the picked candidate."""
        return self.query_one(TimelineView)

    @property
    def pane_idx(self) -> int:
        """The pane in front."""
        return self._pane_idx

    def say(self, text: str, *, idle: str | None = None) -> None:
        """Show the current activity; without one the last ``idle`` text that was given."""
        self._idle = self._idle if idle is None else idle
        for activity in self.query("#activity").results(Static):  # none while the screen closes
            activity.update(printable(text or self._idle))

    def show_pane(self, pane_idx: int) -> None:
        """Bring a pane to the front and focus it."""
        self._pane_idx = pane_idx % len(PANES)
        for index, name in enumerate(PANES):
            self.query_one(f"#{name}").set_class(index == self._pane_idx, "current")
        parts = []
        for index, title in enumerate(TITLES):
            parts.append((f" {index + 1} {title} ", "reverse bold" if index == self._pane_idx else "dim"))
        self.query_one("#tabs", Static).update(Content.assemble(*parts))
        if not self.has_class("problem"):
            self._pane(self._pane_idx).focus()

    def is_shown(self, pane_idx: int) -> bool:
        """Whether a pane is visible."""
        return self._pane(pane_idx).region.area > 0

    def _pane(self, pane_idx: int) -> Widget:
        return self.query_one(f"#{PANES[pane_idx]}")

    def show_problem(self, problem: SessionProblem | None, title: str = "") -> None:
        """Show a problem in place of the panes; None brings the panes back."""
        self.set_class(problem is not None, "problem")
        if problem is None:
            self.show_pane(self._pane_idx)
            return
        if title:
            self.query_one(Headline).ask(title)
        self.say("", idle="")
        self.query_one("#selected", Static).update("")
        self.query_one(ProblemPane).show(problem)
        self.query_one(ProblemPane).focus()

    def show_job(self, job: WorkloadSession, job_idx: int, num_jobs: int) -> None:
        """Show headline, table and reasons as far as they are known."""
        headline = self.query_one(Headline)
        headline.ask(title_of(job.scenario, job_idx, num_jobs), WAITING if job.answer is None else "")
        if isinstance(job.answer, SessionProblem):
            self.show_problem(job.answer)
            return
        self.show_problem(None)
        self.fill_table(job)
        if job.advice is not None:
            headline.answer(job.advice)
            self.show_candidate(job)
            return
        self.query_one("#selected", Static).update("")
        self.timeline.border_title = TITLES[TIMELINE_IDX]
        self.timeline.say("")
        self.query_one(ReasonsPane).show(None, None)

    def fill_table(self, job: WorkloadSession) -> None:
        """Fill the table of candidates with the times known so far."""
        rows = rows_of(job.advice, job.results, self._sort_key) if job.advice is not None else ()
        if job.picked is None and job.advice is not None:
            job.picked = job.advice.recommended.expression
        self.table.show(rows, self._sort_key, job.picked)
        simulated = sum(row.simulated_us is not None for row in rows)
        self.table.border_title = f"{TITLES[0]}: {simulated} of {len(rows)} simulated" if rows else TITLES[0]

    def sort(self, job: WorkloadSession, key: SortKey | None = None) -> None:
        """Sort by ``key``, or by the column after the current one."""
        keys = tuple(SortKey)
        self._sort_key = key or keys[(keys.index(self._sort_key) + 1) % len(keys)]
        self.fill_table(job)

    def show_candidate(self, job: WorkloadSession, *, waiting: bool = True) -> None:
        """Show name, timeline and waterfall of the picked candidate; ``waiting``: a simulation is still running."""
        row = self.table.picked
        self.query_one("#selected", Static).update(printable(selected_text(row)) if row is not None else "")
        result = job.results.get(job.picked or "")
        self.timeline.border_title = Content(f"{TITLES[TIMELINE_IDX]}: {printable(job.picked or '')}")  # no markup
        if result is not None:
            self.timeline.show(result)
        else:
            self.timeline.say(RUNNING)
        note = RUNNING if waiting else NO_WATERFALL
        self.query_one(ReasonsPane).show(job.advice, result, note, job.warnings)
