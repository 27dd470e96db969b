"""What the panes are, in the order of ``PANES``; importing this imports nearly all of Magus."""

from .base import JobPane
from .candidates import CandidatesPane
from .compare import ComparePane
from .editor import EditorPane
from .fabric import FabricPane
from .how import HowPane
from .sweep import SweepPane
from .timeline import TimelinePane
from .what_if import WhatIfPane
from .why import WhyPane

VIEWS: tuple[type[JobPane], ...] = (
    CandidatesPane,
    TimelinePane,
    WhyPane,
    HowPane,
    ComparePane,
    FabricPane,
    WhatIfPane,
    SweepPane,
    EditorPane,
)
