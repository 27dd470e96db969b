"""The panes of the workbench: ``PANES`` lists them in the order of their keys, ``workbench.VIEWS`` what each is.

The list alone is imported for the first frame, so it imports nothing.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pane:
    """One pane: ``name`` is its id; ``needs_answer`` says whether it has something to show once there is an answer.

    Panes ``together`` are shown at once where the screen is large enough, those of ``whole_width`` under the others.
    One that stands ``alone`` has a small screen for itself.
    """

    name: str
    title: str
    together: bool = False
    whole_width: bool = False
    needs_answer: bool = True
    alone: bool = False


CANDIDATES = Pane("candidates", "Candidates", together=True)
TIMELINE = Pane("timeline", "Timeline", together=True, whole_width=True)
WHY = Pane("why", "Why", together=True)
HOW = Pane("how", "How")
COMPARE = Pane("compare", "Compare")
FABRIC = Pane("fabric", "Fabric")
WHAT_IF = Pane("what_if", "What if", needs_answer=False)
SWEEP = Pane("sweep", "Sweep")
EDITOR = Pane("editor", "Edit", needs_answer=False, alone=True)

PANES = (CANDIDATES, TIMELINE, WHY, HOW, COMPARE, FABRIC, WHAT_IF, SWEEP, EDITOR)
"""Key 1 shows the first, and so on; there are at most nine."""
