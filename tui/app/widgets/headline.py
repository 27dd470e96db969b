"""The question and the answer, at the top of the screen."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from ....advisor.candidates.advice import Advice
from ....compiler.resolve.expect.expectation import Verdict
from ....compiler.text.printable import printable
from ...text.render import threshold_sentence
from ..session import view


class Headline(Vertical):
    """Title, verdict, figures, confidence and marks; on a small screen the first two, and the rest with a key."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._advice: Advice | None = None
        self._standing = view.Finality.FINAL

    def compose(self) -> ComposeResult:
        """Lay out one text for each."""
        for name in ("title", "verdict", "figures", "threshold", "confidence", "marks"):
            yield Static(id=name, markup=False)

    def ask(self, title: str, waiting: str = "") -> None:
        """Show the question; ``waiting`` stands in the place of the verdict."""
        self._advice = None
        self._say("title", title)
        self._say("verdict", waiting)
        self.query_one("#verdict").remove_class("overlap")
        for name in ("figures", "threshold", "confidence", "marks"):
            self._say(name, "")

    def answer(self, advice: Advice, *, advising: bool = False) -> None:
        """Show the answer, and while the app is ``advising`` that it is not final."""
        self._advice, self._standing = advice, view.standing_of(advice, advising=advising)
        self._say_verdict(advice)
        self.query_one("#verdict").set_class(advice.verdict is Verdict.OVERLAP, "overlap")
        self._say("figures", view.figures_of(advice))
        self._say("threshold", _threshold(advice))
        self._say("confidence", self._standing.sentence + view.confidence_of(advice))
        self.query_one("#confidence").set_classes(advice.confidence.value)
        self._say("marks", "\n".join(f"! {mark}" for mark in advice.marks))

    def toggle_details(self) -> None:
        """Show the rest on a small screen, or hide it again."""
        self.toggle_class("details")

    def on_resize(self) -> None:
        """Show the verdict again: its line break depends on the width."""
        if self._advice is not None:
            self._say_verdict(self._advice)

    def _say_verdict(self, advice: Advice) -> None:
        word = self._standing.word
        self._say("verdict", word + view.verdict_of(advice, self.content_region.width - len(word)))

    def _say(self, name: str, text: str) -> None:
        line = self.query_one(f"#{name}", Static)
        line.update(printable(text, block=True))
        line.set_class(not text, "empty")


def _threshold(advice: Advice) -> str:
    """Where the answer flips, as far as it is known."""
    return threshold_sentence(advice.threshold) if advice.threshold is not None else ""
