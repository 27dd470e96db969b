"""The question and the answer, at the top of the screen."""

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from ....compiler.text.diagnostics import printable
from ..session.job import AnyJob, JobProblem, ProblemKind
from ..session.view import fitted_code


class Headline(Vertical):
    """Title, verdict, figures, confidence and marks; on a small screen the first two, and the rest with a key."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._job: AnyJob | None = None

    def compose(self) -> ComposeResult:
        """Lay out one text for each."""
        for name in ("title", "verdict", "figures", "threshold", "confidence", "marks"):
            yield Static(id=name, markup=False)

    def ask(self, title: str, waiting: str = "") -> None:
        """Show the question; ``waiting`` stands in the place of the verdict."""
        self._job = None
        self._say("title", title)
        self._say("verdict", waiting)
        self.query_one("#verdict").remove_class("overlap")
        for name in ("figures", "threshold", "confidence", "marks"):
            self._say(name, "")

    def answer(self, job: AnyJob) -> None:
        """Show the answer, and while one is looked for that it is not final."""
        self._job = job
        self._draw()

    def toggle_details(self) -> None:
        """Show the rest on a small screen, or hide it again."""
        self.toggle_class("details")

    def on_resize(self) -> None:
        """Show the verdict again: its line break depends on the width."""
        self._draw()

    def _draw(self) -> None:
        head = None if self._job is None else self._job.head(self.content_region.width)
        if head is None:
            return
        self.query_one("#verdict").set_class(head.pays, "overlap")
        self.query_one("#confidence").set_classes(head.sure)
        for name in ("verdict", "figures", "threshold", "confidence"):
            self._say(name, getattr(head, name))
        self._say("marks", "\n".join(f"! {mark}" for mark in head.marks))

    def _say(self, name: str, text: str) -> None:
        line = self.query_one(f"#{name}", Static)
        renew(line, printable(text, block=True))
        line.set_class(not text, "empty")


def renew(line: Static, text: str) -> None:
    """Show ``text`` unless it stands there: all that is on screen is laid out again for it."""
    if text != line.content:
        line.update(text)


REMEDIES = {
    ProblemKind.FILE: "Edit the file and press e to read it again.",
    ProblemKind.NOTHING_FEASIBLE: "Loosen a constraint in the file and press e, or press w for another workload.",
    ProblemKind.CANCELLED: "",
    ProblemKind.OUTCOME: "Pick another candidate.",
    ProblemKind.FAULT: "Press e to try again.",
}


class ProblemPane(VerticalScroll):
    """Show a problem in place of the answer."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._problem: JobProblem | None = None

    def compose(self) -> ComposeResult:
        """Lay out one text."""
        yield Static(id="problem-text")

    def show(self, problem: JobProblem) -> None:
        """Show a problem with its remedy."""
        self._problem = problem
        self._draw()

    def on_resize(self, event: events.Resize) -> None:
        """Draw again: code is cut to the width, around its carets."""
        self._draw()

    def _draw(self) -> None:
        if self._problem is None:
            return
        width = max(20, self.size.width - 4)
        parts = [Content.styled(self._problem.kind.value, "bold $error"), Content(), *_lines(self._problem.text, width)]
        remedy = REMEDIES[self._problem.kind]
        if remedy:
            parts += [Content(), Content.styled(remedy, "bold")]
        self.query_one("#problem-text", Static).update(Content("\n").join(parts))


def _lines(text: str, width: int) -> list[Content]:
    """Return the lines: messages wrap, code does not, since its carets must stay in place."""
    lines, drawn = printable(text, block=True).split("\n"), []
    for index, line in enumerate(lines):
        below = lines[index + 1] if index + 1 < len(lines) else ""
        if _is_caret(line):
            drawn.append(Content.styled(fitted_code(lines[index - 1], line, width)[1], "bold $error"))
        elif _is_caret(below):
            drawn.append(Content(fitted_code(line, below, width)[0]))
        elif line.startswith("  help:"):
            drawn.append(Content.styled(line, "$primary"))
        else:
            drawn.append(Content.styled(line, "bold" if ": MGS" in line else ""))
    return drawn


def _is_caret(line: str) -> bool:
    return bool(line.strip()) and set(line.strip()) == {"^"}
