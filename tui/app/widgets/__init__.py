"""The parts of the screen: a workbench of headline, candidates, timeline and reasons, and the help screen."""

from .help import HelpScreen
from .timeline import TimelineView
from .workbench import Workbench

__all__ = ["HelpScreen", "TimelineView", "Workbench"]
