"""The sweep of a report: the gain at each value, and the rules that follow."""

from collections.abc import Iterator

from ...advisor.drawing.sweep_svg import sweep_svg
from ...advisor.policy.sweep import Sweep, SweepPoint
from ..text.table import VERDICTS
from .markup import Markup, bullets, table, tag


def sweep_section(sweep: Sweep, name: str) -> Iterator[Markup]:
    """Yield the drawing of a sweep over the parameter ``name``, and its table."""
    if not sweep.points:
        yield tag("p", "No schedule is feasible at any of the values.")
        return
    yield tag("p", "Of templates alone: no search for plans with chunks of unequal size.", kind="faint")
    yield Markup(sweep_svg(sweep.points, name))
    head = (name, "verdict", "schedule", "us", "baseline us", "gain")
    yield table(head, [_row(point, name) for point in sweep.points], words=3)
    yield bullets(f"{name} = {dict(settings)[name]}: {reason}" for settings, reason in sweep.failed)


def _row(point: SweepPoint, name: str) -> tuple[str, ...]:
    advice = point.advice
    return (
        dict(point.settings)[name],
        VERDICTS[advice.verdict.value],
        advice.name_of(advice.recommended.expression),
        f"{advice.recommended.best_us:.1f}",
        f"{advice.serial.best_us:.1f}",
        f"{advice.speedup:.2f}x",
    )
