"""The panes of the workbench: ``PANES`` lists them in the order of their keys."""

from dataclasses import dataclass

from . import candidates, compare, editor, fabric, how, sweep, timeline, what_if, why
from .base import JobPane


@dataclass(frozen=True, slots=True)
class Pane:
    """One pane: ``name`` is its id; ``needs_answer`` says whether it has something to show once there is an answer.

    Panes ``together`` are shown at once where the screen is large enough, those of ``whole_width`` under the others.
    One that stands ``alone`` has a small screen for itself.
    """

    name: str
    title: str
    view: type[JobPane]
    together: bool = False
    whole_width: bool = False
    needs_answer: bool = True
    alone: bool = False


PANES = (
    Pane("candidates", candidates.TITLE, candidates.CandidatesPane, together=True),
    Pane("timeline", timeline.TITLE, timeline.TimelinePane, together=True, whole_width=True),
    Pane("why", why.TITLE, why.WhyPane, together=True),
    Pane("how", how.TITLE, how.HowPane),
    Pane("compare", compare.TITLE, compare.ComparePane),
    Pane("fabric", fabric.TITLE, fabric.FabricPane),
    Pane("what_if", what_if.TITLE, what_if.WhatIfPane, needs_answer=False),
    Pane("sweep", sweep.TITLE, sweep.SweepPane),
    Pane("editor", editor.TITLE, editor.EditorPane, needs_answer=False, alone=True),
)
"""Key 1 shows the first, and so on; there are at most nine."""

__all__ = ["PANES", "JobPane", "Pane"]
