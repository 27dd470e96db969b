"""The pane Why: reasons, losses, bound."""

import textwrap
from collections.abc import Iterator

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from ....advisor.answer.explain import headline_of
from ....advisor.candidates.advice import Advice
from ....compiler.text.diagnostics import Diagnostic, printable
from ....compiler.text.units import ticks_text
from ....simcore.shown_run import ShownRun, op_times
from ..charts.rows import Bar, bars_of, drawn_bars
from ..session.job import Job
from ..session.view import confidence_of, shortened, us
from . import WHY
from .candidates import ViewPane
from .timeline import RUNNING

LABEL_COLUMNS = 15
FIGURE_COLUMNS = 10
OP_COLUMNS = 9
MIN_BAR_COLUMNS, WANTED_BAR_COLUMNS = 8, 24
BULLET = "• "


class ReasonsPane(VerticalScroll):
    """Show the proof of the verdict, in words and bars."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._advice: Advice | None = None
        self._shown: ShownRun | None = None
        self._note = ""
        self._warnings: tuple[Diagnostic, ...] = ()

    def compose(self) -> ComposeResult:
        """Lay out reasons, waterfall or ops, and bound with ties and marks."""
        yield Static(id="why", classes="words")
        yield Static(id="waterfall")
        yield Static(id="backing", classes="words")

    def show(
        self, advice: Advice | None, run: ShownRun | None, note: str = "", warnings: tuple[Diagnostic, ...] = ()
    ) -> None:
        """Show the reasons, the losses of ``run`` or the times of its ops, else ``note``, and warnings."""
        self._advice, self._shown, self._warnings = advice, run, warnings
        self._note = printable(note, block=True)
        self._draw()

    def on_resize(self, event: events.Resize) -> None:
        """Draw again: bars depend on the width."""
        self._draw()

    def _draw(self) -> None:
        advice, width = self._advice, self.content_region.width - self.styles.scrollbar_size_vertical
        self.query_one("#why", Static).update(_hanging(_why(advice), width) if advice is not None else "")
        self.query_one("#backing", Static).update(
            _hanging(_backing(advice, self._warnings), width) if advice is not None else ""
        )
        self.query_one("#waterfall", Static).update(self._waterfall(width) if advice is not None else "")

    def _waterfall(self, width: int) -> Content:
        run = self._shown
        if run is not None and run.ops:
            return _ops(run)
        head = Content.styled("Loss waterfall", "bold")
        if self._advice is not None and self._advice.scenario.only_case is None:
            return Content(self._note)
        if run is None or run.result.waterfall is None:
            return head + Content(f"\n{self._note}")
        bars = bars_of(run.result.waterfall)
        widest = max(len(bar.label) for bar in bars)
        labels = min(widest, max(LABEL_COLUMNS, width - FIGURE_COLUMNS - 1 - WANTED_BAR_COLUMNS))
        drawn = drawn_bars(bars, max(MIN_BAR_COLUMNS, width - labels - FIGURE_COLUMNS - 1))
        lines = [_line(bar, labels, strip) for bar, strip in zip(bars, drawn, strict=True)]
        grain = Content.styled(f" in us, simulated in units of {run.result.waterfall.unit_bytes} B", "dim")
        name = shortened(printable(run.expression), width)
        return Content("\n").join([head + grain, Content(name), *lines])


def _ops(run: ShownRun) -> Content:
    """When each op runs, and how long in all its kernels, its copies, and copies beside no kernel."""
    ops = op_times(run)
    names = [printable(op.name) for op in ops]
    widest = min(LABEL_COLUMNS, max(map(len, names)))
    of = "of one layer within, " if run.result.num_simulated > 1 else ""
    head = Content.assemble(("Ops", "bold"), (f" {of}in us under {printable(run.expression)}", "dim"))
    titles = "".join(f"{title:>{OP_COLUMNS}}" for title in ("from", "to", "kernels", "copies", "exposed"))
    lines = [head, Content.styled(" " * widest + titles, "dim")]
    for op, name in zip(ops, names, strict=True):
        times = (op.span.start_ticks, op.span.end_ticks, op.compute_ticks, op.comm_ticks)
        figures = "".join(f"{us(ticks) if ticks else '-':>{OP_COLUMNS}}" for ticks in times)
        exposed = f"{us(op.exposed_ticks) if op.exposed_ticks else '-':>{OP_COLUMNS}}"
        style = "$warning" if op.exposed_ticks else ""
        lines.append(Content.assemble(f"{shortened(name, widest):<{widest}}{figures}", (exposed, style)))
    return Content("\n").join(lines)


def _line(bar: Bar, labels: int, drawn: str) -> Content:
    colour = "$primary" if bar.is_total else "$success" if bar.ticks < 0 else "$warning"
    sign = "" if bar.is_total or bar.ticks < 0 else "+"
    figure = f"{sign}{us(bar.ticks)}"
    return Content.assemble(f"{bar.label[:labels]:<{labels}}{figure:>{FIGURE_COLUMNS}} ", (drawn.rstrip(), colour))


def _why(advice: Advice) -> Iterator[tuple[str, str, str]]:
    """(lead, text, style) of each paragraph above the waterfall."""
    what = advice.what_of(advice.recommended)
    if what:
        yield BULLET, f"{advice.name_of(advice.recommended.expression)} is: {what}.", ""
    if headline_of(advice):
        yield BULLET, f"Over {advice.baseline_text}: {headline_of(advice)}.", ""
    for reason in advice.reasons:
        yield BULLET, reason, ""


def _backing(advice: Advice, warnings: tuple[Diagnostic, ...]) -> Iterator[tuple[str, str, str]]:
    bound, gap = advice.bound, advice.gap_to_bound
    yield "", "Lower bound", "bold"
    if bound is None or gap is None:
        yield BULLET, "it was not computed", ""
    else:
        above = f"the recommended schedule is {gap:.1%} above it"
        yield BULLET, f"{ticks_text(bound.ticks)}, binding: {bound.binding}; {above}", ""
    if advice.ties:
        yield "", f"Ties: within {advice.scenario.resolution:.0%}, more than the profile can tell apart", "bold"
        for tie in advice.ties:
            yield "≈ ", tie, ""
    yield "", confidence_of(advice), "bold"
    for mark in advice.marks:
        yield "! ", mark, "$warning"
    for found in warnings:
        at = found.span.location
        yield "! ", f"{found.span.source.path}:{at.line}:{at.column}: {found.message}. {found.hint}".strip(), "$warning"


def _hanging(paragraphs: Iterator[tuple[str, str, str]], width: int) -> Content:
    """Wrap paragraphs to ``width``; further lines are aligned with the text of the first."""
    lines = []
    for lead, text, style in paragraphs:
        wrapped = textwrap.wrap(
            lead + printable(text, block=True),
            max(20, width),
            subsequent_indent=" " * len(lead),
            break_on_hyphens=False,
        )
        lines += [Content.styled(line, style) for line in wrapped]
    return Content("\n").join(lines)


TITLE = WHY.title
NO_WATERFALL = "no waterfall: its what-if runs did not finish"


class WhyPane(ViewPane[Job, ReasonsPane]):
    """The proof of the verdict, with the losses of the picked candidate."""

    def __init__(self, *, id: str) -> None:
        super().__init__(ReasonsPane(id="proof"), id=id)
        self.border_title = TITLE

    def show(self, job: Job) -> None:
        """Show reasons and losses as far as they are known."""
        if job.found is None:
            self._view.show(None, None)
            return
        running = job.simulating or (job.advising and job.run is None)
        problem = f"{job.problem.kind.value}: {job.problem.text}" if job.problem is not None else NO_WATERFALL
        self._view.show(job.found, job.run, RUNNING if running else problem, job.warnings)
