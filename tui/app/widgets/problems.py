"""The pane of a problem: diagnostics with carets, constraints without a solution, a stopped run."""

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from ....compiler.text.printable import printable
from ..session.job import JobProblem, ProblemKind
from ..session.view import fitted_code

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
