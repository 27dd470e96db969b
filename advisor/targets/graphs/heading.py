"""What every file about a layer begins with, and how its points are told."""

from .... import __version__
from ...policy.graph_sweep import GraphPoint, GraphSweep
from ..base import comments


def heading(sweep: GraphSweep, target: str) -> str:
    """Return comment lines: who wrote the file, for which layer on which system, and how far to trust it."""
    scenario = sweep.points[0].advice.scenario
    marks = (mark for point in sweep.points for mark in point.advice.marks)
    return comments(
        f"Magus {__version__}, magus export --to {target}",
        f"{scenario.name} on {scenario.num_ranks} x {scenario.system.gpu.name}; times simulated, confidence medium",
        *dict.fromkeys(marks),
    )


def settings_text(point: GraphPoint) -> str:
    """Return the parameters of a point: ``M = 8192``; the name of the graph where the file has none."""
    said = ", ".join(f"{name} = {text}" for name, text in point.settings)
    return said or point.advice.scenario.name
