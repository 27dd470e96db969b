"""A sweep as an SVG: the gain of the best schedule at each value, between no gain and what no schedule can beat."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from ...compiler.ir import TICKS_PER_US
from ..candidates.advice import Advice
from ..policy.sweep import SweepPoint
from .svg import document, fitting, number, painted, rect_at, text_at

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900.0, 300.0, 60.0, 20.0, 44.0, 42.0


def sweep_svg(points: Sequence[SweepPoint], name: str) -> str:
    """Return the drawing of ``points`` at the values of the parameter ``name``, in their order; one at least."""
    bounds = [_bound_gain(point.advice) for point in points]
    gains = [point.advice.speedup for point in points]
    most = 1.05 * max(1.05, *gains, *(bound for bound in bounds if bound is not None))
    least = min(0.9, *gains)
    step = (WIDTH - LEFT - RIGHT) / len(points)

    def x(place: int) -> float:
        return LEFT + step * (place + 0.5)

    def y(gain: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (gain - least) / (most - least)

    body = [
        *_winners(points, step),
        *_levels(least, most, y),
        _curve([(x(place), y(bound)) for place, bound in enumerate(bounds) if bound is not None], "curve other"),
        _curve([(x(place), y(gain)) for place, gain in enumerate(gains)], "curve"),
    ]
    for place, point in enumerate(points):
        advice, value = point.advice, dict(point.settings)[name]
        about = f"{name} = {value}: {advice.name_of(advice.recommended.expression)}, {advice.speedup:.2f}x"
        body.append(rect_at(x(place) - 4, y(advice.speedup) - 4, 8, 8, "compute", about))
        body.append(text_at(x(place), HEIGHT - BOTTOM + 16, fitting(value, step), anchor="middle"))
    body.append(text_at(LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 8, name, "faint", "middle"))
    body.append(text_at(12, 18, "gain over the baseline; dashed: what no schedule can beat", "faint"))
    return document(WIDTH, HEIGHT, f"Gain by {name}", body)


def _bound_gain(advice: Advice) -> float | None:
    return None if advice.bound is None else advice.serial.best_us * TICKS_PER_US / advice.bound.ticks


def _winners(points: Sequence[SweepPoint], step: float) -> Iterator[str]:
    """A band for each run of values with the same template and engine, with its name."""
    runs = groupby(enumerate(points), key=lambda one: _family(one[1].advice))
    for number_of_run, (family, run) in enumerate(runs):
        places = [place for place, _ in run]
        left, width = LEFT + step * places[0], step * len(places)
        kind = "band" if number_of_run % 2 == 0 else "paper"
        yield rect_at(left, TOP - 18, width, HEIGHT - TOP - BOTTOM + 18, kind)
        yield text_at(left + 4, TOP - 5, fitting(family, width - 6), "faint")


def _family(advice: Advice) -> str:
    choice = advice.recommended.choice
    name = advice.name_of(advice.recommended.expression)
    return name if choice is None else f"{choice.template}, {choice.engine}"


def _levels(least: float, most: float, y: Callable[[float], float]) -> Iterator[str]:
    steps = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 100)
    step = next((each for each in steps if (most - least) / each <= 6), most - least)
    for place in range(round(least / step), int(most / step) + 1):
        gain = place * step
        if gain >= least:
            line = f"M{number(LEFT)} {number(y(gain))}H{number(WIDTH - RIGHT)}"
            yield f'<path {painted("grid")} d="{line}"/>'
            yield text_at(LEFT - 6, y(gain) + 4, f"{gain:.2f}x", "faint", "end")


def _curve(points: Sequence[tuple[float, float]], kind: str) -> str:
    line = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return f'<path {painted(kind)} d="M{line}"/>' if points else ""
